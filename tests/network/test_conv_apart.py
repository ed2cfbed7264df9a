"""What convolutions must not touch, and what is said where they cannot be decomposed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
from conv_cases import CHOSEN, NETWORKS, audit_of, made, suite
from made_audits import AuditMaker
from tolerances import CANCELS, LOSSY
from torch import Tensor, nn
from zoo import build

import audit.measures.duality.measure as limits
from audit.checks import run_checks
from audit.measures.consequences.block import Consequences
from audit.measures.duality.block import DualityBlock
from audit.network import dense_only

DIRECTIONAL = ("eigenvalues", "sigma_g", "sigma_w", "cumulative_w", "c", "contribution")

USED_TWICE = "the layer's weights are used more than once, so no single change of them stands for a sample"


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("space", ["input", "features"])
def test_asking_for_convolutions_changes_no_other_number(make_audit: AuditMaker, name: str, space: str) -> None:
    network, x, y = made(name)
    chosen = {"partner_space": space, "adaptive_draws": 2}
    plain, asked = (suite(audit_of(make_audit, network, x, y, conv=conv, **chosen)) for conv in (False, True))
    for key, without in plain.measurements.items():
        with_them = asked.measurements[key]
        for layer, block in without.layers.items():
            same(asdict(with_them.layers[layer]), asdict(block), f"{key} {layer}")
        if without.network is not None:
            same(of_no_layer(with_them.network), of_no_layer(without.network), f"{key} network")


def of_no_layer(block: Any) -> dict[str, Any]:
    """A block without random changes of single layers, whose draws go by the layer's place among all."""
    values = asdict(block)
    if isinstance(block, Consequences):
        values["changes"] = [change for change in values["changes"] if change["layer"] is None]
    return values


def settled(block: Any) -> dict[str, Any]:
    """A block as plain values; directions along which g does not vary have no order, and are left out."""
    values = asdict(block)
    if isinstance(block, DualityBlock) and block.sigma_g:
        kept = int((np.array(block.sigma_g) > 1e-7 * block.sigma_g[0]).sum())
        values |= {key: values[key][:kept] for key in DIRECTIONAL}
    return values


def same(found: Any, expected: Any, where: str) -> None:
    """Equal but for rounding, the notes on layers outside the sums aside."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for key in expected.keys() - {"notes"}:
            same(found[key], expected[key], f"{where} {key}")
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), where
        scale = max((abs(value) for value in expected if isinstance(value, float)), default=0.0)
        for number, (a, b) in enumerate(zip(found, expected, strict=True)):
            if isinstance(b, float):
                assert a == pytest.approx(b, rel=1e-6, abs=1e-9 * scale), where
            else:
                same(a, b, f"{where} {number}")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=LOSSY, abs=CANCELS), where
    else:
        assert found == expected, where


def test_sums_over_the_network_name_the_convolutions_they_leave_out(make_audit: AuditMaker) -> None:
    network, x, y = made("lenet")
    found = suite(audit_of(make_audit, network, x, y)).measurements["flatness"].network
    assert found.layers == ["7", "9"]
    assert found.notes == [
        f"{name} is not among them: a convolution, whose numbers stand by themselves" for name in ("0", "3")
    ]


def test_a_kernel_as_large_as_its_map_equals_the_dense_twin(make_audit: AuditMaker) -> None:
    torch.manual_seed(0)
    twin = nn.Sequential(nn.Flatten(), nn.Linear(18, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    conv = nn.Sequential(nn.Conv2d(2, 5, 3), nn.Flatten(), nn.ReLU(), nn.Linear(5, 3)).double()
    conv[0].weight.data, conv[0].bias.data = twin[1].weight.data.reshape(5, 2, 3, 3), twin[1].bias.data
    conv[3].load_state_dict(twin[3].state_dict())
    x, y = torch.randn(12, 2, 3, 3, dtype=torch.float64), torch.arange(12) % 3
    ours, theirs = (suite(audit_of(make_audit, network.requires_grad_(False), x, y)) for network in (conv, twin))
    for key in ("duality", "flatness", "fisher", "sensitivity"):
        found, expected = ours.measurements[key].layers["0"], theirs.measurements[key].layers["1"]
        same(settled(found), settled(expected), key)
    assert not ours.measurements["duality"].layers["0"].approximate


class Residual(nn.Module):
    """A convolution beside a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner, self.head = nn.Conv1d(2, 3, 3), nn.Conv1d(3, 3, 3, padding=1), nn.Linear(18, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.first(x))
        return self.head((h + torch.relu(self.inner(h))).flatten(1))


def test_a_bypassed_convolution_is_not_decomposed(make_audit: AuditMaker) -> None:
    torch.manual_seed(0)
    network = Residual().double().requires_grad_(False)
    results = suite(audit_of(make_audit, network, torch.randn(12, 2, 8, dtype=torch.float64), torch.arange(12) % 3))
    blocks = results.measurements["duality"].layers
    assert blocks["inner"].skipped.startswith("another path leads round this layer, so its weights alone do not decide")
    assert not blocks["inner"].approximate
    assert blocks["first"].skipped is None


