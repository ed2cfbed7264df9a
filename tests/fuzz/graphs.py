"""Random ONNX networks by seed, in every opset: what gen-audit makes of them is compared with onnxruntime."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

OLDEST, NEWEST = 9, min(onnx.defs.onnx_opset_version(), 25)
ACTIVATIONS = ("Relu", "Tanh", "Sigmoid", "LeakyRelu", "Elu", "Softplus", "Selu")
SINCE = {"HardSwish": 14, "Gelu": 20, "Mish": 18}
IMAGE, ROW = (3, 8, 8), (6,)


@dataclass
class Draft:
    """A graph that grows at its end; `shape` is that of one sample there."""

    rng: random.Random
    opset: int
    shape: tuple[int, ...]
    at: str = "x"
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def constant(self, array: Any) -> str:
        """The name of a new constant."""
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def weights(self, *shape: int) -> str:
        """Random ones, small enough for a deep network."""
        draws = np.random.default_rng(self.rng.randrange(2**32))
        fan_in = int(np.prod(shape[1:])) or 1
        return self.constant((draws.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32))

    def add(self, op: str, *more: str, shape: tuple[int, ...] | None = None, **attributes: Any) -> None:
        """One more operator at the end."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [self.at, *more], [name], **attributes))
        self.at, self.shape = name, self.shape if shape is None else shape


def dense(g: Draft, outputs: int | None = None) -> None:
    if len(g.shape) > 1:
        g.add("Flatten", shape=(int(np.prod(g.shape)),))
    width, out = g.shape[0], outputs or g.rng.randint(2, 8)
    if g.rng.random() < 0.5:
        transposed = g.rng.random() < 0.5
        weight = g.weights(out, width) if transposed else g.weights(width, out)
        scale = {"alpha": 0.5, "beta": 2.0} if g.rng.random() < 0.2 else {}
        bias = g.weights(out) if g.opset < 11 or g.rng.random() < 0.7 else ""
        g.add("Gemm", weight, *([bias] if bias else []), shape=(out,), transB=int(transposed), **scale)
    else:
        g.add("MatMul", g.weights(width, out), shape=(out,))
        if g.rng.random() < 0.7:
            g.add("Add", g.weights(out))


def convolution(g: Draft) -> None:
    channels, height, width = g.shape
    out, kernel, stride = g.rng.randint(2, 6), g.rng.choice((1, 3)), g.rng.choice((1, 1, 2))
    pad = kernel // 2
    sizes = tuple((size + 2 * pad - kernel) // stride + 1 for size in (height, width))
    options = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
    g.add("Conv", g.weights(out, channels, kernel, kernel), g.weights(out), shape=(out, *sizes), **options)


def norm(g: Draft) -> None:
    channels = g.shape[0]
    scales = [g.constant(np.linspace(low, high, channels, dtype=np.float32)) for low, high in ((0.5, 2), (-1, 1))]
    if g.opset >= 17 and g.rng.random() < 0.4:
        g.add("LayerNormalization", g.constant(np.ones(g.shape[-1], np.float32)), axis=-1)
    elif len(g.shape) == 3 and g.shape[1] * g.shape[2] > 1 and g.rng.random() < 0.3:
        g.add("InstanceNormalization", *scales)
    else:
        mean, var = g.weights(channels), g.constant(np.linspace(0.5, 1.5, channels, dtype=np.float32))
        g.add("BatchNormalization", *scales, mean, var)


def activation(g: Draft) -> None:
    known = [*ACTIVATIONS, *(op for op, since in SINCE.items() if g.opset >= since)]
    g.add(g.rng.choice(known))


def skip(g: Draft) -> None:
    """x + f(x), or x · f(x)."""
    before = g.at
    activation(g)
    g.add(g.rng.choice(("Add", "Mul", "Sub")), before)


def pool(g: Draft) -> None:
    channels, height, width = g.shape
    if min(height, width) < 2 or g.rng.random() < 0.2:
        g.add("GlobalAveragePool", shape=(channels, 1, 1))
        return
    op = g.rng.choice(("MaxPool", "AveragePool"))
    g.add(op, shape=(channels, height // 2, width // 2), kernel_shape=[2, 2], strides=[2, 2])


def resize(g: Draft) -> None:
    channels, height, width = g.shape
    factors = np.array([1, 1, *(g.rng.choice((0.5, 0.7, 1.5, 2.0)) for _ in range(2))], np.float32)
    mode = g.rng.choice(("nearest", "linear"))
    sizes = tuple(int(np.float32(size) * factor) for size, factor in zip((height, width), factors[2:], strict=True))
    if min(sizes) < 1 or max(sizes) > 16:
        return
    scales = g.constant(factors)
    if g.opset < 10:
        if factors.min() >= 1:
            g.add("Upsample", scales, shape=(channels, *sizes), mode=mode)
    elif g.opset == 10:
        g.add("Resize", scales, shape=(channels, *sizes), mode=mode)
    else:
        places = g.rng.choice(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
        options = {"mode": mode, "coordinate_transformation_mode": places}
        g.add("Resize", g.constant(np.zeros(0, np.float32)), scales, shape=(channels, *sizes), **options)


def reshape(g: Draft) -> None:
    if len(g.shape) == 3 and g.rng.random() < 0.5:
        channels, height, width = g.shape
        g.add("Transpose", shape=(channels, width, height), perm=[0, 1, 3, 2])
    else:
        shape = (int(np.prod(g.shape)),)
        g.add("Reshape", g.constant(np.array([-1, *shape])), shape=shape)


ON_IMAGES: tuple[Callable[[Draft], None], ...] = (convolution, norm, activation, skip, pool, resize, reshape)
ON_ROWS: tuple[Callable[[Draft], None], ...] = (dense, norm, activation, skip)


def random_network(seed: int) -> tuple[ModelProto, np.ndarray]:
    """The network of this number, and samples for it."""
    rng = random.Random(seed)
    opset, first = rng.randint(OLDEST, NEWEST), rng.choice((IMAGE, ROW))
    draft = Draft(rng, opset, first)
    for _ in range(rng.randint(1, 7)):
        rng.choice(ON_IMAGES if len(draft.shape) == 3 else ON_ROWS)(draft)
    dense(draft, outputs=3)
    if rng.random() < 0.2:
        draft.add("Softmax", axis=1)
    x = np.random.default_rng(seed).standard_normal((6, *first)).astype(np.float32)
    return finished(draft, first), x


def finished(draft: Draft, first: tuple[int, ...]) -> ModelProto:
    graph = helper.make_graph(
        draft.nodes,
        "random",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *first])],
        [helper.make_tensor_value_info(draft.at, TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(array, name) for name, array in draft.constants.items()],
    )
    ir = 8 if draft.opset < 20 else 10
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", draft.opset)], ir_version=ir)
