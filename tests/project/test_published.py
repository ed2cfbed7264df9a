"""What the source study and our own networks showed, found again on the bundled samples (784-30-30-10, MNIST)."""

from __future__ import annotations

import numpy as np
import pytest
from places import SAMPLES

from audit.measures import Report
from audit.run.pipeline import run_audit
from audit.run.progress import Progress
from audit.settings import Settings

CASES = {"healthy": "mnist", "mislabelled": "mnist-mislabelled", "large-batch": "mnist"}


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    settings = Settings(bootstrap=200, widths=0)
    return {
        name: run_audit(SAMPLES / f"{name}.onnx", SAMPLES / data, settings, "", Progress()).report
        for name, data in CASES.items()
    }


@pytest.mark.slow
def test_few_sharp_directions_with_an_elbow_unless_labels_are_wrong(reports: dict[str, Report]) -> None:
    """Feng & Tu: about ten sharp directions, and a spectrum without a drop where labels are random."""
    clean, wrong = (reports[name].layers[1].duality for name in ("healthy", "mislabelled"))
    assert clean is not None and clean.sharp is not None and wrong is not None and wrong.sharp is not None
    assert clean.sharp.elbow and 8 <= clean.sharp.count <= 11
    assert not wrong.sharp.elbow


@pytest.mark.slow
def test_wrong_labels_move_the_gap_into_flat_directions(reports: dict[str, Report]) -> None:
    clean, wrong = (reports[name].layers[1].duality for name in ("healthy", "mislabelled"))
    assert clean is not None and clean.fixed is not None and wrong is not None and wrong.fixed is not None
    assert 0.28 <= (clean.fixed.share or 0) <= 0.61  # the range seen over eleven clean recipes
    assert 1 - (wrong.fixed.share or 0) >= 0.84
    assert np.median(wrong.sigma_g) >= 2.3 * np.median(clean.sigma_g)


@pytest.mark.slow
def test_the_split_adds_up_and_every_check_passes(reports: dict[str, Report]) -> None:
    for report in reports.values():
        assert [check.id for check in report.checks if check.kind == "check" and check.status != "passed"] == []


@pytest.mark.slow
def test_suspected_labels_are_really_wrong(reports: dict[str, Report]) -> None:
    true, given = (np.load(SAMPLES / folder / "train.npz")["y"] for folder in ("mnist", "mnist-mislabelled"))
    hygiene = reports["mislabelled"].hygiene
    assert hygiene is not None
    listed = [suspect.index for suspect in hygiene.suspected_mislabels.suspects]
    assert len(listed) >= 20
    assert np.mean(true[listed] != given[listed]) >= 0.9
    low, high = hygiene.suspected_mislabels.estimated_rate_ci95 or (0, 0)
    assert low <= np.mean(true != given) <= high
    healthy = reports["healthy"].hygiene
    assert healthy is not None and healthy.suspected_mislabels.estimated_rate == 0
