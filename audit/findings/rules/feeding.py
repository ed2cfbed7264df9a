"""Is the model fed as in training: preprocessing, order of the classes, what arrives at its first layers?"""

from __future__ import annotations

from audit.findings.rule import FindingRule, Observation, layer, listed, some
from audit.measures import Report
from audit.report.conduct import SHIFTED, WIDE, WIDENED, Trial
from audit.report.numbers import number, percent

# Are the samples prepared as in training?


def find_preprocessing(report: Report) -> Observation | None:
    """Speaks where another preprocessing of the same samples suits the model much better."""
    doctor = report.doctor
    other = None if doctor is None else doctor.preferred
    if doctor is None or other is None:
        return None
    now, place = doctor.trials[0], doctor.better
    return Observation(
        level="concern",
        title="The samples are probably not prepared as in training",
        explanation=(
            f"The model was tried on {number(doctor.samples)} of its train samples, prepared in {len(doctor.trials)} "
            f"ways. As they are fed, {_does(now)}; with another preprocessing ({other.name}), {_does(other)}. "
            f"{_why(report, now, other)} Until that is settled no other number here is about your model as you use it."
        ),
        advice=f"{_cure(other)} and audit again, if that is how the model was trained. This audit changed nothing.",
        evidence=(
            "doctor.samples",
            *(f"doctor.trials[{at}].{key}" for at in (0, place) for key in ("name", "loss", "fitted_loss", "error")),
            f"doctor.trials[{place}].cure",
            f"doctor.trials[{place}].p_value",
        ),
    )


def _why(report: Report, now: Trial, other: Trial) -> str:
    """What speaks for the other one: it does better, or as well though its numbers are far smaller."""
    first = report.doctor.first_layer if report.doctor is not None else None
    if other.loss < now.loss or first is None:
        return (
            "A model does best on its train samples as they were in training, so this suggests that they were prepared "
            "so."
        )
    return (
        f"As they are fed, numbers go up to {number(first.highest)} and the answers of {layer(first.name)}, the first, "
        f"spread by {number(first.spread)}, where at most about 17 is usual. A model trained on numbers so large would "
        "know next to nothing of smaller ones; this one does, so that it was probably trained on those."
    )


def _does(trial: Trial) -> str:
    wrong = "" if trial.error is None else f" and it is wrong on {percent(trial.error)}"
    return f"its mean loss is {number(trial.loss)}{wrong}"


def _cure(trial: Trial) -> str:
    return f"Say {trial.cure}" if trial.cure.startswith("--") else f"{trial.cure[:1].upper()}{trial.cure[1:]},"


PREPROCESSING = FindingRule(
    id="preprocessing",
    title="Another preprocessing",
    meaning="Whether the usual normalisations, channel orders and axis orders include one that suits the model better.",
    conditions=(
        "concern: on at most 256 train samples another preprocessing has lower losses, as they are and each at its "
        "best temperature (sign or paired z test, at most 0.001 over all trials), there by at least 3 % of what the "
        "model then knows beyond a constant answer; or the loss at least halves, where as fed the best temperature is "
        "2 or more and gains 10 nats. Regression: after the best straight line instead. Or the first layer's answers "
        f"spread by more than {number(WIDE)} as fed and less with the other, which costs at most 5 % of a constant "
        "answer"
    ),
    source="Trial on the model's own train samples; temperature: Guo et al. (2017).",
    origin=(
        "Counted on networks trained for it (samples/doctor_rates.json), on which its limits were set, too: it spoke "
        "for 0 of 60 networks fed as in training, and in 298 of 324 cases of the same networks prepared otherwise. "
        "What it missed had changed few answers."
    ),
    cannot_tell="A preprocessing that is not among those tried, or one that changes little.",
    find=find_preprocessing,
)


# Do the labels mean the model's outputs in another order?


def find_class_order(report: Report) -> Observation | None:
    """Speaks where some classes answer for each other in a circle; not where a preprocessing explains more."""
    doctor = report.doctor
    order = None if doctor is None or doctor.preferred is not None else doctor.misordered
    if order is None:
        return None
    return Observation(
        level="concern",
        title=f"The classes {listed(order.moved)} probably stand in another order than the model's outputs",
        explanation=(
            f"{percent(order.right)} of {number(order.samples)} train samples are answered rightly, and "
            f"{percent(order.right_if_moved)} would be if these classes took each other's places. Classes that merely "
            "look alike are not mistaken for each other more often than they are told apart. Until that is settled no "
            "other number here is about your model as you use it."
        ),
        advice=f"Say {order.cure}, and audit again. Nothing was changed by this audit.",
        evidence=tuple(
            f"doctor.class_order.{key}" for key in ("samples", "moved", "right", "right_if_moved", "p_value", "cure")
        ),
    )


CLASS_ORDER = FindingRule(
    id="class-order",
    title="Order of the classes",
    meaning="Whether labels mean the model's outputs in the order in which it was trained.",
    conditions=(
        "concern: in the best one-to-one assignment of labels to answers, found on every second train sample of each "
        "class, some classes form a circle, each answered as the next; and on the other samples two thirds or more of "
        "the answers by the next or the own class are by the next, beyond a fair coin (sign test, at most 0.001 over "
        "all circles)"
    ),
    source="Counting; best assignment: Kuhn (1955), Munkres (1957).",
    origin=(
        "0.001, by a test on samples that the circle was not found on; two thirds are a convention. On networks "
        "trained for it (samples/doctor_rates.json) it spoke for 0 of 60 fed as in training, and in 156 of 156 cases "
        "with two, three or all classes moved."
    ),
    cannot_tell="Classes of so few samples that chance cannot be ruled out, and order among more than 2,000 classes.",
    find=find_class_order,
)


