"""The network all-MiniLM-L6-v2 as an ONNX graph with int8 weights, made from the official float weights.

A BERT encoder (Devlin et al. 2018) of 6 layers, 12 heads and 384 dimensions, mean pooling, unit length. Embeddings
come in as floats; layer norms, attention and GELU stay in floats; the weights of the linear layers are int8 with one
scale for each output, their inputs are quantised as they come (DynamicQuantizeMatMul of onnxruntime).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from recall.embedders import onnx_format

if TYPE_CHECKING:
    from numpy.typing import NDArray

LAYERS, HEADS, DIM = 6, 12, 384
EPSILON = 1e-12  # of the layer norms
LEVELS = 63  # of an int8 weight, each way: with more, pairs of products overflow on processors without VNNI
MICROSOFT = "com.microsoft"  # onnxruntime's own operators

Weights = Mapping[str, "NDArray[np.float32]"]


@dataclass
class _Graph:
    """Nodes and constants in the order in which they were added; values are named by their number."""

    nodes: list[bytes] = field(default_factory=list)
    constants: list[bytes] = field(default_factory=list)

    def constant(self, array: NDArray[Any]) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(onnx_format.constant(array, name))
        return name

    def add(self, operator: str, *inputs: str, domain: str = "", **attributes: float) -> str:
        """Add an operator; the name of its output."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(onnx_format.node(operator, inputs, [name], domain=domain, attributes=attributes))
        return name

    def thirds(self, x: str) -> list[str]:
        names = [f"v{len(self.nodes)}.{place}" for place in range(3)]
        attributes = {"axis": -1, "num_outputs": 3}
        self.nodes.append(onnx_format.node("Split", [x], names, attributes=attributes))
        return names

    def linear(self, x: str, weight: NDArray[np.float32], bias: NDArray[np.float32]) -> str:
        """x · weightᵀ + bias, with an int8 weight of one scale for each output."""
        scale = (np.abs(weight).max(axis=1) / LEVELS).astype(np.float32)
        rounded = np.rint(weight.T / scale).astype(np.int8)
        zero = np.zeros(scale.shape, np.int8)
        constants = [self.constant(array) for array in (rounded, scale, zero, bias)]
        return self.add("DynamicQuantizeMatMul", x, *constants, domain=MICROSOFT)

    def normed_sum(self, x: str, skipped: str, gain: NDArray[np.float32], bias: NDArray[np.float32]) -> str:
        # Two plain operators: SkipLayerNormalization, which does both, took three times as long.
        total = self.add("Add", x, skipped)
        constants = [self.constant(array) for array in (gain, bias)]
        return self.add("LayerNormalization", total, *constants, axis=-1, epsilon=EPSILON)


def onnx_bytes(weights: Weights) -> bytes:
    """The graph: input `embedded` (1, pieces, 384), its only output (1, 384) of unit length, both float32."""
    graph = _Graph()
    gain, bias = (graph.constant(weights[f"embeddings.LayerNorm.{part}"]) for part in ("weight", "bias"))
    x = graph.add("LayerNormalization", "embedded", gain, bias, axis=-1, epsilon=EPSILON)
    for layer in range(LAYERS):
        x = _layer(graph, x, weights, f"encoder.layer.{layer}")
    mean = graph.add("ReduceMean", x, graph.constant(np.array([1], np.int64)), keepdims=0)
    vector = graph.add("LpNormalization", mean, axis=1, p=2)
    return onnx_format.model(
        "all-MiniLM-L6-v2",
        graph.nodes,
        graph.constants,
        given=onnx_format.floats("embedded", (1, "pieces", DIM)),
        found=onnx_format.floats(vector, (1, DIM)),
        opsets={"": 18, MICROSOFT: 1},
    )


def _layer(graph: _Graph, x: str, weights: Weights, name: str) -> str:
    def pair(part: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return weights[f"{name}.{part}.weight"], weights[f"{name}.{part}.bias"]

    heads = [pair(f"attention.self.{part}") for part in ("query", "key", "value")]
    joined = graph.linear(
        x, np.concatenate([weight for weight, _ in heads]), np.concatenate([bias for _, bias in heads])
    )
    attended = graph.add("MultiHeadAttention", *graph.thirds(joined), domain=MICROSOFT, num_heads=HEADS)
    y = graph.linear(attended, *pair("attention.output.dense"))
    x = graph.normed_sum(y, x, *pair("attention.output.LayerNorm"))
    y = graph.add("Gelu", graph.linear(x, *pair("intermediate.dense")), domain=MICROSOFT)
    return graph.normed_sum(graph.linear(y, *pair("output.dense")), x, *pair("output.LayerNorm"))
