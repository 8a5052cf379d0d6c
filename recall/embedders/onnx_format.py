"""The few messages of the ONNX format that a small graph needs, as protobuf bytes.

Field numbers are those of onnx.proto, which never change. The package onnx writes the same, but leaves 24 MB more in
every worker, and importing it takes as long as making the embedder.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

FLOAT = 1
TYPES = {"float32": FLOAT, "int8": 3, "int64": 7}


def node(
    operator: str,
    inputs: Iterable[str],
    outputs: Iterable[str],
    *,
    domain: str = "",
    attributes: Mapping[str, float],
) -> bytes:
    """NodeProto; an attribute is a whole number or a float."""
    return b"".join(
        [
            *(_text(1, name) for name in inputs),
            *(_text(2, name) for name in outputs),
            _text(4, operator),
            *(_block(5, _attribute(name, value)) for name, value in attributes.items()),
            _text(7, domain),
        ]
    )


def constant(array: NDArray[Any], name: str) -> bytes:
    """TensorProto."""
    dims = b"".join(_number(1, size) for size in array.shape)
    return (
        dims
        + _number(2, TYPES[array.dtype.name])
        + _text(8, name)
        + _block(9, np.ascontiguousarray(array).tobytes())
    )


def floats(name: str, shape: Iterable[int | str]) -> bytes:
    """ValueInfoProto of an input or an output; a size that varies has a name."""
    dims = (_number(1, size) if isinstance(size, int) else _text(2, size) for size in shape)
    tensor = _number(1, FLOAT) + _block(2, b"".join(_block(1, dim) for dim in dims))
    return _text(1, name) + _block(2, _block(1, tensor))


def model(
    name: str,
    nodes: Iterable[bytes],
    constants: Iterable[bytes],
    *,
    given: bytes,
    found: bytes,
    opsets: Mapping[str, int],
) -> bytes:
    """ModelProto, with its GraphProto."""
    graph = [
        *(_block(1, one) for one in nodes),
        _text(2, name),
        *(_block(5, one) for one in constants),
        _block(11, given),
        _block(12, found),
    ]
    versions = (_block(8, _text(1, domain) + _number(2, version)) for domain, version in opsets.items())
    return b"".join([_number(1, 9), _block(7, b"".join(graph)), *versions])


def _attribute(name: str, value: float) -> bytes:
    if isinstance(value, int):
        return _text(1, name) + _number(3, value) + _number(20, 2)
    return _text(1, name) + _varint(2 << 3 | 5) + struct.pack("<f", value) + _number(20, 1)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _text(field: int, value: str) -> bytes:
    return _block(field, value.encode())


def _block(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; a negative number as its 64 bits."""
    value &= 2**64 - 1
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)
