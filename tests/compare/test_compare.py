"""What a comparison says, what it leaves out and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_reports import answers, leaked, made, split
from scipy import stats

from audit.compare import Named
from audit.compare.compare import compare_reports
from audit.compare.differences import gap_differences
from audit.compare.recipes import compare_groups, compare_recipes
from audit.errors import UsageError
from audit.maths.intervals import mean_interval, share_interval
from audit.report.blocks import FeatureValue, Gallery, SampleFeatures, Thumbnail

N = 400


def side(name: str, share: float, seed: int, **changes: object) -> Named:
    wrong = answers(N, share, seed)
    losses = 0.1 + 3 * wrong + np.random.default_rng(seed).random(N)
    return made(name, test=split(losses, wrong), **changes)


def of(comparison, key):
    return next(number for number in comparison.numbers if number.key == key)


def test_a_clear_loss_of_accuracy_is_called_worse_and_a_gain_better():
    good, bad = side("good", 0.05, 0), side("bad", 0.25, 1)
    found = compare_reports(good, bad, "")
    assert (found.verdict, compare_reports(bad, good, "").verdict) == ("worse", "better")
    assert found.headline[0].startswith("The new model is worse than the old one on this test set: on the same 400 ")
    assert found.primary == "gap.test_error" and of(found, found.primary).paired
    back = compare_reports(bad, good, "")
    assert (found.only_old_wrong, found.only_new_wrong) == (back.only_new_wrong, back.only_old_wrong)
    assert found.only_new_wrong - found.only_old_wrong == pytest.approx(N * of(found, found.primary).difference)


def test_the_same_model_is_the_same():
    one = side("one", 0.1, 0)
    found = compare_reports(one, one, "")
    assert found.verdict == "the same"
    assert {number.verdict for number in found.numbers if number.section == "observed"} == {"the same"}


def test_like_models_cannot_be_told_apart():
    found = compare_reports(side("one", 0.1, 0), side("two", 0.1, 1), "")
    assert found.verdict == "cannot tell"
    assert "the interval includes zero" in found.headline[0]


@given(st.floats(0, 1), st.floats(0, 1), st.integers(0, 5))
@settings(max_examples=15, deadline=None)
def test_differences_are_those_of_the_shared_samples(first, second, seed):
    old, new = side("old", first, seed), side("new", second, seed + 1)
    found = gap_differences(old.report, new.report)
    a, b = (np.array(each.report.outcomes.test.wrong, float) for each in (old, new))
    assert found["test_error"].difference == pytest.approx(b.mean() - a.mean())
    assert found["test_error"].ci95 == share_interval(a, b)
    d = np.array(new.report.outcomes.test.loss) - np.array(old.report.outcomes.test.loss)
    assert found["test_loss"].ci95 == mean_interval(d)
    gap = found["error_gap"]
    assert gap.difference == pytest.approx(found["test_error"].difference - found["train_error"].difference)
    assert gap.ci95[0] <= gap.difference <= gap.ci95[1]


def test_only_common_samples_count_and_the_page_says_so():
    losses = np.arange(10.0)
    old = made("old", test=split(losses, np.zeros(10), "x", range(10)))
    new = made("new", test=split(losses[5:] + 1, np.ones(5), "y", range(5, 10)))
    found = compare_reports(old, new, "")
    number = of(found, "gap.test_loss")
    assert (number.samples, number.old, number.new) == (5, 7.0, 8.0)
    assert "5 test samples are in both reports, of up to 10 in use." in found.notes
    assert "on the 5 of 10 samples that both reports have" in found.headline[0]
    assert "this test set" not in found.headline[0]


def test_the_same_on_some_samples_is_not_the_same():
    values = answers(10, 0.5, 0)
    old = made("old", test=split(values, values, "x", range(10)))
    new = made("new", test=split(values[5:], values[5:], "y", range(5, 10)))
    assert compare_reports(old, new, "").verdict == "cannot tell"


def test_a_handful_of_common_samples_is_refused():
    old = made("old.json", test=split(np.ones(300), np.zeros(300), "x", range(300)))
    new = made("new.json", test=split(np.ones(300), np.zeros(300), "y", range(215, 515)))
    with pytest.raises(UsageError) as refusal:
        compare_reports(old, new, "")
    assert str(refusal.value) == (
        "old.json and new.json: share 85 of 300 test samples, fewer than half; audit both with the same "
        "--test-samples and --seed."
    )
    skipped = gap_differences(old.report, new.report)["test_error"].skipped
    assert skipped == "the two reports share 85 of 300 test samples, fewer than half"


def test_a_leaked_test_split_voids_the_verdict_and_is_said_first():
    good, bad = side("good", 0.05, 0), side("bad", 0.25, 1)
    found = compare_reports(bad, Named("good", leaked(good.report)), "")
    assert found.verdict == "void"
    assert found.headline[0].startswith("No verdict: the test split is void.")
    assert "800 of 1,000 test samples are in train" in found.headline[0]
    assert not {number.verdict for number in found.numbers} & {"better", "worse"}


def test_different_test_samples_are_refused():
    old = made("old.json", test=split(np.ones(9), np.zeros(9), "x"))
    other = made("new.json", test=split(np.ones(9), np.zeros(9), "y"))
    other = Named(other.name, replace(other.report, data=replace(other.report.data, sha256="elsewhere")))
    with pytest.raises(UsageError) as refusal:
        compare_reports(old, other, "")
    assert str(refusal.value) == (
        "old.json and new.json: were judged on different test samples, so no difference between them would mean "
        "anything; audit both on one data folder."
    )


def test_different_tasks_are_refused():
    with pytest.raises(
        UsageError, match="their task is classification and regression; compare models that do the same"
    ):
        compare_reports(side("a", 0.1, 0), made("b", "regression"), "")


def test_different_train_samples_leave_only_the_test_numbers():
    old, new = side("old", 0.05, 0), side("new", 0.3, 1)
    outcomes = replace(new.report.outcomes, train=split(np.zeros(4), np.zeros(4), "other"))
    data = replace(new.report.data, sha256="elsewhere")
    found = compare_reports(old, Named("new", replace(new.report, outcomes=outcomes, data=data)), "")
    assert found.verdict == "worse"
    compared = [number.key for number in found.numbers if number.skipped is None]
    on_test = [f"calibration.test.{name}" for name in ("ece", "overconfidence", "brier")]
    assert compared == ["gap.test_error", "gap.test_loss", *on_test]
    assert any(note.startswith("The two were audited with different train samples.") for note in found.notes)


def test_reports_without_outcomes_are_compared_unpaired_and_wider():
    old, new = made("old"), made("new")
    found = compare_reports(old, new, "")
    number = of(found, "gap.test_error")
    assert not number.paired and number.ci95[1] - number.ci95[0] > 0.01
    assert any("holds no outcomes of single test samples" in note for note in found.notes)


def test_numbers_that_follow_the_train_loss_need_one_train_loss():
    old, new = made("old"), made("new")
    apart = Named("new", replace(new.report, gap=replace(new.report.gap, train_loss=2 * new.report.gap.train_loss)))
    kappa = of(compare_reports(old, apart, ""), "network.flatness.kappa_tau_sum")
    assert kappa.verdict == "not compared" and kappa.old is None
    assert "give the two models and the data to have them compared at one train loss" in kappa.skipped
    found = {number.key: number.verdict for number in compare_reports(old, apart, "").numbers}
    assert found["network.sensitivity.mls"] == "not compared"
    assert found["network.sensitivity.dimensionality"] == "the same"  # the scale of the scores does not change it
    alike = of(compare_reports(old, new, ""), "network.flatness.kappa_tau_sum")
    assert alike.skipped is None and alike.verdict == "the same"


def test_other_settings_leave_the_inside_out():
    old, new = made("old"), made("new")
    new = Named("new", replace(new.report, settings={**new.report.settings, "subset_size": 7}))
    assert "subset_size is" in of(compare_reports(old, new, ""), "network.fisher.gamma").skipped


def test_regression_rests_on_the_loss():
    rng = np.random.default_rng(0)
    old = made("old", "regression", test=split(rng.random(200)))
    new = made("new", "regression", test=split(rng.random(200) + 1))
    found = compare_reports(old, new, "")
    assert (found.primary, found.verdict) == ("gap.test_loss", "worse")
    assert not any("error" in number.key for number in found.numbers)
    assert "As root mean squared error" in found.headline[-1]
    assert of(found, "network.flatness.kappa_tau_sum").skipped is None


def test_json_is_finite_and_keeps_every_number():
    found = compare_reports(side("a", 0.1, 0), side("b", 0.2, 1), "gen-audit compare a b")
    values = json.loads(found.to_json())
    assert values["schema"] == "gen-audit/compare/1" and values["command"] == "gen-audit compare a b"
    assert len(values["numbers"]) == len(found.numbers)


def test_groups_put_the_spread_between_seeds_into_the_interval():
    """Two seeds that differ much on their own make the same difference of means unsure."""
    steady = (
        [side(f"old{seed}", 0.05, seed) for seed in range(3)],
        [side(f"new{seed}", 0.2, 9 + seed) for seed in range(3)],
    )
    found = compare_groups(*steady, ("old", "new"), "")
    assert (found.about, found.verdict) == ("recipes", "worse")
    assert found.headline[0].startswith("Models of the new recipe are worse than those of the old one: over 3 seeds")
    spread = [side("x", 0.02, 1), side("y", 0.35, 2)], [side("u", 0.05, 3), side("v", 0.6, 4)]
    assert compare_groups(*spread, ("old", "new"), "").verdict == "cannot tell"


def test_groups_refuse_lone_and_repeated_seeds():
    one, two = side("one", 0.1, 0), side("two", 0.1, 1)
    with pytest.raises(UsageError, match="--group old: has one report; give at least two seeds of each recipe"):
        compare_groups([one], [one, two], ("old", "new"), "")
    with pytest.raises(UsageError, match="--group new: holds the same model more than once; give each seed once"):
        compare_groups([one, two], [two, two], ("old", "new"), "")


def test_recipes_interval_by_hand():
    """Two samples, two seeds each: every part of the standard error written out."""
    old, new = np.array([[0.0, 0.0], [0.0, 2.0]]), np.array([[1.0, 3.0], [3.0, 5.0]])
    found = compare_recipes([(old, new)])
    assert (found.old, found.new) == (0.5, 3.0)
    of_seeds = 0.5 / 2 + 2.0 / 2  # variances of seed means (0, 1) and (2, 4), each over two seeds
    of_samples = np.var([2.0 - 0.0, 4.0 - 1.0], ddof=1) / 2
    half = stats.t.ppf(0.975, 1) * (of_seeds + of_samples) ** 0.5  # each part has one degree of freedom
    assert found.ci95 == pytest.approx((2.5 - half, 2.5 + half), rel=1e-5)
    assert found.seeds_share == pytest.approx(of_seeds / (of_seeds + of_samples))


@pytest.mark.parametrize(("seeds", "spreads"), [((2, 2), (0, 0.4)), ((2, 5), (0.4, 0.01)), ((3, 3), (0, 0.6))])
def test_recipes_without_a_difference_are_rarely_told_apart(seeds, spreads):
    """Unequal spreads between few seeds, 100 samples; Satterthwaite's degrees of freedom called 11, 10 and 7 %."""
    rng, called = np.random.default_rng(0), 0
    for _ in range(1500):
        old, new = (
            rng.normal(0, 1, 100) + rng.normal(0, spread, (count, 1))
            for count, spread in zip(seeds, spreads, strict=True)
        )
        low, high = compare_recipes([(old, new)]).ci95
        called += low > 0 or high < 0
    assert called <= 0.05 * 1500


