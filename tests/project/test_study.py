"""The study of the papers: page, figures and JSON agree, verdicts follow from their rule, and a tiny study runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from places import ROOT, SAMPLES
from twin_cases import small_folder

DOCS = ROOT / "docs"
RECORD: dict[str, Any] = json.loads((SAMPLES / "study.json").read_text(encoding="utf-8"))
LARGEST = 300_000  # bytes of JSON, page and figures together


@pytest.fixture(scope="module")
def study() -> Iterator[ModuleType]:
    """`samples/study.py`, which finds its parts beside itself."""
    sys.path.insert(0, str(SAMPLES))
    try:
        import study as module  # type: ignore[import-not-found]

        yield module
    finally:
        sys.path.remove(str(SAMPLES))


def written() -> dict[str, str]:
    files = [DOCS / "study.md", *sorted((DOCS / "study").iterdir())]
    return {str(file.relative_to(DOCS)): file.read_text(encoding="utf-8") for file in files}


def test_page_and_figures_are_what_the_json_says(study: ModuleType, tmp_path: Path) -> None:
    study.publish(RECORD, tmp_path)
    fresh = {str(file.relative_to(tmp_path)): file.read_text(encoding="utf-8") for file in tmp_path.rglob("*.*")}
    assert fresh == written()
    assert all(f"study/{name}" in fresh["study.md"] for name in ("fig-3.svg", "fig-4.svg", "correlations.svg"))


def test_they_are_small() -> None:
    assert sum(len(text.encode()) for text in written().values()) + (SAMPLES / "study.json").stat().st_size < LARGEST


def test_the_record_is_that_of_the_script(study: ModuleType) -> None:
    assert list(RECORD["settings"]) == list(study.SETTINGS)
    rows = [(row[0], row[1]) for row in RECORD["networks"]]
    assert RECORD["columns"][:2] == ["setting", "seed"]
    assert rows == [(name, seed) for name in study.SETTINGS for seed in range(study.SEEDS)]


def test_every_claim_is_that_of_the_networks_and_its_verdict_follows(study: ModuleType) -> None:
    from papers.record import PAPERS, table_from  # type: ignore[import-not-found]
    from papers.statistics import Seen  # type: ignore[import-not-found]

    table = table_from(RECORD)
    assert list(PAPERS) == list(RECORD["claims"])
    for paper, claims in PAPERS.items():
        for claim, kept in zip(claims, RECORD["claims"][paper], strict=True):
            statistic, settings = claim.build(table)
            rows = np.concatenate([table.rows(name) for name in settings])
            assert statistic(rows) == pytest.approx(kept["value"], rel=1e-4, abs=1e-5), claim.says
            low, high = kept["ci95"] or (kept["value"], kept["value"])
            assert claim.test.verdict(Seen(kept["value"], low, high, len(rows))) == kept["verdict"], claim.says
            assert low <= high


def test_the_rule(study: ModuleType) -> None:
    from papers.statistics import Above, Always, Below, Seen, Within, spearman

    for test, expected in (
        (Above(0.0), ("does not", "cannot tell", "holds")),
        (Below(0.0), ("holds", "cannot tell", "does not")),
        (Within(-4.0, 0.5), ("holds", "cannot tell", "does not")),
    ):
        assert tuple(test.verdict(Seen(x, x - 1, x + 1, 9)) for x in (-2.0, 0.2, 2.0)) == expected
    assert [Always().verdict(Seen(share, share, share, 9)) for share in (1.0, 0.99)] == ["holds", "does not"]
    assert spearman(np.array([1.0, 2, 2, 4]), np.array([1.0, 3, 3, 9])) == pytest.approx(1)
    assert spearman(np.array([1.0, 2, np.nan]), np.array([3.0, 1, 0])) == pytest.approx(-1)


@pytest.mark.slow
def test_a_tiny_study(study: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from papers.measuring import bench
    from papers.training import Setting
    from train import perceptron  # type: ignore[import-not-found]

    torch.manual_seed(0)
    tiny = bench(small_folder(tmp_path / "data"), perceptron(4, 3), target=0.2, subsets=5)
    settings = {"base": Setting(), "other": Setting(decay=0.01, wrong=0.1, part=0.5)}
    study.make(tiny, settings, 1, tmp_path / "work")
    study.make(tiny, settings, 2, tmp_path / "work")  # goes on: only the second networks are made
    rows = study.collected(settings, 2, tmp_path / "work")
    assert [(row["setting"], row["seed"]) for row in rows] == [(name, seed) for name in settings for seed in (0, 1)]
    assert capsys.readouterr().out.split() == [*settings, *settings]
    for row in rows:
        assert row["reached"] and row["rescaled.moved"] < 1e-6 and len(row["spectra"]["sigma_g"]) > 20
        assert row["aw.sharp"] + row["aw.flat"] + row["aw.mean_term"] == pytest.approx(row["aw.gap"], rel=1e-4)
    assert [row["train_samples"] for row in rows] == [60, 60, 30, 30]


def test_a_lesson_has_its_share_of_wrong_labels(study: ModuleType) -> None:
    from papers.training import Setting, lesson

    from audit.twins.training import Samples

    y = torch.arange(200) % 4
    taught = lesson(Samples(torch.zeros(200, 1), y, "classification"), Setting(part=0.5, wrong=0.2), seed=3)
    assert taught.labels is not None and torch.bincount(y[taught.rows]).tolist() == [25] * 4
    wrong = taught.labels != y
    assert int(wrong.sum()) == 20 and bool(wrong[taught.rows].sum() == 20)
