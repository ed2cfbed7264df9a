"""TorchScript with branches: the operators it runs are recorded, for two batch sizes, and what differs is the batch.

torch's converter reads straight-line scripts only. A script that asks `if x.dim() == 3` or loops over layers still runs
one list of operators per input shape; the sizes in that list that grow with the batch are written as multiples of it.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram
from torch.fx.experimental.proxy_tensor import make_fx

from audit.model.torch.graph import aten, place_tensor

SIZES = (2, 3)  # batch sizes recorded
NOTE = "The TorchScript was recorded as it ran: a branch that depends on the data is taken as for the first samples."


def recorded(network: torch.jit.ScriptModule, example: Tensor) -> ExportedProgram:
    """The operators that `network` runs on `example` [n ≥ 3, ...] as a program for any batch size."""
    few, more = (_record(network, example[:size]) for size in SIZES)
    _free_the_batch(few.graph, more.graph)
    few.recompile()
    return torch.export.export(few, (example[: SIZES[0]],), dynamic_shapes=({0: Dim.AUTO},), strict=False)


def _record(network: torch.jit.ScriptModule, x: Tensor) -> fx.GraphModule:
    """One list of operators, its weights under the names they have in the script."""
    root, names = nn.Module(), {tensor.data_ptr(): name for name, tensor in network.state_dict().items()}
    with torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
        seen = make_fx(lambda x: network(x), pre_dispatch=True, _allow_non_fake_inputs=True)(x)
    seen.graph.eliminate_dead_code()  # sizes asked for: their answers are in the recording already
    for node in seen.graph.nodes:
        if node.op == "get_attr":
            tensor = getattr(seen, node.target)
            node.target = place_tensor(root, names.get(tensor.data_ptr(), node.target), tensor)
    return fx.GraphModule(root, seen.graph)


def _free_the_batch(few: fx.Graph, more: fx.Graph) -> None:
    """Writes every number that differs between the recordings as p·n + q of the batch size n."""
    x = next(node for node in few.nodes if node.op == "placeholder")
    with few.inserting_after(x):
        n = few.call_function(aten.sym_size.int, (x, 0))
    for node, twin in zip([node for node in few.nodes if node is not n], more.nodes, strict=True):
        if (node.op, str(node.target)) != (twin.op, str(twin.target)):
            raise ValueError("it runs other operators for another batch size")
        with few.inserting_before(node):
            node.args, node.kwargs = (_merged(a, b, n) for a, b in ((node.args, twin.args), (node.kwargs, twin.kwargs)))


def _merged(a: Any, b: Any, n: fx.Node) -> Any:
    if isinstance(a, (list, tuple)):
        return type(a)(_merged(one, other, n) for one, other in zip(a, b, strict=True))
    if isinstance(a, dict):
        return {key: _merged(value, b[key], n) for key, value in a.items()}
    if isinstance(a, fx.Node) or a == b:
        return a
    if not isinstance(a, int):
        raise ValueError("it runs with other constants for another batch size")
    slope = (b - a) // (SIZES[1] - SIZES[0])
    scaled = n.graph.call_function(operator.mul, (n, slope))
    return n.graph.call_function(operator.add, (scaled, a - SIZES[0] * slope))
