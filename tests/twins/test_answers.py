"""What twins say: against plain loops, against cases solved by hand, and as often right as it claims."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from references.twin_answers import effect, prediction_interval, shrunken_covariance
from scipy import stats
from tolerances import EXACT, LOSSY
from twin_sets import KEYS, numbers, outcomes, twin, twin_set

from audit.report.twins import Likeness
from audit.twins import Recipe, Twin, TwinSet, Unseen
from audit.twins.answers.bands import FLOOR, NAMES, Discriminant, band_of, inner_bands, likeness, percentile, predicted
from audit.twins.answers.data import curve, held_out
from audit.twins.answers.errors import labels_in_doubt, remedies
from audit.twins.outcomes import OF_LAYERS, OF_NETWORK

FAMILIES = 400


@given(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=12), st.floats(-1e3, 1e3))
def test_prediction_intervals_are_students(values: list[float], value: float) -> None:
    assert predicted(values) == pytest.approx(prediction_interval(values), rel=1e-5, abs=1e-6)
    low, high = predicted(values)
    if high > low + 1e-3:
        assert (low <= value <= high) == (0.025 <= percentile(values, value) <= 0.975) or min(
            abs(value - low), abs(value - high)
        ) < 1e-3 * (high - low)


def test_percentiles_are_those_of_students_t() -> None:
    values = [1.0, 2.0, 4.0, 5.0]
    spread = np.std(values, ddof=1) * math.sqrt(1.25)
    for value in (-3.0, 0.0, 2.9, 3.0, 7.5):
        expected = stats.t.cdf((value - 3.0) / spread, 3)
        assert percentile(values, value) == pytest.approx(expected, abs=1e-6)


def test_bands_hold_another_twin_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(FAMILIES):
        drawn = [numbers(rng) for _ in range(9)]
        made = twin_set([twin("plain", seed, numbers=each) for seed, each in enumerate(drawn[1:])], model=drawn[0])
        inside += [each.place == "inside" for each in inner_bands(made)]
    assert 0.94 < np.mean(inside) < 0.96


def test_too_few_twins_have_no_band() -> None:
    assert band_of("test_error", 0.1, [0.1, 0.2]) is None


def kinds(rng: np.random.Generator, apart: float, count: int = 5) -> list[Twin]:
    shifts = {"plain": 0.0, "quiet": apart, "decay": -apart}
    return [twin(kind, seed, numbers=numbers(rng, shift)) for kind, shift in shifts.items() for seed in range(count)]


def test_the_discriminant_is_that_of_the_slow_way() -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(15, 4)) @ rng.normal(size=(4, 4)), np.repeat([0, 1, 2], 5)
    covariance = np.array(shrunken_covariance(X.tolist(), y.tolist(), FLOOR))
    x = rng.normal(size=4)
    expected = [(x - X[y == k].mean(0)) @ np.linalg.solve(covariance, x - X[y == k].mean(0)) for k in range(3)]
    assert Discriminant.of(X, y, 3).distances(x) == pytest.approx(expected, rel=LOSSY)


def test_kinds_that_are_far_apart_are_told_and_so_is_the_model() -> None:
    rng = np.random.default_rng(2)
    found = likeness(twin_set(kinds(rng, 12.0), model=numbers(rng, 12.0)))
    assert (found.kind, found.far, found.hit_rate) == ("quiet", False, 1.0)
    assert found.confusion == [[5, 0, 0], [0, 5, 0], [0, 0, 5]] and (found.sureness or 0) > 0.95


def test_kinds_that_are_alike_are_not_told_apart() -> None:
    rng = np.random.default_rng(3)
    found = [likeness(twin_set(kinds(rng, 0.0), model=numbers(rng))) for _ in range(40)]
    nearest = float(np.mean([np.trace(each.confusion) / each.asked for each in found]))
    hits = float(np.mean([each.hit_rate for each in found]))
    assert abs(nearest - 1 / 3) < 0.08 and hits < nearest - 0.05  # often none is sure enough to be named
    assert np.mean([each.hit_rate_ci95[0] < 1 / 3 for each in found if each.hit_rate_ci95]) > 0.9


def test_a_model_that_is_like_none_is_called_so() -> None:
    rng = np.random.default_rng(4)
    odd = {key: value * 3 for key, value in numbers(rng).items()}
    found = likeness(twin_set(kinds(rng, 8.0), model=odd))
    assert found.far and found.kind is None


def test_an_inferred_recipe_may_bring_a_model_away_from_its_kind_but_not_past_the_next_one() -> None:
    rng = np.random.default_rng(6)
    made = kinds(rng, 12.0)
    model = numbers(rng, 12.0)
    away = model | {"network.sensitivity.mls": model["network.sensitivity.mls"] * math.exp(10 * 0.05)}
    farther = model | {"network.sensitivity.mls": model["network.sensitivity.mls"] * math.exp(100 * 0.05)}
    given, odd = (likeness(twin_set(made, model=each)) for each in (away, farther))
    inferred, still_odd = (
        likeness(replace(twin_set(made, model=each), recipe_given=False)) for each in (away, farther)
    )
    assert given.far and inferred.far and odd.far and still_odd.far
    assert [each.kind for each in (given, odd, inferred, still_odd)] == [None, None, "quiet", None]


def test_a_model_like_the_plain_twins_of_another_ordinary_recipe_has_no_fault() -> None:
    rng = np.random.default_rng(7)
    made = [replace(each, family="sgd-middle") for each in kinds(rng, 12.0)]
    others = [twin("plain", seed, family="sgd-low", numbers=numbers(rng, 12.0)) for seed in range(2)]
    alone, beside = (
        replace(twin_set(each, model=numbers(rng, 12.0)), recipe_given=False, family="sgd-middle", families=families)
        for each, families in (
            (made, {"sgd-middle": Recipe()}),
            ([*made, *others], {"sgd-middle": Recipe(), "sgd-low": Recipe()}),
        )
    )
    assert (likeness(alone).kind, likeness(beside).kind) == ("quiet", "plain")
    assert (likeness(alone).asked, likeness(alone).hits) == (15, 15)


def test_no_fault_is_named_nearer_to_plain_than_another_ordinary_recipe_is() -> None:
    """As far as that an inferred recipe may be off, whichever kind lies in that direction."""
    rng = np.random.default_rng(9)
    made = [replace(each, family="sgd-middle") for each in kinds(rng, 12.0)]

    def told(apart: float, shift: float) -> Likeness:
        """Of a model at a shift towards the quiet kind, beside another recipe so far from plain the other way."""
        others = [twin("plain", seed, family="adam", numbers=numbers(rng, -apart)) for seed in range(2)]
        twins = twin_set([*made, *others], model=numbers(rng, shift))
        families = {"sgd-middle": Recipe(), "adam": Recipe()}
        return likeness(replace(twins, recipe_given=False, family="sgd-middle", families=families))

    assert told(4.0, 9.0).kind == "quiet"
    off = told(18.0, 9.0)
    assert off.kind is None and off.next == "plain" and (off.sureness or 0) > 0.5
    given = replace(twin_set(made, model=numbers(rng, 9.0)), family="sgd-middle")
    assert likeness(given).kind == "quiet"


def test_the_hit_rate_is_asked_of_other_recipes_without_them() -> None:
    """An inferred recipe is not the model's own: how the rule does on trainings it has not seen belongs in its rate."""
    rng = np.random.default_rng(8)
    made = [replace(each, family="sgd-middle") for each in kinds(rng, 12.0)]
    near = [twin("plain", seed, family="adam", numbers=numbers(rng)) for seed in range(2)]
    like_quiet = [twin("plain", seed, family="sgd-low", numbers=numbers(rng, 8.0)) for seed in range(2)]
    twins = replace(
        twin_set([*made, *near, *like_quiet], model=numbers(rng)),
        recipe_given=False,
        family="sgd-middle",
        families={name: Recipe() for name in ("sgd-middle", "adam", "sgd-low")},
    )
    found = likeness(twins)
    assert found.kind == "plain" and found.asked == 19
    assert found.hits == 17  # those of sgd-low are taken for quiet ones by all that is left
    assert found.hit_rate == 17 / 19 and found.hit_rate_of_kind == 1.0
    assert found.confusion == [[5, 0, 0], [0, 5, 0], [0, 0, 5]]


