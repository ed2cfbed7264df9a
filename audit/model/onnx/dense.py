"""Bring every dense layer, however the exporter wrote it, into the one form y = x Wᵀ + b."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, helper

from audit.model.canon import Product, layer_name, matrix_product
from audit.model.onnx.graph import (
    FLOATS,
    Array,
    TensorType,
    add_constant,
    attributes,
    constants,
    fresh,
    infer_types,
    skip_final_identities,
    to_array,
    uses,
)
from audit.model.onnx.layer import DENSE_DOMAIN, Layer, has_fused_batchnorm, keep_sample_axis, node_scope, write_layers

ACTIVATION = "activation"
"""Attributes of onnxruntime's FusedGemm that belong to the activation in it: activation_alpha is its alpha."""


def rewrite_dense(model: ModelProto) -> tuple[str, ...]:
    """Replace all dense patterns in the graph by Dense nodes; sentences about what an exporter did to the weights."""
    graph = model.graph
    convolutions = [node for node in graph.node if node.op_type == "Conv" and has_fused_batchnorm(node)]
    merged = [layer_name(node.input[1], "", node_scope(node)) or node.name for node in convolutions]
    finder = _Finder(model)
    parts = finder.with_biases([finder.look(node) for node in graph.node])
    layers = write_layers(graph, parts)
    keep_sample_axis(graph, DENSE_DOMAIN)
    skip_final_identities(graph)
    if all(entry.domain != DENSE_DOMAIN for entry in model.opset_import):
        model.opset_import.append(helper.make_opsetid(DENSE_DOMAIN, 1))
    merged += [layer.name for layer in layers if layer.absorbed_batchnorm]
    if not merged:
        return ()
    return (
        f"The exporter has merged a BatchNorm into {', '.join(sorted(merged))}: the weights audited there are not "
        "the ones that were trained.",
    )


