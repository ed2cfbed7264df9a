"""Small changes, really made: against the slow way, by hand, and unmoved by what must not matter."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from live_bytes import LiveBytes
from made_audits import AuditMaker, as_data, as_model
from references import consequences as reference
from tolerances import CANCELS, EXACT, LOSSY, ROUNDING, SOLVED
from torch import Tensor, nn
from torch.nn import functional as F

from audit.maths.resample import TEST
from audit.measures.consequences.block import Consequence, Consequences, Kind
from audit.measures.consequences.changes import changed, directions, moved, rounding
from audit.measures.consequences.measure import CONSTANT, Effort, measure_consequences
from audit.measures.consequences.samples import Samples
from audit.measures.contract import Audit
from audit.run.setup import set_up_audit
from audit.settings import Settings

LOSSES = {
    "classification": lambda f, y: F.cross_entropy(f[None], y[None]),
    "binary": lambda f, y: F.binary_cross_entropy_with_logits(f[0], y.double()),
    "regression": lambda f, y: ((f - y) ** 2).sum() / 2,
}
WHOLE = Effort()
OUTPUTS = {"classification": 3, "binary": 1, "regression": 2}
TASKS = pytest.mark.parametrize("task", OUTPUTS)


def network_of(outputs: int = 3, width: int = 7) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Linear(width, outputs)).double().eval()


def samples(task: str, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 5)) * 2 + 1
    if task == "regression":
        return x, rng.normal(size=(n, OUTPUTS[task]))
    return x, rng.integers(0, max(2, OUTPUTS[task]), n)


def table(task: str) -> list[np.ndarray]:
    return [*samples(task, 30, 1), *samples(task, 24, 2)]


def measured(
    make_audit: AuditMaker, network: nn.Module, task: str, effort: Effort = WHOLE, **knobs: object
) -> Consequences:
    return measure_consequences(make_audit(network, *table(task), task=task, bootstrap=200, **knobs), effort)


def by_id(block: Consequences) -> dict[str, Consequence]:
    return {change.id: change for change in block.changes}


def plain(block: Consequences) -> list[float]:
    return [value for change in block.changes for value in (change.loss_change, change.score_change)]


@TASKS
def test_every_change_agrees_with_the_slow_way(make_audit: AuditMaker, task: str) -> None:
    network, loss = network_of(OUTPUTS[task]), LOSSES[task]
    found = by_id(measured(make_audit, network, task))
    train, _, test, labels = table(task)
    x, y, size = torch.from_numpy(test), torch.from_numpy(labels), reference.spread(torch.from_numpy(train))
    before = reference.scores(network, x)

    def agrees(id: str, after: list[list[Tensor]]) -> None:
        assert found[id].loss_change == pytest.approx(reference.loss_rise(before, after, y, loss), rel=EXACT, abs=1e-13)
        assert found[id].score_change == pytest.approx(reference.score_change(before, after), rel=EXACT)

    for percent in (1, 2, 5):
        seeds = [[0, TEST, draw] for draw in range(WHOLE.draws)]
        agrees(f"input-noise-{percent}", reference.noisy(network, x, size, percent / 100, seeds))
    agrees("input-worst-1", [reference.worst(network, x, y, size, 0.01, loss)])
    agrees("weights-rounded", [reference.scores(reference.in_eight_bits(network), x)])
    for place, layer in enumerate(("0", "2")):
        W = network.get_parameter(f"{layer}.weight").detach()
        for by_neuron, id in ((False, f"{layer}-weights-noise-5"), (True, f"{layer}-neurons-noise-5")):
            after = []
            for pair in range(WHOLE.pairs):
                rng = np.random.default_rng([0, place, by_neuron, pair])
                shape = (len(W), 1) if by_neuron else tuple(W.shape)
                draw = torch.from_numpy(rng.standard_normal(shape))
                delta = draw * W if by_neuron else draw * (W.norm() / draw.norm())
                for sign in (1, -1):
                    other = reference.moved(network, f"{layer}.weight", sign * 0.05 * delta)
                    after.append(reference.scores(other, x))
            agrees(id, after)


def test_wrong_answers_are_counted_by_sample(make_audit: AuditMaker) -> None:
    network = network_of()
    block = measured(make_audit, network, "classification")
    *_, test, labels = table("classification")
    x, y = torch.from_numpy(test), torch.from_numpy(labels)
    before = torch.stack(reference.scores(network, x)).argmax(1)
    after = torch.stack(reference.scores(reference.in_eight_bits(network), x)).argmax(1)
    change = by_id(block)["weights-rounded"]
    assert block.error == pytest.approx(float((before != y).double().mean()), rel=ROUNDING)
    assert change.error == pytest.approx(float((after != y).double().mean()), rel=ROUNDING)
    assert change.answers_changed == pytest.approx(float((after != before).double().mean()), rel=ROUNDING)
    for each in block.changes:
        assert each.error_change == pytest.approx(each.error - block.error, abs=CANCELS)
        assert each.error_change_ci95[0] <= each.error_change <= each.error_change_ci95[1]
        assert each.loss_change_ci95[0] <= each.loss_change <= each.loss_change_ci95[1]


def test_one_weight_by_hand(make_audit: AuditMaker) -> None:
    """f = w x with ½(f − y)²: ± pairs leave ½ ε² w² mean x² of the loss, whatever the labels."""
    network = nn.Sequential(nn.Linear(1, 1, bias=False)).double()
    network[0].weight.data.fill_(3.0)
    x = np.array([[1.0], [2.0], [-1.0], [4.0]])
    block = measure_consequences(make_audit(network, x, x + 1, x, x + 1, task="regression"), WHOLE)
    expected = 0.05**2 / 2 * 9 * float((x**2).mean())
    found = by_id(block)
    assert found["0-weights-noise-5"].loss_change == pytest.approx(expected, rel=EXACT)
    assert found["weights-rounded"].loss_change == pytest.approx(0, abs=CANCELS)  # one weight is its own largest
    assert block.spread == pytest.approx(float(x.std()), rel=ROUNDING)
    assert found["input-worst-1"].score_change == pytest.approx(0.01 * float(x.std()) * 3, rel=EXACT)


def test_scaling_the_inputs_changes_nothing(make_audit: AuditMaker) -> None:
    """Noise is a share of the spread: with x ten times as large and a first layer ten times as small it is the same."""
    network, small = network_of(), network_of()
    small[0].weight.data /= 10
    x, y, x_test, y_test = table("classification")
    here = measure_consequences(make_audit(network, x, y, x_test, y_test), WHOLE)
    there = measure_consequences(make_audit(small, 10 * x, y, 10 * x_test, y_test), WHOLE)
    assert plain(there) == pytest.approx(plain(here), rel=SOLVED, abs=CANCELS)


def test_scaling_layers_against_each_other_changes_nothing(make_audit: AuditMaker) -> None:
    network, scaled = network_of(), network_of()
    scaled[0].weight.data *= 8  # a power of two, so that rounding to 8 bits rounds the same way
    scaled[0].bias.data *= 8
    scaled[2].weight.data /= 8
    here, there = (plain(measured(make_audit, each, "classification")) for each in (network, scaled))
    assert there == pytest.approx(here, rel=SOLVED, abs=CANCELS)


def test_the_size_of_a_chunk_makes_no_difference(make_audit: AuditMaker) -> None:
    audit = make_audit(network_of(), *table("classification"), bootstrap=50)
    few = make_audit(network_of(), *table("classification"), bootstrap=50)
    few.capture.chunk = 5
    assert plain(measure_consequences(few, WHOLE)) == pytest.approx(
        plain(measure_consequences(audit, WHOLE)), rel=EXACT
    )


def test_the_same_seed_gives_the_same_bits_and_another_one_others(make_audit: AuditMaker) -> None:
    first, again, other = (measured(make_audit, network_of(), "classification", seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert by_id(first)["input-noise-5"].loss_change != by_id(other)["input-noise-5"].loss_change


def test_the_network_is_left_as_it_was(make_audit: AuditMaker) -> None:
    audit = make_audit(network_of(), *table("classification"))
    before = [weight.clone() for weight in audit.network.parameters()]
    measure_consequences(audit, WHOLE)
    weight = next(audit.network.parameters())
    with pytest.raises(KeyboardInterrupt), changed([weight], [torch.ones_like(weight)]):
        raise KeyboardInterrupt
    assert all(torch.equal(old, new) for old, new in zip(before, audit.network.parameters(), strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_large_matrix_is_changed_a_few_rows_at_a_time(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.randn(7, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
    own, whole = weight.clone(), [delta.clone() for delta in directions(weight, 2, (3,), by_neuron=False)]
    monkeypatch.setattr("audit.maths.blocks.HELD", 10)  # two rows
    for delta, at_once in zip(directions(weight, 2, (3,), by_neuron=False), whole, strict=True):
        torch.testing.assert_close(delta, at_once)
        assert float(delta.double().norm()) == pytest.approx(float(own.double().norm()), rel=torch.finfo(dtype).eps * 4)
        with changed([weight], [delta], 0.05):
            assert torch.equal(weight, own + 0.05 * delta)
        assert torch.equal(weight, own)


def test_of_each_change_a_few_numbers_a_sample_are_kept_not_its_scores(make_audit: AuditMaker) -> None:
    audit = make_audit(network_of(), *table("classification"))
    samples = Samples.of(audit, audit.test, 24)
    sizes: dict[Kind, tuple[float, ...]] = {"weights-noise": (0.05,)}
    for draws in moved(samples, audit.layers, sizes, 1, 0).values():
        for answers in draws:
            kept = (answers.loss, answers.moved, answers.wrong, answers.answer)
            assert all(values is not None and values.shape == (24,) for values in kept)


def test_few_samples_are_drawn_and_the_block_says_so(make_audit: AuditMaker) -> None:
    block = measured(make_audit, network_of(), "classification", Effort(tests=16, trains=4))
    assert (block.form, block.samples, block.train_samples) == ("sampled", 16, 4)
    assert measured(make_audit, network_of(), "classification").form == "exact"


def test_each_column_of_a_table_has_its_own_spread(make_audit: AuditMaker) -> None:
    x, y, x_test, y_test = table("classification")
    units = np.array([1.0, 1e3, 1e-3, 5.0, 0.2])
    columns = tuple("abcde")

    def audit(scale: np.ndarray) -> Audit:
        network = network_of()
        network[0].weight.data /= torch.from_numpy(scale)
        data = as_data(x * scale, y, x_test * scale, y_test, features=columns)
        return set_up_audit(as_model(network, (5,)), data, "classification", Settings(bootstrap=50))

    here, there = (measure_consequences(audit(scale), WHOLE) for scale in (np.ones(5), units))
    inputs = [change.loss_change for change in here.changes if change.layer is None][:4]
    assert [change.loss_change for change in there.changes][:4] == pytest.approx(inputs, rel=LOSSY)
    assert here.spread is None


def test_what_cannot_vary_is_not_changed(make_audit: AuditMaker) -> None:
    x = np.ones((8, 5))
    block = measure_consequences(make_audit(network_of(), x, np.arange(8) % 3, x, np.arange(8) % 3), WHOLE)
    assert block.skipped == CONSTANT and block.changed_place is None
    assert {change.kind for change in block.changes} == {"weights-rounded", "weights-noise", "neurons-noise"}


class Explosive(nn.Module):
    """Finite on the samples as they are; beyond the largest of them a step further is infinite."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(1, 1, bias=False).double()
        self.head.weight.data.fill_(1.0)

    def forward(self, x: Tensor) -> Tensor:
        z = self.head(x)
        return z + torch.where(z > 1.0 + 1e-9, math.inf, 0.0)