# Does at the first BatchNorm arrive what its statistics were taken of?


def find_batch_norm(report: Report) -> Observation | None:
    """Speaks where no other preprocessing explains it."""
    doctor = report.doctor
    if doctor is None or doctor.preferred is not None or doctor.odd_norm is None:
        return None
    place = doctor.odd_norm
    norm = doctor.batch_norms[place]
    return Observation(
        level="watch",
        title=f"What arrives at {norm.name}, the first BatchNorm, is not what its statistics were taken of",
        explanation=(
            f"In its median channel, the mean over train samples is {number(norm.shift)} standard deviations away from "
            f"the one in the file, and the standard deviation is {number(norm.spread)} times the file's. Train samples "
            "fed as in training have those of the file, or nearly so. This suggests another scaling of the inputs, "
            "other data, or statistics that were not kept up to date."
        ),
        advice=(
            "Check --scale, --mean, --std and --channels against the training code, and that the folder is the data "
            "that the model was trained on."
        ),
        evidence=tuple(f"doctor.batch_norms[{place}].{key}" for key in ("name", "shift", "spread")),
    )


BATCH_NORM = FindingRule(
    id="batch-norm",
    title="BatchNorm statistics",
    meaning="Whether the inputs of the first BatchNorm have the mean and spread that the file has kept from training.",
    conditions=(
        f"watch: median over channels of the distance between the means above {number(SHIFTED)} standard deviations of "
        f"the file, or of the ratio of standard deviations beyond a factor of {number(WIDENED)}"
    ),
    source="Ioffe & Szegedy (2015): the statistics in the file are running means over training.",
    origin=(
        "Conventions, checked on networks trained for it (samples/doctor_rates.json): of 30 with a BatchNorm, fed as "
        "in training, none was beyond them (distances up to 0.37, ratios from 0.97 to 1.06), and 147 of 162 fed "
        "otherwise were."
    ),
    cannot_tell="Why they differ. A BatchNorm that an exporter has merged into other weights is not seen.",
    find=find_batch_norm,
)


# Are the inputs larger than the first layer's weights suggest?


def find_input_range(report: Report) -> Observation | None:
    """Speaks where the trials leave open how the samples are to be scaled."""
    doctor = report.doctor
    if doctor is None or doctor.first_layer is None or doctor.preferred is not None or not doctor.out_of_range:
        return None
    first = doctor.first_layer
    return Observation(
        level="watch",
        title=f"The inputs may be larger than those that {first.name}, the first layer, was trained on",
        explanation=(
            f"Inputs go from {number(first.lowest)} to {number(first.highest)}, and the answers of its median unit "
            f"have a standard deviation of {number(first.spread)}. Networks trained on inputs of about unit size had "
            "at most about 17. No preprocessing that was tried is clearly the right one, so that this stays open."
        ),
        advice="Check how training scaled the inputs; pixels divided by 255 are --scale 0.00392157.",
        evidence=(
            *(f"doctor.first_layer.{key}" for key in ("name", "lowest", "highest", "spread")),
            "doctor.best_as_fed",
        ),
    )


INPUT_RANGE = FindingRule(
    id="input-range",
    title="Range of the inputs",
    meaning="Whether the first layer answers as if its inputs were out of range, such as pixels up to 255.",
    conditions=(
        f"watch: median over units of the standard deviation of w·x above {number(WIDE)}, and some preprocessing that "
        "was tried has a lower loss at its best temperature, though not by much"
    ),
    source="The scale of usual initial weights: answers of about unit size for inputs of unit size.",
    origin=(
        "A convention, checked on networks trained for it (samples/doctor_rates.json): at most 17 where inputs had "
        "about unit size; it spoke for 0 of 60 fed as in training."
    ),
    cannot_tell="A network trained on large inputs, which looks the same; the trials tell it apart where they can.",
    find=find_input_range,
)


# Do some features of a table never vary?


SEVERAL = 2


def find_constant_inputs(report: Report) -> Observation | None:
    """Speaks of several features, or of one that varies in test only."""
    block = None if report.doctor is None else report.doctor.constant_inputs
    if block is None or (block.constant < SEVERAL and not block.varying_in_test):
        return None
    changed = (
        f" {some(block.varying_in_test, 'of them has', 'of them have')} another value in some test sample, which the "
        "model has never seen."
        if block.varying_in_test
        else ""
    )
    return Observation(
        level="watch" if block.varying_in_test else "note",
        title=f"{number(block.constant)} of {number(block.features)} features have one value in all train samples",
        explanation=(
            f"Among them {listed(block.names)}. From a feature that never varies nothing can be learnt: it is a column "
            f"that was filled in, cut off or read wrongly, or one that is not needed.{changed}"
        ),
        advice="Check how these columns are made; if they hold nothing, leave them out and train again.",
        evidence=tuple(f"doctor.constant_inputs.{key}" for key in ("constant", "features", "varying_in_test", "names")),
    )


CONSTANT_INPUTS = FindingRule(
    id="constant-inputs",
    title="Features that never vary",
    meaning="Whether features of a table have one value in all train samples.",
    conditions=(
        f"note: at least {SEVERAL} features have one value in all train samples used; watch: one of them has another "
        "value in test"
    ),
    source="Counting.",
    origin="A fact, without a limit but that several means two.",
    cannot_tell="Whether the feature varies among train samples that were not used, or in images, which are left out.",
    find=find_constant_inputs,
)
