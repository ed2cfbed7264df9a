"""All measures together, on one table: none may spoil what another stands on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from made_audits import AuditMaker
from tolerances import CANCELS, ROUNDING, SOLVED
from torch import nn
from zoo import ZOO, build

from audit.errors import ModelError
from audit.measures.contract import Audit
from audit.measures.suite import MEASURES, run_suite
from audit.network.record import Products
from audit.run.progress import Progress

SETTINGS = {"subset_size": 4, "subsets": 3, "bootstrap": 20}


def audit_of(make_audit: AuditMaker, name: str, **changes: object) -> Audit:
    network, x, y = build(name, n=12)
    return make_audit(
        network, x.numpy(), y.numpy(), (x + 0.1).numpy(), y.numpy(), ZOO[name].task, **{**SETTINGS, **changes}
    )


def captured(audit: Audit) -> list[torch.Tensor]:
    tensors = []
    for record in audit.train:
        parts = [record.f, record.loss, record.gradient]
        parts += [part for layer in record.layers.values() for part in (layer.x, layer.z, layer.J, layer.delta)]
        tensors += [part.clone() for part in parts]
    return tensors


@pytest.mark.parametrize("name", ZOO)
def test_no_measure_changes_a_record(make_audit: AuditMaker, name: str) -> None:
    assert_records_stay(audit_of(make_audit, name))


def test_no_measure_changes_a_kept_record_of_regression(make_audit: AuditMaker) -> None:
    """With the squared error Λ is the identity, so what a measure works on is close to the record's own Jacobian."""
    network, x, _ = build("relu", n=12)
    y = torch.randn(12, 3, dtype=torch.float64)
    audit = make_audit(network, x.numpy(), y.numpy(), (x + 0.1).numpy(), y.numpy(), "regression", **SETTINGS)
    assert_records_stay(audit)


def assert_records_stay(audit: Audit) -> None:
    before = captured(audit)
    for measure in MEASURES:
        fold = measure.start(audit)
        for record in audit.train:
            fold.see(record, Products(record))
        fold.finish()
        for ours, theirs in zip(captured(audit), before, strict=True):
            assert torch.allclose(ours, theirs, rtol=ROUNDING, atol=1e-14), measure.key


@pytest.mark.parametrize("name", ["relu", "tanh", "regression", "one-weight", "binary", "tokens"])
def test_together_they_give_what_each_gives_alone(make_audit: AuditMaker, name: str) -> None:
    together = run_suite(audit_of(make_audit, name), Progress()).measurements
    for measure in MEASURES:
        audit = audit_of(make_audit, name)
        fold = measure.start(audit)
        for record in audit.train:
            fold.see(record, Products(record))
        alone = dict(_numbers(fold.finish()))
        assert len(alone) > 5, measure.key
        assert alone == pytest.approx(dict(_numbers(together[measure.key])), rel=SOLVED, abs=CANCELS)


def _numbers(block: object, path: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a measurement, by its path."""
    if isinstance(block, (int, float)):
        yield path, float(block)
    elif isinstance(block, (list, tuple)):
        for place, part in enumerate(block):
            yield from _numbers(part, f"{path}[{place}]")
    elif block is not None and not isinstance(block, str):
        for name, part in (block if isinstance(block, dict) else vars(block)).items():
            yield from _numbers(part, f"{path}.{name}")


def test_an_input_that_is_changed_for_some_samples_only_is_noticed(make_audit: AuditMaker) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Hardtanh(-6, 6), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    x, y = torch.randn(30, 6, dtype=torch.float64), torch.arange(30) % 3
    x[10:] *= 8  # the samples that the layers are found with are not among these
    audit = make_audit(network, x.numpy(), y.numpy(), x.numpy(), y.numpy(), **SETTINGS)
    for record in audit.train:
        whole = Products(record).input_jacobian
        assert whole is not None
        J = torch.autograd.functional.jacobian(network, x[record.start + 9 : record.start + 12]).sum(2)
        ours = whole[9:12]
        for i in range(len(ours)):
            assert torch.allclose(ours[i], J[i], atol=CANCELS)


def test_scores_beyond_all_numbers_are_refused(make_audit: AuditMaker) -> None:
    network, x, y = build("regression", n=12)
    huge = y.clone()
    huge[3] = 1e200
    with pytest.raises(ModelError) as caught:
        make_audit(network, x.numpy(), huge.numpy(), x.numpy(), y.numpy(), "regression", **SETTINGS)
    assert str(caught.value).startswith(
        "The model's scores for 1 samples of the train split, the first at position 3, "
    )
