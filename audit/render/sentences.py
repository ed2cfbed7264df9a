"""The report's numbers as sentences: what a reader without the mathematics takes away."""

from __future__ import annotations

from pathlib import PurePosixPath, PureWindowsPath

from audit.findings.rule import asked, explained, within
from audit.findings.rule import scores as scores
from audit.findings.rule import unit as unit
from audit.measures.report import LayerReport, Report
from audit.report.fields import Interval
from audit.report.numbers import number, percent, points
from audit.report.report import SplitReport

TASKS = {
    "classification": "classification",
    "binary": "binary classification with one output",
    "regression": "regression",
    "tagging": "tagging, a class for every position of a sample",
}
LOSSES = {
    "cross_entropy": "cross-entropy, in nats",
    "bce": "binary cross-entropy, in nats",
    "mse": "half the squared error, summed over the outputs",
}
HEADS = {"none": "none: the file's output is audited as it is"}
LAYOUTS = {
    "npz": "train.npz and test.npz",
    "npy": "NumPy arrays",
    "csv": "CSV tables",
    "tsv": "tab-separated tables",
    "parquet": "Parquet tables",
    "images": "one folder of images per class",
    "image-parquet": "images in Parquet files, as Hugging Face's",
    "idx": "idx files, as MNIST's",
    "cifar": "CIFAR-10 binary batches",
    "safetensors": "safetensors tensors",
    "pt": "PyTorch tensors",
    "memory": "handed over by a program",
}


def file_name(path: str) -> str:
    r"""The last part of a path written on any system.

    >>> file_name("runs/7/model.onnx"), file_name("C:\\runs\\model.onnx"), file_name("data/")
    ('model.onnx', 'model.onnx', 'data')
    """
    return PureWindowsPath(PurePosixPath(path).name).name or path


def title(report: Report) -> str:
    """What was audited on what."""
    return f"{file_name(report.model.path)} on {file_name(report.data.path)}"


def used(split: SplitReport) -> str:
    """How many samples were used, and of how many."""
    samples, total = split.samples, split.total
    return number(samples) if samples == total else f"{number(samples)} of {number(total)}"


def verdict(bounds: Interval) -> str:
    """What an interval of a gap allows one to say, and no more."""
    if bounds is None:
        return "there is no interval, so chance cannot be told from a real difference"
    if bounds[0] > 0:
        return "worse on test than chance alone would explain on these samples"
    if bounds[1] < 0:
        return "better on test than on train, which strong regularisation or an easier test split can cause"
    return "the interval includes zero, so these samples cannot tell a gap from none"


def no_verdict(report: Report) -> str | None:
    """Why the gap says nothing about unseen data, whatever its interval; None where it does."""
    if report.hygiene is not None and report.hygiene.leaked.void:
        return "void, since these test samples are in the train data"
    if any(finding.id == "wrong-input" for finding in report.findings):
        return "without meaning, since the model does no better than guessing on its own train data"
    return None


def gap_sentences(report: Report) -> list[str]:
    """The observed gap: errors first where there are any, then the loss."""
    gap, data = report.gap, report.data
    void = no_verdict(report)

    def judged(bounds: Interval) -> str:
        return verdict(bounds) if void is None else void

    sentences = []
    if gap.error_gap is not None:
        sentences.append(
            f"The model answers wrongly on {percent(gap.train_error)} of {_asked(report, 'train')} and on "
            f"{percent(gap.test_error)} of {_asked(report, 'test')}: a gap of {points(gap.error_gap)}"
            f"{within(gap.error_gap_ci95, 'points')}; {judged(gap.error_gap_ci95)}."
        )
    if gap.test_rmse is not None:
        sentences.append(
            f"The root mean squared error is {number(gap.train_rmse)} on {used(data.train)} train samples and "
            f"{number(gap.test_rmse)} on {used(data.test)} test samples; the model explains "
            f"{explained(gap.train_r2)} of the variance on train and {explained(gap.test_r2)} on test."
        )
    what = "" if gap.test_rmse is None else ", half the squared error,"
    sentences.append(
        f"The mean loss{what} is {number(gap.train_loss)} on train and {number(gap.test_loss)} on test: a gap of "
        f"{number(gap.loss_gap)}{within(gap.loss_gap_ci95)}; {judged(gap.loss_gap_ci95)}."
    )
    return sentences


def _asked(report: Report, split: str) -> str:
    """How many samples, of how many, or how many positions."""
    if report.model.task == "tagging":
        return asked(report, split)
    return f"{used(report.data.train if split == 'train' else report.data.test)} {split} samples"


def interval_sentence(report: Report) -> str:
    """Where the intervals of the gap come from."""
    gap = report.gap
    draws = f"{number(gap.bootstrap)} bootstrap draws over the samples"
    if gap.error_gap is None:
        return f"from {draws}"
    if gap.test_positions is not None:
        return (
            f"from {draws}, never over the positions within one, which are not independent. A sample's loss is the "
            f"mean over its labelled positions; wrong answers are counted over all labelled positions, "
            f"{number(gap.train_positions)} of train and {number(gap.test_positions)} of test"
        )
    return f"of losses from {draws}, of shares of wrong answers by Wilson's and Newcombe's formulas"


def layer_remarks(layer: LayerReport) -> str:
    """What is particular about a layer, in a few words."""
    remarks = []
    if layer.tokens > 1:
        remarks.append(f"applied to {number(layer.tokens)} vectors per sample")
    if layer.calls > 1:
        remarks.append(f"used {layer.calls} times with the same weights")
    if layer.tied_with:
        remarks.append(f"shares its weights with {', '.join(layer.tied_with)}")
    if not layer.cut_point:
        remarks.append("bypassed by another path")
    return "; ".join(remarks)
