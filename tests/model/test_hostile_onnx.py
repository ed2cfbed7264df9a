"""ONNX files that ask for endless work or hold what does not fit: a sentence, soon."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from audit.errors import AuditError, BudgetError, ModelError
from audit.model import load_model
from audit.model.parity import check_behaviour
from audit.settings import Settings
from audit.settings.limits import memory_limited

WEIGHTS = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


def model(
    nodes: list[onnx.NodeProto], functions: list[onnx.FunctionProto] | None = None, **more: np.ndarray
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("f", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(value, name) for name, value in {"w": WEIGHTS, **more}.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions or [], ir_version=8)


def product() -> onnx.NodeProto:
    return helper.make_node("MatMul", ["x", "w"], ["f"], name="fc")


def refused(made: onnx.ModelProto | bytes, tmp_path: Path, match: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    begin = time.process_time()
    with pytest.raises(AuditError, match=match) as caught:
        load_model(path, Settings(memory="500MB"))
    assert len(str(caught.value).splitlines()) == 1
    assert time.process_time() - begin < 30


def test_functions_that_call_each_other_are_counted(tmp_path: Path) -> None:
    def function(name: str, nodes: list[onnx.NodeProto]) -> onnx.FunctionProto:
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
        return helper.make_function("f", name, ["a"], ["b"], nodes, opsets)

    functions = [function("f0", [helper.make_node("Identity", ["a"], ["b"])])]
    for k in range(1, 30):
        pair = [
            helper.make_node(f"f{k - 1}", ["a"], ["m"], domain="f"),
            helper.make_node(f"f{k - 1}", ["m"], ["b"], domain="f"),
        ]
        functions.append(function(f"f{k}", pair))
    nodes = [helper.make_node("f29", ["x"], ["y"], domain="f"), helper.make_node("MatMul", ["y", "w"], ["f"])]
    refused(model(nodes, functions), tmp_path, r"m\.onnx: runs more than 40,000 operators, those of its functions")
    own = [function("f0", [helper.make_node("f0", ["a"], ["b"], domain="f")])]
    nodes[0] = helper.make_node("f0", ["x"], ["y"], domain="f")
    refused(model(nodes, own), tmp_path, r"m\.onnx: runs more than 40,000 operators")


def test_a_graph_of_more_operators_than_any_network_has_is_refused(tmp_path: Path) -> None:
    names = ["x", *(f"r{k}" for k in range(40_000))]
    chain = [helper.make_node("Relu", [old], [new]) for old, new in pairwise(names)]
    refused(model([*chain, helper.make_node("MatMul", [names[-1], "w"], ["f"])]), tmp_path, r"more than 40,000 op")


def loop(turns: int, step: str = "Add") -> onnx.ModelProto:
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["again"]), helper.make_node(step, ["v", "v"], ["v2"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("again", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v2", TensorProto.FLOAT, None),
        ],
    )
    nodes = [
        helper.make_node("ConstantOfShape", ["size"], ["zero"]),
        helper.make_node("Loop", ["turns", "go", "zero"], ["last"], body=body),
        helper.make_node("ReduceSum", ["last"], ["bias"], keepdims=0),
        helper.make_node("Gemm", ["x", "w", "bias"], ["f"]),
    ]
    size = np.array([3] if step == "Add" else [1000, 1000])
    return model(nodes, turns=np.array(turns), go=np.array(True), size=size)


def test_a_constant_loop_is_run_only_where_it_ends_soon(tmp_path: Path) -> None:
    refused(loop(2**62), tmp_path, r"m\.onnx: the model runs a loop; export the model unrolled")
    onnx.save(loop(3), tmp_path / "short.onnx")
    load_model(tmp_path / "short.onnx", Settings())


def test_constants_are_computed_for_so_long_and_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("audit.model.onnx.constant_folding.LONGEST", 0.2)
    refused(loop(10_000, "MatMul"), tmp_path, r"m\.onnx: its constants take more than 0\.2 seconds to compute; export")


@pytest.mark.parametrize("op", ["ConstantOfShape", "Expand"])
def test_constants_beyond_the_budget_are_not_made(op: str, tmp_path: Path) -> None:
    shape = {"one": np.array([3], np.int64), "big": np.array([10**5, 10**5], np.int64), "z": np.zeros(1, np.float32)}
    nodes = [
        helper.make_node("Concat", ["big", "one"], ["size"], axis=0),
        helper.make_node("ConstantOfShape", ["size"], ["c"])
        if op == "ConstantOfShape"
        else helper.make_node("Expand", ["z", "size"], ["c"]),
        helper.make_node("ReduceSum", ["c"], ["s"], keepdims=0),
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "s"], ["f"]),
    ]
    path = tmp_path / "m.onnx"
    path.write_bytes(model(nodes, **shape).SerializeToString())
    begin = time.process_time()
    with pytest.raises(AuditError, match=r"m\.onnx"):
        from audit.run.list_layers import list_layers

        list_layers(path, Settings(memory="500MB"))
    assert time.process_time() - begin < 40


def test_a_network_that_outgrows_the_budget_names_it(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Tile", ["x", "times"], ["wide"]),
        helper.make_node("ReduceMax", ["wide"], ["top"], axes=[1]),
        helper.make_node("Mul", ["x", "top"], ["y"]),
        helper.make_node("MatMul", ["y", "w"], ["f"]),
    ]
    onnx.save(model(nodes, times=np.array([1, 10**8])), tmp_path / "m.onnx")
    loaded = load_model(tmp_path / "m.onnx", Settings(memory="500MB"))
    words = r"m\.onnx: the network takes more memory for 2 samples than the budget leaves"
    with pytest.raises(BudgetError, match=words), memory_limited("500MB"):
        check_behaviour(loaded, np.zeros((8, 4), np.float32))


def test_a_pipe_is_no_model(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match=r"m\.onnx: is no ordinary file; give a \.onnx"):
        load_model(tmp_path / "m.onnx", Settings())


def broken(change: Callable[[onnx.TensorProto], None]) -> onnx.ModelProto:
    made = model([product()])
    change(made.graph.initializer[0])
    return made


def test_weights_that_are_not_those_of_their_shape_are_named(tmp_path: Path) -> None:
    def cut(tensor: onnx.TensorProto) -> None:
        tensor.raw_data = tensor.raw_data[:-3]

    def grow(tensor: onnx.TensorProto) -> None:
        tensor.dims[0] = 2**40

    def below(tensor: onnx.TensorProto) -> None:
        tensor.dims[0] = -4

    def unknown(tensor: onnx.TensorProto) -> None:
        tensor.data_type = 99

    refused(broken(cut), tmp_path, r"the weights of 'w' are 45 bytes where their shape asks for 48")
    refused(broken(grow), tmp_path, r"the weights of 'w' are 48 bytes where their shape asks for")
    refused(broken(below), tmp_path, r"the weights of 'w' have a negative size")
    refused(broken(unknown), tmp_path, r"the weights of 'w' are of no type that exists")
    refused(model([product()], w=WEIGHTS.astype(np.complex64)), tmp_path, r"the weights of 'w' are complex numbers")


def test_names_that_are_no_text_and_words_for_weights_are_sentences(tmp_path: Path) -> None:
    content = model([product()]).SerializeToString()
    refused(content.replace(b"\x02fc", b"\x02\xff\xfe"), tmp_path, r"m\.onnx: ")
    words = model([helper.make_node("Gemm", ["x", "w", "b"], ["f"])], b=np.array(["a", "b", "c"], dtype=object))
    refused(words, tmp_path, r"m\.onnx: ")


@pytest.mark.parametrize("place", ["function", "sparse", "constant"])
def test_external_data_stay_in_the_folder_wherever_they_are_named(place: str, tmp_path: Path) -> None:
    tensor = TensorProto(name="leak", data_type=TensorProto.FLOAT, dims=[3], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="../secret")
    made = model([product()])
    if place == "sparse":
        indices = numpy_helper.from_array(np.arange(3), "i")
        made.graph.sparse_initializer.append(helper.make_sparse_tensor(tensor, indices, [3]))
    else:
        node = helper.make_node("Constant", [], ["b"], value=tensor)
        if place == "constant":
            made.graph.node.insert(0, node)
        else:
            made.functions.append(helper.make_function("f", "g", [], ["b"], [node], [helper.make_opsetid("", 17)]))
    refused(made, tmp_path, r"the weights of 'leak' are said to lie in '../secret', outside the model's own folder")


@pytest.mark.parametrize("kind", ["complex", "meta", "sparse"])
@pytest.mark.filterwarnings("ignore")
def test_weights_of_odd_kinds_are_named(kind: str, tmp_path: Path) -> None:
    weight = nn.Linear(4, 3).weight.detach()
    odd = {"complex": weight + 1j, "meta": weight.to("meta"), "sparse": weight.to_sparse()}[kind]
    torch.save({"weight": odd, "bias": torch.zeros(3)}, tmp_path / "m.pt")
    with pytest.raises(ModelError, match=r"m\.pt: weight (holds complex numbers|is no plain tensor)"):
        load_model(tmp_path / "m.pt", Settings(arch="torch.nn:Identity"))
