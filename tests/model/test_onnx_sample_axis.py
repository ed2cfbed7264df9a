"""A dense layer between two reshapes keeps the samples of a batch apart, and gives the same answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import ModelProto
from onnx_files import agrees, graph, loaded, node, weights

from audit.network import find_layers


def time_first(last: list[int], features: int = 5) -> ModelProto:
    """x [n, 3, 4] with its tokens moved to the front, flattened, multiplied, unflattened, and averaged over tokens."""
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        node("Reshape", ["t", "flat"], ["rows"]),
        node("Gemm", ["rows", "out.weight", "out.bias"], ["made"], transB=1),
        node("Reshape", ["made", "apart"], ["back"]),
        node("ReduceMean", ["back"], ["y"], axes=[0], keepdims=0),
    ]
    constants = {"out.weight": weights(features, 4), "out.bias": weights(features)}
    shapes = {"flat": np.array([-1, 4]), "apart": np.array(last)}
    return graph(nodes, {**constants, **shapes}, shape=("n", 3, 4))


def test_the_layer_sees_whole_samples(tmp_path: Path) -> None:
    model = agrees(loaded(time_first([3, -1, 5]), tmp_path))
    (layer,) = find_layers(model, torch.randn(4, 3, 4)).dense
    assert (layer.name, layer.tokens, layer.batch_axis) == ("out", 3, 1)


@pytest.mark.parametrize(("last", "features"), [([3, -1, 3], 6), ([3, -1, 1], 5)])
def test_a_shape_that_splits_the_features_is_left_alone(tmp_path: Path, last: list[int], features: int) -> None:
    model = loaded(time_first(last, features), tmp_path)
    x = torch.randn(2, 3, 4)
    assert model.reference is not None
    flat = model.network(x).numpy()
    np.testing.assert_allclose(flat, model.reference(x.numpy()).reshape(flat.shape), rtol=1e-4, atol=1e-5)
