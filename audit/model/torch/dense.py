"""Every matrix product with a weight becomes a call of an `nn.Linear`, whatever operator the file wrote it with.

linear(x, W, b), addmm(b, x, Wᵀ), mm(x, Wᵀ), x @ Wᵀ (+ b) and einsum("bi,oi->bo", x, W) are one and the same layer
z = W x + b. A weight used twice with the same bias is one module called twice. Where one is used as W and as Wᵀ, the
first of the two is the layer, as in ONNX files, which do not say how a weight was kept; the other stays an operator
on the layer's weight: as a layer it would have weights of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, nn

from audit.model.torch.constants import Constants
from audit.model.torch.graph import Draft, Node, arguments, aten

TRANSPOSES = (aten.t.default, aten.transpose.int, aten.permute.default, aten.numpy_T.default)
ADDS = (aten.add.Tensor,)


class Product(NamedTuple):
    """x times a constant matrix: as [out, in] if `rows_are_outputs`, else as [in, out]; and perhaps a bias."""

    x: Node
    matrix: Node
    rows_are_outputs: bool
    bias: Node | None
    op: str


def dense_layers(draft: Draft, constants: Constants) -> None:
    """Rewrites every product with a constant matrix in `draft`."""
    made: dict[object, str] = {}
    weights: set[tuple[object, bool]] = set()  # matrices, each with the way round in which it is a layer's weight
    for node in list(draft.graph.nodes):
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
            made[key] = _new_layer(draft, node, product, constants)
        draft.replace(node, made[key], (product.x,), kind="call_module")


def _new_layer(draft: Draft, node: Node, product: Product, constants: Constants) -> str:
    weight = constants.parameter(product.matrix, transposed=not product.rows_are_outputs)
    bias = None if product.bias is None else constants.parameter(product.bias, flat=True)
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = weight
    layer.register_parameter("bias", bias)
    if not product.rows_are_outputs and constants.is_parameter(product.matrix):
        draft.transposed[id(constants.value(product.matrix))] = weight
    wish, display = constants.label(product.matrix, product.bias)
    path = draft.free_path(wish, node)
    draft.modules[path], draft.ops[path] = layer, product.op
    if display not in (path, *draft.names.values(), *draft.modules):
        draft.names[path] = display
    return path


def keep_samples_apart(draft: Draft) -> None:
    """Turns reshape → dense → reshape into reshape → dense, on the second shape.

    nn.MultiheadAttention flattens [tokens, samples, width] before its out_proj, so that a sample's rows lie scattered;
    a dense layer does not mind the shape before the features, but whoever looks at single samples does.
    """
    for node in [node for node in draft.graph.nodes if node.op == "call_module" and node.target in draft.ops]:
        layer, (flat,), users = draft.modules[node.target], node.args, list(node.users)
        if flat.target is not aten.reshape.default or len(users) != 1 or users[0].target is not aten.reshape.default:
            continue
        before, after = flat.args[1], users[0].args[1]
        if len(before) == 2 and before[1] == layer.in_features and after[-1] == layer.out_features:
            with draft.graph.inserting_before(users[0]):
                apart = draft.graph.call_function(aten.reshape.default, (flat.args[0], [*after[:-1], before[1]]))
            draft.replace(users[0], node.target, (apart,), kind="call_module")
            draft.graph.erase_node(node)


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
        return Product(given["input"], given["weight"], True, given["bias"], "linear")
    if node.target is aten.addmm.default:
        given = arguments(node)
        plain = given["alpha"] == 1 and given["beta"] == 1
        return Product(given["mat1"], given["mat2"], False, given["self"], "addmm") if plain else None
    if node.target in (aten.mm.default, aten.matmul.default):
        x, matrix = node.args
        return Product(x, matrix, False, None, "mm" if node.target is aten.mm.default else "matmul")  # type: ignore[arg-type]
    if node.target is aten.einsum.default:
        return _einsum(*node.args[:2])
    return None


def _einsum(equation: Any, operands: Any) -> Product | None:
    """An einsum that contracts the last axis of x with one axis of a matrix: "...i,oi->...o" or "...i,io->...o"."""
    left, arrow, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow or len(terms) != 2:
        return None
    for x, matrix in ((0, 1), (1, 0)):
        kept, inner, pair = terms[x][:-1], terms[x][-1:], terms[matrix]
        outer = pair.replace(inner, "", 1)
        if len(pair) == 2 and inner in pair and len(outer) == 1 and outer not in terms[x] and result == kept + outer:
            return Product(operands[x], operands[matrix], pair == outer + inner, None, "einsum")
    return None


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
