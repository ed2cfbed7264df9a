"""The test split: is it new to the model, is it like train, and who made it?"""

from __future__ import annotations

from audit.findings.beside import level_of
from audit.findings.rule import FindingRule, Observation, label, sentence, some
from audit.measures import Report
from audit.measures.hygiene.block import Leak, ToldApart
from audit.report import Level
from audit.report.numbers import number, percent
from audit.report.twins import HeldOut

# Is the test split new to the model?


LEAK = ("hygiene.leaked.copies", "hygiene.leaked.share", "hygiene.leaked.share_ci95", "hygiene.leaked.searched")


def find_leaked(report: Report) -> Observation | None:
    """Void, some copies, or none."""
    if report.hygiene is None:
        return None
    leak = report.hygiene.leaked
    if leak.void:
        return _void(report, leak)
    if leak.copies:
        return _some(report, leak)
    return None if report.hygiene.duplicates_across_splits else _none(report, leak)  # conflicting answers: another rule


def _void(report: Report, leak: Leak) -> Observation:
    return Observation(
        level="concern",
        title="The verdict is void: test samples are also in train",
        explanation=(
            f"{sentence(leak.why)}{'' if _says_count(leak) else f' {_counted(report, leak)}'} The gap on such a test "
            "split says nothing about new data."
        ),
        advice=(
            "Remove the copies, listed in the section on data hygiene, from one of the splits, or take a test split "
            "that was set aside before training; then run the audit again."
        ),
        evidence=(*LEAK, "hygiene.leaked.void", "hygiene.duplicates_across_splits"),
    )


def _some(report: Report, leak: Leak) -> Observation:
    chance = (
        f" For {number(leak.coincidences)} of them that may be chance: other train samples share half of their values."
        if leak.coincidences
        else ""
    )
    return Observation(
        level="note" if leak.coincidences >= leak.copies else "watch",
        title=f"{some(leak.copies, 'test sample is', 'test samples are')} also in train",
        explanation=f"{_counted(report, leak)}{chance} That does not void the gap, which was measured with them.",
        advice="Look at the pairs in the section on data hygiene, and drop from test those that are real copies.",
        evidence=(*LEAK, "hygiene.leaked.coincidences", "hygiene.duplicates_across_splits"),
    )


def _none(report: Report, leak: Leak) -> Observation:
    train, tests = report.data.train, number(report.data.test.samples)
    every = f"{number(train.samples)} of {number(train.total)}" if leak.searched < 1 else f"All {number(train.samples)}"
    return Observation(
        level="good" if leak.searched >= 1 else "note",
        title=f"No test sample was found {'in' if leak.searched >= 1 else 'among the searched part of'} train",
        explanation=(
            f"{every} train samples were compared with all {tests} test samples, number for number: no "
            f"input appears in both with the same {label(report)}. Changed copies, or the same person or scene in both "
            "splits, would not be seen this way."
        ),
        advice="Nothing to do here; if samples come in groups (persons, scenes, days), check that no group is in both.",
        evidence=LEAK,
    )


def _says_count(leak: Leak) -> bool:
    return leak.why.startswith(f"{number(leak.copies)} of ")


def _counted(report: Report, leak: Leak) -> str:
    copies = "sample is" if leak.copies == 1 else "samples are"
    return (
        f"{number(leak.copies)} of {number(report.data.test.samples)} test {copies} in train with the same "
        f"{label(report)} ({percent(leak.share)})."
    )


LEAKED = FindingRule(
    id="leaked",
    title="Copies across the splits",
    meaning="Whether test samples are in train, so that the gap was not measured on new data.",
    conditions=(
        "concern: hygiene.leaked.void; watch: copies that are no coincidence, too few to void; note: only copies that "
        "may be coincidence, or none found in the part of train that was searched; good: none found"
    ),
    source="Counting; see the card hygiene.leaked.",
    origin="The limits of hygiene.leaked: void from 10 % on, or from 1 % where the copies move the gap. A convention.",
    cannot_tell="Leaks of other kinds: near copies, groups, or features that give the answer away.",
    find=find_leaked,
)


