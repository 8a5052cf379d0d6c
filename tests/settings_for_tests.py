"""The product's settings in a data directory of this test process alone, whatever the environment says."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

_asked_for = {
    "RECALL_REQUIRE_BROWSER",
    "RECALL_REQUIRE_POSTGRESQL",
    "RECALL_REQUIRE_HINDSIGHT",
    "RECALL_HINDSIGHT_VENVS",
    "RECALL_TEST_DATABASE_URL",
}
_ours = ("RECALL_", "DATABASE_URL", "MEMORY_BANK", "HINDSIGHT_")
for _name in [name for name in os.environ if name.startswith(_ours)]:
    if _name not in _asked_for:
        del os.environ[_name]
if "RECALL_TEST_DATABASE_URL" in os.environ:  # tests/ledger/test_on_postgresql.py
    os.environ["DATABASE_URL"] = os.environ["RECALL_TEST_DATABASE_URL"]
os.environ["RECALL_DATA_DIR"] = tempfile.mkdtemp(prefix="recall-ledger-tests-")
atexit.register(shutil.rmtree, os.environ["RECALL_DATA_DIR"], ignore_errors=True)

from recall.settings import *  # noqa: E402, F403
from recall.settings import DATA_DIR, DATABASES, STATIC_ROOT, STORAGES  # noqa: E402

if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    # A file and not memory: WAL and BEGIN IMMEDIATE, on which the ledger relies, exist only there.
    DATABASES["default"]["TEST"] = {"NAME": str(DATA_DIR / "test.sqlite3")}
# Plain names, served from where they lie: hashed ones need collectstatic before a page renders.
STORAGES["staticfiles"] = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
WHITENOISE_USE_FINDERS = WHITENOISE_AUTOREFRESH = True
STATIC_ROOT.mkdir()
# A password hash that takes half a second is right for people and wrong for a thousand sign-ins.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