def test_a_loss_that_tells_another_story_is_told_beside_the_verdict():
    wrong = answers(N, 0.1, 0)
    old, new = made("old", test=split(wrong + 0.1, wrong)), made("new", test=split(wrong + 0.5, wrong))
    found = compare_reports(old, new, "")
    assert found.verdict == "the same"
    assert found.headline[-1] == (
        "Not part of the verdict: the mean test loss of the new one is higher, by +0.4 (95 % interval +0.4 to +0.4); "
        "its probabilities fit these samples worse."
    )


def test_other_layers_leave_out_what_runs_over_layers_and_weights():
    old, new = made("old"), made("new")
    new = Named("new", replace(new.report, model=replace(new.report.model, parameters=7)))
    found = compare_reports(old, new, "")
    assert "the two networks have different ones" in of(found, "network.flatness.kappa_tau_sum").skipped
    assert of(found, "network.sensitivity.mls").skipped is None


def test_a_verdict_without_its_number_says_so():
    """Groups whose reports hold no outcomes: nothing to compare, and no dashes in place of numbers."""
    old, new = [made("a"), made("b")], [made("c"), made("d")]
    found = compare_groups(old, new, ("old", "new"), "")
    assert found.verdict == "not compared"
    assert found.headline == [
        "No verdict: the test error cannot be compared (the reports do not share all their test samples)."
    ]


