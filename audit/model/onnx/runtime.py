"""onnxruntime, quiet and on the CPU: it evaluates constants, tries out rewritten graphs and is the parity reference."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, helper

from audit.errors import ModelError
from audit.model.batches import batches
from audit.model.onnx.graph import Array

onnxruntime.set_default_logger_severity(3)
SEED = 0


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

    def run(self, outputs: list[str], feeds: dict[str, Array]) -> list[Any]:
        """The values of `outputs`."""
        try:
            results: list[Any] = self._session.run(outputs, feeds)
        except Exception as error:  # as above
            raise RuntimeFailure(_first_line(error)) from error
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


def random_input(shape: tuple[int, ...], element: int) -> Array:
    """A seeded input to try a graph with: standard normal floats, or zeros and ones."""
    draws = np.random.default_rng(SEED)
    dtype = numpy_dtype(element)
    values = draws.integers(0, 2, shape) if dtype.kind in "iub" else draws.standard_normal(shape)
    return values.astype(dtype)


class Reference:
    """The user's own file in onnxruntime: raw inputs [n, ...] to the audited output [n, ...]; opened when first called.

    A file with a fixed batch size is fed in batches of that size, the last one filled up with its last sample.
    """

    def __init__(
        self,
        path: Path,
        input_name: str,
        element: int,
        output: str,
        batch: int | None,
        classes: list[Any],
        others: Mapping[str, Callable[[Array], Array]],  # what each other input is given beside a batch of samples
        optimise: bool = True,
    ):
        self._path, self._input, self._element, self._output = path, input_name, element, output
        self._batch, self._classes, self._others, self._optimise = batch, classes, others, optimise
        self._session: Session | None = None

    def __call__(self, x: Array) -> Array:
        """The file's answer to x."""
        try:
            self._session = self._session or Session(self._path, self._optimise)
            return self._answer(self._session, x.astype(numpy_dtype(self._element)))
        except RuntimeFailure as failure:
            raise ModelError(
                f"{self._path}: onnxruntime cannot run this model ({failure}), so nothing can vouch for the converted "
                "network; re-export it with another opset, or update onnxruntime."
            ) from failure

    def _answer(self, session: Session, x: Array) -> Array:
        return np.concatenate([self._once(session, part)[:count] for part, count in batches(x, self._batch)])

    def _once(self, session: Session, x: Array) -> Array:
        constants = {name: constant(x) for name, constant in self._others.items()}
        return as_scores(session.run([self._output], {self._input: x, **constants})[0], self._classes, len(x))


def as_scores(result: Any, classes: list[Any], samples: int) -> Array:
    """An answer of onnxruntime as an array with one row for each sample."""
    if isinstance(result, list):  # a ZipMap: one dictionary per sample
        result = np.array([[row[label] for label in classes] for row in result])
    answer = np.asarray(result)
    return answer.reshape(samples, -1) if answer.ndim < 2 or len(answer) != samples else answer
