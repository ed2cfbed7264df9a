"""onnxruntime, quiet and on the CPU: it evaluates constants, tries out rewritten graphs and is the parity reference."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, NodeProto, helper

from audit.errors import ModelError
from audit.model.base import batches
from audit.model.onnx.graph import Array
from audit.model.torch import COMPARED, CONVOLVED, MULTIPLIED

onnxruntime.set_default_logger_severity(3)
SEED = 0
LONGEST = 120.0  # seconds of the clock on the wall for what is tried, which may be a large batch


class RuntimeFailure(Exception):
    """onnxruntime cannot load or run a graph; the text is its own first line."""


class Session:
    """A graph that onnxruntime has accepted."""

    def __init__(self, source: Path | ModelProto, optimise: bool = True):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        if not optimise:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            what = str(source) if isinstance(source, Path) else source.SerializeToString()
            self._session = onnxruntime.InferenceSession(what, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's exceptions share no base class, and protobuf's join in above 2 GB
            raise RuntimeFailure(_first_line(error)) from error

    def run(self, outputs: list[str], feeds: dict[str, Array], seconds: float = math.inf) -> list[Any]:
        """The values of `outputs`; a TimeoutError where they take longer than so many seconds."""
        options, begin = onnxruntime.RunOptions(), time.monotonic()
        timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), setattr, (options, "terminate", True))
        timer.daemon = True
        timer.start()
        try:
            results: list[Any] = self._session.run(outputs, feeds, options)
        except Exception as error:  # as above
            if time.monotonic() - begin > seconds:
                raise TimeoutError(f"takes more than {seconds:g} seconds to run once") from error
            raise RuntimeFailure(_first_line(error)) from error
        finally:
            timer.cancel()
        return results


def _first_line(error: Exception) -> str:
    """What onnxruntime says, without its status and without the place in its source code.

    >>> _first_line(Exception("[E] : 1 : FAIL : Load failed:/onnxruntime_src/a/model.cc:256 ns::M(A&&, B) Too new: 13"))
    'Load failed: Too new: 13'
    """
    text = str(error).strip().splitlines()
    line = re.sub(r"/onnxruntime_src/.*\)", "", text[0] if text else type(error).__name__)
    return line.split(" : ")[-1].strip().rstrip(".")[:300]


def numpy_dtype(element: int) -> np.dtype[Any]:
    """The numpy type of an ONNX element type."""
    return np.dtype(helper.tensor_dtype_to_np_dtype(element))


def random_input(shape: tuple[int, ...], element: int, name: str = "") -> Array:
    """A seeded input to try a graph with: standard normal floats, or zeros and ones; a mask that hides nothing."""
    draws = np.random.default_rng(SEED)
    dtype = numpy_dtype(element)
    if "mask" in name.lower():
        return np.ones(shape, dtype)
    values = draws.integers(0, 2, shape) if dtype.kind in "iub" else draws.standard_normal(shape)
    return values.astype(dtype)


@dataclass(frozen=True)
class Feed:
    """How samples are given to a file."""

    elements: Mapping[str, int]  # of each input that takes a part of them: its type, as ONNX numbers it
    batch: int | None  # a batch size the file insists on
    others: Mapping[str, Callable[[Array], Array]]  # what each other input is given beside a batch of samples


class Reference:
    """The user's own file in onnxruntime: raw inputs, each [n, ...], to the audited output; opened when first called.

    A file with a fixed batch size is fed in batches of that size, the last one filled up with its last sample.
    """

    def __init__(self, path: Path, feed: Feed, output: str, classes: list[Any], optimise: bool = True):
        self._path, self._feed, self._output, self._classes, self._optimise = path, feed, output, classes, optimise
        self._session: Session | None = None

    def __call__(self, *inputs: Array) -> Array:
        """The file's answer."""
        given = zip(self._feed.elements.items(), inputs, strict=True)
        with np.errstate(over="ignore"):  # infinity is answered with NaN, which is a sentence
            feeds = {name: x.astype(numpy_dtype(element)) for (name, element), x in given}
        try:
            self._session = self._session or Session(self._path, self._optimise)
            return self._answer(self._session, feeds)
        except RuntimeFailure as failure:
            raise ModelError(
                f"{self._path}: onnxruntime cannot run this model ({failure}), so nothing can vouch for the converted "
                "network; re-export it with another opset, or update onnxruntime."
            ) from failure

    def _answer(self, session: Session, feeds: dict[str, Array]) -> Array:
        rows = batches(np.arange(len(next(iter(feeds.values())))), self._feed.batch)
        answers = (self._once(session, {name: x[part] for name, x in feeds.items()})[:count] for part, count in rows)
        return np.concatenate(list(answers))

    def _once(self, session: Session, feeds: dict[str, Array]) -> Array:
        x = next(iter(feeds.values()))
        constants = {name: constant(x) for name, constant in self._feed.others.items()}
        return as_scores(session.run([self._output], {**feeds, **constants})[0], self._classes, len(x))


def as_scores(result: Any, classes: list[Any], samples: int) -> Array:
    """An answer of onnxruntime as an array with one row for each sample."""
    if isinstance(result, list):  # a ZipMap: one dictionary per sample
        result = np.array([[row[label] for label in classes] for row in result])
    answer = np.asarray(result)
    return answer.reshape(samples, -1) if answer.ndim < 2 or len(answer) != samples else answer


# How long a node computes: onnxruntime can be stopped between two nodes, not within one.

CONVOLUTIONS, POOLS = ("Conv", "ConvTranspose"), ("MaxPool", "AveragePool", "LpPool")
LONG = (*CONVOLUTIONS, *POOLS, "MatMul", "Gemm", "Det", "NonMaxSuppression")
Shape = Sequence[int | None] | None


def seconds_of(node: NodeProto, shape_of: Callable[[str], Shape]) -> float:
    """How long it computes, at the least, as far as shapes are known; a free size counts as one."""
    known = [shape_of(name) for name in (*node.input[:2], *node.output[:1])]
    if node.op_type not in LONG or len(known) < 2 or any(shape is None for shape in known):
        return 0.0
    first, second, out = ([size or 1 for size in shape or ()] for shape in (known[0], known[-2], known[-1]))
    products = 0.0
    if node.op_type in CONVOLUTIONS:
        products = CONVOLVED * math.prod((*(out if node.op_type == "Conv" else first), *second[1:]))
    elif node.op_type in POOLS:
        kernel = next((each.ints for each in node.attribute if each.name == "kernel_shape"), ())
        products = COMPARED * math.prod((*out, *kernel))
    elif node.op_type in ("MatMul", "Gemm"):
        products = math.prod(out) * math.prod(first) / max(math.prod(out[:-1]), 1)
    elif node.op_type == "Det":
        products = math.prod(first) * max(first, default=1)
    elif node.op_type == "NonMaxSuppression":
        products = COMPARED * math.prod(second) * max(second, default=1)
    return products * MULTIPLIED
