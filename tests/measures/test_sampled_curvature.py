"""Flatness and the split of the gap in their sampled forms, against the exact ones, on small networks of every kind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from made_audits import as_data, as_model
from sensitivity_cases import NETWORKS, samples
from tolerances import CANCELS
from torch import nn

from audit.api import audit_model
from audit.measures.contract import Audit, Measurement
from audit.measures.duality.measure import Duality
from audit.measures.flatness.measure import Flatness
from audit.network.record import Products
from audit.report.conduct import Plan, PlannedStage
from audit.run.setup import set_up_audit
from audit.settings import Settings

FORMS = ("flatness", "duality", "fisher", "sensitivity")
SETTINGS = Settings(bootstrap=20, directions=4, widths=2)


def audits(name: str, columns: int) -> tuple[Audit, Audit]:
    """The same network twice: exact, and with sampled curvature from so many columns."""
    torch.manual_seed(1)
    build, shape, _, task = NETWORKS[name]
    network = build().double()
    outputs = network.eval()(torch.zeros(2, *shape, dtype=torch.float64)).shape[1]
    x, y = samples(shape, task, outputs=outputs)
    model, data = as_model(network, shape), as_data(x, y, x[:6] + 0.1, y[:6])
    stages = [PlannedStage(name=each, form="sampled", samples=len(x), columns=columns) for each in FORMS]
    exact = set_up_audit(model, data, task, SETTINGS)
    return exact, set_up_audit(model, data, task, SETTINGS, Plan(stages=stages))


def measured(audit: Audit, measure: Flatness | Duality) -> Measurement:
    fold = measure.start(audit)
    if audit.sampled is None:
        for record in audit.train:
            fold.see(record, Products(record))
    return fold.finish()


@pytest.mark.parametrize("columns", [4096, 16])
@pytest.mark.parametrize("name", NETWORKS)
def test_flatness_keeps_to_its_bounds_and_intervals(name: str, columns: int) -> None:
    exact, sampled = audits(name, columns)
    whole, some = (measured(audit, Flatness()) for audit in (exact, sampled))
    for path, block in whole.layers.items():
        other = some.layers[path]
        assert (other.skipped is None) == (block.skipped is None)
        if block.skipped is not None or other.hessian != "exact":
            continue
        low, high = other.lambda_max_bounds
        assert low * (1 - 1e-6) <= block.lambda_max <= high * (1 + 1e-6) + 1e-12
        if columns == 4096 and exact.train_outcome.scores.shape[1] <= 16 and other.columns == columns:
            assert other.lambda_max == pytest.approx(block.lambda_max, rel=1e-6)
        half = other.trace_ci95[1] - other.trace
        assert abs(other.trace - block.trace) <= 3 * half + 1e-12  # an interval of six errors each way
        assert other.form == "sampled" and other.samples == len(sampled.train)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_split_of_the_gap_is_the_same_from_all_columns(name: str) -> None:
    exact, sampled = audits(name, 4096)
    whole, some = (measured(audit, Duality()) for audit in (exact, sampled))
    for path, block in whole.layers.items():
        other = some.layers[path]
        assert (other.skipped is None) == (block.skipped is None)
        if block.skipped is not None:
            continue
        for key in ("gap", "mean_term", "target_term", "total_g", "total_w"):
            assert getattr(other, key) == pytest.approx(getattr(block, key), rel=1e-6, abs=CANCELS)
        if other.basis == "hessian":
            leading = sorted(block.eigenvalues, reverse=True)[: len(other.eigenvalues)]
            assert sorted(other.eigenvalues, reverse=True) == pytest.approx(leading, rel=1e-5, abs=1e-9)
        terms = [*other.contribution, other.remainder.contribution, other.mean_term, other.target_term]
        assert sum(terms) == pytest.approx(other.gap, abs=1e-9)


def test_the_same_plan_gives_the_same_numbers() -> None:
    _, first = audits("relu" if "relu" in NETWORKS else next(iter(NETWORKS)), 64)
    second = replace(first, sampled=audits("relu" if "relu" in NETWORKS else next(iter(NETWORKS)), 64)[1].sampled)
    one, two = (measured(audit, Flatness()) for audit in (first, second))
    assert one == two
    assert np.isfinite(one.network.trace_sum)


class Tied(nn.Module):
    """Two layers, or an embedding and the head, or a layer and its transpose, with the same weights."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.a, self.b, self.c = kind, nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.words = nn.Embedding(9, 6)
        if kind == "layers":
            self.b.weight = self.a.weight
        if kind == "embedding":
            self.head = nn.Linear(6, 9, bias=False)
            self.head.weight = self.words.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores."""
        if self.kind == "embedding":
            hidden: torch.Tensor = self.head(torch.relu(self.a(self.words(x).mean(1))))
            return hidden
        x = torch.relu(self.a(x))
        x = self.b(x) if self.kind == "layers" else x @ self.a.weight
        found: torch.Tensor = self.c(torch.relu(x))
        return found


@pytest.mark.parametrize("kind", ["layers", "embedding", "transposed"])
def test_weights_in_two_places_have_a_reason_and_the_rest_is_measured(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    tokens = kind == "embedding"
    x = rng.integers(0, 9, (80, 5)) if tokens else rng.normal(size=(80, 6)).astype(np.float32)
    y = rng.integers(0, 9 if tokens else 3, 80)
    stages = [PlannedStage(name=each, form="sampled", samples=32, columns=32) for each in FORMS]
    monkeypatch.setattr("audit.run.pipeline.plan_audit", lambda *_: Plan(stages=stages, arithmetic="float32"))
    report = audit_model(Tied(kind), (x[:60], y[:60]), (x[60:], y[60:]), task="classification", bootstrap=20)
    assert not report.plan.is_exact("flatness")
    tied = {layer.name for layer in report.layers if layer.tied_with}
    assert tied or tokens
    for layer in report.layers:
        assert (layer.flatness.skipped is not None) == bool(layer.tied_with)
        assert (layer.duality.skipped is not None) == bool(layer.tied_with)
