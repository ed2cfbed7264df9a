"""`WorkingGraph`: an exported graph on its way to canonical form; `Constants`: what in it no input changes.

Weights lie in a plain dictionary until the end, so that a pass can turn "get fc.weight, then linear" into a call of an
`nn.Linear` named "fc" without fighting over who owns the name.
"""

from __future__ import annotations

import itertools
import operator
import re
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn

from audit.model.canon import numbered, owner

Node = fx.Node
aten = torch.ops.aten


@dataclass
class WorkingGraph:
    """A flat graph of aten operators, the tensors its get_attr nodes name, and the modules its calls name."""

    graph: fx.Graph
    tensors: dict[str, Tensor]
    modules: dict[str, nn.Module] = field(default_factory=dict)
    ops: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, Node] = field(default_factory=dict)  # every tensor the program returns, by its name
    transposed: dict[Tensor, nn.Parameter] = field(default_factory=dict)  # what layers hold for a tensor of the file

    def calls(self, *targets: Any) -> list[Node]:
        """The nodes that call one of these operators, in order."""
        return [node for node in self.graph.nodes if node.op == "call_function" and node.target in targets]

    def free_path(self, wish: str, caller: Node) -> str:
        """`wish`, or the module that `caller` was written in, or the nearest path that no module or tensor has yet."""
        paths = itertools.chain([wish], filter(None, [_module_of(caller)]), numbered(wish))
        return next(path for path in paths if path not in self.modules and path not in self.tensors)

    def replace(self, node: Node, target: Any, args: tuple[Any, ...], kind: str = "call_function") -> Node:
        """Puts a call of `target` in the place of `node`."""
        with self.graph.inserting_before(node):
            new = self.graph.create_node(kind, target, args)
        new.meta = dict(node.meta)
        self.bypass(node, new)
        return new

    def bypass(self, node: Node, source: Node) -> None:
        """Lets every user of `node` read `source` instead."""
        node.replace_all_uses_with(source)
        self.outputs = {name: source if output is node else output for name, output in self.outputs.items()}
        self.graph.erase_node(node)

    def finish(self, output: Node) -> fx.GraphModule:
        """The network that computes `output`: frozen, in eval mode, holding only what is used."""
        self.graph.output(output)
        self.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))
        root = nn.Module()
        called = {node.target for node in self.graph.nodes if node.op == "call_module"}
        self.ops = {path: op for path, op in self.ops.items() if path in called}
        self.names = {path: name for path, name in self.names.items() if path in called}
        for path in sorted(called, key=lambda path: path.count(".")):
            _place(root, path, self.modules[path])
        layers_own: set[Tensor] = {weight for path in called for weight in self.modules[path].parameters()}
        for node in [node for node in self.graph.nodes if node.op == "get_attr"]:
            self._give_tensor(root, node, layers_own)
        self.graph.lint()
        network = fx.GraphModule(root, self.graph, "Network")
        return network.eval().requires_grad_(False)

    def _give_tensor(self, root: nn.Module, node: Node, layers_own: set[Tensor]) -> None:
        """Places what `node` reads; where a layer holds it, transposed or not, the layer's: the two are one weight."""
        path = str(node.target)
        tensor = self.tensors[path]
        transposed = self.transposed.get(tensor)
        if transposed is not None and transposed in layers_own:
            node.target = place_tensor(root, self._elsewhere(path), transposed)
            with self.graph.inserting_after(node):
                back = self.graph.call_function(aten.t.default, (node,))
            node.replace_all_uses_with(back, delete_user_cb=lambda user: user is not back)
        else:
            node.target = place_tensor(root, self._elsewhere(path) if tensor in layers_own else path, tensor)

    def _elsewhere(self, path: str) -> str:
        """Where a layer's parameter is kept a second time, because an operator uses it, too: no one may miss that."""
        owner, _, name = path.rpartition(".")
        owner = owner or name  # a parameter of the network itself has no owner to be named after
        holder = f"{owner}_elsewhere"
        self.names[holder] = f"{owner} (elsewhere)"
        return f"{holder}.{name}"


def arguments(node: Node) -> dict[str, Any]:
    """The arguments of a call by the names in the operator's schema, defaults filled in."""
    schema = node.target._schema.arguments  # type: ignore[union-attr]
    given = dict(zip((argument.name for argument in schema), node.args, strict=False)) | dict(node.kwargs)
    return {argument.name: given.get(argument.name, argument.default_value) for argument in schema}


def _module_of(node: Node) -> str:
    """The path of the innermost module that the exporter saw around `node`; empty where it did not say."""
    stack = node.meta.get("nn_module_stack") or {"": ("", None)}
    path = str(list(stack.values())[-1][0])
    return path if re.fullmatch(r"\w+(\.\w+)*", path) else ""


def shape_of(node: Node) -> tuple[Any, ...]:
    """The shape that was recorded when the graph was exported."""
    return tuple(node.meta["val"].shape)