def test_two_convolutions_with_one_kernel_are_not_decomposed(make_audit: AuditMaker) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv1d(2, 2, 3), nn.ReLU(), nn.Conv1d(2, 2, 3), nn.Flatten(), nn.Linear(8, 3)).double()
    network[2].weight = network[0].weight
    network.requires_grad_(False)
    x, y = torch.randn(12, 2, 8, dtype=torch.float64), torch.arange(12) % 3
    results = suite(audit_of(make_audit, network, x, y))
    for path in ("0", "2"):
        assert results.measurements["duality"].layers[path].skipped.startswith(USED_TWICE)
    plain = suite(audit_of(make_audit, network, x, y, conv=False))
    same(asdict(results.measurements["fisher"].network), asdict(plain.measurements["fisher"].network), "fisher")
    sensitivities = [found.measurements["sensitivity"].network for found in (results, plain)]
    same(*map(asdict, sensitivities), "sensitivity")


def test_a_network_of_convolutions_alone(make_audit: AuditMaker) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 3), nn.Flatten(2), nn.AdaptiveAvgPool1d(1))
    network = nn.Sequential(*network, nn.Flatten()).double().requires_grad_(False)
    audit = audit_of(make_audit, network, torch.randn(12, 1, 8, 8, dtype=torch.float64), torch.arange(12) % 3)
    results = suite(audit)
    checks = run_checks(audit, results)
    assert not [check.id for check in checks if check.kind == "check" and check.status == "failed"]
    assert results.measurements["flatness"].network.layers == ["0", "2"]
    assert dense_only(audit.layers) == audit.layers


def test_what_takes_too_long_is_a_sentence(make_audit: AuditMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    network, x, y = made("tanh")
    monkeypatch.setattr(limits, "MOST_PASSES", 10)
    curved = suite(audit_of(make_audit, network, x, y)).measurements["duality"].layers["0"]
    assert curved.skipped == (
        "a convolution with a curved network behind it: its Hessian takes 18 second derivatives of every train sample, "
        "more than the 10 that are tried"
    )
    monkeypatch.setattr(limits, "MOST_WORK", 1000)
    straight = suite(audit_of(make_audit, *made("lenet"))).measurements["duality"].layers["0"]
    assert straight.skipped == (
        "a convolution whose dual weights take too long: 100 patches of 9 numbers for each of 12 pairs; lower "
        "--test-samples"
    )


@pytest.mark.parametrize("name", ["lenet", "tanh"])
def test_chunks_do_not_matter(make_audit: AuditMaker, name: str) -> None:
    network, x, y = made(name)
    whole = audit_of(make_audit, network, x, y)
    small = audit_of(make_audit, network, x, y, memory="300KB")
    assert small.capture.chunk < whole.capture.chunk and small.layers == whole.layers
    several = suite(small).measurements
    for key, expected in suite(whole).measurements.items():
        found = several[key]
        for layer, block in expected.layers.items():
            same(settled(found.layers[layer]), settled(block), f"{key} {layer}")


class Language(nn.Module):
    """Token ids, embedded; the head's weights are the embedding's, or use them transposed."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(3, 4), nn.Linear(4, 3)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.embed(x)).sum(1))


class Mirror(nn.Module):
    """An autoencoder's trick: the second use of the weights is no layer."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.head = nn.Linear(6, 4), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(torch.tanh(self.encode(x)) @ self.encode.weight))


def test_weights_used_where_no_linear_layer_shows_it_are_not_decomposed(make_audit: AuditMaker) -> None:
    torch.manual_seed(0)
    ids, y = torch.randint(3, (12, 5)), torch.arange(12) % 3
    for tied in (True, False):
        network = Language(tied).double().requires_grad_(False)
        audit = make_audit(network, ids.numpy(), y.numpy(), ids.flip(0).numpy(), y.numpy(), **CHOSEN)
        head = suite(audit).measurements["duality"].layers["head"]
        if tied:
            assert head.skipped.startswith(USED_TWICE) and head.max_residual > 1e-6
        else:
            assert head.skipped is None and head.max_residual <= 1e-9
    x = torch.randn(12, 6, dtype=torch.float64)
    mirror = suite(audit_of(make_audit, Mirror().double().requires_grad_(False), x, y)).measurements["duality"].layers
    assert mirror["encode"].skipped.startswith(USED_TWICE)
    assert mirror["head"].skipped is None


def test_weights_are_as_they_were_after_the_duality_was_checked(make_audit: AuditMaker) -> None:
    network, x, y = build("lenet", n=12)
    audit = audit_of(make_audit, network, x, y)
    before = {name: value.clone() for name, value in audit.network.named_parameters()}
    suite(audit)
    assert all(torch.equal(before[name], value) for name, value in audit.network.named_parameters())
