"""A table that words are looked up in is an embedding in ONNX, too, and its gradients have a closed form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from audit.model import load_model
from audit.model.onnx.ops.registry import Operation
from audit.network.parameter_gradients import SampleGradients
from audit.settings import Settings

ROWS, WIDTH, TOKENS, CLASSES = 11, 4, 3, 2


def saved(path: Path, axis: int) -> Path:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(ROWS, WIDTH) if axis == 0 else (WIDTH, ROWS)).astype("f4")
    last = rng.normal(size=(TOKENS * WIDTH, CLASSES)).astype("f4")
    flat = np.array([-1, TOKENS * WIDTH])
    found = "words" if axis == 0 else "columns"
    nodes = [helper.make_node("Gather", ["table", "x"], [found], axis=axis)]
    if axis == 1:
        nodes.append(helper.make_node("Transpose", ["columns"], ["words"], perm=[1, 2, 0]))
    nodes += [
        helper.make_node("Reshape", ["words", "flat"], ["row"]),
        helper.make_node("MatMul", ["row", "last"], ["y"]),
    ]
    constants = [numpy_helper.from_array(a, n) for n, a in (("table", table), ("last", last), ("flat", flat))]
    x = helper.make_tensor_value_info("x", TensorProto.INT64, ["n", TOKENS])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", CLASSES])
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], constants), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.save(model, path)
    return path


def table_of(network: nn.Module) -> nn.Module:
    return next(module for module in network.modules() for each in module.parameters(False) if ROWS in each.shape)


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_of_a_matrix_are_an_embedding_and_nothing_else_is(tmp_path: Path, axis: int) -> None:
    model = load_model(saved(tmp_path / "m.onnx", axis), Settings())
    assert isinstance(table_of(model.network), nn.Embedding if axis == 0 else Operation)


def test_negative_row_numbers_count_from_the_end(tmp_path: Path) -> None:
    network = load_model(saved(tmp_path / "m.onnx", 0), Settings()).network
    x = torch.tensor([[-1, -ROWS, 3]])
    assert torch.equal(network(x), network(x % ROWS))


def test_the_gradients_of_a_table_have_a_closed_form_also_for_negative_row_numbers(tmp_path: Path) -> None:
    network = load_model(saved(tmp_path / "m.onnx", 0), Settings()).network.double()
    name = next(name for name, value in network.named_parameters() if ROWS in value.shape)
    x = torch.tensor([[0, 1, 2], [4, 4, -2], [-1, 10, 5]])
    ways, pull = SampleGradients(network, (name,), x), torch.randn(3, CLASSES, dtype=torch.float64)
    assert name in ways.closed.names
    found = ways.gradients(x, pull)[name]
    network.requires_grad_()
    for i in range(len(x)):
        (wanted,) = torch.autograd.grad((network(x[i : i + 1]) * pull[i]).sum(), network.get_parameter(name))
        torch.testing.assert_close(found[i], wanted)
