"""The activity–weight decomposition against brute force, its identities, its invariances and its degenerate cases."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from references.duality import Reference, decompose
from torch import Tensor, nn

from audit.blocks.duality import Carriers, DualityBlock
from audit.duality.bootstrap import Evidence, Part, bootstrap
from audit.duality.split import sharp_border
from audit.duality.tail import Lines
from audit.duality.widths import crossing, flatness_widths
from audit.measure import Audit, Measurement
from audit.measures.duality import ALL_ZERO, Duality

USED_TWICE = "the layer's weights are used more than once, so no single change of them stands for a sample"

AuditMaker = Callable[..., Audit]


class Tokenwise(nn.Module):
    """A dense layer on each of three tokens, nothing beside it."""

    def __init__(self, into: int = 5) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(into, 4), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.embed(x)).flatten(1))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner, self.head = nn.Linear(6, 5), nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.first(x))
        return self.head(h + torch.relu(self.inner(h)))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.again, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.again(torch.tanh(self.again(x)))))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.b(torch.tanh(self.a(x)))))


def mlp(*sizes: int, act: type[nn.Module] = nn.ReLU, bias: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = []
    for into, out in pairwise(sizes):
        layers += [nn.Linear(into, out, bias=bias), act()]
    return nn.Sequential(*layers[:-1])


def grown(network: nn.Module, seed: int = 0, scale: float = 1.0) -> nn.Module:
    """In float64, with weights that make confident and varied answers."""
    generator = torch.Generator().manual_seed(seed)
    network = network.double()
    with torch.no_grad():
        for parameter in network.parameters():
            width = parameter.shape[1:].numel() if parameter.dim() > 1 else 8
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / width**0.5)
    return network.eval()


def normed() -> nn.Sequential:
    network = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    network[1].running_mean.uniform_(-1, 1)  # type: ignore[union-attr, operator]
    network[1].running_var.uniform_(0.5, 2)  # type: ignore[union-attr, operator]
    return network


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str, int]] = {
    "relu": (lambda: mlp(6, 5, 4, 3), (6,), "classification", 3),
    "tanh": (lambda: mlp(6, 5, 3, act=nn.Tanh), (6,), "classification", 3),
    "gelu": (lambda: mlp(6, 5, 3, act=nn.GELU), (6,), "classification", 3),
    "bias-free": (lambda: mlp(6, 5, 3, bias=False), (6,), "classification", 3),
    "linear": (lambda: mlp(6, 3), (6,), "classification", 3),
    "batchnorm": (normed, (6,), "classification", 3),
    "conv": (
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3)),
        (1, 4, 4),
        "classification",
        3,
    ),
    "tokens": (Tokenwise, (3, 5), "classification", 3),
    "binary": (lambda: mlp(6, 4, 1), (6,), "binary", 2),
    "regression": (lambda: mlp(6, 4, 2), (6,), "regression", 2),
    "one weight": (lambda: mlp(1, 1), (1,), "binary", 2),
}


def samples(shape: tuple[int, ...], task: str, outputs: int, seed: int = 0, n: int = 40, k: int = 17):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(seed)
    x, x_test = rng.normal(size=(n, *shape)), rng.normal(size=(k, *shape))
    if task == "regression":
        return x, rng.normal(size=(n, outputs)), x_test, rng.normal(size=(k, outputs))
    return x, rng.integers(outputs, size=n), x_test, rng.integers(outputs, size=k)


def run(audit: Audit) -> Measurement:
    fold = Duality().start(audit)
    for record in audit.train:
        fold.see(record)
    return fold.finish()


def reference(network: nn.Module, name: str, data, task: str, space: str = "input") -> Reference:  # type: ignore[no-untyped-def]
    return decompose(network, network.get_submodule(name), *(torch.from_numpy(part) for part in data), task, space)


def assert_agrees(block: DualityBlock, truth: Reference) -> None:
    assert block.skipped is None
    close = {"rtol": 1e-8, "atol": 1e-10}
    assert block.max_residual is not None and block.max_residual < 1e-12 and truth.max_residual < 1e-10
    np.testing.assert_allclose(block.gap, truth.gap, **close)
    np.testing.assert_allclose(block.mean_term, truth.mean_term, **close)
    np.testing.assert_allclose([block.total_g, block.total_w], [truth.total_g, truth.total_w], **close)
    np.testing.assert_allclose(block.trace_hessian, truth.trace, **close)
    scale = {"rtol": 1e-7, "atol": 1e-8 * max(1e-3, float(np.abs(truth.contribution).max()))}
    np.testing.assert_allclose(block.sigma_g, truth.sigma_g, rtol=1e-7, atol=1e-8 * truth.sigma_g.max())
    varies = truth.sigma_g > 1e-8 * truth.sigma_g.max()  # beyond them σ_w is unique only where it, too, is diagonalised
    alone = varies & _separated(np.array(block.eigenvalues))
    np.testing.assert_allclose(np.array(block.sigma_w)[alone], truth.sigma_w[alone], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(np.array(block.contribution)[alone], truth.contribution[alone], **scale)


def _separated(eigenvalues: np.ndarray) -> np.ndarray:
    """Directions whose eigenvalue has neighbours equal to it or at a distance: in between, rounding turns them."""
    distance = np.abs(eigenvalues[:, None] - eigenvalues[None, :]) / np.abs(eigenvalues).max()
    return ~((distance > 1e-11) & (distance < 1e-7)).any(1)


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("space", ["input", "features"])
def test_agrees_with_brute_force(make_audit: AuditMaker, kind: str, space: str) -> None:
    build, shape, task, outputs = NETWORKS[kind]
    network, data = grown(build(), scale=2.0), samples(shape, task, outputs)
    audit = make_audit(copy.deepcopy(network), *data, task=task, partner_space=space)
    found = run(audit)
    for layer in audit.layers:
        assert_agrees(found.layers[layer.name], reference(network, layer.module, data, task, space))
    assert (found.network is None) == (space == "features")


@given(st.integers(0, 10_000))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_identity_closes(make_audit: AuditMaker, seed: int) -> None:
    network, data = grown(mlp(6, 5, 4, 3), seed, 3.0), samples((6,), "classification", 3, seed)
    audit = make_audit(network, *data, widths=0, bootstrap=10)
    for block in run(audit).layers.values():
        total = sum(block.contribution) + block.remainder.contribution + block.mean_term
        assert total == pytest.approx(block.gap, rel=1e-12, abs=1e-14)
        assert sum(np.square(block.sigma_g)) == pytest.approx(block.total_g, rel=1e-11)
        assert sum(np.square(block.sigma_w)) == pytest.approx(block.total_w, rel=1e-11)
        assert block.sigma_g == sorted(block.sigma_g, reverse=True)
        assert block.cumulative_w[-1] == pytest.approx(sum(block.sigma_w))
        assert all(c is None or -1 <= c <= 1 for c in block.c)
        split = block.sharp.contribution + block.flat.contribution
        assert split == pytest.approx(block.gap - block.mean_term, rel=1e-11)


def test_a_large_layer_keeps_its_leading_directions_and_the_rest_as_one_lump(
    make_audit: AuditMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, data = grown(mlp(6, 8, 3), scale=2.0), samples((6,), "classification", 3, n=80, k=40)
    whole = run(make_audit(network, *data, widths=2)).layers["0"]
    monkeypatch.setattr("audit.curvature.spectra.DENSE_LIMIT", 10)
    monkeypatch.setattr("audit.measures.duality.DENSE_LIMIT", 10)
    kept = run(make_audit(network, *data, directions=6, widths=2)).layers["0"]
    assert (whole.basis_complete, kept.basis_complete) == (True, False)
    assert (kept.directions, kept.remainder.directions) == (6, 42)
    assert sum(kept.contribution) + kept.remainder.contribution + kept.mean_term == pytest.approx(kept.gap, rel=1e-12)
    assert kept.trace_hessian == pytest.approx(whole.trace_hessian, rel=1e-12)
    assert (kept.total_g, kept.total_w) == pytest.approx((whole.total_g, whole.total_w), rel=1e-12)
    by_value = sorted(zip(whole.eigenvalues, whole.sigma_g, whole.contribution, strict=True), reverse=True)[:6]
    mine = sorted(zip(kept.eigenvalues, kept.sigma_g, kept.contribution, strict=True), reverse=True)
    np.testing.assert_allclose(mine, by_value, rtol=1e-5, atol=1e-8)
    lump = whole.gap - whole.mean_term - sum(contribution for _, _, contribution in by_value)
    assert kept.remainder.contribution == pytest.approx(lump, rel=1e-6)
    assert kept.remainder.sigma_g**2 == pytest.approx(whole.total_g - sum(s * s for _, s, _ in by_value), rel=1e-6)


@given(st.lists(st.floats(0.05, 20), min_size=3, max_size=3))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rescaling_layers_changes_neither_the_total_nor_the_split(make_audit: AuditMaker, factors: list[float]) -> None:
    network, data = grown(mlp(6, 5, 4, 3), scale=2.0), samples((6,), "classification", 3)
    scaled = copy.deepcopy(network)
    product = 1.0
    with torch.no_grad():
        for module, factor in zip((scaled[0], scaled[2]), factors, strict=False):
            product *= factor
            module.weight *= factor
            module.bias *= product
        scaled[4].weight /= product
    before, after = (run(make_audit(one, *data, widths=0, bootstrap=10)).layers for one in (network, scaled))
    for name in before:
        a, b = before[name], after[name]
        assert b.gap == pytest.approx(a.gap, rel=1e-9)
        np.testing.assert_allclose(b.contribution, a.contribution, rtol=1e-6, atol=1e-9 * max(map(abs, a.contribution)))
        assert b.sharp.count == a.sharp.count
        assert b.total_g * b.total_w == pytest.approx(a.total_g * a.total_w, rel=1e-8)


def test_chunks_and_repeated_runs_change_nothing(make_audit: AuditMaker) -> None:
    network, data = grown(mlp(6, 5, 3, act=nn.Tanh), scale=2.0), samples((6,), "classification", 3)
    first = make_audit(network, *data)
    small = make_audit(network, *data)
    object.__setattr__(small.capture, "chunk", 7)
    fixed = make_audit(network, *data)
    object.__setattr__(fixed.capture, "fixed_batch", 8)
    a, again = run(first), run(make_audit(network, *data))
    assert a.layers == again.layers and a.network == again.network
    for other in (run(small), run(fixed)):
        for name, block in a.layers.items():
            mine = other.layers[name]
            np.testing.assert_allclose(mine.contribution, block.contribution, rtol=1e-9, atol=1e-15)
            assert mine.ci95.gap == pytest.approx(block.ci95.gap, rel=1e-10)
            assert mine.max_residual < 1e-12 and mine.sharp.count == block.sharp.count
            assert [w.width is None for w in mine.widths] == [w.width is None for w in block.widths]


@pytest.mark.parametrize(
    ("build", "name", "sentence"),
    [
        (Residual, "inner", "another path leads round this layer, so its weights alone do not decide the loss"),
        (Twice, "again", USED_TWICE),
        (Tied, "a", USED_TWICE),
        (lambda: Tokenwise(2), "embed", "the layer's tokens depend on each other, so no weights answer to all of them"),
    ],
)
def test_where_the_duality_does_not_hold_it_is_measured_and_the_layer_left_out(
    make_audit: AuditMaker, build: Callable[[], nn.Module], name: str, sentence: str
) -> None:
    network = grown(build(), scale=2.0)
    shape = (3, 2) if isinstance(network, Tokenwise) else (6,)
    block = run(make_audit(network, *samples(shape, "classification", 3))).layers[name]
    assert block.max_residual > 1e-3
    assert block.skipped == f"{sentence}: with its dual weights the loss is off by up to {block.max_residual:.3g}"
    assert block.sigma_g == [] and block.sharp is None and block.ci95.gap is None


def test_the_measured_residual_is_the_real_one(make_audit: AuditMaker) -> None:
    network, data = grown(Residual(), scale=2.0), samples((6,), "classification", 3)
    block = run(make_audit(copy.deepcopy(network), *data)).layers["inner"]
    truth = reference(network, "inner", data, "classification")
    assert block.max_residual == pytest.approx(truth.max_residual, rel=1e-9)


def test_float32_capture_still_checks_the_duality_in_float64(make_audit: AuditMaker) -> None:
    network, data = grown(mlp(6, 5, 3), scale=2.0).float(), samples((6,), "classification", 3)
    single, double = (run(make_audit(network, *data, precision=precision)) for precision in ("float32", "float64"))
    for name, block in single.layers.items():
        assert block.skipped is None and block.max_residual < 1e-12
        assert block.gap == pytest.approx(double.layers[name].gap, rel=1e-12)


def test_test_samples_without_a_partner_are_counted(make_audit: AuditMaker) -> None:
    x, y, x_test, y_test = samples((6,), "classification", 3)
    y[y == 2] = 1
    found = run(make_audit(grown(mlp(6, 5, 3)), x, y, x_test, y_test))
    missing = int((y_test == 2).sum())
    assert missing and all(block.unpaired == missing for block in found.layers.values())
    assert found.network.classes[2].unpaired == missing and found.network.classes[2].mean_gap is None


def test_no_pair_at_all(make_audit: AuditMaker) -> None:
    x, y, x_test, y_test = samples((6,), "classification", 3)
    found = run(make_audit(grown(mlp(6, 5, 3)), x, y * 0, x_test, y_test * 0 + 1))
    sentence = "no test sample has a train sample of its label, so there are no pairs to compare"
    assert {block.skipped for block in found.layers.values()} == {sentence}
    assert isinstance(found.network, Carriers)
    assert (found.network.pairs, found.network.unpaired, found.network.skipped) == (0, 17, sentence)


def test_zero_activations_are_dropped_and_counted(make_audit: AuditMaker) -> None:
    x, y, x_test, y_test = samples((6,), "classification", 3)
    x[:5] = 0
    y[:5] = y_test[:5] = np.arange(5) % 3
    x_test[:5] = 1e-3 * x_test[:5]
    network = grown(mlp(6, 5, 3), scale=2.0)
    block = run(make_audit(network, x, y, x_test, y_test)).layers["0"]
    truth = reference(network, "0", (x, y, x_test, y_test), "classification")
    assert block.dropped == 17 - len(truth.dw) >= 5 and block.pairs == len(truth.dw)
    assert block.gap == pytest.approx(truth.gap, rel=1e-10)


def test_a_dead_layer(make_audit: AuditMaker) -> None:
    network = grown(mlp(6, 5, 3))
    with torch.no_grad():
        network[0].weight.zero_()
        network[0].bias.fill_(-1)
    found = run(make_audit(network, *samples((6,), "classification", 3))).layers
    assert found["2"].skipped == ALL_ZERO and found["2"].dropped == 17
    assert found["0"].skipped is None and found["0"].total_w == 0 and found["0"].sharp.count == 0
    assert found["0"].sharp.note == "the effective gradients do not vary: there are no sharp directions"
    assert set(found["0"].c) == {None}


def test_test_samples_that_are_train_samples(make_audit: AuditMaker) -> None:
    x, y, _, _ = samples((6,), "classification", 3)
    block = run(make_audit(grown(mlp(6, 5, 3)), x, y, x[5:15], y[5:15])).layers["0"]
    assert abs(block.gap) < 1e-12 and block.total_w == 0 and block.share_skipped is not None


def test_a_negative_gap_has_no_shares_but_a_reason(make_audit: AuditMaker) -> None:
    x, y, x_test, _ = samples((6,), "classification", 3)
    network = grown(mlp(6, 3), scale=3.0)
    with torch.no_grad():
        y_test = network(torch.from_numpy(x_test)).argmax(1).numpy()
    block = run(make_audit(network, x, y, x_test, y_test)).layers["0"]
    assert block.gap < 0 and block.sharp.share is None and block.flat.share is None and block.ci95.sharp_share is None
    total = block.sharp.contribution + block.flat.contribution
    assert block.share_skipped == f"the directions' sum is not positive ({total:.3g}): it has no shares"


def test_one_pair_has_no_variance(make_audit: AuditMaker) -> None:
    x, y, x_test, y_test = samples((6,), "classification", 3)
    y[:3] = [0, 1, 2]
    block = run(make_audit(grown(mlp(6, 5, 3)), x, y, x_test[:1], y_test[:1])).layers["0"]
    assert block.total_g == block.total_w == 0 and block.mean_term == pytest.approx(block.gap, rel=1e-12)


def test_regression_says_that_partners_have_no_label(make_audit: AuditMaker) -> None:
    found = run(make_audit(grown(mlp(6, 4, 2)), *samples((6,), "regression", 2), task="regression"))
    assert "whatever its target" in found.layers["0"].partner_rule
    assert found.layers["0"].fixed is None and found.network.classes is None


def test_carriers_add_up_to_the_gap(make_audit: AuditMaker) -> None:
    data = samples((6,), "classification", 3, k=60)
    carriers = run(make_audit(grown(mlp(6, 5, 3), scale=4.0), *data)).network
    assert sum(one.contribution for one in carriers.classes) == pytest.approx(carriers.gap, rel=1e-12)
    assert sum(one.pairs for one in carriers.classes) == carriers.pairs == 60
    gaps = [sample.gap for sample in carriers.samples]
    assert gaps == sorted(gaps, reverse=True) and len(gaps) == 20
    first = carriers.samples[0]
    assert data[3][first.index] == data[1][first.partner] == int(first.label)
    assert first.gap == pytest.approx(first.test_loss - first.partner_loss)


def fitted(scale: float = 6.0) -> tuple[nn.Module, tuple[np.ndarray, ...]]:
    """A network and train labels that it gets right, so that every direction ends in a higher loss."""
    x, _, x_test, y_test = samples((6,), "classification", 3, n=80)
    network = grown(mlp(6, 8, 3), scale=scale)
    with torch.no_grad():
        return network, (x, network(torch.from_numpy(x)).argmax(1).numpy(), x_test, y_test)


def test_widths_end_where_the_loss_has_doubled(make_audit: AuditMaker) -> None:
    network, data = fitted()
    audit = make_audit(network, *data)
    x, y = audit.train.x, audit.train.y
    E = torch.randn(3, 8, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    E /= E.flatten(1).norm(dim=1)[:, None, None]
    lines = Lines(audit.capture, audit.layers[0], x, y)
    start = float(audit.loss.value(network(x), y).mean())
    for width, e in zip(flatness_widths(lines, E, [1.0, -1.0, 1e-9], 1.0), E, strict=True):
        assert width.skipped is None and width.lower < 0 < width.upper
        assert width.width == pytest.approx(width.upper - width.lower)
        for end in (width.lower, width.upper):
            changed = copy.deepcopy(network)
            changed[0].weight += end * e
            assert float(audit.loss.value(changed(x), y).mean()) == pytest.approx(2 * start, rel=1e-4)


def test_widths_of_the_leading_directions(make_audit: AuditMaker) -> None:
    network, data = fitted()
    block = run(make_audit(network, *data, widths=4)).layers["0"]
    assert [width.direction for width in block.widths] == [1, 2, 3, 4] and block.width_samples == 80
    assert all(width.width > 0 for width in block.widths)
    assert run(make_audit(network, *data, widths=0)).layers["0"].widths == []


@pytest.mark.parametrize("kind", ["relu", "tokens", "batchnorm", "conv"])
def test_the_tail_alone_gives_the_losses_of_changed_weights(make_audit: AuditMaker, kind: str) -> None:
    build, shape, task, outputs = NETWORKS[kind]
    network = grown(build(), scale=2.0)
    audit = make_audit(network, *samples(shape, task, outputs), task=task)
    for layer in audit.layers:
        E = torch.randn(layer.out_features, layer.in_features, dtype=torch.float64)
        lines = Lines(audit.capture, layer, audit.train.x, audit.train.y)
        changed = copy.deepcopy(audit.network)
        with torch.no_grad():
            changed.get_submodule(layer.module).weight += 0.3 * E
            truth = audit.loss.value(changed(audit.train.x), audit.train.y)
        assert lines._tail is not None
        torch.testing.assert_close(lines.along(E)(0.3), truth, rtol=1e-10, atol=1e-12)
        lines._tail = None
        torch.testing.assert_close(lines.along(E)(0.3), truth, rtol=1e-10, atol=1e-12)


def test_a_zero_train_loss_has_no_width(make_audit: AuditMaker) -> None:
    rng = np.random.default_rng(0)
    x, x_test = rng.integers(-3, 4, (30, 6)).astype(np.float64), rng.integers(-3, 4, (9, 6)).astype(np.float64)
    network = grown(mlp(6, 2))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.from_numpy(rng.integers(-2, 3, tuple(parameter.shape))))
        y, y_test = (network(torch.from_numpy(part)).numpy() for part in (x, x_test))
    block = run(make_audit(network, x, y, x_test, y_test + 1, task="regression", widths=1)).layers["0"]
    assert block.widths[0].width is None
    assert block.widths[0].skipped == "not defined: the train loss is exactly zero, so there is nothing to double"


def test_a_direction_along_which_the_loss_never_doubles(make_audit: AuditMaker) -> None:
    network, data = fitted()
    audit = make_audit(network, *data)
    lines = Lines(audit.capture, audit.layers[1], audit.train.x, audit.train.y)
    alike = torch.ones(1, 3, 8, dtype=torch.float64)  # adds the same to all scores
    width = flatness_widths(lines, alike, [0.0], 1.0)[0]
    sentence = "the train loss does not double on both sides, however far one walks"
    assert (width.width, width.skipped) == (None, sentence)


def test_a_dense_layer_written_as_a_convolution(make_audit: AuditMaker) -> None:
    dense = grown(mlp(6, 5, 3, act=nn.Tanh), scale=2.0)
    written = nn.Sequential(
        nn.Unflatten(1, (6, 1, 1)), nn.Conv2d(6, 5, 1), nn.Tanh(), nn.Conv2d(5, 3, 1), nn.Flatten()
    ).double()
    with torch.no_grad():
        for one, other in ((written[1], dense[0]), (written[3], dense[2])):
            one.weight.copy_(other.weight[:, :, None, None])
            one.bias.copy_(other.bias)
    data = samples((6,), "classification", 3)
    a, b = (run(make_audit(network, *data)).layers for network in (dense, written))
    for mine, theirs in (("0", "1"), ("2", "3")):
        assert b[theirs].skipped is None
        np.testing.assert_allclose(b[theirs].contribution, a[mine].contribution, rtol=1e-8, atol=1e-14)


@given(st.floats(0.01, 100), st.floats(1e-3, 10), st.floats(1.0, 4.0))
def test_crossings_of_a_power_law(scale: float, step: float, power: float) -> None:
    found = crossing(lambda t: 3.0 * (1 + (t / scale) ** power), 3.0, step, 1e6)
    assert found == pytest.approx(scale, rel=1e-5)


@pytest.mark.parametrize(
    ("sigma", "count", "elbow"),
    [
        ([1.0, 1.0, 1.0, 0.2, 0.2], 2, False),  # the drop lies beyond 70 %, and it is not where half is
        ([1.0] * 5 + [0.4] * 20, 5, True),
        ([0.99**n for n in range(200)], 34, False),
        ([1.0], 1, False),
        ([1.0, 0.0], 1, True),
    ],
)
def test_the_border(sigma: list[float], count: int, elbow: bool) -> None:
    border = sharp_border(sigma, float(np.square(sigma).sum()))
    assert (border.count, border.elbow) == (count, elbow)


def test_the_border_of_kept_directions_that_hold_too_little() -> None:
    border = sharp_border([1.0, 1.0], 20.0)
    assert border.count == 2 and not border.elbow
    assert border.note == (
        "the 2 kept directions hold only 10% of the variance of the effective gradients, so all of them count as "
        "sharp; raise --directions to look further"
    )


def test_the_bootstrap_is_the_plain_one_to_first_order() -> None:
    rng = np.random.default_rng(0)
    K, N = 200, 6
    w = rng.normal(size=(K, N)) + 0.1
    s = rng.exponential(size=K)
    g = s[:, None] * w

    def part(n: int) -> Part:
        return Part((g * w)[:, :n].sum(1), w[:, :n] @ g[:, :n].mean(0), g[:, :n] @ w[:, :n].mean(0))

    found = bootstrap([Evidence((g * w).sum(1), part(2), part(N))], 2000, 0)[0]
    plain = []
    for _ in range(2000):
        rows = rng.integers(K, size=K)
        covariance = ((g[rows] - g[rows].mean(0)) * (w[rows] - w[rows].mean(0))).mean(0)
        plain.append(covariance[:2].sum() / covariance.sum())
    assert found.sharp_share == pytest.approx(tuple(np.percentile(plain, (2.5, 97.5))), abs=0.01)
