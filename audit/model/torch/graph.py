"""`Draft`: an exported graph while it is being brought into canonical form.

Weights lie in a plain dictionary until the end, so that a pass can turn "get fc.weight, then linear" into a call of an
`nn.Linear` named "fc" without fighting over who owns the name.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn

Node = fx.Node
aten = torch.ops.aten


@dataclass
class Draft:
    """A flat graph of aten operators, the tensors its get_attr nodes name, and the modules its calls name."""

    graph: fx.Graph
    tensors: dict[str, Tensor]
    modules: dict[str, nn.Module] = field(default_factory=dict)
    ops: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    outputs: dict[str, Node] = field(default_factory=dict)  # every tensor the program returns, by its name
    transposed: dict[int, nn.Parameter] = field(default_factory=dict)  # what layers hold for a tensor, by its id

    def calls(self, *targets: Any) -> list[Node]:
        """The nodes that call one of these operators, in order."""
        return [node for node in self.graph.nodes if node.op == "call_function" and node.target in targets]

    def free_path(self, wish: str, caller: Node) -> str:
        """`wish`, or the module that `caller` was written in, or the nearest path that no module or tensor has yet."""
        numbered = (f"{wish}_{number}" for number in itertools.count(2))
        paths = itertools.chain([wish], filter(None, [_module_of(caller)]), numbered)
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
        held = {id(weight) for path in called for weight in self.modules[path].parameters()}
        for node in [node for node in self.graph.nodes if node.op == "get_attr"]:
            self._give_tensor(root, node, held)
        self.graph.lint()
        network = fx.GraphModule(root, self.graph, "Network")
        return network.eval().requires_grad_(False)

    def _give_tensor(self, root: nn.Module, node: Node, held: set[int]) -> None:
        """Places what `node` reads; where a layer holds it, transposed or not, the layer's: the two are one weight."""
        path = str(node.target)
        tensor = self.tensors[path]
        transposed = self.transposed.get(id(tensor))
        if transposed is not None and id(transposed) in held:
            node.target = place_tensor(root, self._elsewhere(path), transposed)
            with self.graph.inserting_after(node):
                back = self.graph.call_function(aten.t.default, (node,))
            node.replace_all_uses_with(back, delete_user_cb=lambda user: user is not back)
        else:
            node.target = place_tensor(root, self._elsewhere(path) if id(tensor) in held else path, tensor)

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