def _place(root: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    _container(root, parent).add_module(name, module)


def place_tensor(root: nn.Module, path: str, tensor: Tensor) -> str:
    """Registers a tensor at its path, or beside it where a module already holds another one under that name."""
    parent, _, name = path.rpartition(".")
    owner = _container(root, parent)
    while getattr(owner, name, tensor) is not tensor:
        name += "_"
    if isinstance(tensor, nn.Parameter):
        owner.register_parameter(name, tensor)
    elif not hasattr(owner, name):
        owner.register_buffer(name, tensor, persistent=False)
    return f"{parent}.{name}" if parent else name


def _container(root: nn.Module, path: str) -> nn.Module:
    """The module at `path`; empty ones are made on the way."""
    owner = root
    for name in path.split(".") if path else []:
        if name not in dict(owner.named_children()):
            owner.add_module(name, nn.Module())
        owner = owner.get_submodule(name)
    return owner


# constants: parameters, buffers, and everything computed from them alone

PIECES = {2: ("q", "kv"), 3: ("q", "k", "v")}  # how nn.MultiheadAttention cuts its in_proj_weight
NAMELESS = ("lifted_tensor", "_tensor_constant")  # what torch calls weights whose names torch.jit.freeze threw away
RANDOM = torch.Tag.nondeterministic_seeded


class Constants:
    """Values, identities and names of the constant nodes of a graph."""

    def __init__(self, work: WorkingGraph) -> None:
        self._work = work
        self._values: dict[Node, Any] = {}
        self._parameters: dict[object, nn.Parameter] = {}
        self._constant: set[Node] = set()
        for node in work.graph.nodes:  # in order of execution: what a node reads is judged before the node
            if node.op == "get_attr" or (node.op == "call_function" and self._only_reads_constants(node)):
                self._constant.add(node)

    def admit(self, node: Node) -> Node:
        """`node`, new in the graph and computed from constants alone."""
        self._constant.add(node)
        return node

    def is_constant(self, node: Any) -> bool:
        """Whether `node` is a tensor made of parameters and buffers alone."""
        return node in self._constant if isinstance(node, Node) else False

    def is_parameter(self, node: Node) -> bool:
        """Whether `node` just names a parameter of the file."""
        return node.op == "get_attr" and isinstance(self._work.tensors[str(node.target)], nn.Parameter)

    def _only_reads_constants(self, node: Node) -> bool:
        random = RANDOM in getattr(node.target, "tags", ())
        return bool(node.all_input_nodes) and not random and self._constant.issuperset(node.all_input_nodes)

    def value(self, node: Node) -> Any:
        """The node's value. What is computed from weights is computed in float64 and then rounded once."""
        if node.op == "get_attr":
            return self._work.tensors[str(node.target)]
        if node not in self._values:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), self._wide)
            self._values[node] = node.target(*args, **kwargs)  # type: ignore[operator]
        return _rounded(self._values[node], like=self.value(node.all_input_nodes[0]))

    def parameter(self, node: Node, *, transposed: bool = False, flat: bool = False) -> nn.Parameter:
        """The node's value as a Parameter: the file's own one where the node just names it."""
        value = self.value(node)
        if isinstance(value, nn.Parameter) and not transposed and (value.dim() == 1 or not flat):
            return value
        key = (self.key(node), transposed, flat)
        if key not in self._parameters:
            value = value.detach().T if transposed else value.detach()
            value = value.reshape(-1) if flat else value
            self._parameters[key] = nn.Parameter(value.contiguous(), requires_grad=False)
        return self._parameters[key]

    def key(self, node: Any) -> object:
        """Equal for nodes that are the same constant, though they may be written down twice; a tensor equals itself."""
        if not isinstance(node, Node):
            return repr(node)
        if node.op == "get_attr":
            return self._work.tensors[str(node.target)]
        return (str(node.target), *(self.key(argument) for argument in (*node.args, *node.kwargs.values())))

    def label(self, weight: Node, bias: Node | None = None) -> tuple[str, str]:
        """A module path and a display name for a layer: "attn.in_proj_q" and "attn.in_proj (q)".

        Layers with tied weights are told apart by their biases.
        """
        name = self._source(weight)
        tells = name.endswith(".weight") and bias is not None and self._source(bias).endswith(".bias")
        stem = _stem(self._source(bias).removesuffix("bias") + "weight" if tells and bias is not None else name)
        piece = self._piece(weight)
        return (f"{stem}_{piece}", f"{stem} ({piece})") if piece else (stem, stem)

    def _source(self, node: Node) -> str:
        """The name of the parameter that a constant is computed from."""
        while node.op != "get_attr":
            node = node.all_input_nodes[0]
        return str(node.target)

    def _piece(self, node: Node) -> str | None:
        if node.op == "call_function" and node.target is operator.getitem:
            parts, position = node.args
            count = len(self.value(parts))  # type: ignore[arg-type]
            return PIECES[count][position] if count in PIECES else str(position)  # type: ignore[index]
        if node.op == "call_function" and node.target is aten.slice.Tensor:
            start = node.args[2] if len(node.args) > 2 else 0
            return f"from_{start or 0}"
        return None

    def _wide(self, node: Node) -> Any:
        value = self._values[node] if node in self._values else self.value(node)
        return _rounded(value, like=torch.empty(0, dtype=torch.float64))


def _rounded(value: Any, like: Any) -> Any:
    """`value`, or each of its pieces, in the float type of `like`."""
    if isinstance(value, (tuple, list)):
        return [_rounded(piece, like) for piece in value]
    like = like[0] if isinstance(like, list) else like
    both_float = isinstance(value, Tensor) and value.is_floating_point() and like.is_floating_point()
    return value.detach().to(like.dtype) if both_float and value.dtype != like.dtype else value


def _stem(parameter: str) -> str:
    """The layer that a parameter belongs to; the network itself where it has no other."""
    if parameter.startswith(NAMELESS):
        return "layer"
    name = owner(parameter)
    return "linear" if name == "weight" else name
