from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tolerances import EXACT, LOSSY

from audit.network.loss import LOSS_OF_TASK, BinaryCrossEntropy, CrossEntropy, TokenCrossEntropy

scores = st.lists(st.lists(st.floats(-30, 30), min_size=3, max_size=3), min_size=1, max_size=5)


def labels_for(task: str, f: torch.Tensor) -> torch.Tensor:
    if task == "regression":
        return f.flip(0) + 1
    return torch.arange(len(f)) % (3 if task == "classification" else 2)


@pytest.mark.parametrize("task", LOSS_OF_TASK)
@given(rows=scores)
def test_gradient_and_curvature_are_the_derivatives_of_the_value(task: str, rows: list[list[float]]) -> None:
    f = torch.tensor(rows, dtype=torch.float64)
    f = f[:, :1] if task == "binary" else f
    loss, y = LOSS_OF_TASK[task], labels_for(task, f)
    leaf = f.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss.value(leaf, y).sum(), leaf)
    assert torch.allclose(loss.gradient(f, y), gradient, rtol=EXACT, atol=1e-14)
    hessian = torch.autograd.functional.hessian(lambda g: loss.value(g[None], y[:1]).sum(), f[0])
    unit = torch.eye(f.shape[1], dtype=torch.float64)[None]
    assert torch.allclose(loss.curvature_times(f[:1], y[:1], unit)[0], hessian, rtol=LOSSY, atol=1e-13)
    root = loss.curvature_root_times(f[:1], y[:1], unit)[0]
    assert torch.allclose(root.T @ root, hessian, rtol=LOSSY, atol=1e-13)


@given(rows=scores, padded=st.lists(st.booleans(), min_size=5, max_size=5))
def test_the_loss_over_positions_has_the_derivatives_of_its_value(rows: list[list[float]], padded: list[bool]) -> None:
    """One sample of as many positions as there are rows, 3 classes each; the first position is always labelled."""
    f = torch.tensor(rows, dtype=torch.float64).reshape(1, -1)
    y = torch.tensor([[-100 if out and t else t % 3 for t, out in enumerate(padded[: len(rows)])]])
    loss, leaf = TokenCrossEntropy(3), f.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss.value(leaf, y).sum(), leaf)
    assert torch.allclose(loss.gradient(f, y), gradient, rtol=EXACT, atol=1e-14)
    hessian = torch.autograd.functional.hessian(lambda g: loss.value(g[None], y).sum(), f[0])
    unit = torch.eye(f.shape[1], dtype=torch.float64)[None]
    assert torch.allclose(loss.curvature_times(f, y, unit)[0], hessian, rtol=LOSSY, atol=1e-13)
    root = loss.curvature_root_times(f, y, unit)[0]
    assert torch.allclose(root.T @ root, hessian, rtol=LOSSY, atol=1e-13)
    assert torch.allclose(loss.curvature_diagonal(f, y, unit)[0], hessian.diagonal(), rtol=LOSSY, atol=1e-13)
    columns = [loss.curvature_root_transposed_times(f, y, unit[:, k])[0] for k in range(f.shape[1])]
    assert torch.allclose(torch.stack(columns), root, rtol=LOSSY, atol=1e-13)


def test_the_loss_over_positions_is_the_mean_over_labelled_ones() -> None:
    f = torch.randn(2, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([[0, 2, -100, -1], [1, 1, 0, 2]])
    expected = torch.nn.functional.cross_entropy(f.mT, y.clamp(min=-100).where(y >= 0, -100), reduction="none")
    means = torch.stack([expected[0, :2].mean(), expected[1].mean()])
    assert torch.allclose(TokenCrossEntropy(3).value(f.flatten(1), y), means, rtol=EXACT)
    right = f.argmax(2) == y
    assert TokenCrossEntropy(3).correct(f.flatten(1), y).tolist() == right.tolist()


@pytest.mark.parametrize("margin", [20.0, 60.0, 200.0])
def test_confident_samples_keep_their_loss_gradient_and_curvature(margin: float) -> None:
    small = math.exp(-margin)
    f, y = torch.tensor([[margin, 0.0]], dtype=torch.float64), torch.tensor([0])
    assert CrossEntropy().value(f, y).item() == pytest.approx(small, rel=LOSSY)
    assert CrossEntropy().gradient(f, y)[0].tolist() == pytest.approx([-small, small], rel=LOSSY)
    unit = torch.eye(2, dtype=torch.float64)[None]
    expected = [[small, -small], [-small, small]]
    assert CrossEntropy().curvature_times(f, y, unit)[0].tolist() == [pytest.approx(row, rel=LOSSY) for row in expected]
    one = torch.tensor([[margin]], dtype=torch.float64)
    assert BinaryCrossEntropy().value(one, torch.tensor([1])).item() == pytest.approx(small, rel=LOSSY)
    assert BinaryCrossEntropy().gradient(one, torch.tensor([1])).item() == pytest.approx(-small, rel=LOSSY)


def test_hopeless_samples_have_a_finite_loss() -> None:
    f, y = torch.tensor([[0.0, 1e4, -1e4]], dtype=torch.float64), torch.tensor([2])
    assert CrossEntropy().value(f, y).item() == pytest.approx(2e4)
    assert CrossEntropy().gradient(f, y)[0].tolist() == pytest.approx([0, 1, -1])


def test_correct_answers() -> None:
    f = torch.tensor([[1.0, 2.0], [3.0, 0.0]])
    assert CrossEntropy().correct(f, torch.tensor([1, 1])).tolist() == [True, False]
    assert BinaryCrossEntropy().correct(torch.tensor([[0.5], [-0.5], [0.0]]), torch.tensor([1, 1, 1])).tolist() == [
        True,
        False,
        True,
    ]
