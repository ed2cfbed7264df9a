"""The definition cards quote what `samples/count_findings.py` counted, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from places import SAMPLES

from audit.findings.rules import RULES
from audit.render.cards import find_cards

RECORDED = json.loads((SAMPLES / "finding_rates.json").read_text(encoding="utf-8"))
NETWORKS: list[dict[str, Any]] = RECORDED["networks"]
CLEAN = ("clean", "few", "large-batch", "small-steps", "decay", "short")
ORIGIN = {rule.id: rule.origin for rule in RULES}


def trained(*recipes: str, data: str | None = None, classes: int = 2) -> list[dict[str, Any]]:
    enough = [row for row in NETWORKS if classes <= 2 or row["data"] != "breast-cancer"]
    return [row for row in enough if row["recipe"] in recipes and data in (None, row["data"])]


def spoke(id: str, rows: list[dict[str, Any]], *levels: str) -> str:
    hits = sum(row["findings"].get(id) in levels if levels else id in row["findings"] for row in rows)
    return f"{hits} of {len(rows)}"


def test_the_record_is_complete() -> None:
    assert len(NETWORKS) == len({(row["data"], row["recipe"], row["seed"]) for row in NETWORKS})
    assert {row["seed"] for row in NETWORKS} == set(range(1, 6))
    assert sum(RECORDED["trained"].values()) == len(NETWORKS)
    concerns = RECORDED["rates"]["mislabelled"]["concern"]
    assert concerns["mnist wrong-25"] == RECORDED["trained"]["mnist wrong-25"]
    assert not {name.split()[1] for name in concerns} & set(CLEAN)


def test_false_alarms_and_hits_of_wrong_labels() -> None:
    words = ORIGIN["mislabelled"]
    assert f"for {spoke('mislabelled', trained(*CLEAN))} networks with clean labels" in words
    assert f"as a concern for {spoke('mislabelled', trained(*CLEAN), 'concern')}" in words
    hits = [spoke("mislabelled", trained(f"wrong-{share}")) for share in (25, 10, 5)]
    concerns = [spoke("mislabelled", trained(f"wrong-{share}"), "concern") for share in (25, 10, 5)]
    assert "for {}, {} and {}".format(*hits) in words
    assert "as a concern for {}, {} and {}".format(*concerns) in words


def test_precision_of_the_listed_labels() -> None:
    found = []
    for share in (25, 10, 5):
        rows = trained(f"wrong-{share}")
        found.append(f"{sum(row['listed_and_moved'] for row in rows) / sum(row['listed'] for row in rows):.0%}")
    words = "{}, {} and {} were truly wrong".format(*(part.replace("%", " %") for part in found))
    assert words in ORIGIN["mislabelled"]


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("large-batch", "with large batches"),
        ("small-steps", "with small steps"),
        ("few", "on a quarter of the data"),
        ("decay", "with weight decay"),
        ("clean", "healthy"),
    ],
)
def test_how_often_the_gap_is_called_steep(recipe: str, words: str) -> None:
    assert f"{spoke('steep-gap', trained(recipe, data='mnist'))} {words}" in ORIGIN["steep-gap"]


def test_how_often_the_gap_is_called_flat() -> None:
    assert f"for {spoke('flat-gap', trained(*CLEAN, classes=3))} networks with clean labels" in ORIGIN["flat-gap"]


DOCTOR = json.loads((SAMPLES / "doctor_rates.json").read_text(encoding="utf-8"))
LABELS = ("two classes swapped", "classes shifted by one", "three classes in a circle")
INPUTS = [way for way in DOCTOR["ways"] if way not in (*LABELS, "right")]


def counted(kind: str, ways: Any) -> str:
    return f"{sum(DOCTOR['ways'][way][kind] for way in ways)} of {sum(DOCTOR['ways'][way]['networks'] for way in ways)}"


def test_what_the_doctor_found() -> None:
    right, wrong = DOCTOR["ways"]["right"], [count for way, count in DOCTOR["ways"].items() if way != "right"]
    assert right["networks"] == 60 and right["found"] == 0
    assert sum(count["found"] for count in wrong) >= 0.9 * sum(count["networks"] for count in wrong)
    for id, kind in (("preprocessing", "better"), ("class-order", "moved"), ("input-range", "out_of_range")):
        assert f"it spoke for {counted(kind, ['right'])}" in ORIGIN[id]
    assert f"in {counted('better', INPUTS)} cases" in ORIGIN["preprocessing"]
    assert f"in {counted('moved', LABELS)} cases" in ORIGIN["class-order"]
    of_norms = [row for row in DOCTOR["networks"] if row["norms"]]
    fed = [row for row in of_norms if row["way"] == "right"]
    otherwise = [row["odd_norm"] for row in of_norms if row["way"] in INPUTS]
    assert f"of {len(fed)} with a BatchNorm" in ORIGIN["batch-norm"] and not any(row["odd_norm"] for row in fed)
    assert f"{sum(otherwise)} of {len(otherwise)} fed otherwise were" in ORIGIN["batch-norm"]


TWINS = json.loads((SAMPLES / "twin_rates.json").read_text(encoding="utf-8"))


def called(way: str, verdict: str) -> str:
    rows = [row for row in TWINS["splits"] if row["way"] == way]
    return f"{sum(row['verdict'] == verdict for row in rows)} of {len(rows)}"


def test_how_often_test_splits_are_called_different() -> None:
    words = ORIGIN["shifted"]
    same, splits = called("as it is", "same").split(" of ")
    assert f"of {splits} test splits as they came {int(splits) - int(same)} were" in words
    assert f"mirrored {called('mirrored', 'shifted')} were called harder" in words
    assert f"of their width {called('moved by a fourteenth', 'shifted')}, with noise of 0.2 " in words
    assert f"with noise of 0.2 {called('noise of 0.2', 'shifted')}, blurred {called('blurred', 'shifted')}" in words
    assert f"half the contrast {called('half the contrast', 'shifted')}." in words
    assert f"copied from train {called('a fifth from train', 'easier')} were called easier" in words


def test_how_often_inputs_are_told_apart() -> None:
    (card,) = find_cards("hygiene.told_apart")
    honest = [row for row in TWINS["inputs"] if row["way"] == "as it is"]
    changed = [row for row in TWINS["inputs"] if row["way"] not in ("as it is", "a fifth from train")]
    false, found = (sum(row["differ"] for row in rows) for rows in (honest, changed))
    assert len(honest) >= 100 and {row["data"] for row in honest} == {row["data"] for row in TWINS["splits"]}
    assert f"of {len(honest)} random divisions" in card.can_tell and f"{false} were told apart." in card.can_tell
    assert f"{found} of {len(changed)} were, " in card.can_tell
    low, high = (round(100 * end(row["accuracy"] for row in changed)) for end in (min, max))
    assert f"{low} to {high} in 100 inputs" in card.can_tell
    assert f"{false} of {len(honest)} divisions were told apart, and {found} of {len(changed)}" in ORIGIN["shifted"]


def held(rows: list[dict[str, Any]]) -> tuple[int, int, int]:
    """Forecasts that hold the mean of the networks on twice as many samples, these networks, and changes."""
    found = [0, 0, 0]
    for row in rows:
        (low, high), (least, most), mean = row["twice_ci95"], row["change_ci95"], sum(row["true"]) / len(row["true"])
        singly = sum(low <= value <= high for value in row["true"])
        hits = low <= mean <= high, singly, least <= mean - row["points"][2] <= most
        found = [a + b for a, b in zip(found, hits, strict=True)]
    return found[0], found[1], found[2]


def test_how_often_twice_the_data_is_foretold() -> None:
    words, rows = ORIGIN["few-train-samples"], TWINS["curves"]
    means, singly, changes = held(rows)
    assert f"Of {len(rows)} forecasts from twins" in words and f" {means} held the mean error" in words
    assert f"{singly} of these {sum(len(row['true']) for row in rows)} networks lay inside" in words
    assert f"was held in {changes} of {len(rows)}." in words
    others = [row for row in rows if row["data"] != "mnist"]
    assert f"of the {len(others)} others {held(others)[0]} held the mean" in words
