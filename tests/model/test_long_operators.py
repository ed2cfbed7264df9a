"""One call of a library cannot be stopped and can compute for days: how long it takes is told before it is made."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import NodeProto, TensorProto, helper, numpy_helper
from torch import Tensor, nn
from torch.nn import functional as F
from torch_networks import silent

from audit.errors import ModelError
from audit.model import canonical_form, load_model
from audit.model.parity import check_behaviour
from audit.model.torch import LONGEST, bounded
from audit.settings import Settings

CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "linalg_matrix_exp": lambda x: torch.matrix_exp(x.expand(9000, 9000)),
    "_linalg_svd": lambda x: torch.linalg.svdvals(x.expand(9000, 9000)),
    "linalg_inv_ex": lambda x: torch.linalg.inv(x.expand(9000, 9000)),
    "mm": lambda x: x.expand(20000, 20000) @ x.expand(20000, 20000),
    "convolution": lambda x: F.conv2d(x.expand(1, 1, 9000, 9000), x.expand(1, 1, 4000, 4000)),
    "max_pool2d_with_indices": lambda x: F.max_pool2d(x.expand(1, 1, 9000, 9000), 4000, 1),
    "avg_pool2d": lambda x: F.avg_pool2d(x.expand(1, 1, 9000, 9000), 4000, 1),
    "fractional_max_pool2d": lambda x: F.fractional_max_pool2d(
        x.expand(1, 1, 9000, 9000), 4000, 4000, _random_samples=torch.zeros(1, 1, 2)
    ),
    "sum": lambda x: x.expand(10**7, 10**6).sum(),
    "polygamma": lambda x: torch.special.polygamma(3, x.expand(20000, 20000)),
    "_cdist_forward": lambda x: torch.cdist(x.expand(20000, 3000), x.expand(20000, 3000), p=3.0),
    "_pdist_forward": lambda x: torch.pdist(x.expand(20000, 3000), p=3.0),
    "sort": lambda x: x.expand(20000, 20000).sort()[0],
    "_embedding_bag_forward_only": lambda x: F.embedding_bag(
        torch.zeros(10**6, dtype=torch.long), x.expand(9, 10**6), torch.zeros(1, dtype=torch.long)
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_takes_hours_is_not_made(name: str) -> None:
    begin = time.thread_time()
    told = f"takes over 10 seconds, in {name} alone, and an audit takes thousands of them"
    with pytest.raises(ModelError, match=told), torch.no_grad(), bounded(None):
        CALLS[name](torch.ones(1, 1))
    assert time.thread_time() - begin < LONGEST


ORDINARY: dict[str, Callable[[], Tensor]] = {
    "a large image": lambda: F.conv2d(torch.zeros(3, 64, 112, 112), torch.zeros(64, 64, 3, 3), padding=1),
    "a long sequence": lambda: F.linear(torch.zeros(3, 512, 768), torch.zeros(3072, 768)),
    "a pool over all": lambda: F.avg_pool2d(torch.zeros(3, 64, 56, 56), 56),
    "two rows and distances": lambda: torch.cdist(torch.zeros(64, 100), torch.zeros(64, 100), p=3.0),
    "a small inverse": lambda: torch.linalg.inv(torch.eye(300)),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_what_networks_do_is_told_to_take_moments(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("audit.model.torch.LONGEST", LONGEST / 4)
    with torch.no_grad(), bounded(None):
        ORDINARY[name]()


class Long(nn.Module):
    """A row of scores, and nothing beside them that ends soon."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x + 0 * torch.matrix_exp(x[:1, :1].expand(9000, 9000))[:1, :1])


REFUSED = "takes over 10 seconds, in linalg_matrix_exp alone, and an audit takes thousands of them"


def test_a_script_is_refused_before_it_runs(tmp_path: Path) -> None:
    with silent():
        torch.jit.script(Long()).save(tmp_path / "m.pt")
    with pytest.raises(ModelError, match=REFUSED):
        canonical_form(load_model(tmp_path / "m.pt", Settings()), torch.zeros(4, 4))


@pytest.mark.parametrize("batch", [2, None])
def test_a_program_is_refused_before_it_runs(batch: int | None, tmp_path: Path) -> None:
    sizes = None if batch else ({0: torch.export.Dim.AUTO},)
    with silent():
        program = torch.export.export(Long().eval(), (torch.zeros(3, 4),), dynamic_shapes=sizes, strict=False)
        torch.export.save(program, tmp_path / "m.pt2")
    with pytest.raises(ModelError, match=REFUSED):
        check_behaviour(load_model(tmp_path / "m.pt2", Settings()), np.zeros((4, 4), np.float32))


def constant(name: str, sizes: Sequence[int]) -> NodeProto:
    value = numpy_helper.from_array(np.ones(1, np.float32))
    return helper.make_node("ConstantOfShape", [f"{name}/sizes"], [name], value=value)


def graph(folder: Path, op: str, sizes: dict[str, Sequence[int]], fed: bool, **options: object) -> Path:
    """x W, and `op` of huge tensors beside it: of constants, or (`fed`) of what the samples hold."""
    tensors = {f"{name}/sizes": np.array(each, np.int64) for name, each in sizes.items()}
    made = [constant(name, each) for name, each in sizes.items()]
    if fed:
        made = [helper.make_node("ReduceMean", ["x"], ["mean"], keepdims=0)]
        made += [helper.make_node("Expand", ["mean", f"{name}/sizes"], [name]) for name in sizes]
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["scores"]),
        *made,
        helper.make_node(op, list(sizes), ["long"], **options),
        helper.make_node("ReduceMax", ["long"], ["largest"], keepdims=0),
        helper.make_node("Add", ["scores", "largest"], ["y"]),
    ]
    weights = [numpy_helper.from_array(value, name) for name, value in tensors.items()]
    weights.append(numpy_helper.from_array(np.ones((4, 3), np.float32), "W"))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", k]) for name, k in (("x", 4), ("y", 3)))
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], weights), opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    )
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


OPERATORS = {
    "Conv": ({"a": (1, 1, 8000, 8000), "b": (1, 1, 4000, 4000)}, {}),
    "MaxPool": ({"a": (1, 1, 8000, 8000)}, {"kernel_shape": [4000, 4000]}),
    "Det": ({"a": (8000, 8000)}, {}),
    "MatMul": ({"a": (8000, 8000), "b": (8000, 8000)}, {}),
}


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("fed", [False, True])
def test_a_node_that_takes_hours_is_not_run(op: str, fed: bool, tmp_path: Path) -> None:
    sizes, options = OPERATORS[op]
    if op == "MatMul":  # two constants of the size that is evaluated take what is allowed
        sizes = {name: (20000, 20000) for name in sizes}
    path = graph(tmp_path, op, sizes, fed, **options)
    told = (
        rf"its {op} 'long' takes over 10 seconds for a few samples|its constants take more than 20 seconds to compute"
    )
    with pytest.raises(ModelError, match=rf"{re.escape(str(path))}: ({told})"):
        load_model(path, Settings())
