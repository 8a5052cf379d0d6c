"""The network all-MiniLM-L6-v2 as an ONNX graph with int8 weights, made in memory from the official float weights.

A BERT encoder (Devlin et al. 2018) of 6 layers, 12 heads and 384 dimensions, mean pooling, unit length. Embeddings
come in as floats; layer norms, attention and GELU stay in floats; the weights of the linear layers are int8 with one
scale for each output, their inputs are quantised as they come (DynamicQuantizeMatMul of onnxruntime).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

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

    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def constant(self, array: NDArray[Any]) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def add(self, operator: str, *inputs: str, domain: str = "", outputs: int = 1, **attributes: Any) -> Any:
        """Add an operator; the name of its output, or a list of names where it has several."""
        names = [f"v{len(self.nodes)}.{place}" for place in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def linear(self, x: str, weight: NDArray[np.float32], bias: NDArray[np.float32]) -> str:
        """x · weightᵀ + bias, with an int8 weight of one scale for each output."""
        scale = (np.abs(weight).max(axis=1) / LEVELS).astype(np.float32)
        rounded = np.rint(weight.T / scale).astype(np.int8)
        zero = np.zeros(scale.shape, np.int8)
        constants = [self.constant(array) for array in (rounded, scale, zero, bias)]
        added: str = self.add("DynamicQuantizeMatMul", x, *constants, domain=MICROSOFT)
        return added

    def normed_sum(self, x: str, skipped: str, gain: NDArray[np.float32], bias: NDArray[np.float32]) -> str:
        # Two plain operators: SkipLayerNormalization, which does both, took three times as long.
        total = self.add("Add", x, skipped)
        constants = [self.constant(array) for array in (gain, bias)]
        normed: str = self.add("LayerNormalization", total, *constants, axis=-1, epsilon=EPSILON)
        return normed


def onnx_bytes(weights: Weights) -> bytes:
    """The graph: input `embedded` (1, pieces, 384), output `vector` (1, 384) of unit length, both float32."""
    graph = _Graph()
    gain, bias = (graph.constant(weights[f"embeddings.LayerNorm.{part}"]) for part in ("weight", "bias"))
    x = graph.add("LayerNormalization", "embedded", gain, bias, axis=-1, epsilon=EPSILON)
    for layer in range(LAYERS):
        x = _layer(graph, x, weights, f"encoder.layer.{layer}")
    mean = graph.add("ReduceMean", x, graph.constant(np.array([1], np.int64)), keepdims=0)
    graph.nodes.append(helper.make_node("LpNormalization", [mean], ["vector"], axis=1, p=2))
    made = helper.make_graph(
        graph.nodes,
        "all-MiniLM-L6-v2",
        [helper.make_tensor_value_info("embedded", TensorProto.FLOAT, [1, "pieces", DIM])],
        [helper.make_tensor_value_info("vector", TensorProto.FLOAT, [1, DIM])],
        graph.constants,
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(MICROSOFT, 1)]
    serialized: bytes = helper.make_model(made, opset_imports=opsets, ir_version=9).SerializeToString()
    return serialized


def _layer(graph: _Graph, x: str, weights: Weights, name: str) -> str:
    def pair(part: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return weights[f"{name}.{part}.weight"], weights[f"{name}.{part}.bias"]

    heads = [pair(f"attention.self.{part}") for part in ("query", "key", "value")]
    joined = graph.linear(
        x, np.concatenate([weight for weight, _ in heads]), np.concatenate([bias for _, bias in heads])
    )
    split = graph.add("Split", joined, outputs=3, axis=-1, num_outputs=3)
    attended = graph.add("MultiHeadAttention", *split, domain=MICROSOFT, num_heads=HEADS)
    y = graph.linear(attended, *pair("attention.output.dense"))
    x = graph.normed_sum(y, x, *pair("attention.output.LayerNorm"))
    y = graph.add("Gelu", graph.linear(x, *pair("intermediate.dense")), domain=MICROSOFT)
    return graph.normed_sum(graph.linear(y, *pair("output.dense")), x, *pair("output.LayerNorm"))
