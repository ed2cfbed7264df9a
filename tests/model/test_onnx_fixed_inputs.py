"""Inputs held at a constant, and open sizes that the user settles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import ModelProto, TensorProto
from onnx_files import agrees, graph, loaded, node, samples, value, weights

from audit.errors import ModelError, UsageError
from audit.model import load_model
from audit.settings import Settings


def shifted(shape: tuple[int | str, ...], element: int = TensorProto.FLOAT) -> ModelProto:
    """y = (x + shift) w."""
    cast = node("Cast", ["shift"], ["s"], to=TensorProto.FLOAT)
    nodes = [cast, node("Add", ["x", "s"], ["a"]), node("MatMul", ["a", "w"], ["y"])]
    inputs = [value("shift", shape, element), value("x", ("n", 4))]
    return graph(nodes, {"w": weights(4, 3)}, inputs=inputs, outputs=[value("y", ("n", 3))])


@pytest.mark.parametrize("shape", [(), (1,), (4,), ("n", 4), ("rows", 1), (1, 4)])
def test_an_input_is_held_at_its_value_whatever_its_shape(shape: tuple[int | str, ...], tmp_path: Path) -> None:
    model = agrees(loaded(shifted(shape), tmp_path, Settings(fix_input=("shift=0.5",))))
    x = samples(model)
    answer = model.network(torch.from_numpy(x)).numpy()
    assert np.allclose(answer, (x + 0.5) @ weights(4, 3), atol=1e-5)
    assert (model.input.name, model.input.batch) == ("x", None)
    assert model.notes[0].startswith("The input 'shift' was held at 0.5 throughout (--fix-input)")


def test_integers_are_held_too_but_not_at_fractions(tmp_path: Path) -> None:
    model = shifted((), TensorProto.INT64)
    x = samples(agrees(loaded(model, tmp_path, Settings(fix_input=("shift=2",)))))
    assert x.shape == (6, 4)
    with pytest.raises(ModelError, match=r"the input 'shift' takes whole numbers, and 0.5 is none"):
        loaded(model, tmp_path, Settings(fix_input=("shift=0.5",)))


def recurrent(batch: int | str) -> ModelProto:
    """A GRU over x [n, 5, 4] from the state h0, and a dense layer on its last answer."""
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        node("GRU", ["t", "W", "R", "B", "", "h0"], ["", "last"], hidden_size=3),
        node("Squeeze", ["last", "zero"], ["h"]),
        node("MatMul", ["h", "head"], ["y"]),
    ]
    constants = {"W": weights(1, 9, 4), "R": weights(1, 9, 3), "B": weights(1, 18), "head": weights(3, 2)}
    inputs = [value("x", ("n", 5, 4)), value("h0", (1, batch, 3))]
    return graph(nodes, {**constants, "zero": np.array([0])}, inputs=inputs, outputs=[value("y", ("n", 2))])


@pytest.mark.parametrize(("batch", "state"), [("n", 0.0), ("n", 0.7), ("other", 0.7), (1, 0.0), (1, 0.7)])
def test_a_state_is_held_also_where_the_file_makes_it_for_one_sample(
    batch: int | str, state: float, tmp_path: Path
) -> None:
    model = agrees(loaded(recurrent(batch), tmp_path, Settings(fix_input=(f"h0={state}",))))
    whole = model.network(torch.from_numpy(samples(model)))[:1] if model.input.batch is None else None
    assert model.input.name == "x" and (whole is None or whole.shape == (1, 2))


def test_a_lone_sample_that_loses_its_batch_axis_keeps_its_scores_in_a_row(tmp_path: Path) -> None:
    model = recurrent(1)
    last = model.graph.node[-1]
    last.output[0] = "scores"
    model.graph.node.append(node("Squeeze", ["scores"], ["y"]))
    model.graph.output[0].CopyFrom(value("y", ("n",)))
    found = agrees(loaded(model, tmp_path, Settings(fix_input=("h0=0.7",))))
    assert found.input.batch == 1
    assert found.network(torch.from_numpy(samples(found, 1))).shape == (1, 2)


def test_a_size_that_both_inputs_leave_open_is_the_same(tmp_path: Path) -> None:
    nodes = [
        node("Mul", ["x", "mask"], ["m"]),
        node("ReduceMean", ["m"], ["a"], axes=[1], keepdims=0),
        node("MatMul", ["a", "w"], ["y"]),
    ]
    inputs = [value("x", ("n", "length", 4)), value("mask", ("n", "length", 1))]
    model = graph(nodes, {"w": weights(4, 3)}, inputs=inputs, outputs=[value("y", ("n", 3))])
    found = agrees(loaded(model, tmp_path, Settings(fix_input=("mask=1",)))).input
    assert (found.shape, found.batch) == ((None, 4), None)


def test_an_input_that_the_audited_output_does_not_read_needs_no_value(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", "w"], ["y"]), node("MatMul", ["other", "w"], ["z"])]
    inputs = [value("x", ("n", 4)), value("other", ("n", 4))]
    outputs = [value("y", ("n", 3)), value("z", ("n", 3))]
    model = graph(nodes, {"w": weights(4, 3)}, inputs=inputs, outputs=outputs)
    assert agrees(loaded(model, tmp_path, Settings(output="y"))).input.name == "x"
    assert agrees(loaded(model, tmp_path, Settings(output="z"))).input.name == "other"


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ("shift", "--fix-input: 'shift' is no NAME=VALUE with a number, such as state=0."),
        ("shift=none", "--fix-input: 'shift=none' is no NAME=VALUE with a number, such as state=0."),
        ("state=0", "there is no input 'state' to hold; its inputs are shift, x."),
    ],
)
def test_what_cannot_be_held(asked: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises((ModelError, UsageError)) as caught:
        loaded(shifted((4,)), tmp_path, Settings(fix_input=(asked,)))
    assert str(caught.value).endswith(sentence)


def test_only_onnx_inputs_are_held(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(2, 2)}, tmp_path / "weights.pt")
    with pytest.raises(UsageError, match="--fix-input: only ONNX files can have inputs held at a constant"):
        load_model(tmp_path / "weights.pt", Settings(fix_input=("state=0",)))


def branching() -> ModelProto:
    """A branch that hangs on the length of x [n, length]: a sum over it, or its only entry."""
    then = graph([node("Identity", ["x"], ["s1"])], {}, outputs=[value("s1", None)]).graph
    other = graph([node("ReduceSum", ["x", "one"], ["s2"])], {}, outputs=[value("s2", None)]).graph
    del then.input[:], other.input[:]
    nodes = [
        node("Shape", ["x"], ["sizes"]),
        node("Gather", ["sizes", "one"], ["length"]),
        node("Equal", ["length", "one"], ["short"]),
        node("If", ["short"], ["s"], then_branch=then, else_branch=other),
        node("MatMul", ["s", "w"], ["y"]),
    ]
    constants = {"one": np.array([1]), "w": weights(1, 3)}
    return graph(nodes, constants, shape=("n", "length"), outputs=[value("y", ("n", 3))])


def test_sizes_that_are_said_decide_a_branch(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"on a size that it leaves open \(then say --input-shape\)"):
        loaded(branching(), tmp_path)
    model = agrees(loaded(branching(), tmp_path, Settings(input_shape=(7,))))
    assert (model.input.shape, model.input.batch) == ((7,), None)
    with pytest.raises(ModelError, match=r"--input-shape 7,3 does not fit the input 'x', whose shape is \[n, \?\]"):
        loaded(branching(), tmp_path, Settings(input_shape=(7, 3)))
