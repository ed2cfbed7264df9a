"""Every estimated number of a report has its interval or standard error beside it; what is exact is listed, and why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from formats import ARCHITECTURES, audited, data_of, trained, write_state

NOT_ESTIMATED = {
    r"settings\..*|checks\[\]\.tolerance|.*pac_bayes\.(volume|delta)": "chosen, not measured",
    r"timings\..*|plan\..*|model\.parity\..*|checks\[\]\.value": "of this very run: times, rounding, "
    "the size of a fault",
    r".*\.(max|mean|relative|dual|basis|lambda_max)_residual|.*\.basis_orthonormality|.*duality\.tolerance": "how far "
    "an equality or an iteration is off on these samples",
    r".*flatness\.weight_norm_squared|.*weight_spectral_norm": "a function of the weights alone",
    r".*duality\.eigenvalues\[\]": "of the Hessian over the train samples; basis_residual says how exactly",
    r".*duality\.sharp\.(ratio|variance_share)": "how the border was drawn, which the intervals hold fixed",
    r".*duality\.samples\[\]\..*|.*duality\.samples_share": "facts about the listed pairs",
    r".*sensitivity\.(chain|bounds\[\]|skip)\..*": "both sides of inequalities that are theorems about these samples",
    r".*histogram\.edges\[\]|gap\.confusion.*": "counts of these samples",
    r"hygiene\.near\.(threshold|pairs\[\]\..*)|hygiene\.suspected_mislabels\.(share|suspects\[\]\..*)": "the rule, and "
    "what it found among these samples",
    r"hygiene\.class_balance\.(ratio|difference)|hygiene\.leaked\.searched": "counts of these samples",
    r"hygiene\.told_apart\.(accuracy|by_chance\[\])": "judged by how random divisions of the same samples are told",
    r"calibration\.(test|train)\.bins\[\]\.confidence|calibration\.outputs\[\]\.bins\[\]\.prediction": "where a bin "
    "lies",
    r"consequences\.(spread|rounding_norm|changes\[\]\.size)": "how large the changes are that were made",
    r"consequences\.changes\[\]\.theory\.foretold(_most)?": "a formula of a number that has its interval elsewhere",
    r"calibration\.outputs\[\]\.coverage\[\]\.limit": "the rule that samples are counted by",
    r"gallery\..*|outcomes\..*|calibration\.outputs\[\]\.(predictions|residuals)\[\]": "facts about single samples",
    r"model\.factor": "chosen, not measured",
    r"doctor\..*": "trials on a few samples that a warning rests on, and no number; p values stand beside them",
    r"findings.*|data.*|warnings.*|bottom_line\.guess": "sentences and counts made from the numbers above",
}
ELSEWHERE = {
    "duality.gap": "ci95.gap",
    "duality.sharp.contribution": "ci95.sharp_contribution",
    "duality.sharp.share": "ci95.sharp_share",
    "duality.flat.contribution": "ci95.flat_contribution",
    "duality.flat.share": "ci95.flat_share",
}
"""Intervals that stand in the block's own `ci95`; that of trace_hessian is the flatness block's."""
NAMES = ("relu", "residual", "tabular", "regression")


def numbers(value: Any, path: str, beside: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Path of every float that is no interval or standard error itself, and the block that it stands in."""
    if isinstance(value, dict):
        for key, part in value.items():
            if not key.endswith(("ci95", "_std")):
                yield from numbers(part, f"{path}.{key}".lstrip("."), value)
    elif isinstance(value, list):
        for part in value:
            yield from numbers(part, f"{path}[]", beside)
    elif isinstance(value, float):
        yield path, beside


def has_uncertainty(path: str, beside: dict[str, Any]) -> bool:
    name = path.split(".")[-1].removesuffix("[]")
    return any(beside.get(f"{name}{form}") not in (None, []) for form in ("_ci95", "_std"))


def in_a_block(report: dict[str, Any], path: str) -> bool:
    """Whether the interval of a decomposition's number stands in every layer's `ci95`, or is the trace's."""
    if path == "network.duality.classes[].share":
        return bool(report["network"]["duality"]["gap_ci95"][0] <= 0)  # of a gap that may be none there is no share
    short = re.sub(r"^layers\[\]\.", "", path)
    layers = [layer for layer in report["layers"] if layer["duality"]["skipped"] is None]
    if short == "duality.trace_hessian":
        return all(layer["flatness"]["trace_ci95"] for layer in layers)
    if short not in ELSEWHERE:
        return False
    name = ELSEWHERE[short].removeprefix("ci95.")
    positive = [layer for layer in layers if "share" not in name or layer["duality"]["ci95"]["sharp_share"]]
    return all(layer["duality"]["ci95"][name] for layer in positive)


@pytest.mark.parametrize("name", NAMES)
def test_every_estimated_number_has_its_uncertainty(name: str, tmp_path: Path) -> None:
    weights = write_state(trained(name), None, tmp_path / "weights.pth")  # type: ignore[arg-type]
    folder = data_of(name).save(tmp_path / "data")
    report = audited(weights, folder, arch=f"{ARCHITECTURES}:{name}", adaptive_draws=3, subsets=6, subset_size=10)
    bare = {
        path
        for path, beside in numbers(report, "", {})
        if not has_uncertainty(path, beside) and not in_a_block(report, path)
    }
    assert sorted(path for path in bare if not any(re.fullmatch(pattern, path) for pattern in NOT_ESTIMATED)) == []


def test_the_walk_finds_a_number_that_stands_alone() -> None:
    """One that has an interval, one that has none, and one within a list."""
    report = {"a": 1.5, "a_ci95": [1.0, 2.0], "b": 2.5, "c": [3.5], "c_std": [0.1], "layers": []}
    bare = [path for path, beside in numbers(report, "", {}) if not has_uncertainty(path, beside)]
    assert bare == ["b"]
