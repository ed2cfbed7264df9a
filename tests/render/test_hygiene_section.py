"""Data hygiene on the page: plain words first, true for every outcome, a reason for everything that is missing."""

from __future__ import annotations

from typing import Any

import reports
from drawn import render_html, render_markdown
from pages import Page

from audit.measures.hygiene.block import ClassBalance
from audit.render.samples import balance_sentences


def section(report: dict[str, Any], key: str = "hygiene") -> str:
    html = render_html(report)
    start = html.index(f'<section aria-labelledby="{key}">')
    return Page(html[start : html.index("</section>", start) + len("</section>")]).text


def changed(**parts: Any) -> dict[str, Any]:
    """The classification example with blocks of its hygiene updated."""
    report = reports.classification()
    for key, value in parts.items():
        block = report["hygiene"]
        block[key] = block[key] | value if isinstance(value, dict) else value
    return report


def leaking(void: bool) -> dict[str, Any]:
    fresh = {
        "samples": 800, "loss_gap": 0.5, "loss_gap_ci95": [0.35, 0.66], "error_gap": 0.09, "moved": void,
        "error_gap_ci95": [0.07, 0.11], "loss_gap_shift": 0.111, "error_gap_shift": 0.018,
    }  # fmt: skip
    return changed(
        duplicates_across_splits=200,
        duplicate_pairs=[{"train": 10 + index, "test": 2000 + index, "same_label": index > 0} for index in range(20)],
        leaked={"void": void, "why": "The stored reason.", "copies": 199, "share": 0.199, "without_copies": fresh},
    )


def test_clean_splits_are_said_to_be():
    words = section(reports.classification())
    assert "0 of the 1,000 test samples are also in train, number for number." in words
    assert "No other test sample comes closer to a train sample than chance would bring it." in words
    assert "No test sample is in train with the same label: the gap without copies is the gap." in words
    assert "No sample's input is in train with another label." in words
    assert "void" not in words


def test_void_verdict_stands_first_with_its_reason_and_the_gap_without_copies():
    words = section(leaking(void=True))
    assert words.index("The verdict is void. The stored reason.") < words.index("Test samples that are also in train")
    assert "200 of the 1,000 test samples are also in train, number for number (20.00 %)." in words
    assert (
        "On the 800 test samples without a copy in train the loss gap is 0.5 (95 % interval 0.35 to 0.66) instead of "
        "0.389 and the error gap +9.00 points (95 % interval +7.00 to +11.00 points) instead of +7.20 points: outside "
        "the 95 % interval of the gap with the copies."
    ) in words
    assert "Copies: the first 10 of 200" in words
    assert "2,000 10 no 2,001 11 yes" in words


def test_few_copies_do_not_void_the_verdict():
    words = section(leaking(void=False))
    assert "The verdict is void" not in words
    assert "This does not void the verdict: The stored reason." in words
    assert "within the 95 % interval of the gap with the copies" in words


def test_near_duplicates_stand_beside_what_is_natural_for_the_data():
    pairs = [{"train": 7, "test": 5, "same_label": True, "distance": 0.25, "ratio": 0.03125}]
    words = section(changed(near_duplicates=1, near={"pairs": pairs, "within_train": 0.02}))
    assert "1 more comes far closer to a train sample than chance would; within train, 2.00 % of the samples" in words
    assert "5 7 yes 0.25 0.0312" in words
    words = section(changed(near_duplicates=None, near={"skipped": "Every test sample is itself in train."}))
    assert "Near duplicates were not looked for. Every test sample is itself in train." in words


def test_partial_search_is_told():
    words = section(changed(leaked={"searched": 0.25, "estimated_share": 0.04}))
    assert "Only 25.00 % of the train samples on disk were searched" in words
    assert "would find about 4.00 % of the test samples with the same label" in words


def test_conflicts_are_counted_and_listed():
    found = {"within_train": 14, "across_splits": 1, "train": list(range(14)), "test": [99]}
    words = section(changed(conflicts=found))
    assert "The inputs of 14 train and 1 test samples are in train with another label" in words
    assert "In train: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 4 more. In test: 99." in words


