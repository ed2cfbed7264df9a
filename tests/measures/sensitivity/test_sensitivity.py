"""Sensitivity and its bounds against brute force; what leaves them unchanged."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_audits import as_data, as_model
from references import sensitivity as reference
from sensitivity_cases import NETWORKS, Attention, _mlp, measure, samples
from tolerances import EXACT, IDENTITY
from torch import nn

from audit.errors import ModelError
from audit.measures.sensitivity.measure import Sensitivity
from audit.network.record import Products
from audit.run.setup import set_up_audit
from audit.settings import Settings

QUICK = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _settled(network: nn.Module) -> nn.Module:
    """Norm layers with statistics and factors that are not 0 and 1."""
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
            nn.init.normal_(module.weight, 1, 0.3)
    return network


@pytest.fixture(params=NETWORKS)
def case(request, make_audit):
    build, shape, dense, task = NETWORKS[request.param]
    torch.manual_seed(1)
    network = _settled(build())
    outputs = network.eval()(torch.zeros(2, *shape)).shape[1]
    x, y = samples(shape, task, outputs=outputs)
    truth = reference.numbers(copy.deepcopy(network), torch.from_numpy(x), dense)
    return measure(make_audit, network, x, y, task), truth, dense


def test_every_number_is_the_brute_force_one(case):
    found, truth, dense = case
    for name, value in truth["network"].items():
        assert getattr(found.network, name) == (value if value is None else pytest.approx(value, rel=EXACT)), name
    for path in dense:
        for name, value in truth["layers"][path].items():
            if hasattr(found.layers[path], name):
                expected = value if value is None else pytest.approx(value, rel=EXACT)
                assert getattr(found.layers[path], name) == expected, (path, name)


def test_both_sides_of_every_bound_are_the_brute_force_ones(case):
    found, truth, _ = case
    for bound in found.network.bounds:
        if bound.left_out or bound.skipped or bound.id not in truth["bounds"]:
            continue
        left, right = truth["bounds"][bound.id]
        assert (math.exp(bound.left) if bound.log else bound.left) == pytest.approx(left, rel=EXACT), bound.id
        assert (math.exp(bound.right) if bound.log else bound.right) == pytest.approx(right, rel=EXACT), bound.id
    for name, value in truth["chain"].items():
        assert getattr(found.network.chain, name) == pytest.approx(value, rel=EXACT)


def test_every_bound_holds_and_the_chain_ascends(case):
    found, _, _ = case
    assert all(bound.holds or bound.skipped for bound in found.network.bounds)
    assert [bound.id for bound in found.network.bounds][:5] == [
        "prop-3.4",
        "prop-3.6",
        "prop-3.8",
        "prop-3.10",
        "prop-e.4",
    ]
    if (chain := found.network.chain) is not None:
        assert (
            chain.A <= chain.B * (1 + 1e-12) and chain.B <= chain.C * (1 + 1e-12) and chain.C <= chain.D * (1 + 1e-12)
        )


@QUICK
@given(
    widths=st.lists(st.integers(1, 7), min_size=3, max_size=5),
    act=st.sampled_from([nn.ReLU, nn.Tanh, nn.GELU, nn.Sigmoid]),
    seed=st.integers(0, 10**6),
    size=st.floats(-2, 2),
)
def test_bounds_hold_on_random_networks(make_audit, widths, act, seed, size):
    torch.manual_seed(seed)
    network = _mlp(*widths, act=act)
    with torch.no_grad():
        for value in network.parameters():
            value.mul_(10**size)
    x, y = samples((widths[0],), "regression", n=7, seed=seed, outputs=widths[-1])
    try:
        found = measure(make_audit, network, x * 10**-size, y, "regression", bootstrap=2)
    except ModelError as error:  # a random network may be dead: then the layer finder says so
        assert "no dense layer" in str(error)
        return
    assert found.network.bounds
    for bound in found.network.bounds:
        assert bound.holds is not False, bound
        assert bound.left is None or bound.right is None or bound.left <= bound.right + 1e-9 * (1 + abs(bound.right))
        assert bound.tightness is None or 0 <= bound.tightness <= 1 + 1e-8


@QUICK
@given(seed=st.integers(0, 10**6), logs=st.lists(st.floats(-3, 3), min_size=9, max_size=9))
def test_rescaling_neurons_leaves_input_sensitivity_and_adaptive_sharpness(make_audit, seed, logs):
    torch.manual_seed(seed)
    network, x_y = _mlp(6, 9, 3), samples((6,), "classification", seed=seed)
    rescaled = copy.deepcopy(network)
    with torch.no_grad():
        factor = torch.tensor(logs).exp()
        rescaled[0].weight.mul_(factor[:, None])
        rescaled[0].bias.mul_(factor)
        rescaled[2].weight.div_(factor)
    before, after = (measure(make_audit, net, *x_y, bootstrap=2).network for net in (network, rescaled))
    for name in (
        "mls",
        "mean_log_volume",
        "dimensionality",
        "input_invariant_mls",
        "normalized_mls",
        "adaptive_sharpness",
    ):
        value = getattr(before, name)
        assert getattr(after, name) == (value if value is None else pytest.approx(value, rel=1e-5)), name


def test_numbers_do_not_depend_on_chunks_or_order(make_audit):
    torch.manual_seed(0)
    network = Attention()
    x, y = samples((3, 5), "classification", n=40)
    whole = measure(make_audit, network, x, y).network
    chunked = make_audit(network, x, y, x[:4], y[:4], bootstrap=20)
    object.__setattr__(chunked.capture, "chunk", 7)
    fold = Sensitivity().start(chunked)
    for record in chunked.train:
        fold.see(record, Products(record))
    order = np.random.default_rng(1).permutation(len(x))
    for other in (fold.finish().network, measure(make_audit, network, x[order], y[order]).network):
        for name in ("sharpness", "mls", "nmls", "adaptive_sharpness", "mean_log_volume_centred"):
            assert getattr(other, name) == pytest.approx(getattr(whole, name), rel=IDENTITY), name


class FourAtOnce(nn.Module):
    """A network that takes exactly four samples, with a convolution and a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.mix, self.head = nn.Conv1d(1, 2, 3), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        x = self.conv(x.reshape(4, 1, 6)).reshape(4, 8)
        return self.head(x + torch.relu(self.mix(x)))


class AnyNumber(FourAtOnce):
    def forward(self, x):
        x = self.conv(x.reshape(-1, 1, 6)).reshape(-1, 8)
        return self.head(x + torch.relu(self.mix(x)))


def test_a_fixed_batch_changes_no_number():
    torch.manual_seed(0)
    free, (x, y) = AnyNumber(), samples((6,), "classification", n=10)
    fixed = FourAtOnce()
    fixed.load_state_dict(free.state_dict())
    found = []
    for network, batch in ((free, None), (fixed, 4)):
        model = as_model(network, (6,))
        model = replace(model, input=replace(model.input, batch=batch))
        audit = set_up_audit(model, as_data(x, y, x[:4], y[:4]), "classification", Settings(bootstrap=20))
        fold = Sensitivity().start(audit)
        for record in audit.train:
            fold.see(record, Products(record))
        found.append(fold.finish())
    for name in ("sharpness", "adaptive_sharpness", "mls", "nmls", "sharpness_trace"):
        assert getattr(found[1].network, name) == pytest.approx(getattr(found[0].network, name), rel=IDENTITY), name
    assert found[1].layers["mix"].skip.skip_mls == pytest.approx(found[0].layers["mix"].skip.skip_mls, rel=IDENTITY)
