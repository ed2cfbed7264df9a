"""A release against its baseline: what compares, what does not, and when the difference counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from audits import example, layers, only, outcomes, regression_example, verdict
from hypothesis import given, settings
from hypothesis import strategies as st
from reports import classification

from audit.compare import Named
from audit.compare.compare import compare_reports
from audit.maths.intervals import mean_interval
from audit.measures import KNOWN_PATHS, Report
from audit.policy import Policy, Rule
from audit.policy.baseline import OF_THE_INPUT, Baseline
from audit.policy.judge import judge
from audit.policy.parse import default_policy
from audit.report.paths import Found, find

rng = np.random.default_rng(0)
OLD_WRONG = (rng.random(500) < 0.1).astype(int)
MORE_WRONG = OLD_WRONG | (rng.random(500) < 0.1).astype(int)
LOSS = rng.exponential(size=500)
OLD = {"outcomes": outcomes(OLD_WRONG.tolist(), LOSS.tolist())}
WORSE = {"outcomes": outcomes(MORE_WRONG.tolist(), (LOSS + 0.5 * MORE_WRONG).tolist())}
ERROR = {"gap.test_error": {"max_regression": 0}}


def other_model(**changes: Any) -> dict[str, Any]:
    return {"model": classification()["model"] | {"sha256": "other"}, **changes}


def test_the_same_model_is_not_worse_than_itself() -> None:
    for report in (example(), example(**OLD), regression_example()):
        judged = judge(default_policy(), report, report, strict=True)
        assert judged.passed
        assert {result.status for result in judged.results if "max_regression" in result.id} <= {
            "passed",
            "inconclusive",  # no outcomes were kept: nothing to pair
            "not measurable",  # regression has no error
        }
    same = only(ERROR, example(**OLD), example(**OLD))
    assert (same.status, same.value, same.interval) == ("passed", 0.0, (0.0, 0.0))


@pytest.mark.parametrize("report", [example(**OLD), regression_example()], ids=["classification", "regression"])
def test_no_number_of_a_report_is_worse_than_itself(report: Report) -> None:
    document = report.to_dict()
    of_numbers = [path for path in KNOWN_PATHS.all if not path.startswith("outcomes.")]
    numbers = [
        path for path in of_numbers if not any(isinstance(one.value, (bool, str)) for one in find(path, document))
    ]
    rules = tuple(Rule(path, "max_regression", 0.0, relative=True) for path in numbers)
    results = judge(Policy(rules), report, report).results
    assert len(results) > 500 and {result.status for result in results} == {"passed", "inconclusive", "not measurable"}
    assert all(result.value == 0 for result in results if result.status != "not measurable")


def test_a_model_that_is_wrong_more_often_fails_and_the_other_way_round_passes() -> None:
    worse = only(ERROR, example(**other_model(**WORSE)), example(**OLD))
    added = (MORE_WRONG.sum() - OLD_WRONG.sum()) / 500
    assert worse.status == "failed" and worse.value == pytest.approx(added)
    assert worse.sentence.startswith(f"{100 * MORE_WRONG.mean():.2f} %, baseline {100 * OLD_WRONG.mean():.2f} %: ")
    better = only(ERROR, example(**OLD), example(**other_model(**WORSE)))
    assert better.status == "passed"
    assert better.interval == pytest.approx((-worse.interval[1], -worse.interval[0]))


def test_a_wider_gap_beside_a_better_test_loss_only_warns_by_default() -> None:
    """As after longer training: the train loss has fallen by more than the test loss."""
    old, new = (outcomes(OLD_WRONG.tolist(), LOSS.tolist()) for _ in range(2))
    new["train"] = new["train"] | {"loss": (0.1 * LOSS).tolist()}
    new["test"] = new["test"] | {"loss": (0.8 * LOSS).tolist()}
    reports = example(**other_model(outcomes=new)), example(outcomes=old)
    judged = judge(default_policy(), *reports)
    assert judged.passed and not judge(default_policy(), *reports, strict=True).passed
    statuses = {result.id: result.status for result in judged.results}
    assert statuses["gap.test_loss.max_regression"] == "passed"
    assert statuses["gap.loss_gap.max_regression"] == "failed"


def test_a_difference_of_rounding_size_does_not_fail_a_release() -> None:
    parity = classification()["model"]["parity"] | {"max_abs_diff": 1e-5}
    old = example(**OLD, model=classification()["model"] | {"parity": parity})
    rule = {"gap.test_loss": {"max_regression": 0}}
    for more, status in ((1e-6, "passed"), (1e-3, "failed")):
        louder = {"outcomes": outcomes(OLD_WRONG.tolist(), (LOSS + more * (1 + LOSS)).tolist())}
        judged = only(rule, example(**other_model(**louder)), old)
        assert judged.status == status and judged.interval is not None and judged.interval[0] > 0
        assert ("is rounding" in judged.sentence) == (status == "passed")


def test_a_lost_baseline_does_what_the_rule_says() -> None:
    for keys, consequence in (
        ({"no_baseline": "fail"}, "fail"),
        ({"not_measurable": "fail"}, "fail"),
        ({"not_measurable": "fail", "no_baseline": "pass"}, "pass"),
        ({}, "warn"),
    ):
        judged = only({"gap.test_error": {"max_regression": 0, **keys}}, example(**OLD))
        assert (judged.status, judged.consequence) == ("not measurable", consequence)
    assert judge(default_policy(), example(**OLD), strict=True).passed


def test_accuracy_falls_by_what_the_error_rises() -> None:
    error = only(ERROR, example(**other_model(**WORSE)), example(**OLD))
    accuracy = only({"gap.test_accuracy": {"max_regression": 0}}, example(**other_model(**WORSE)), example(**OLD))
    assert (accuracy.status, accuracy.value) == (error.status, error.value)
    assert accuracy.sentence.startswith(
        f"{100 - 100 * MORE_WRONG.mean():.2f} %, baseline {100 - 100 * OLD_WRONG.mean():.2f} %: "
    )


def test_a_share_of_the_baseline_is_told_in_the_numbers_own_unit() -> None:
    base = OLD_WRONG.mean()
    result = only({"gap.test_error": {"max_regression": "500%"}}, example(**other_model(**WORSE)), example(**OLD))
    assert (result.status, result.limit) == ("passed", pytest.approx(5 * base))


def test_other_test_samples_are_not_comparable_and_fail_the_default_policy() -> None:
    moved = {"outcomes": outcomes(OLD_WRONG.tolist(), LOSS.tolist(), "elsewhere")}
    data = classification()["data"] | {"sha256": "elsewhere"}
    new = example(**other_model(data=data, **moved))
    result = only(ERROR, new, example(**OLD))
    assert result.status == "not measurable"
    assert "test samples" in result.sentence and result.sentence.endswith("; make a baseline on these data")
    judged = judge(default_policy(), new, example(**OLD))
    assert [result.id for result in judged.that("fail")] == ["gap.test_loss.max_regression"]


def test_other_train_samples_leave_the_test_error_comparable_but_not_the_gap() -> None:
    here, there = (outcomes(OLD_WRONG.tolist(), LOSS.tolist()) for _ in range(2))
    there["train"] = there["train"] | {"sha256": "more data"}
    data = classification()["data"] | {"sha256": "more data"}
    results = verdict(
        {**ERROR, "gap.loss_gap": {"max_regression": 0}, "network.sensitivity.mls": {"max_regression": 0}},
        example(**other_model(data=data, outcomes=there)),
        example(outcomes=here),
    ).results
    assert [result.status for result in results] == ["inconclusive", "not measurable", "not measurable"]
    assert results[2].sentence == "the baseline was judged on other train samples; make a baseline on these data"


def test_another_task_is_not_comparable() -> None:
    result = only({"gap.test_loss": {"max_regression": 0}}, regression_example(), example())
    assert (result.status, result.sentence) == (
        "not measurable",
        "the baseline's task is classification, not regression",
    )


def test_a_difference_without_outcomes_says_that_it_is_not_paired() -> None:
    unpaired = only(ERROR, example(**other_model(outcomes=None)), example(outcomes=None))
    assert unpaired.sentence.startswith("7.20 %, baseline 7.20 % (not paired sample by sample, since a report kept no ")
    assert "not paired" not in only(ERROR, example(**other_model(**WORSE)), example(**OLD)).sentence


def test_a_difference_on_some_of_the_samples_says_on_how_many() -> None:
    first = {key: OLD["outcomes"]["test"][key][:400] for key in ("positions", "loss", "wrong")}
    fewer = {**OLD["outcomes"], "test": {**first, "sha256": "fewer", "samples": 400}}
    result = only(ERROR, example(**other_model(outcomes=fewer)), example(**OLD))
    assert " (on the 400 of 500 samples that both have): " in result.sentence


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("gap.test_error", " for the worse, at most"),
        ("gap.per_class.3.test_loss", " for the worse, at most"),
        ("gap.test_accuracy", " for the worse, at most"),
        ("model.parameters", ": higher by 0, at most"),
        ("network.sensitivity.mls", ": higher by 0 (95 % interval"),
        ("layers.fc2.flatness.kappa", ": higher by 0 (95 % interval"),
    ],
)
def test_a_rise_is_for_the_worse_only_where_that_is_known(path: str, told: str) -> None:
    assert told in only({path: {"max_regression": 0}}, example(**OLD), example(**OLD)).sentence


KAPPA = {"layers.fc2.flatness.kappa": {"max_regression": 0}}
STEEP = layers(kappa=400.0, kappa_ci95=[390.0, 410.0])


def test_curvature_compares_at_the_same_train_loss_only() -> None:
    steep = only(KAPPA, example(layers=STEEP), example())
    assert steep.status == "failed"
    gap = classification()["gap"] | {"train_loss": 0.2}
    unmatched = only(KAPPA, example(layers=STEEP, gap=gap), example())
    assert unmatched.status == "inconclusive"
    assert unmatched.sentence == (
        "this number follows the train loss, which is 0.2 here and 0.002 in the baseline: "
        "a difference would say nothing"
    )
    free_of_scale = {"network.sensitivity.dimensionality": {"max_regression": 1}}
    assert only(free_of_scale, example(gap=gap), example()).status == "passed"


def test_the_gate_and_compare_agree_on_what_follows_the_train_loss() -> None:
    """Whatever `compare` leaves out between two train losses is open in the gate, and the other way round."""
    old, new = example(), example(gap=classification()["gap"] | {"train_loss": 0.2})
    numbers = compare_reports(Named("old", old), Named("new", new), "").numbers
    inside = [told for told in numbers if told.section != "observed"]
    assert {told.skipped is None for told in inside} == {True, False}
    for told in inside:
        judged = only({told.key: {"max_regression": 1}}, new, old)
        assert (told.skipped is not None) == ("follows the train loss" in judged.sentence), told.key


def test_a_regressions_curvature_does_not_follow_its_train_loss() -> None:
    old = regression_example()
    new = replace(old, gap=replace(old.gap, train_loss=9 * old.gap.train_loss))
    judged = only({"network.flatness.kappa_tau_sum": {"max_regression": 1}}, new, old)
    assert judged.interval is not None and "follows the train loss" not in judged.sentence


@given(st.sampled_from([10, 50, 100, 300]))
@settings(max_examples=4, deadline=None)
def test_a_limit_in_shares_of_the_baseline_knows_that_the_baseline_is_uncertain(percent: int) -> None:
    """The interval against the limit is that of new − (1 + share) · old against 0, paired on every sample."""
    old, new = np.array(OLD["outcomes"]["test"]["loss"]), np.array(WORSE["outcomes"]["test"]["loss"])
    rule = {"gap.test_loss": {"max_regression": f"{percent}%"}}
    judged = only(rule, example(**other_model(**WORSE)), example(**OLD))
    beyond = mean_interval(new - (1 + percent / 100) * old)
    assert judged.limit == pytest.approx(percent / 100 * old.mean())
    assert judged.interval == pytest.approx([end + judged.limit for end in beyond])


def test_accuracy_in_shares_of_the_baseline_is_held_against_its_own_limit() -> None:
    rule = {"gap.test_accuracy": {"max_regression": "10%"}}
    judged = only(rule, example(**other_model(**WORSE)), example(**OLD))
    beyond = mean_interval(0.9 * (1 - OLD_WRONG) - (1 - MORE_WRONG))
    assert judged.limit == pytest.approx(0.1 * (1 - OLD_WRONG.mean()))
    assert judged.interval == pytest.approx([end + judged.limit for end in beyond])


def test_a_share_of_nothing_says_so() -> None:
    none_wrong = example(outcomes=outcomes([0] * 500, LOSS.tolist()))
    judged = only({"gap.test_error": {"max_regression": "10%"}}, example(**other_model(**WORSE)), none_wrong)
    assert judged.limit == 0
    assert judged.sentence.endswith(
        "0.1 times a baseline of 0 allows nothing, so give a limit in the number's own unit"
    )


def test_other_settings_make_other_numbers() -> None:
    settings = classification()["settings"] | {"subset_size": 50}
    result = only({"network.fisher.gamma": {"max_regression": 0}}, example(settings=settings), example())
    assert result.sentence == "the baseline was made with subset_size = 100, not 50; make it anew"


def test_what_runs_over_the_weights_compares_between_like_networks_only() -> None:
    larger = example(model=classification()["model"] | {"parameters": 30_000})
    result = only({"network.sensitivity.sharpness": {"max_regression": 0}}, larger, example())
    assert (result.status, result.sentence) == (
        "not measurable",
        "it runs over layers and weights, and the baseline's network has different ones",
    )
    assert only({"network.sensitivity.mls": {"max_regression": 1}}, larger, example()).status == "passed"


def test_numbers_of_the_input_are_numbers_of_the_report() -> None:
    assert set(OF_THE_INPUT) <= set(KNOWN_PATHS.all)


def test_a_layer_that_the_baseline_does_not_have() -> None:
    renamed = [layer | {"name": f"new-{layer['name']}"} for layer in classification()["layers"]]
    result = only({"layers.new-fc1.flatness.kappa": {"max_regression": 0}}, example(layers=renamed), example())
    assert result.sentence == "in the baseline: layers of this report has no 'new-fc1', only fc1, fc2, fc3"


def test_numbers_about_the_data_or_the_file_compare_anywhere() -> None:
    data = classification()["data"] | {"sha256": "elsewhere"}
    model = classification()["model"] | {"parameters": 30_000}
    result = only({"model.parameters": {"max_regression": "10%"}}, example(data=data, model=model), example())
    assert (result.status, result.value) == ("failed", 5210)


number = st.floats(-100, 100)
ITSELF = Baseline(regression_example(), regression_example())
half = st.none() | st.tuples(st.floats(0, 10), st.floats(0, 10))


def around(path: str, value: float, widths: tuple[float, float] | None) -> Found:
    return Found(path, value, None if widths is None else (value - widths[0], value + widths[1]))


@given(number, half, number, half, st.sampled_from(["hygiene.near.dimension", "gap.test_r2"]))
def test_an_independent_difference_holds_itself_is_no_narrower_than_either_and_turns_round(
    a, wide, b, thin, path
) -> None:
    here, there = around(path, a, wide), around(path, b, thin)
    forth, back = ITSELF.worsening(here, there), ITSELF.worsening(there, here)
    assert forth.by == pytest.approx((b - a) if path.endswith("r2") else (a - b))
    assert back.by == -forth.by
    if forth.interval is None:
        assert wide is None and thin is None
        return
    low, high = forth.interval
    assert low <= forth.by <= high
    assert back.interval == pytest.approx((-high, -low))
    widest = max(sum(widths) for widths in (wide, thin) if widths)
    assert high - low >= widest * (1 - 1e-9) - 1e-9


def test_calibration_is_held_against_a_baseline_on_the_same_test_samples_only() -> None:
    table = {"calibration.test.ece": {"max_regression": 0.01}}
    block = classification()["calibration"]
    surer = example(calibration=block | {"test": block["test"] | {"ece": 0.3, "ece_ci95": [0.25, 0.35]}}, **OLD)
    assert only(table, surer, example(**OLD)).status == "failed"
    assert only(table, example(**OLD), example(**OLD)).status != "failed"
    elsewhere = {"outcomes": outcomes(OLD_WRONG.tolist(), LOSS.tolist(), sha256="elsewhere")}
    held = only(table, surer, example(**elsewhere))
    assert held.status == "not measurable" and "judged on other test samples" in held.sentence
    assert only({"calibration.test.ece": {"max": 0.1}}, surer).status == "failed"