# Is test like train? Asked of the inputs alone, and of twins that have seen neither the one nor the other.


HELD_OUT = ("twins.held_out.held_out", "twins.held_out.test", "twins.held_out.difference", "twins.held_out.ci95")
TOLD = ("hygiene.told_apart.accuracy", "hygiene.told_apart.by_chance", "hygiene.told_apart.p_value")


def find_shifted(report: Report) -> Observation | None:
    """Speaks wherever inputs or twins were asked."""
    twins = None if report.twins is None else report.twins.held_out
    held = None if twins is None or None in (twins.held_out, twins.test) or not twins.twins else twins
    told = None if report.hygiene is None or report.hygiene.leaked.void else report.hygiene.told_apart
    told = None if told is None or told.skipped else told
    if held is None and told is None:
        return None
    verdict = "same" if held is None else held.verdict
    unlike = told is not None and told.differ and verdict in ("same", "cannot tell")
    level, title, meaning, advice = UNLIKE if unlike else VERDICTS[verdict]
    if held is None or verdict == "cannot tell":  # then nothing is known of errors
        meaning = meaning.replace(NO_COST, COST_OPEN if held is None else "").strip()
    if held is None:
        title = title.replace(ALIKE, INPUTS_ALIKE)
    return Observation(
        level=level,
        title=title.format(told=_of_hundred(told)),
        explanation=" ".join(filter(None, (_by_twins(report, held), _by_inputs(told), meaning))),
        advice=advice,
        evidence=(*(() if held is None else HELD_OUT), *(() if told is None else TOLD)),
    )


ALIKE, INPUTS_ALIKE = "The test samples are like the train samples", "Test inputs were not told from train inputs"
NO_COST = "The difference costs these networks no answers that could be shown."
COST_OPEN = "Networks trained anew would say whether that costs answers (`gen-audit twins`)."
UNLIKE: tuple[Level, str, str, str] = (
    "watch",
    "Test inputs can be told from train inputs, {told}",
    f"So the two splits were not drawn from one source in one way. {NO_COST}",
    "Compare how both splits were collected and prepared: source, time, persons, scaling, compression; if test is what "
    "the model will meet, train on data like it.",
)
VERDICTS: dict[str, tuple[Level, str, str, str]] = {
    "shifted": (
        "concern",
        "The test samples are unlike the train samples, and harder",
        "Chance does not explain the difference of the errors: the two splits come from different sources, or one was "
        "prepared in another way. The gap is then partly the change of the data, not the model's.",
        "Compare how both splits were collected and prepared; if test is what the model will meet, train on data like "
        "it.",
    ),
    "easier": (
        "watch",
        "The test samples are easier than train samples that were not seen",
        "Chance does not explain that they do better on test: it is easier, or some of it is in train, or train labels "
        "are wrong. The test error is then better than what new samples like train will bring.",
        "Look for copies of test samples in train, and for how the test split was chosen.",
    ),
    "cannot tell": (
        "note",
        "Whether test is like train cannot be told",
        "",
        "Settle the doubtful train labels first; then make the twins again.",
    ),
    "same": (
        "good",
        ALIKE,
        "That is no more than chance explains.",
        "Nothing to do here; whether both are like what the model will meet in use is another question.",
    ),
}
"""Level, title, what it means, advice."""


def _by_twins(report: Report, found: HeldOut | None) -> str:
    if found is None:
        return ""
    what = "have a loss of" if report.model.task == "regression" else "are wrong on"
    why = f" {sentence(found.why or '')}" if found.verdict == "cannot tell" else ""
    return (
        f"{found.twins} networks of this architecture, trained on one half of the train samples, {what} "
        f"{level_of(report, found.held_out or 0)} of the other half and {level_of(report, found.test or 0)} of test."
        f"{why}"
    )


def _by_inputs(found: ToldApart | None) -> str:
    if found is None:
        return ""
    low, high = (number(round(100 * end)) for end in found.by_chance or (0.5, 0.5))
    return (
        f"A simple classifier that is given the inputs alone tells whether one is from test or from train "
        f"{_of_hundred(found)}; by chance it would be {low} to {high}."
    )