def test_twins_are_seldom_called_unlike_their_own_kind() -> None:
    rng = np.random.default_rng(5)
    far = [likeness(twin_set(kinds(rng, 8.0), model=numbers(rng))).far for _ in range(100)]
    assert np.mean(far) <= 0.05


def on_a_line(rng: np.random.Generator, exponent: float, spread: float) -> TwinSet:
    """Twins whose error falls by a power of their samples."""
    sizes = {"quarter": (1000, 6), "half": (2000, 6), "plain": (4000, 8)}
    made = [
        twin(kind, seed, 0.2 * (n / 1000) ** -exponent * math.exp(spread * rng.standard_normal()), train_samples=n)
        for kind, (n, count) in sizes.items()
        for seed in range(count)
    ]
    return twin_set(made)


def test_a_power_law_is_continued() -> None:
    found = curve(on_a_line(np.random.default_rng(0), 0.25, 1e-6), 1000)
    assert found.twice == pytest.approx(0.2 * 8**-0.25, rel=1e-4)
    assert found.change == pytest.approx(0.2 * (8**-0.25 - 4**-0.25), rel=1e-3) and found.verdict == "helps"


def test_a_flat_curve_foretells_nothing() -> None:
    found = curve(on_a_line(np.random.default_rng(1), 0.0, 0.03), 1000)
    assert found.verdict == "cannot tell" and found.change_ci95 is not None and found.change_ci95[1] > 0


