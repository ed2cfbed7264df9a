"""ONNX files written by hand, and the question most tests ask of them: does the network answer as the file does?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from audit.model.base import Model
from audit.model.onnx import load
from audit.model.parity import check_behaviour, check_parity
from audit.settings import Settings

ML = "ai.onnx.ml"


def weights(*shape: int) -> np.ndarray:
    """Random float32 weights, the same in every run."""
    return np.random.default_rng(sum(shape) + len(shape)).standard_normal(shape).astype(np.float32)


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> NodeProto:
    """`helper.make_node`, shorter."""
    return helper.make_node(op, list(inputs), list(outputs), **attributes)


def value(name: str, shape: Sequence[int | str | None] | None, element: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    """The declaration of an input or output."""
    return helper.make_tensor_value_info(name, element, shape)


def graph(
    nodes: Sequence[NodeProto],
    constants: dict[str, np.ndarray],
    shape: Sequence[int | str | None] = ("n", 4),
    outputs: Sequence[onnx.ValueInfoProto | str] = ("y",),
    opset: int = 17,
    inputs: Sequence[onnx.ValueInfoProto] | None = None,
    ir_version: int = 8,
    **options: Any,
) -> ModelProto:
    """A model with one float input x and, unless told otherwise, one float output y of unknown shape."""
    declared = [value(output, None) if isinstance(output, str) else output for output in outputs]
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    body = helper.make_graph(nodes, "graph", inputs or [value("x", shape)], declared, tensors)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(ML, 2), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(body, opset_imports=imports, ir_version=ir_version, **options)


def mlp(**options: Any) -> ModelProto:
    """Two layers: x [n, 4] → 5 → y [n, 3]."""
    nodes = [
        node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["h"], transB=1),
        node("Relu", ["h"], ["a"]),
        node("Gemm", ["a", "fc2.weight", "fc2.bias"], ["y"], transB=1),
    ]
    names = {"fc1.weight": (5, 4), "fc1.bias": (5,), "fc2.weight": (3, 5), "fc2.bias": (3,)}
    return graph(nodes, {name: weights(*shape) for name, shape in names.items()}, **options)


def loaded(model: ModelProto, folder: Path, settings: Settings | None = None) -> Model:
    """The model from a file in `folder`."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    return load(path, settings or Settings())


def samples(model: Model, count: int = 6) -> np.ndarray:
    """Random inputs that fit the model."""
    shape = [size or 8 for size in model.input.shape or ()]
    return np.random.default_rng(3).standard_normal((count, *shape)).astype(np.float32)


def agrees(model: Model) -> Model:
    """The model, after its network was found to answer as its file does at two batch sizes."""
    x = samples(model)
    check_behaviour(model, x)
    check_parity(model, x)
    return model


def dense(model: Model) -> dict[str, tuple[int, int, bool]]:
    """The dense layers by name: inputs, outputs, and whether there is a bias."""
    modules = [(name, module) for name, module in model.network.named_modules() if isinstance(module, torch.nn.Linear)]
    return {model.names.get(name, name): (m.in_features, m.out_features, m.bias is not None) for name, m in modules}
