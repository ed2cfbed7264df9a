"""Small ONNX graphs for tests, and the two ways to run them: onnxruntime and the converted network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import ModelProto, NodeProto, helper, numpy_helper

from audit.model.onnx.convert import network_of

NEWEST = min(onnx.defs.onnx_opset_version(), 23)


def graph(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, np.ndarray],
    constants: Mapping[str, np.ndarray] | None = None,
    outputs: Sequence[str] = ("y",),
    opset: int = NEWEST,
    domains: Sequence[str] = (),
) -> ModelProto:
    """A model whose inputs have the types, but not the sizes, of the given arrays."""
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim)
        for name, array in inputs.items()
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(
        helper.make_graph(nodes, "test", values, results, tensors), opset_imports=imports, ir_version=8
    )


def single(
    op: str,
    *arrays: Any,
    opset: int = NEWEST,
    outputs: int = 1,
    domain: str = "",
    constant: bool = True,
    **attributes: Any,
) -> tuple[ModelProto, dict[str, np.ndarray]]:
    """A model of one node, and what to feed it: the first array is its input, the rest are constants (or inputs)."""
    named = {f"i{i}": np.asarray(array) for i, array in enumerate(arrays) if array is not None}
    fed = {name: array for name, array in named.items() if name == "i0" or not constant}
    fixed = {name: array for name, array in named.items() if name not in fed}
    names = [f"i{i}" if array is not None else "" for i, array in enumerate(arrays)]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, domain=domain, **attributes)
    return graph([node], fed, fixed, results, opset, [domain] if domain else []), fed


def run_onnxruntime(model: ModelProto, feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What the file says, by its own runtime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feed)))


def run_network(model: ModelProto, feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What the converted network says."""
    result = network_of(model)(*(torch.from_numpy(np.array(array)) for array in feed.values()))
    return [tensor.numpy() for tensor in (result if isinstance(result, tuple) else (result,))]


def assert_same(model: ModelProto, feed: Mapping[str, np.ndarray], tolerance: float = 1e-4) -> None:
    """The converted network agrees with onnxruntime in shape and value."""
    for got, expected in zip(run_network(model, feed), run_onnxruntime(model, feed), strict=True):
        assert got.shape == expected.shape
        np.testing.assert_allclose(got.astype(float), expected.astype(float), rtol=tolerance, atol=tolerance)
