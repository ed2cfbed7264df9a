"""A finished report against rules of every kind, and what each result does to the gate."""

from __future__ import annotations

import pytest
from audits import example, only, regression_example, verdict
from reports import classification

from audit.errors import UsageError
from audit.policy import Policy, lines
from audit.policy.judge import judge
from audit.policy.parse import default_policy

GAP = "gap.error_gap"  # 0.072, 95 % interval 0.056 to 0.088


@pytest.mark.parametrize(
    ("limits", "status", "sentence"),
    [
        ({"max": 0.1}, "passed", "7.20 % (95 % interval 5.60 % to 8.80 %), at most 10.00 % allowed"),
        ({"max": 0.05}, "failed", "7.20 % (95 % interval 5.60 % to 8.80 %), at most 5.00 % allowed"),
        ({"min": 0.06}, "inconclusive", "at least 6.00 % allowed; the interval lies on both sides of that"),
        ({"min": 0.01}, "passed", "at least 1.00 % allowed"),
        ({"max_regression": 0}, "not measurable", "no baseline was given"),
    ],
)
def test_a_number_is_held_against_its_limit(limits: dict[str, float], status: str, sentence: str) -> None:
    result = only({GAP: limits}, example())
    assert (result.status, result.path) == (status, GAP)
    assert result.id == f"{GAP}.{next(iter(limits))}"
    assert result.sentence.endswith(sentence)


@pytest.mark.parametrize(
    ("limit", "keys", "strict", "consequence"),
    [
        (0.1, {"level": "error"}, True, "pass"),
        (0.05, {}, False, "fail"),
        (0.05, {"level": "warn"}, False, "warn"),
        (0.05, {"level": "warn"}, True, "fail"),
        (0.07, {}, False, "warn"),
        (0.07, {}, True, "fail"),
        (0.07, {"inconclusive": "pass"}, True, "pass"),
        (0.07, {"inconclusive": "fail"}, False, "fail"),
        (0.07, {"inconclusive": "fail", "level": "warn"}, False, "warn"),
    ],
)
def test_what_a_result_does_to_the_gate(limit: float, keys: dict[str, str], strict: bool, consequence: str) -> None:
    judged = verdict({GAP: {"max": limit, **keys}}, example(), strict=strict)
    assert judged.results[0].consequence == consequence
    assert judged.passed == (consequence != "fail")


@pytest.mark.parametrize(("meant", "passed"), [("pass", True), ("warn", True), ("fail", False)])
def test_a_number_that_is_not_there_is_not_measurable(meant: str, passed: bool) -> None:
    judged = verdict({GAP: {"max": 0.1, "not_measurable": meant}}, regression_example())
    assert judged.passed is passed
    assert judged.results[0].status == "not measurable"
    assert judged.results[0].sentence == "error and accuracy do not exist for regression"


def test_a_star_gives_a_result_for_each_and_a_rule_of_its_own_beats_it() -> None:
    table = {"layers.*.flatness.kappa": {"max": 20}, "layers.fc1.flatness.kappa": {"max": 100}}
    results = verdict(table, example()).results
    assert [(result.id, result.status) for result in results] == [
        ("layers.fc2.flatness.kappa.max", "inconclusive"),  # 17.9, up to 20.3
        ("layers.fc3.flatness.kappa.max", "passed"),
        ("layers.fc1.flatness.kappa.max", "passed"),
    ]
    table["layers.fc1.flatness.kappa"] = {"level": "off"}
    assert len(verdict(table, example()).results) == 2


def test_words_and_booleans_are_held_against_is() -> None:
    assert only({"model.task": {"is": "classification"}}, example()).status == "passed"
    failed = only({"model.task": {"is": "regression"}}, example())
    assert (failed.status, failed.sentence) == ("failed", "is classification, not regression")
    late = only({"settings.layout": {"max": 1}}, example())  # any setting may be any kind of value
    assert (late.status, late.sentence) == ("not measurable", "'auto' is no number")


def test_a_self_check_passes_fails_or_could_not_be_made() -> None:
    checks = classification()["checks"]
    broken = [check | {"status": "failed", "value": 3.0} if check["id"] == "determinism" else check for check in checks]
    failed = only({"check.determinism": {}}, example(checks=broken))
    assert (failed.id, failed.status, failed.consequence) == ("check.determinism", "failed", "fail")
    assert failed.sentence == "The same samples give the same numbers twice (3, tolerance 0)"
    skipped = only({"check.rescaling-layers": {}}, regression_example())
    assert (skipped.status, skipped.consequence) == ("not measurable", "warn")
    with pytest.raises(UsageError, match=r"there is no check 'determinsm'; the nearest one is 'determinism'\.$"):
        only({"check.determinsm": {}}, example())