def test_a_handful_of_samples_that_carry_the_loss_is_told():
    steady = np.random.default_rng(0).random(N)
    jump = steady + np.where(np.arange(N) < 3, 50.0, 0.01)
    wrong = answers(N, 0.1, 0)
    old = made("old", test=split(steady, wrong))
    found = compare_reports(old, made("new", test=split(jump, wrong)), "")
    assert any(note.startswith("2 samples make up more than half of all that changed") for note in found.notes)
    even = compare_reports(old, made("new", test=split(steady + 0.1, wrong)), "")
    assert not any("make up more than half" in note or "rarer than" in note for note in even.notes)


def test_a_small_test_set_says_what_it_cannot_know():
    rng = np.random.default_rng(0)
    found = compare_reports(*(made(name, test=split(rng.random(60), answers(60, 0.1, 1))) for name in "ab"), "")
    assert any(
        "With 60 test samples, a kind of sample rarer than about 1 in 20 may be missing" in note for note in found.notes
    )


def test_a_draw_of_the_outcomes_that_both_kept_is_compared_and_named():
    """Large splits keep a fixed draw of their outcomes: enough to compare on, but not the whole test set."""
    values = answers(50, 0.5, 0)
    kept = replace(split(values, values), samples=400)
    found = compare_reports(made("old", test=kept), made("new", test=kept), "")
    assert found.verdict == "cannot tell"
    assert "on the 50 of 400 samples that both reports have" in found.headline[0]


