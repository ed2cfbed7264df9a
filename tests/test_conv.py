"""Every measure of a convolution against brute force, and that asking for them changes no other number."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import AuditMaker
from references import duality as duality_reference
from references import fisher as fisher_reference
from references import flatness as flatness_reference
from references.sensitivity import log_volume, spectral
from torch import Tensor, nn
from zoo import build, lenet

import audit.duality.limits as limits
from audit.blocks.duality import DualityBlock
from audit.checks import run_checks
from audit.checks.reports import check_reports
from audit.layers import dense_only
from audit.measure import Audit
from audit.measures.fisher import draw_subsets
from audit.progress import Progress
from audit.suite import Results, run_suite

NAIVE = 1e-8
DIRECTIONAL = ("eigenvalues", "sigma_g", "sigma_w", "cumulative_w", "c", "contribution")
CHOSEN = {"subsets": 3, "subset_size": 5, "bootstrap": 20, "widths": 2}
USED_TWICE = "the layer's weights are used more than once, so no single change of them stands for a sample"


def tanh_net() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv1d(2, 3, 3, padding="same"), nn.Tanh(), nn.Conv1d(3, 4, 2, stride=2), nn.Tanh()),
        *(nn.Flatten(), nn.Linear(16, 3)),
    )


def normed_net() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(2, 4, 3, 2, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1, groups=2)),
        *(nn.ReLU(), nn.Conv2d(4, 3, 2, dilation=2), nn.Flatten(), nn.LayerNorm(12), nn.Linear(12, 5), nn.ReLU()),
        nn.Linear(5, 3),
    )


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "lenet": (lenet, (1, 12, 12)),
    "tanh": (tanh_net, (2, 8)),
    "normed": (normed_net, (2, 8, 8)),
    "space": (lambda: nn.Sequential(nn.Conv3d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)), (1, 3, 3, 3)),
}


def made(name: str, n: int = 12) -> tuple[nn.Module, Tensor, Tensor]:
    build_network, shape = NETWORKS[name]
    torch.manual_seed(1)
    network = build_network().double().eval().requires_grad_(False)
    return network, torch.randn(n, *shape, dtype=torch.float64), torch.arange(n) % 3


def audit_of(
    make_audit: AuditMaker, network: nn.Module, x: Tensor, y: Tensor, conv: bool = True, **chosen: object
) -> Audit:
    x_test = x + 0.3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(2), dtype=x.dtype)
    table = (x.numpy(), y.numpy(), x_test.numpy(), y.numpy())
    return make_audit(network, *table, conv=conv, **{**CHOSEN, **chosen})


def suite(audit: Audit) -> Results:
    return run_suite(audit, Progress())


def convolutions(audit: Audit) -> list[str]:
    return [layer.name for layer in audit.layers if layer.patches is not None]


@pytest.mark.parametrize("name", NETWORKS)
def test_flatness_agrees_with_the_hessian_itself(make_audit: AuditMaker, name: str) -> None:
    network, x, y = made(name)
    audit = audit_of(make_audit, network, x, y)
    blocks = suite(audit).measurements["flatness"].layers
    assert convolutions(audit)
    for path in convolutions(audit):
        weight = network.get_submodule(path).weight.flatten(1)
        expected = flatness_reference.layer_numbers(weight, flatness_reference.hessian(network, path, x, y))
        found = asdict(blocks[path])
        for key, value in expected.items():
            scale = np.abs(value).max()
            np.testing.assert_allclose(found[key], value, rtol=NAIVE, atol=NAIVE * scale, err_msg=f"{path} {key}")


@pytest.mark.parametrize("name", NETWORKS)
def test_fisher_agrees_with_formed_gradients(make_audit: AuditMaker, name: str) -> None:
    network, x, y = made(name)
    audit = audit_of(make_audit, network, x, y)
    blocks = suite(audit).measurements["fisher"].layers
    for path in convolutions(audit):
        names = [f"{path}.{key}" for key, _ in network.get_submodule(path).named_parameters()]
        G = fisher_reference.gradients(network, x, y, "classification", names)
        logs = [fisher_reference.log_determinant(G[subset]) for subset in draw_subsets(12, 5, 3, 0)]
        regular = [value for value in logs if math.isfinite(value)]
        assert blocks[path].singular_subsets == len(logs) - len(regular)
        assert blocks[path].gamma == (pytest.approx(np.mean(regular), rel=NAIVE) if regular else None)


@pytest.mark.parametrize("name", NETWORKS)
def test_sensitivity_is_that_of_the_rest_of_the_network(make_audit: AuditMaker, name: str) -> None:
    network, x, y = made(name)
    assert isinstance(network, nn.Sequential)
    audit = audit_of(make_audit, network, x, y)
    blocks = suite(audit).measurements["sensitivity"].layers
    for path in convolutions(audit):
        before, behind = network[: int(path)], nn.Sequential(*network[int(path) :])
        Ks, squares = [], []
        for sample in x:
            h = before(sample[None])
            K = torch.autograd.functional.jacobian(lambda h, rest=behind: rest(h)[0], h)
            Ks.append(K.flatten(1).numpy())
            squares.append(float(_weight_jacobian(behind, h).square().sum()))
        assert blocks[path].mls == pytest.approx(np.mean([spectral(K) for K in Ks]), rel=NAIVE)
        logs = [volume for K in Ks if math.isfinite(volume := log_volume(K))]
        assert blocks[path].rank_deficient_samples == len(Ks) - len(logs)
        assert blocks[path].mean_log_volume == (pytest.approx(np.mean(logs), rel=NAIVE) if logs else None)
        assert blocks[path].sharpness == pytest.approx(np.mean(squares), rel=NAIVE)


def _weight_jacobian(behind: nn.Sequential, h: Tensor) -> Tensor:
    def score(weight: Tensor) -> Tensor:
        return torch.func.functional_call(behind, {"0.weight": weight}, (h,))[0]

    return torch.autograd.functional.jacobian(score, behind[0].weight.detach())


@pytest.mark.parametrize("name", NETWORKS)
def test_the_decomposition_agrees_with_every_dual_formed(make_audit: AuditMaker, name: str) -> None:
    network, x, y = made(name)
    audit = audit_of(make_audit, network, x, y)
    blocks = suite(audit).measurements["duality"].layers
    x_test = audit.test.x.double()
    for path in convolutions(audit):
        block, module = blocks[path], network.get_submodule(path)
        expected = duality_reference.decompose(network, module, x, y, x_test, y)
        assert block.skipped is None
        assert block.gap == pytest.approx(expected.gap, rel=NAIVE)
        assert block.max_residual == pytest.approx(expected.max_residual, rel=NAIVE, abs=1e-12)
        assert block.mean_residual == pytest.approx(expected.mean_residual, rel=NAIVE, abs=1e-12)
        assert block.relative_residual == pytest.approx(expected.relative_residual, rel=NAIVE, abs=1e-12)
        kept = int((expected.sigma_g > 1e-7 * expected.sigma_g[0]).sum())  # where g does not vary, nothing is ordered
        for key in ("sigma_g", "sigma_w", "contribution"):
            found, value = getattr(block, key)[:kept], getattr(expected, key)[:kept]
            atol = 1e-7 * np.abs(value).max()
            np.testing.assert_allclose(found, value, rtol=1e-6, atol=atol, err_msg=f"{path} {key}")
        for key in ("mean_term", "total_g", "total_w"):
            assert getattr(block, key) == pytest.approx(getattr(expected, key), rel=NAIVE)
        assert block.trace_hessian == pytest.approx(expected.trace, rel=NAIVE)
        assert sum(block.contribution) + block.mean_term == pytest.approx(block.gap, rel=1e-9)


def test_an_approximate_layer_says_so_and_does_not_pass_as_exact(make_audit: AuditMaker) -> None:
    network, x, y = made("lenet")
    results = suite(audit_of(make_audit, network, x, y))
    blocks: dict[str, DualityBlock] = dict(results.measurements["duality"].layers)
    assert {name: block.approximate for name, block in blocks.items()} == {
        "0": True,
        "3": False,
        "7": False,
        "9": False,
    }
    first = blocks["0"]
    assert first.max_residual is not None and first.mean_residual is not None and first.relative_residual is not None
    assert first.max_residual > 1e-6 and first.max_residual >= first.mean_residual
    assert first.approximation == (
        "a convolution: no weights do to all of its patches what exchanging the sample does, so the dual weights are "
        f"the least-squares ones, and with them the loss is off by {first.mean_residual:.3g} on average "
        f"({first.relative_residual:.0%} of a pair's |Δl|); the contributions add up to the gap all the same, since g "
        "is defined by it (g = Δl ΔW/‖ΔW‖²)"
    )
    exact, closes = check_reports(results)[:2]
    assert (exact.id, exact.status, closes.status) == ("duality-exact", "passed", "passed")
    assert exact.explanation == (
        "Largest |l(w*, x) − l(w, x′)| over all pairs of the 3 decomposed layers. "
        "Only approximate, and not judged here: 0."
    )
    assert closes.explanation.endswith("over the 4 decomposed layers.")
    lone = replace(results.measurements["duality"], layers={"0": first})
    alone = check_reports(replace(results, measurements={"duality": lone}))[0]
    assert alone.status == "skipped"
    assert alone.explanation == ("No decomposed layer claims an equality. Only approximate, and not judged here: 0.")


@pytest.mark.parametrize("name", NETWORKS)
def test_all_checks_hold_with_convolutions(make_audit: AuditMaker, name: str) -> None:
    audit = audit_of(make_audit, *made(name))
    checks = run_checks(audit, suite(audit))
    assert not [check.id for check in checks if check.kind == "check" and check.status == "failed"]


def test_single_precision_finds_the_same_but_for_rounding(make_audit: AuditMaker) -> None:
    network, x, y = made("lenet")
    precise, rough = (suite(audit_of(make_audit, network, x, y, precision=kind)) for kind in ("float64", "float32"))
    for path in ("0", "3"):
        for key, names in {"flatness": ("trace", "kappa", "rho"), "sensitivity": ("mls", "sharpness")}.items():
            exact, found = (results.measurements[key].layers[path] for results in (precise, rough))
            for name in names:
                assert getattr(found, name) == pytest.approx(getattr(exact, name), rel=1e-4)
        exact, found = (results.measurements["duality"].layers[path] for results in (precise, rough))
        assert (found.approximate, found.skipped) == (exact.approximate, None)
        assert found.mean_residual == pytest.approx(exact.mean_residual, rel=1e-4, abs=1e-9)


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
            same(asdict(with_them.network), asdict(without.network), f"{key} network")


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
        assert found == pytest.approx(expected, rel=1e-8, abs=1e-12), where
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