def test_suspect_labels_stand_against_chance_and_may_merely_be_odd():
    words = section(reports.classification())
    assert "901 of the 4,000 train labels are suspect (22.53 %)" in words
    assert "if train labels were as right as test labels, about 112 would be by chance" in words
    assert "estimated at 23.99 % (95 % interval 21.65 % to 26.13 %): more than chance explains." in words
    assert "The strongest suspects are shown under failures and suspects." in words


def test_suspect_labels_are_listed_where_there_are_no_pictures_and_may_merely_be_odd():
    assert "The strongest 15 of 901" not in section(reports.classification(), "failures")
    words = section(reports.with_changes(gallery=None), "failures")
    assert "A listed sample may merely be odd." in words
    assert "The strongest 15 of 901" in words
    first, *_, last = reports.classification()["hygiene"]["suspected_mislabels"]["suspects"]
    assert f"{first['index']} {first['label']} {first['neighbours_label']} 100 % 0 %" in words
    assert f"{last['index']:,} {last['label']} {last['neighbours_label']} " not in words


def test_rate_that_may_be_zero_accuses_nobody():
    rate = {"count": 97, "share": 0.02425, "expected_by_chance": 124.0, "estimated_rate": 0.0}
    words = section(changed(suspected_mislabels=rate | {"estimated_rate_ci95": [0.0, 0.0134]}))
    assert "the interval includes zero, so these samples do not show that any is wrong" in words
    assert "more than chance explains" not in words


def test_list_without_a_yardstick_says_why():
    nothing = dict.fromkeys(("expected_by_chance", "estimated_rate", "estimated_rate_ci95"))
    words = section(changed(suspected_mislabels=nothing | {"caveat": "Nothing tells how often that is chance."}))
    assert "901 of the 4,000 train labels are suspect (22.53 %). Nothing tells how often that is chance." in words
    assert "None" not in words
    assert "No rate can be told" in section(changed(suspected_mislabels=nothing))


def test_different_proportions_and_missing_classes_are_told():
    words = section(changed(class_balance={"differ": True, "p_value": 0.0005, "missing_in_test": ["3", "7"]}))
    assert "differ by more than chance (p = 0.0005, from 2,000 random re-divisions of the samples)" in words
    assert "Without any test sample: 3, 7." in words
    assert "differ no more than chance would make them" in section(reports.classification())


def test_thousand_classes_show_those_that_differ_most():
    counts = {f"class {index}": 4 for index in range(1000)}
    words = section(changed(class_balance={"train": counts, "test": counts | {"class 500": 9}}))
    assert "The 20 classes whose shares differ most, of 1,000; report.json holds all." in words
    assert "class 500 4 0.10 % 9 0.22 %" in words


def test_regression_speaks_of_targets_and_says_why_there_are_no_labels():
    words = section(reports.regression())
    assert "can the targets be trusted?" in words
    assert "No sample's input is in train with another target." in words
    assert "Wrong train targets are not looked for, since those of neighbours differ by nature" in words
    assert "there are no classes whose balance could be judged" in words
    assert "Suspected wrong train labels" not in words and "Class balance" not in words
    assert "odd" not in words


def test_left_out_hygiene_is_said_to_be():
    report = reports.classification()
    report["hygiene"] = None
    assert 'id="hygiene"' not in render_html(report)  # no heading without its table
    assert "- **Data hygiene:** not part of this audit.\n" in render_markdown(report)


def test_contents_and_checks_link_to_the_section():
    report = reports.classification()
    report["checks"][0] |= {"affects": ["hygiene"], "status": "failed"}
    links = [attributes["href"] for tag, attributes in Page(render_html(report)).elements if tag == "a"]
    assert links.count("#hygiene") == 2
    assert "A self-check that this section rests on failed" in section(report)


def test_equal_classes_are_called_equal() -> None:
    missing: dict[str, Any] = {"missing_in_train": [], "missing_in_test": []}
    block: dict[str, Any] = {"train": {"a": 2}, "differ": False, "p_value": 1.0, "draws": 10, **missing}
    assert "same number of samples" in balance_sentences(ClassBalance(**block, ratio=1.0))[1]
    assert "1.5 times as many" in balance_sentences(ClassBalance(**block, ratio=1.5))[1]
