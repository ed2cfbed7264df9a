"""Every matrix product with a weight becomes a call of an `nn.Linear`, whatever operator the file wrote it with.

linear(x, W, b), addmm(b, x, Wᵀ), mm(x, Wᵀ), x @ Wᵀ (+ b) and einsum("bi,oi->bo", x, W) are one and the same layer
z = W x + b. A weight used twice with the same bias is one module called twice. Where one is used as W and as Wᵀ, the
first of the two is the layer, as in ONNX files, which do not say how a weight was kept; the other stays an operator
on the layer's weight: as a layer it would have weights of its own.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor, nn

from audit.model.canon import Product as EinsumProduct
from audit.model.canon import matrix_product
from audit.model.torch.graph import Constants, Node, WorkingGraph, arguments, aten

TRANSPOSES = (aten.t.default, aten.transpose.int, aten.permute.default, aten.numpy_T.default)
ADDS = (aten.add.Tensor,)
WRITTEN_AS = "written_as"
"""Where a node notes the operator that the file wrote in its place."""


class Product(NamedTuple):
    """x times a constant matrix: as [out, in] if `rows_are_outputs`, else as [in, out]; and perhaps a bias."""

    x: Node
    matrix: Node
    rows_are_outputs: bool
    bias: Node | None
    op: str


def dense_layers(work: WorkingGraph, constants: Constants) -> None:
    """Rewrites every product with a constant matrix in `work`."""
    _write_einsums(work, constants)
    made: dict[object, str] = {}
    weights: set[tuple[object, bool]] = set()  # matrices, each with the way round in which it is a layer's weight
    for node in list(work.graph.nodes):
        product = _product(node, constants)
        if product is None:
            continue
        node, product = _with_added_bias(node, product, constants)
        matrix, bias = constants.key(product.matrix), constants.key(product.bias)
        if constants.is_parameter(product.matrix) and (matrix, not product.rows_are_outputs) in weights:
            continue
        key = (matrix, product.rows_are_outputs, bias)
        weights.add(key[:2])
        if key not in made:
            made[key] = _new_layer(work, node, product, constants)
        work.replace(node, made[key], (product.x,), kind="call_module")


def _new_layer(work: WorkingGraph, node: Node, product: Product, constants: Constants) -> str:
    weight = constants.parameter(product.matrix, transposed=not product.rows_are_outputs)
    bias = None if product.bias is None else constants.parameter(product.bias, flat=True)
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = weight
    layer.register_parameter("bias", bias)
    if not product.rows_are_outputs and constants.is_parameter(product.matrix):
        work.transposed[constants.value(product.matrix)] = weight
    wish, display = constants.label(product.matrix, product.bias)
    path = work.free_path(wish, node)
    work.modules[path], work.ops[path] = layer, product.op
    if display not in (path, *work.names.values(), *work.modules):
        work.names[path] = display
    return path


def keep_sample_axis(work: WorkingGraph) -> None:
    """Turns reshape → dense → reshape into reshape → dense, on the second shape.

    nn.MultiheadAttention flattens [tokens, samples, width] before its out_proj, so that a sample's rows lie scattered;
    a dense layer does not mind the shape before the features, but whoever looks at single samples does.
    """
    for node in [node for node in work.graph.nodes if node.op == "call_module" and node.target in work.ops]:
        layer, (flat,), users = work.modules[node.target], node.args, list(node.users)
        if flat.target is not aten.reshape.default or len(users) != 1 or users[0].target is not aten.reshape.default:
            continue
        before, after = flat.args[1], users[0].args[1]
        if len(before) == 2 and before[1] == layer.in_features and after[-1] == layer.out_features:
            with work.graph.inserting_before(users[0]):
                rows = work.graph.call_function(aten.reshape.default, (flat.args[0], [*after[:-1], before[1]]))
            work.replace(users[0], node.target, (rows,), kind="call_module")
            work.graph.erase_node(node)


def _product(node: Node, constants: Constants) -> Product | None:
    """What `node` multiplies, if it is x times a constant matrix."""
    found = _as_written(node)
    if found is None or constants.is_constant(found.x) or not constants.is_constant(found.matrix):
        return None
    matrix = constants.value(found.matrix)
    outputs = matrix.shape[0 if found.rows_are_outputs else -1]
    if matrix.dim() != 2 or not matrix.is_floating_point() or not _fits(found.bias, outputs, constants):
        return None
    if found.matrix.target in TRANSPOSES and found.matrix.op == "call_function":
        (source,) = found.matrix.all_input_nodes
        if constants.value(source).T.shape == matrix.shape and constants.value(source).T.equal(matrix):
            return found._replace(matrix=source, rows_are_outputs=not found.rows_are_outputs)
    return found


def _fits(bias: Node | None, outputs: int, constants: Constants) -> bool:
    """Whether `bias` is none, or a constant with one number per output."""
    if bias is None:
        return True
    if not constants.is_constant(bias):
        return False
    value: Tensor = constants.value(bias)
    return value.numel() == outputs == value.shape[-1] if value.dim() else False


def _as_written(node: Node) -> Product | None:
    if node.op != "call_function":
        return None
    if node.target is aten.linear.default:
        given = arguments(node)
        return Product(given["input"], given["weight"], True, given["bias"], node.meta.get(WRITTEN_AS, "linear"))
    if node.target is aten.addmm.default:
        given = arguments(node)
        unscaled = given["alpha"] == 1 and given["beta"] == 1
        return Product(given["mat1"], given["mat2"], False, given["self"], "addmm") if unscaled else None
    if node.target in (aten.mm.default, aten.matmul.default):
        x, matrix = node.args
        return Product(x, matrix, False, None, "mm" if node.target is aten.mm.default else "matmul")  # type: ignore[arg-type]
    return None


def _write_einsums(work: WorkingGraph, constants: Constants) -> None:
    """Rewrites every einsum that is a product with a constant, by the rule for all formats, in terms of linear."""
    for node in work.calls(aten.einsum.default):
        given = arguments(node)
        for side in (1, 0) if len(given["tensors"]) == 2 else ():
            x, weight = given["tensors"][1 - side], given["tensors"][side]
            product = matrix_product(given["equation"], side)
            single = product is not None and max(product.ins, product.outs) == 1
            if product is None or constants.is_constant(x) or not constants.is_constant(weight):
                continue
            if single or product.kept is not None:
                _write_einsum(work, node, x, weight, product, constants)
                break


def _write_einsum(
    work: WorkingGraph, node: Node, x: Node, weight: Node, product: EinsumProduct, constants: Constants
) -> None:
    """y[…, outs] as linear(x[…, ins], w[outs, ins]): the axes of ins merged before, those of outs split after."""
    sizes = tuple(constants.value(weight).permute(product.order).shape)
    with work.graph.inserting_before(node):
        call = work.graph.call_function
        if product.order != tuple(range(len(sizes))):
            weight = constants.admit(call(aten.permute.default, (weight, list(product.order))))
        if len(sizes) > 2:
            rows = math.prod(sizes[: product.outs])
            weight = constants.admit(call(aten.reshape.default, (weight, [rows, -1])))
        if product.ins > 1:
            x = call(aten.flatten.using_ints, (x, product.kept, -1))
        y = call(aten.linear.default, (x, weight))
    y.meta = {"nn_module_stack": node.meta.get("nn_module_stack"), WRITTEN_AS: "einsum"}
    if product.outs > 1:
        work.replace(node, aten.unflatten.int, (y, -1, list(sizes[: product.outs])))
    else:
        y.meta = {**node.meta, **y.meta}
        work.bypass(node, y)


def _with_added_bias(node: Node, product: Product, constants: Constants) -> tuple[Node, Product]:
    """The addition after `node` and the product with its bias, where a constant vector is all that is added."""
    if product.bias is not None or len(node.users) != 1:
        return node, product
    (user,) = node.users
    if user.op != "call_function" or user.target not in ADDS or arguments(user)["alpha"] != 1:
        return node, product
    other = [operand for operand in user.args[:2] if operand is not node]
    outputs = constants.value(product.matrix).shape[0 if product.rows_are_outputs else 1]
    if len(other) != 1 or not isinstance(other[0], Node) or not _fits(other[0], outputs, constants):
        return node, product
    return user, product._replace(bias=other[0])