def test_every_check_means_parity_too_but_no_assumption() -> None:
    results = verdict({"check.*": {}}, regression_example()).results
    ids = [result.id for result in results]
    assert ids[0] == "check.parity" and "check.duality-exact" in ids and "check.piecewise-linear" not in ids
    assert only({"check.piecewise-linear": {}}, regression_example()).status == "failed"


def test_a_network_that_disagrees_with_its_file_fails() -> None:
    model = classification()["model"]
    model["parity"]["max_abs_diff"] = 1.0
    result = only({"check.parity": {}}, example(model=model))
    assert result.status == "failed"
    assert result.sentence == "The network does not agree with onnxruntime (1, tolerance 0.003576)"
    assert only({"check.parity": {}}, example(model=model | {"parity": None})).status == "not measurable"


def finding(level: str) -> dict[str, object]:
    words = {"title": "Labels are wrong.", "explanation": "", "advice": "", "source": "", "evidence": {}}
    return {"id": "mislabelled", "level": level, **words}


@pytest.mark.parametrize(
    ("level", "fails_at", "status"),
    [("watch", "watch", "failed"), ("watch", "concern", "passed"), ("concern", "watch", "failed")],
)
@pytest.mark.parametrize("name", ["mislabelled", "*"])
def test_a_finding_fails_where_it_is_grave_enough(level: str, fails_at: str, status: str, name: str) -> None:
    result = only({f"finding.{name}": {"fails_at": fails_at}}, example(findings=[finding(level)]))
    assert result.status == status
    expected = f"{level}: Labels are wrong" if status == "failed" else "no such finding of level concern or graver"
    assert result.sentence == expected


def test_a_finding_that_is_not_there_passes_and_one_that_cannot_be_is_refused() -> None:
    assert only({"finding.mislabelled": {}}, example(findings=[])).status == "passed"
    with pytest.raises(UsageError, match=r"there is no finding 'mislabeled'; the nearest one is 'mislabelled'\.$"):
        only({"finding.mislabeled": {}}, example(findings=[]))


def test_the_default_policy_passes_the_healthy_example_and_fails_a_leaked_one() -> None:
    assert judge(default_policy(), example(), strict=True).passed
    hygiene = classification()["hygiene"]
    hygiene["leaked"] |= {"void": True, "why": "90 of 100 test samples are in train."}
    judged = judge(default_policy(), example(hygiene=hygiene))
    assert not judged.passed
    assert [(result.path, result.sentence) for result in judged.that("fail")] == [
        ("hygiene.leaked.void", "is true, not false: 90 of 100 test samples are in train")
    ]


def test_the_default_policy_passes_the_regression_example() -> None:
    assert judge(default_policy(), regression_example(), regression_example(), strict=True).passed


def test_the_lines_name_every_rule_and_the_last_one_the_verdict() -> None:
    table = {GAP: {"max": 0.05}, "gap.test_error": {"max": 0.07}, "network.flatness.kappa_max": {"max": 100}}
    assert lines(verdict(table, example())) == [
        "failed                gap.error_gap.max               "
        "7.20 % (95 % interval 5.60 % to 8.80 %), at most 5.00 % allowed",
        "inconclusive (warns)  gap.test_error.max              "
        "7.20 % (95 % interval 5.60 % to 8.80 %), at most 7.00 % allowed; the interval lies on both sides of that",
        "passed                network.flatness.kappa_max.max  61.67 (no interval), at most 100 allowed",
        "failed: 1 of 3 rules of test, 1 warning: gap.error_gap.max",
    ]
    assert len(lines(verdict(table, example()), brief=True)) == 3


def test_only_the_rules_that_were_kept_count_as_passed() -> None:
    table = {GAP: {"max": 0.1}, "gap.test_error": {"max": 0.07}, "gap.test_rmse": {"max": 1, "not_measurable": "pass"}}
    last = "passed: 1 of 3 rules of test; 1 warns, 1 not measurable"
    assert lines(verdict(table, example()))[-1] == last
    warned = {GAP: {"max": 0.05, "level": "warn"}, "gap.test_rmse": {"max": 1, "not_measurable": "pass"}}
    assert lines(verdict(warned, example()))[-1] == "passed: 0 of 2 rules of test; 1 warns, 1 not measurable"
    assert lines(verdict({GAP: {"max": 0.1}}, example()))[-1] == "passed: 1 rule of test"


def test_an_empty_verdict_passes() -> None:
    assert judge(Policy(()), example()).passed


def test_a_prompt_shows_a_verdict_in_two_lines() -> None:
    judged = verdict({GAP: {"max": 0.05}}, example())
    assert repr(judged).splitlines() == [
        f"Verdict(passed=False, policy={judged.policy!r}, results=1)",
        f"failed: 1 of 1 rule of {judged.policy}: gap.error_gap.max",
    ]
