"""What a capture pass hands over of the parameters outside dense layers, against plain autograd."""

from __future__ import annotations

import weakref
from dataclasses import replace

import pytest
import torch
from made_audits import as_model
from parameter_cases import CASES, truth
from tolerances import ROUNDING

from audit.network import find_layers
from audit.network.capture import Capture
from audit.network.loss import LOSS_OF_TASK
from audit.network.parameter_gradients import other_parameters
from audit.network.record import Products, Record
from audit.network.records import Records

SEEN_WHOLE = {"pictures", "grouped-in-place", "grouped-strided-dilated", "convolved-twice", "embedding"}


def capture_of(name: str, **changes: object) -> tuple[Capture, torch.Tensor]:
    build, x = CASES[name]
    torch.manual_seed(0)
    network = build().double().eval().requires_grad_(False)
    layers = find_layers(as_model(network, tuple(x.shape[1:])), x[:4]).dense
    loss = LOSS_OF_TASK["regression"]
    return Capture(network, layers, loss, **{"chunk": 3} | changes), x  # type: ignore[arg-type]


def records_of(capture: Capture, x: torch.Tensor, squares: bool = True):
    scores = capture.network(x)
    return capture.full(x, torch.zeros_like(scores), squares)


class Runs:
    """Counts how often a network runs."""

    def __init__(self, network: torch.nn.Module) -> None:
        self.count = 0
        network.register_forward_pre_hook(self._count)

    def _count(self, _module: torch.nn.Module, _inputs: object) -> None:
        self.count += 1


@pytest.mark.parametrize("how", [{}, {"fixed_batch": 4}, {"side_by_side": False}], ids=["free", "fixed", "in-turn"])
@pytest.mark.parametrize("squares", [True, False], ids=["left", "again"])
@pytest.mark.parametrize("name", CASES)
def test_squares_are_those_of_autograd(name, squares, how):
    capture, x = capture_of(name, **how)
    names, values = other_parameters(capture.network, capture.layers), dict(capture.network.named_parameters())
    expected = truth(capture.network, x)
    for record in records_of(capture, x, squares):
        plain, weighted = record.others.squares()
        assert len(plain) == len(weighted) == len(record.f)
        for i in range(len(record.f)):
            squared = {name: expected[record.start + i][name].square() for name in names}
            assert plain[i].item() == pytest.approx(sum(g.sum().item() for g in squared.values()), rel=ROUNDING)
            sizes = sum((g * values[name].square()).sum().item() for name, g in squared.items())
            assert weighted[i].item() == pytest.approx(sizes, rel=ROUNDING)


@pytest.mark.parametrize("rows", [[0, 1, 2], [2, 0], [1], []], ids=str)
@pytest.mark.parametrize("fixed_batch", [None, 3])
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_autograd(name, fixed_batch, rows):
    capture, x = capture_of(name, fixed_batch=fixed_batch)
    names, expected = other_parameters(capture.network, capture.layers), truth(capture.network, x)
    record = next(iter(records_of(capture, x)))
    cotangent = torch.randn(len(rows), record.f.shape[1], dtype=torch.float64)
    found = record.others.gradients(torch.tensor(rows, dtype=torch.int64), cotangent)
    assert set(found) == set(names)
    for name in names:
        assert found[name].shape == (len(rows), *expected[0][name].shape[1:])
        for ours, row, c in zip(found[name], rows, cotangent, strict=True):
            assert torch.allclose(ours, torch.tensordot(c, expected[row][name], 1), rtol=ROUNDING, atol=ROUNDING), name


@pytest.mark.parametrize("numbers", [1, 900, 1 << 22], ids=["by-a-pass", "score-by-score", "at-hand"])
@pytest.mark.parametrize("how", [{}, {"fixed_batch": 4}, {"side_by_side": False}], ids=["free", "fixed", "in-turn"])
@pytest.mark.parametrize("name", CASES)
def test_loss_gradients_are_those_of_autograd(name, how, numbers, monkeypatch):
    monkeypatch.setattr("audit.network.closed_forms.HELD", numbers)
    capture, x = capture_of(name, **how)
    names, expected = other_parameters(capture.network, capture.layers), truth(capture.network, x)
    for record in records_of(capture, x):
        rows = torch.arange(len(record.f)).flip(0)
        found = record.others.loss_gradients(rows, record.gradient[rows])
        assert set(found) == set(names)
        for name in names:
            for ours, row in zip(found[name], rows.tolist(), strict=True):
                theirs = torch.tensordot(record.gradient[row], expected[record.start + row][name], 1)
                assert torch.allclose(ours, theirs, rtol=ROUNDING, atol=ROUNDING), name