class _Finder:
    """Looks at one node after the other, knowing the constants and shapes around it."""

    def __init__(self, model: ModelProto):
        self.graph = model.graph
        self.known, self.types, self.counts = constants(self.graph), infer_types(model), uses(self.graph)
        self.rules: dict[str, Callable[[NodeProto], Layer | None]] = {
            "Gemm": self._gemm,
            "FusedGemm": self._gemm,
            "MatMul": self._matmul,
            "FusedMatMul": self._matmul,
            "Einsum": self._einsum,
        }

    def look(self, node: NodeProto) -> NodeProto | Layer:
        """The layer in a node, or the node."""
        rule = self.rules.get(node.op_type)
        return (rule(node) if rule else None) or node

    def with_biases(self, parts: list[NodeProto | Layer]) -> list[NodeProto | Layer]:
        """Take the constant vector that is added to a layer's product into the layer."""
        made = {part.output: part for part in parts if isinstance(part, Layer)}
        result: list[NodeProto | Layer] = []
        for part in parts:
            found = None if isinstance(part, Layer) else self._added(part, made)
            if found is not None:
                layer, grown = found
                result[next(i for i, other in enumerate(result) if other is layer)] = grown
            else:
                result.append(part)
        return result

    def _added(self, node: NodeProto, made: dict[str, Layer]) -> tuple[Layer, Layer] | None:
        if node.op_type != "Add":
            return None
        for product, vector in (node.input, reversed(node.input)):
            layer = made.get(product)
            alone = vector in self.known and self.counts[product] == 1
            if layer is None or not alone or layer.after or layer.bias is not None:
                continue
            bias = self._vector(to_array(self.known[vector]), len(layer.weight), self._rank(product))
            if bias is not None:
                return layer, replace(layer, bias=bias, bias_name=self._origin(vector), output=node.output[0])
        return None

    # the patterns

    def _gemm(self, node: NodeProto) -> Layer | None:
        """Y = α A' B' + β C with A or B constant."""
        options = attributes(node)
        side = self._weight_side(node)
        if side is None:
            return None
        flags = (options.get("transA", 0), options.get("transB", 0))
        layer = self._product(node, node.doc_string or "gemm", side, flags, options.get("alpha", 1.0))
        if layer is None:
            return None
        layer = self._with_addend(layer, node.input[2] if len(node.input) > 2 else "", options.get("beta", 1.0))
        return self._with_activation(layer, options)

    def _matmul(self, node: NodeProto) -> Layer | None:
        """A B with a constant matrix on either side, scaled and transposed in onnxruntime's FusedMatMul."""
        options = attributes(node)
        side = self._weight_side(node)
        if side is None or options.get("transBatchA") or options.get("transBatchB"):
            return None
        flags = (options.get("transA", 0), options.get("transB", 0))
        return self._product(node, "matmul", side, flags, options.get("alpha", 1.0))

    def _product(self, node: NodeProto, kind: str, side: int, flags: tuple[int, int], alpha: float) -> Layer | None:
        """With the weight on the right, x W'; with it on the left, W' x = (xᵀ W'ᵀ)ᵀ."""
        matrix = self._matrix(node.input[side], self._rank(node.input[1 - side]))
        rank = self._rank(node.input[1 - side]) if "MatMul" in node.op_type else 2
        if matrix is None or (rank is not None and rank < 2):
            return None
        as_stored = bool(flags[1]) if side == 1 else not flags[0]
        weight = matrix if as_stored else matrix.T
        weight = weight if alpha == 1 else (weight * np.asarray(alpha, dtype=weight.dtype))
        turn_x = bool(flags[0]) if side == 1 else not flags[1]
        return self._layer(node, kind, side, weight, rank, turn_x)

    def _layer(
        self, node: NodeProto, kind: str, side: int, weight: Array, rank: int | None, turn_x: bool
    ) -> Layer | None:
        x, output, turn_y = node.input[1 - side], node.output[0], side == 0
        if (turn_x or turn_y) and rank is None:
            return None
        before: tuple[NodeProto, ...] = ()
        after: tuple[NodeProto, ...] = ()
        if turn_x:
            turned = fresh(self.graph, f"{output}/x")
            before, x = (self._turn(x, turned, rank or 2),), turned
        if turn_y:
            after = (self._turn(fresh(self.graph, f"{output}/y"), output, rank or 2),)
        name = node.input[side]
        return Layer(node, kind, x, weight, name, self._origin(name), output, before=before, after=after)

    def _einsum(self, node: NodeProto) -> Layer | None:
        """An equation that is a matrix product, with its axes merged before and split after where need be."""
        side = self._weight_side(node, ranks=range(2, 9)) if len(node.input) == 2 else None
        product = matrix_product(attributes(node)["equation"], side) if side is not None else None
        if product is None or side is None or (product.kept is None and max(product.ins, product.outs) > 1):
            return None
        array = to_array(self.known[node.input[side]]).transpose(product.order)
        weight = array.reshape(int(np.prod(array.shape[: product.outs])), -1)
        name, output = node.input[side], node.output[0]
        layer = Layer(node, "einsum", node.input[1 - side], weight, name, self._origin(name), output)
        return self._reshaped(layer, product, array.shape[: product.outs])

    def _reshaped(self, layer: Layer, product: Product, outs: tuple[int, ...]) -> Layer:
        if product.ins > 1:
            merged = fresh(self.graph, f"{layer.output}/merged")
            shape = self._constant(f"{layer.output}/ins", [0] * (product.kept or 0) + [-1])
            layer = replace(layer, x=merged, before=(helper.make_node("Reshape", [layer.x, shape], [merged]),))
        if product.outs > 1:
            split = fresh(self.graph, f"{layer.output}/product")
            shape = self._constant(f"{layer.output}/outs", [0] * (product.kept or 0) + list(outs))
            layer = replace(layer, after=(helper.make_node("Reshape", [split, shape], [layer.output]),))
        return layer

    # what follows the product inside the same node

    def _with_addend(self, layer: Layer, addend: str, beta: float) -> Layer:
        if not addend or beta == 0:
            return layer
        bias = self._vector(to_array(self.known[addend]), len(layer.weight), 2) if addend in self.known else None
        if bias is not None and not layer.after:
            scaled = bias if beta == 1 else bias * np.asarray(beta, dtype=bias.dtype)
            return replace(layer, bias=scaled, bias_name=self._origin(addend))
        if beta != 1:
            scaled_addend = fresh(self.graph, f"{layer.output}/addend")
            factor = self._constant(f"{layer.output}/beta", np.asarray(beta, dtype=layer.weight.dtype))
            layer = replace(layer, before=(*layer.before, helper.make_node("Mul", [addend, factor], [scaled_addend])))
            addend = scaled_addend
        return self._followed(layer, lambda y, output: helper.make_node("Add", [y, addend], [output]))

    def _with_activation(self, layer: Layer, options: dict[str, Any]) -> Layer:
        activation = options.get(ACTIVATION)
        if not activation:
            return layer
        own = {key[len(ACTIVATION) + 1 :]: value for key, value in options.items() if key.startswith(f"{ACTIVATION}_")}
        return self._followed(layer, lambda y, output: helper.make_node(str(activation), [y], [output], **own))

    def _followed(self, layer: Layer, step: Callable[[str, str], NodeProto]) -> Layer:
        """One more node between the layer and its output."""
        y = fresh(self.graph, f"{layer.output}/step{len(layer.after)}")
        after = list(layer.after)
        if after:
            after[-1].output[0] = y
        return replace(layer, after=(*after, step(y, layer.output)))

    # small questions

    def _weight_side(self, node: NodeProto, ranks: range = range(2, 9)) -> int | None:
        """Which input is the constant float matrix."""
        for side in (1, 0):
            tensor = self.known.get(node.input[side])
            if tensor is not None and tensor.data_type in FLOATS and len(tensor.dims) in ranks:
                return side
        return None

    def _matrix(self, name: str, other_rank: int | None) -> Array | None:
        """A constant as a matrix; leading axes of size 1 are dropped where the other factor has as many axes."""
        array = to_array(self.known[name])
        extra = array.ndim - 2
        if extra == 0:
            return array
        fits = other_rank is not None and other_rank >= array.ndim and array.shape[:extra] == (1,) * extra
        return array.reshape(array.shape[extra:]) if fits else None

    def _vector(self, array: Array, out: int, rank: int | None) -> Array | None:
        """A constant that adds the same vector [out] to every row, without growing the result."""
        leading = array.ndim - 1
        same_rank = array.ndim <= 2 or (rank is not None and array.ndim <= rank)
        if array.ndim and (array.shape[-1] not in (1, out) or array.shape[:-1] != (1,) * leading or not same_rank):
            return None
        return np.ascontiguousarray(np.broadcast_to(array.reshape(-1), (out,)))

    def _rank(self, name: str) -> int | None:
        shape = self.types.get(name, TensorType()).shape
        return None if shape is None else len(shape)

    def _origin(self, name: str) -> str:
        return self.known[name].doc_string or name

    def _turn(self, source: str, result: str, rank: int) -> NodeProto:
        perm = [*range(rank - 2), rank - 1, rank - 2]
        return helper.make_node("Transpose", [source], [result], perm=perm)

    def _constant(self, stem: str, value: object) -> str:
        return add_constant(self.graph, fresh(self.graph, stem), np.asarray(value))