def _of_hundred(found: ToldApart | None) -> str:
    """Rounded, but never to all where it is not all."""
    told = 0.0 if found is None else found.accuracy or 0.0
    return f"in {number(100 if told == 1 else min(99, round(100 * told)))} of 100 cases"


SHIFTED = FindingRule(
    id="shifted",
    title="Test beside train",
    meaning="Whether test samples are like train samples: by the inputs alone, and by networks that have seen neither.",
    conditions=(
        "concern: with twins on a half of the train samples, these do worse on test than on the half they have not "
        "seen, beyond chance (0.1 %) and by more than a tenth; watch: better by as much, or, where the errors do not "
        "differ, inputs told apart (hygiene.told_apart.differ); note: better, but doubtful train labels account for "
        "it; good: none of these"
    ),
    source=(
        "Counting: the same networks on two sets of samples that none of them has seen; and a classifier two-sample "
        "test of the inputs, see the card hygiene.told_apart."
    ),
    origin=(
        "0.1 % and a tenth are conventions. Counted by errors (MNIST with 10, 5 and 3 digits, digits, breast cancer; "
        "samples/twin_rates.json): of 40 test splits as they came 0 were called different. Of images that were "
        "mirrored 30 of 30 were called harder, moved by a fourteenth of their width 30 of 30, with noise of 0.2 10 of "
        "30, blurred 10 of 30, at half the contrast 0 of 30. With a fifth of test copied from train 0 of 40 were "
        "called easier: copies are found by counting (see leaked). By the inputs "
        "0 of 125 divisions were told apart, and 100 of 100 of those images, each change alike."
    ),
    cannot_tell=(
        "Whether both splits are like what the model will meet in use; without twins, whether a difference of the "
        "inputs costs any answers."
    ),
    find=find_shifted,
)


# Did gen-audit have to make the test split itself?


def find_own_split(report: Report) -> Observation | None:
    """Speaks where the folder had one split."""
    if not report.data.split_is_ours:
        return None
    return Observation(
        level="watch",
        title="The test split was cut off by gen-audit, so the model may have seen it",
        explanation=(
            f"The folder had one split, and {number(report.data.test.samples)} of its samples were held out for this "
            "audit. If the model was trained on the whole folder, the gap says nothing about new data."
        ),
        advice="Audit again with a folder that holds train and test as they were when the model was trained.",
        evidence=("data.split_is_ours", "data.test.samples"),
    )


OWN_SPLIT = FindingRule(
    id="own-split",
    title="A split of gen-audit's making",
    meaning="Whether the test samples were set aside before training, or only for the audit.",
    conditions="watch: data.split_is_ours",
    source="The layout of the data folder.",
    origin="A fact, without a limit.",
    cannot_tell="What the model was really trained on.",
    find=find_own_split,
)


# Is the test split a validation split by its own name?


def find_validation_split(report: Report) -> Observation | None:
    """Speaks where the folder names its second split so."""
    if not report.data.test_is_validation:
        return None
    return Observation(
        level="watch",
        title="The test split is a validation split, so the model may have been chosen by it",
        explanation=(
            f"The folder has no test split; {number(report.data.test.samples)} samples of a split that is named "
            "validation, or dev, take its place. Training is often stopped, and settings are often chosen, by how a "
            "model does on that split. It then looks better than it will on new data, by an amount that nobody knows."
        ),
        advice="Audit again with samples that were used neither to train nor to choose the model, as test.",
        evidence=("data.test_is_validation", "data.test.samples"),
    )


VALIDATION_SPLIT = FindingRule(
    id="validation-split",
    title="A validation split as test",
    meaning="Whether the samples that stand for new data are, by their name, those that the model was chosen by.",
    conditions="watch: the folder has a train split and one named val, valid, validation or dev, but none named test",
    source="The layout of the data folder.",
    origin="A fact about names, without a limit.",
    cannot_tell="Whether the model was really chosen by it, or by a split that is named test.",
    find=find_validation_split,
)