def test_calibration_is_compared_by_both_intervals_and_judged_by_none():
    old, new = side("old", 0.05, 0), side("new", 0.3, 1)
    block = new.report.calibration
    surer = replace(block, test=replace(block.test, ece=0.3, ece_ci95=(0.25, 0.35)))
    found = compare_reports(old, Named("new", replace(new.report, calibration=surer)), "")
    own = {number.key: number for number in found.numbers if number.section == "calibration"}
    assert list(own) == [f"calibration.test.{name}" for name in ("ece", "overconfidence", "brier")]
    ece = own["calibration.test.ece"]
    assert (ece.verdict, ece.paired, ece.old, ece.new) == ("higher", False, block.test.ece, 0.3)
    assert ece.ci95 is not None and ece.ci95[0] > 0
    assert own["calibration.test.brier"].verdict == "the same"


def test_calibration_that_only_one_report_has_is_not_compared():
    old, new = side("old", 0.05, 0), side("new", 0.3, 1)
    found = compare_reports(Named("old", replace(old.report, calibration=None)), new, "")
    told = next(number for number in found.numbers if number.key == "calibration.test.ece")
    assert told.skipped is not None and told.skipped.startswith("not measured in one of them")
    neither = [Named(each.name, replace(each.report, calibration=None)) for each in (old, new)]
    assert all(number.section != "calibration" for number in compare_reports(*neither, "").numbers)


def test_the_samples_that_changed_most_are_named_those_with_another_answer_first() -> None:
    old = split([0.1, 2.0, 0.2, 3.0, 0.5, 0.4], [0, 1, 0, 1, 0, 0])
    new = split([0.3, 0.1, 1.5, 9.0, 0.5, 1.4], [0, 0, 1, 1, 0, 1])
    found = compare_reports(made("a", test=old), made("b", test=new), "").samples
    assert [(each.index, each.old_wrong, each.new_wrong) for each in found.worse] == [
        *((2, False, True), (5, False, True), (3, True, True), (0, False, False))
    ]
    assert [(each.index, each.old_loss, each.new_loss) for each in found.better] == [(1, 2.0, 0.1)]


def test_the_same_answers_changed_no_sample() -> None:
    same = split(np.linspace(0, 1, 20), answers(20, 0.3, 0))
    found = compare_reports(made("a", test=same), made("b", test=same), "").samples
    assert found.worse == found.better == []


def test_pictures_come_from_either_report_or_from_the_data_at_hand() -> None:
    shown = {"split": "test", "width": 1, "height": 1}
    pictures = [Thumbnail(index=index, png=png, **shown) for index, png in ((0, "old"), (1, "old"))]
    galleries = [
        Gallery(thumbnails=pictures, pairs=[]),
        Gallery(thumbnails=[replace(pictures[1], png="new")], pairs=[]),
    ]
    old, new = split([0.0, 0.0, 0.0], [0, 0, 0]), split([3.0, 2.0, 1.0], [1, 1, 1])
    sides = [
        made(name, test=part, gallery=gallery) for name, part, gallery in zip("ab", (old, new), galleries, strict=True)
    ]
    found = compare_reports(*sides, "").samples.worse
    assert [each.picture and each.picture.png for each in found] == ["old", "new", None]
    rows = [SampleFeatures(index=2, features=[FeatureValue(name="age", value=80.0, deviations=4.0)])]
    found = compare_reports(*sides, "", shown=Gallery(thumbnails=[], pairs=[], rows=rows)).samples.worse
    assert found[2].features[0].name == "age"
