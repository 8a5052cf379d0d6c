"""Settings: everything that differs between installations is an environment variable (table in README.md)."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Collection
from pathlib import Path

import dj_database_url
from django.core.exceptions import ImproperlyConfigured

# Before numpy is imported: its idle threads spin, which slows whatever computes beside them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

BASE_DIR = Path(__file__).resolve().parent.parent


def secret(name: str) -> str | None:
    """The value of NAME, or the contents of the file that NAME_FILE names."""
    path = os.environ.get(f"{name}_FILE")
    return Path(path).read_text().strip() if path else os.environ.get(name)


def flag(name: str, default: bool) -> bool:
    value = os.environ.get(name, "1" if default else "0").lower()
    if value not in ("0", "1", "true", "false", "yes", "no"):
        raise ImproperlyConfigured(f"{name} must be 0 or 1")
    return value in ("1", "true", "yes")


def whole_number(name: str, default: int) -> int:
    value = os.environ.get(name, str(default))
    if not value.isascii() or not value.isdigit() or not 1 <= int(value[:10]) <= 10**9:
        raise ImproperlyConfigured(f"{name} must be a whole number from 1 to 1,000,000,000")
    return int(value)


def choice(name: str, default: str, choices: Collection[str]) -> str:
    value = os.environ.get(name, default)
    if value not in choices:
        raise ImproperlyConfigured(f"{name} must be one of {', '.join(choices)}")
    return value


DATA_DIR = Path(os.environ.get("RECALL_DATA_DIR", BASE_DIR / "var")).resolve()
try:
    DATA_DIR.mkdir(parents=True, exist_ok=True)
except OSError as error:
    raise ImproperlyConfigured(f"RECALL_DATA_DIR cannot be made: {error}") from error


def _secret_key() -> str:
    given = secret("RECALL_SECRET_KEY")
    if given:
        if len(given) < 50:
            raise ImproperlyConfigured("RECALL_SECRET_KEY has fewer than 50 characters")
        return given
    kept = DATA_DIR / "secret_key"
    if not kept.exists():
        made = kept.with_suffix(f".{os.getpid()}")
        made.touch(mode=0o600)
        made.write_text(secrets.token_urlsafe(50))
        try:
            os.link(made, kept)  # fails where another process was first: then that one's key counts
        except FileExistsError:
            pass
        finally:
            made.unlink()
    return kept.read_text().strip()


SECRET_KEY = _secret_key()


def _ledger_key() -> bytes | None:
    given = secret("RECALL_LEDGER_KEY")
    if given is not None and len(given) < 32:
        raise ImproperlyConfigured("RECALL_LEDGER_KEY has fewer than 32 characters")
    return None if given is None else given.encode()


DEBUG = flag("RECALL_DEBUG", False)
ALLOWED_HOSTS = os.environ.get("RECALL_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]").split(",")
CSRF_TRUSTED_ORIGINS = [o for o in os.environ.get("RECALL_TRUSTED_ORIGINS", "").split(",") if o]
HTTPS = flag("RECALL_HTTPS", False)

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "django_htmx",
    "template_partials",
    "csp",
    "ledger",
    "vault",
    "recall",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "recall.middleware.request_id",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "recall.urls"
WSGI_APPLICATION = "recall.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
            "libraries": {"audit": "recall.pages.templatetags.audit"},
        },
    }
]

DATABASES = {
    "default": dj_database_url.parse(
        secret("DATABASE_URL") or f"sqlite:///{DATA_DIR / 'recall.sqlite3'}", conn_max_age=None
    )
}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",  # a writer waits for the lock at the start, never in the middle
        "timeout": 20,
        "init_command": (
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA cache_size=-4096; "
            "PRAGMA temp_store=MEMORY; PRAGMA mmap_size=134217728; PRAGMA secure_delete=ON; "
            "PRAGMA wal_autocheckpoint=20000;"  # 80 MB; `serve` moves the log long before, beside the requests
        ),
    }

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "sign-in"
LOGIN_REDIRECT_URL = "overview"
LOGOUT_REDIRECT_URL = "sign-in"

LANGUAGE_CODE = "en-gb"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"

STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = DATA_DIR / "static"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}

SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = HTTPS
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = HTTPS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if flag("RECALL_BEHIND_PROXY", False) else None
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 32 * 1024 * 1024  # for bulk; recall.api.parsing holds other bodies to 2 MB

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
    }
}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["recall.api.access.KeyAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["recall.api.access.HasScope"],
    "DEFAULT_THROTTLE_CLASSES": ["recall.api.access.KeyThrottle"],
    "DEFAULT_PARSER_CLASSES": ["recall.api.parsing.JSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["recall.api.parsing.JSONRenderer"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "recall.api.errors.envelope",
    "UNAUTHENTICATED_USER": None,
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Recall Ledger",
    "DESCRIPTION": "Memory for AI agents: every hit carries its validity, and every recall its record.",
    "VERSION": "0.1.0",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
}

RATE_LIMIT_PER_MINUTE = whole_number("RECALL_RATE_LIMIT", 6000)
GUARDS = [  # tables that are written once; the database refuses to change them (ledger/triggers.py)
    "ledger.triggers.EVENTS",
    "ledger.triggers.TOMBSTONES",
    "ledger.triggers.SUPERSESSIONS",
    "ledger.triggers.OPERATIONS",
    "recall.guards.RECORDS",
    "recall.guards.HITS",
    "recall.guards.EVENTS",
]
LEDGER_KEY = _ledger_key()
# Who is told, in the transaction, which events' standing changed.
LEDGER_SUPERSESSION_HOOKS = ["vault.services.note_supersession"]
LEDGER_READABLE = (
    "recall.people.readable_in_administration"  # which workspaces a user sees in the administration
)
LEDGER_ERASERS = ["recall.records.ERASER"]  # who else keeps texts of events and memories (ledger/erasure.py)
OUTBOX_LEASE_MS = whole_number("RECALL_OUTBOX_LEASE_MS", 60_000)  # longer than any handler takes
OUTBOX_HANDLERS = {  # what delivers each kind of outbox entry
    "context": "recall.banks.deliver",
    "erasure": "recall.banks.deliver",
}
LEDGER_WITNESSES = ["recall.queries.witnessed_heads"]  # who remembers heads of the ledger, as (seq, hash)
RECALL_INDEXES = {
    "resident": "recall.indexes.resident.ResidentIndex",
    "sqlite": "recall.indexes.sqlite.SqliteIndex",
}
RECALL_INDEX = choice("RECALL_INDEX", "resident", RECALL_INDEXES)
RECALL_EMBEDDERS = {
    "minilm": "recall.embedders.minilm.MiniLM",
    "openai": "recall.embedders.http.OpenAICompatible",
}
RECALL_EMBEDDER = os.environ.get("RECALL_EMBEDDER", "minilm")  # one of these names, or a dotted path
if RECALL_EMBEDDER not in RECALL_EMBEDDERS and "." not in RECALL_EMBEDDER:
    raise ImproperlyConfigured(
        f"RECALL_EMBEDDER must be one of {', '.join(RECALL_EMBEDDERS)}, or a dotted path"
    )
VAULT_EMBEDDER = "recall.embedders.installed"  # the vault asks for vectors upward, through this path
EMBED_DEADLINE_MS = whole_number("RECALL_EMBED_DEADLINE_MS", 500)  # what a single write waits for its vector
EMBEDDER_HTTP = {
    "url": os.environ.get("RECALL_EMBEDDER_URL", ""),
    "model": os.environ.get("RECALL_EMBEDDER_MODEL", ""),
    "api_key": secret("RECALL_EMBEDDER_API_KEY"),
    "timeout_ms": whole_number("RECALL_EMBEDDER_TIMEOUT_MS", 5000),
}
RECALL_RERANKERS = {"http": "recall.rerankers.http.HttpReranker"}
RECALL_RERANKER = os.environ.get("RECALL_RERANKER", "")  # a name, or a dotted path; none: `rerank` is refused
RERANKER_HTTP = {
    "url": os.environ.get("RECALL_RERANKER_URL", ""),
    "model": os.environ.get("RECALL_RERANKER_MODEL", ""),
    "api_key": secret("RECALL_RERANKER_API_KEY"),
    "timeout_ms": whole_number("RECALL_RERANKER_TIMEOUT_MS", 2000),
}
if RECALL_RERANKER and RECALL_RERANKER not in RECALL_RERANKERS and "." not in RECALL_RERANKER:
    raise ImproperlyConfigured(
        f"RECALL_RERANKER must be one of {', '.join(RECALL_RERANKERS)}, or a dotted path"
    )
if RECALL_RERANKER == "http" and not RERANKER_HTTP["url"]:
    raise ImproperlyConfigured("RECALL_RERANKER_URL must be set where RECALL_RERANKER is http")

MEMORY_BANKS = {"local": "recall.banks.local.LocalBank", "hindsight": "recall.banks.hindsight.HindsightBank"}
MEMORY_BANK = choice("MEMORY_BANK", "local", MEMORY_BANKS)
HINDSIGHT = {
    "url": os.environ.get("HINDSIGHT_URL", ""),
    "api_key": secret("HINDSIGHT_API_KEY"),
    "bank_prefix": os.environ.get("HINDSIGHT_BANK_PREFIX", "recall-ledger"),
    "timeout_ms": whole_number("HINDSIGHT_TIMEOUT_MS", 5000),
}
if MEMORY_BANK == "hindsight" and not HINDSIGHT["url"]:
    raise ImproperlyConfigured("HINDSIGHT_URL must be set where MEMORY_BANK is hindsight")
if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", str(HINDSIGHT["bank_prefix"])):
    raise ImproperlyConfigured("HINDSIGHT_BANK_PREFIX must be 1 to 64 letters, digits, _ or -")

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "loggers": {"httpx": {"level": "WARNING"}},  # below, it logs whole addresses: they can hold a password
    "root": {
        "handlers": ["stderr"],
        "level": choice("RECALL_LOG_LEVEL", "WARNING", ["DEBUG", "INFO", "WARNING", "ERROR"]),
    },
}