def test_loss_gradients_take_no_backward_pass_of_their_own(monkeypatch):
    capture, x = capture_of("pictures")
    record = next(iter(records_of(capture, x)))
    monkeypatch.setattr(torch.autograd, "grad", None)
    record.others.loss_gradients(torch.arange(3), record.gradient)
    with pytest.raises(TypeError):
        record.others.gradients(torch.arange(3), record.gradient)


@pytest.mark.parametrize("name", [*sorted(SEEN_WHOLE), "unseen-convolution"])
def test_nothing_runs_again_where_the_pass_has_seen_everything(name):
    capture, x = capture_of(name)
    record = next(iter(records_of(capture, x)))
    runs = Runs(capture.network)
    record.others.squares()
    record.others.gradients(torch.arange(3), torch.ones(3, record.f.shape[1]))
    assert (runs.count == 0) == (name in SEEN_WHOLE)


def test_what_is_not_kept_of_a_record_is_found_again():
    capture, x = capture_of("pictures")
    record = next(iter(records_of(capture, x)))
    before, cotangent = record.others.squares(), torch.ones(3, 3, dtype=torch.float64)
    gradients = record.others.gradients(torch.arange(3), cotangent)
    record, runs = record.to_keep(), Runs(capture.network)
    for ours, theirs in zip(record.others.squares(), before, strict=True):
        assert torch.allclose(ours, theirs, rtol=ROUNDING)
    for name, value in record.others.gradients(torch.arange(3), cotangent).items():
        assert torch.allclose(value, gradients[name], rtol=ROUNDING, atol=ROUNDING)
    assert runs.count > 0


@pytest.mark.parametrize("numbers", [1, 300, 2000])
def test_few_scores_and_samples_at_a_time_give_the_same(monkeypatch, numbers):
    capture, x = capture_of("pictures")
    expected = [record.others.squares() for record in records_of(capture, x)]
    monkeypatch.setattr("audit.network.closed_forms.HELD", numbers)
    monkeypatch.setattr("audit.network.closed_forms.CACHED_STACK", numbers)
    for record, parts in zip(records_of(capture, x), expected, strict=True):
        for ours, theirs in zip(record.others.squares(), parts, strict=True):
            assert torch.allclose(ours, theirs, rtol=ROUNDING)


def test_a_pass_that_stops_at_the_first_dense_layer_hands_nothing_over():
    capture, x = capture_of("pictures", to_input=False)
    record = next(iter(records_of(capture, x)))
    runs = Runs(capture.network)
    record.others.squares()
    assert runs.count > 0


@pytest.mark.parametrize("room", [0, 1 << 30])
def test_only_the_pass_of_the_measures_gathers_squares(room):
    capture, x = capture_of("pictures")
    records = Records(capture, x, torch.zeros(len(x), 3, dtype=torch.float64), room, full=True)
    runs, again = Runs(capture.network), {"measured": [], "after": []}
    for walk, passed in (("measured", records.measured()), ("after", records)):
        for record in passed:
            before = runs.count
            record.others.squares()
            again[walk].append(runs.count - before)
    assert again["measured"] == [0] * records.chunks and len(again["after"]) == records.chunks
    assert min(again["after"]) > 0


def test_a_record_of_the_pass_goes_before_the_next_one_is_captured():
    capture, x = capture_of("pictures")
    records = Records(capture, x, torch.zeros(len(x), 3, dtype=torch.float64), room=1 << 30, full=True)
    alive: list[weakref.ref] = []

    def see(record: Record) -> int:
        alive.append(weakref.ref(record))
        return sum(one() is not None for one in alive)

    assert list(map(see, records.measured())) == [1] * records.chunks and records.chunks > 1


@pytest.mark.parametrize("fits", [True, False])
def test_records_that_will_not_all_fit_hold_no_room_meanwhile(fits):
    capture, x = capture_of("pictures")
    capture, y = replace(capture, chunk=1), torch.zeros(len(x), 3, dtype=torch.float64)
    sizes = [record.bytes() for record in Records(capture, x, y, room=0, full=True)]
    alive: list[weakref.ref] = []

    def see(record: Record) -> int:
        alive.append(weakref.ref(next(iter(record.layers.values())).J))
        return sum(one() is not None for one in alive)

    records = Records(capture, x, y, room=sum(sizes) - (not fits), full=True)
    held = list(map(see, records))
    assert len(sizes) > 2 and held == (list(range(1, len(sizes) + 1)) if fits else [1] * len(sizes))


def test_the_jacobians_are_the_same_with_and_without_the_squares():
    capture, x = capture_of("grouped-in-place")
    for ours, theirs in zip(records_of(capture, x), records_of(capture, x, False), strict=True):
        for name, layer in ours.layers.items():
            assert torch.equal(layer.J, theirs.layers[name].J) and torch.equal(layer.x, theirs.layers[name].x)
        assert torch.equal(*(Products(record).input_jacobian for record in (ours, theirs)))