@settings(max_examples=30, deadline=None)
@given(st.floats(0, 0.5), st.integers(0, 10_000))
def test_the_interval_of_twice_the_data_holds_what_twins_alone_make_uncertain(exponent: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = curve(on_a_line(rng, exponent, 0.03), 1000)
    assert found.twice_ci95 is not None and found.twice is not None
    assert found.twice_ci95[0] <= 0.2 * 8**-exponent <= found.twice_ci95[1]
    assert (found.change or 0.0) <= 0


def test_the_change_foretold_holds_the_true_one_however_few_test_samples_there_are() -> None:
    """Samples of unlike difficulty, of which a test split is one draw; twins of a kind are all alike."""
    rng, held = np.random.default_rng(8), []
    sizes = {"quarter": (1000, 6), "half": (2000, 6), "plain": (4000, 8)}
    for _ in range(200):
        slow = rng.random(30) * (rng.random(30) < 0.5)  # how fast a sample is learnt
        wrong = {n: (n / 1000) ** -slow / 2 for n in (1000, 2000, 4000)}
        made, outs = [], []
        for kind, (n, count) in sizes.items():
            for seed in range(count):
                outs.append(outcomes(1.0 - wrong[n]))
                made.append(twin(kind, seed, float(wrong[n].mean()), train_samples=n))
        found = curve(twin_set(made, outs), 30)
        now, twice = (0.25 + 0.25 * float(np.mean(size ** -np.linspace(0, 1, 9999))) for size in (4, 8))
        assert found.change_ci95 is not None
        held.append(found.change_ci95[0] <= twice - now <= found.change_ci95[1])
    assert np.mean(held) > 0.95


def test_a_curve_needs_three_twins_at_each_of_three_points() -> None:
    made = on_a_line(np.random.default_rng(0), 0.2, 0.01)
    few = [each for each in made.twins if each.kind != "quarter"]
    found = curve(twin_set(few), 1000)
    assert found.change is None and "a quarter, a half and all" in (found.skipped or "") and len(found.points) == 2


def halves(rng: np.random.Generator, held: float, test: float, n: int = 2000, wrong_labels: float = 0.0) -> TwinSet:
    """Six twins on halves: each sample has a difficulty of its own, with these means."""
    of_train, of_test = (rng.beta(2 * mean, 2 - 2 * mean, n) for mean in (held, test))
    labels = rng.random(n) < wrong_labels
    of_train = np.where(labels, 1.0, of_train)
    made = []
    for seed in range(6):
        rows = np.flatnonzero((np.arange(n) % 2) == seed % 2)
        right = (rng.random(len(rows)) >= of_train[rows]).astype(float)
        unseen = Unseen(rows, right, 1 - right, np.zeros(len(rows)), np.ones(len(rows)))
        made.append(outcomes(rng.random(n) >= of_test, unseen))
    return twin_set([twin("half", seed) for seed in range(6)], made)


def test_without_halves_the_splits_are_not_compared() -> None:
    found = held_out(twin_set([twin("plain", seed) for seed in range(4)]))
    assert found.held_out is None and found.verdict == "cannot tell"
    assert found.why == "two or more twins on a half of the train samples are needed"


def test_splits_of_one_source_are_seldom_called_different() -> None:
    rng = np.random.default_rng(6)
    found = [held_out(halves(rng, 0.15, 0.15)) for _ in range(200)]
    assert all(each.verdict == "same" for each in found)
    covered = np.mean([each.ci95[0] <= 0 <= each.ci95[1] for each in found if each.ci95])
    assert 0.91 < covered < 0.99


@pytest.mark.parametrize(("test", "verdict"), [(0.3, "shifted"), (0.05, "easier")])
def test_splits_of_two_sources_are_told(test: float, verdict: str) -> None:
    found = held_out(halves(np.random.default_rng(7), 0.15, test))
    assert found.verdict == verdict and found.samples == 2000 and found.twins == 6


def test_wrong_train_labels_are_not_taken_for_an_easier_test() -> None:
    rng = np.random.default_rng(8)
    made = halves(rng, 0.1, 0.1, wrong_labels=0.1)
    assert held_out(made).verdict == "easier"
    wrong = np.flatnonzero(
        np.bincount(np.concatenate([o.unseen.rows[o.unseen.outcomes == 0] for o in made.outcomes]), minlength=2000) == 3
    )
    found = held_out(made, [int(row) for row in wrong])
    assert found.verdict == "cannot tell" and "train labels" in (found.why or "")
    assert held_out(made, (), 0.12).verdict == "cannot tell"  # as many as their neighbours contradict
    assert held_out(halves(rng, 0.3, 0.1), (), 0.12).verdict == "easier"  # more than those account for
    assert held_out(halves(rng, 0.1, 0.3), (), 0.12).verdict == "shifted"


def test_labels_that_all_contradict_are_named_and_others_not() -> None:
    given = np.array([0, 1, 2, 0])
    answers = ([1, 1, 2, 0], [1, 1, 2, 1])  # of two twins: sample 0 is contradicted by both, sample 3 by one
    made = [
        outcomes(np.ones(3), Unseen(np.arange(4), np.zeros(4), np.zeros(4), np.array(each, float), np.full(4, 0.95)))
        for each in answers
    ]
    found = labels_in_doubt(twin_set([twin("half", 0), twin("half", 1)], made), given, ["a", "b", "c"], [0, 2])
    (one,) = found.samples
    assert (one.index, one.label, one.told, one.twins, one.confidence) == (0, "a", "b", 2, pytest.approx(0.95))
    assert (found.contradicted, found.looked_at, found.share, found.both) == (1, 4, 0.25, 1)


def test_effects_are_those_of_the_slow_way() -> None:
    rng = np.random.default_rng(9)
    wrong, plain = (rng.random((count, 300)) < rate for count, rate in ((4, 0.1), (8, 0.3)))
    twins = [twin("decay", seed) for seed in range(4)] + [twin("plain", seed) for seed in range(8)]
    (found,) = remedies(twin_set(twins, [outcomes(~each) for each in (*wrong, *plain)]))
    expected, error = effect(wrong.astype(float).tolist(), plain.astype(float).tolist())
    assert found.effect == pytest.approx(expected, rel=EXACT) and found.ci95 is not None
    assert (found.verdict, found.twins, found.kind) == ("helps", 4, "decay")
    half = (found.ci95[1] - found.ci95[0]) / 2
    assert 1.959 < half / error < 2.3


def test_a_change_that_does_nothing_is_seldom_said_to_help() -> None:
    rng = np.random.default_rng(10)
    verdicts = []
    for _ in range(150):
        hard = rng.beta(0.3, 1.7, 500)
        made = [outcomes(rng.random(500) >= hard) for _ in range(8 + 3 * 4)]
        twins = [twin("plain", seed) for seed in range(8)]
        twins += [twin(kind, seed) for kind in ("decay", "loud", "longer") for seed in range(4)]
        verdicts.append({each.verdict for each in remedies(twin_set(twins, made))})
    assert np.mean(["helps" in each or "hurts" in each for each in verdicts]) <= 0.08


def test_the_keys_here_are_those_that_twins_are_measured_by() -> None:
    ends = tuple(f".{end}" for end in (*OF_LAYERS, *OF_NETWORK))
    assert all(key.endswith(ends) for key in KEYS)
    assert {end for end in (*OF_LAYERS, *OF_NETWORK)} == set(NAMES)
