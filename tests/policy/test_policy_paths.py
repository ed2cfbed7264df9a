"""Every number that a report holds can be named, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from reports import both, classification, with_changes

from audit.errors import UsageError
from audit.measures import KNOWN_PATHS, Report
from audit.report.paths import find, value_at
from audit.report.paths import leaves as every_leaf

RANGES = ("_ci95", "by_chance")  # two ends, which a rule is not about


def leaves(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every scalar of a JSON document with its path as a rule would write it."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from leaves(value, (*path, key))
    elif isinstance(node, list) and not path[-1].endswith(RANGES) and path[-2:-1] != ("ci95",):
        for place, item in enumerate(node):
            named = item.get("name", item.get("id", place)) if isinstance(item, dict) else place
            yield from leaves(item, (*path, str(named)))
    elif not isinstance(node, list):
        yield ".".join(path), node


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_every_scalar_of_a_report_is_found_at_its_path(task: str) -> None:
    document = both()[task]
    for path, value in leaves(document):
        if value is not None:  # a whole block may be null: that is no number
            KNOWN_PATHS.check(path, "test")
        found = find(path, document)
        assert [(one.path, one.value) for one in found] == [(path, value)]
        assert (found[0].missing is None) == (value is not None)


def test_every_layer_goes_by_its_name_and_a_star_stands_for_each() -> None:
    found = find("layers.*.flatness.kappa", classification())
    assert [one.path for one in found] == [f"layers.{name}.flatness.kappa" for name in ("fc1", "fc2", "fc3")]
    assert found[1] == find("layers.fc2.flatness.kappa", classification())[0]


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_both_spellings_lead_to_the_same_in_a_report_and_in_its_json(task: str) -> None:
    document = both()[task]
    report = Report.from_json(json.dumps(document))
    for path, value in every_leaf(document):
        named = find(path, document)[0]
        assert named == find(path, report)[0] and named.value == value == value_at(path, report)


def test_a_rule_may_name_a_layer_by_its_place() -> None:
    KNOWN_PATHS.check("layers[1].flatness.kappa", "here")
    assert find("layers[1].flatness.kappa", classification()) == find("layers.fc2.flatness.kappa", classification())
    with pytest.raises(LookupError, match=r"layers of this report has no '\[9\]', only fc1, fc2, fc3"):
        value_at("layers[9].flatness.kappa", classification())


def test_a_name_may_hold_brackets() -> None:
    report = classification()
    report["gap"]["per_class"][3]["name"] = "cat[1].x"
    assert find("gap.per_class.cat[1].x.test_samples", report)[0].value == 100


def test_a_layers_name_may_hold_dots_and_begin_with_anothers() -> None:
    report = classification()
    names = ("encoder", "encoder.0", "encoder.0.flatness")
    for layer, name in zip(report["layers"], names, strict=True):
        layer["name"] = name
    for layer, name in zip(report["layers"], names, strict=True):
        assert find(f"layers.{name}.sensitivity.mls", report)[0].value == layer["sensitivity"]["mls"]


@pytest.mark.parametrize(
    ("path", "interval"),
    [
        ("gap.error_gap", (0.055975000000000004, 0.088)),  # beside it
        ("layers.fc1.duality.sharp.share", (0.22824313335267649, 0.29433132445229465)),  # in a block of intervals
        ("gap.test_accuracy", (0.912, 0.944025)),  # 1 minus that of the error
        ("gap.per_class.0.test_error", (0.005501967550162343, 0.0700117907285439)),  # Wilson, 2 of 100
        ("network.flatness.kappa_max", None),
        ("hygiene.leaked.void", None),
    ],
)
def test_a_number_has_the_interval_that_the_report_has_for_it(path: str, interval: tuple[float, float] | None) -> None:
    assert find(path, classification())[0].interval == pytest.approx(interval)


def test_a_standard_deviation_is_made_an_interval() -> None:
    fisher = classification()["network"]["fisher"]
    low, high = find("network.fisher.spectral_radius", classification())[0].interval
    assert (high - low) / 2 == pytest.approx(1.959964 * fisher["spectral_radius_std"])
    assert (high + low) / 2 == pytest.approx(fisher["spectral_radius"])


def test_a_number_of_a_list_has_the_deviation_of_its_place() -> None:
    report = classification()
    block = report["layers"][0]["duality"]
    block["sigma_g_std"] = [0.01 * place for place in range(len(block["sigma_g"]))]
    low, high = find("layers.fc1.duality.sigma_g.3", report)[0].interval
    assert (low + high) / 2 == pytest.approx(block["sigma_g"][3])
    assert (high - low) / 2 == pytest.approx(1.959964 * 0.03)
    assert find("data.class_names.0", report)[0].interval is None


@pytest.mark.parametrize(
    ("task", "path", "why"),
    [
        ("regression", "gap.error_gap", "error and accuracy do not exist for regression"),
        ("regression", "network.fisher.robustness", "A regression has no class probabilities"),
        ("regression", "network.fisher.pac_bayes.bound", "The theorem is for a loss between 0 and 1"),
        ("classification", "layers.fc9.flatness.kappa", "layers of this report has no 'fc9', only fc1, fc2, fc3"),
        ("classification", "layers.features.0.conv.flatness.kappa", "features.0.conv was passed by: a convolution"),
        ("classification", "hygiene.leaked.without_copies.loss_gap", "No test sample is in train with the same label"),
    ],
)
def test_what_is_not_there_has_a_reason(task: str, path: str, why: str) -> None:
    found = find(path, both()[task])
    assert found and all(one.missing.startswith(why) for one in found)


def test_a_rule_about_every_layer_does_not_vanish_where_there_is_none() -> None:
    assert [one.missing for one in find("layers.*.flatness.kappa", with_changes(layers=[]))] == [
        "this report has no layers"
    ]


@pytest.mark.parametrize(
    ("path", "nearest"),
    [
        ("gap.eror_gap", "gap.error_gap"),
        ("layers.fc2.flatnes.kappa", "layers.fc2.flatness.kappa"),
        ("layers.fc2.kappa", "layers.fc2.flatness.kappa"),
        ("layers.*.flatness.kapa", "layers.*.flatness.kappa"),
        ("network.fisher.gama", "network.fisher.gamma"),
        ("kappa", "layers.*.flatness.kappa"),
        ("gap.error_gap_ci95", "gap.error_gap"),  # an interval is no number
    ],
)
def test_a_path_that_no_report_has_is_refused_with_the_nearest_one(path: str, nearest: str) -> None:
    with pytest.raises(UsageError) as caught:
        KNOWN_PATHS.check(path, "here")
    assert str(caught.value) == f"here: no report has a number {path!r}; the nearest one is {nearest!r}."


def test_known_paths_are_those_of_the_schema() -> None:
    assert len(KNOWN_PATHS.all) == len(set(KNOWN_PATHS.all)) > 300
    assert {path.split(".")[0] for path in KNOWN_PATHS.all} == set(Report.__dataclass_fields__)
