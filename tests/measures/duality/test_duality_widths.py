"""How far the weights can move before the loss has doubled, and the tail of a network that is run for it."""

from __future__ import annotations

import copy
import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from duality_cases import NETWORKS, AuditMaker, grown, mlp, run, samples
from hypothesis import given
from tolerances import CANCELS, EXACT, LOSSY
from torch import nn

from audit.measures.duality.basis import Formed, FormedDirection, Leading
from audit.measures.duality.widths import LayerActivations, Lines, crossing, flatness_widths


def fitted(scale: float = 6.0) -> tuple[nn.Module, tuple[np.ndarray, ...]]:
    """A network and train labels that it gets right, so that every direction ends in a higher loss."""
    x, _, x_test, y_test = samples((6,), "classification", 3, n=80)
    network = grown(mlp(6, 8, 3), scale=scale)
    with torch.no_grad():
        return network, (x, network(torch.from_numpy(x)).argmax(1).numpy(), x_test, y_test)


def formed(E: torch.Tensor) -> Leading:
    """Directions as they are; E [N, out, in]."""
    return Leading(Formed(E), [], list(range(len(E))), [1.0] * len(E))


def test_widths_end_where_the_loss_has_doubled(make_audit: AuditMaker) -> None:
    network, data = fitted()
    audit = make_audit(network, *data)
    x, y = audit.train.x, audit.train.y
    E = torch.randn(3, 8, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    E /= E.flatten(1).norm(dim=1)[:, None, None]
    lines = Lines(LayerActivations(audit.capture, audit.layers, x, y), audit.layers[0])
    start = float(audit.loss.value(network(x), y).mean())
    for width, e in zip(flatness_widths(lines, formed(E), [1.0, -1.0, 1e-9], 1.0), E, strict=True):
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
        lines = Lines(LayerActivations(audit.capture, audit.layers, audit.train.x, audit.train.y, 1 << 30), layer)
        changed = copy.deepcopy(audit.network)
        with torch.no_grad():
            changed.get_submodule(layer.module).weight += 0.3 * E
            truth = audit.loss.value(changed(audit.train.x), audit.train.y)
        assert lines._tail is not None
        torch.testing.assert_close(lines.along(FormedDirection(E))(0.3), truth, rtol=EXACT, atol=CANCELS)
        lines._tail = None
        torch.testing.assert_close(lines.along(FormedDirection(E))(0.3), truth, rtol=EXACT, atol=CANCELS)


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
    lines = Lines(LayerActivations(audit.capture, audit.layers, audit.train.x, audit.train.y), audit.layers[1])
    alike = torch.ones(1, 3, 8, dtype=torch.float64)  # adds the same to all scores
    width = flatness_widths(lines, formed(alike), [0.0], 1.0)[0]
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
        np.testing.assert_allclose(b[theirs].contribution, a[mine].contribution, rtol=LOSSY, atol=1e-14)


@given(st.floats(0.01, 100), st.floats(1e-3, 10), st.floats(1.0, 4.0))
def test_crossings_of_a_power_law(scale: float, step: float, power: float) -> None:
    found = crossing(lambda t: 3.0 * (1 + (t / scale) ** power), 3.0, (step, 1e6), 1e-6)
    assert found == pytest.approx(scale, rel=1e-5)


@given(st.floats(0.01, 10), st.floats(0.05, 0.95), st.floats(1e-3, 10))
def test_crossings_behind_a_kink_and_of_a_sudden_rise(scale: float, kink: float, step: float) -> None:
    """Where the loss is flat at first, a straight line through two heights misses by far."""
    behind = crossing(lambda t: 1 + max(0.0, t - kink * scale) / ((1 - kink) * scale), 1.0, (step, 1e6), 1e-6)
    assert behind == pytest.approx(scale, rel=1e-5)
    rise = crossing(
        lambda t: 1 + math.expm1(20 * t / scale) / math.expm1(20) if t < 30 * scale else math.inf,
        1.0,
        (step, 1e6),
        1e-6,
    )
    assert rise == pytest.approx(scale, rel=1e-5)