def test_scores_that_are_no_longer_finite_are_left_out_by_name(make_audit: AuditMaker) -> None:
    x = np.linspace(-1, 1, 12)[:, None]
    block = measure_consequences(make_audit(Explosive(), x, x, x, x, task="regression"), WHOLE)
    assert "head-weights-noise-5" in block.not_finite
    assert all(math.isfinite(change.loss_change) for change in block.changes)


def test_eight_bits_have_127_steps_to_either_side() -> None:
    layer = nn.Linear(1, 1001).double()
    layer.weight.data = torch.linspace(-1, 1, 1001, dtype=torch.float64)[:, None]
    (weight,), (change,) = rounding(layer)
    assert len((weight + change).mul(127).round().unique()) == 255 and float(change.abs().max()) <= 0.5 / 127 + 1e-15
    nn.init.zeros_(layer.weight)
    assert torch.equal(rounding(layer)[1][0], torch.zeros(1001, 1, dtype=torch.float64))


def test_the_changes_of_a_large_layer_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("audit.maths.blocks.HELD", 1 << 16)
    layer = nn.Linear(1000, 2000)
    of_weights = 4 * layer.weight.numel()
    with LiveBytes() as live:
        rounding(layer)
    assert live.peak < 2.2 * of_weights  # the weights themselves, and their changes
    with LiveBytes() as live:
        for delta in directions(layer.weight.detach(), 1, (0, 0, 0), by_neuron=False):
            assert delta.dtype == torch.float32
    assert live.peak < 2.2 * of_weights  # … drawn a few rows at a time
