"""The losses of an audit: value, gradient and curvature in the scores f, written so that nothing cancels.

A confident sample has p_y = 1 − 1e-20: computing `p_y − 1` in any precision gives 0 and loses the sample. Every formula
here is therefore written in the small quantities themselves. All take f [n, C] in float64. The curvature asks for the
labels y because of positions that have none. `class_per_sample` says whether a sample has one class as its label.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class CrossEntropy:
    """−ln p_y in nats, over C ≥ 2 scores. y [n] int64.

    >>> f, y = torch.zeros(1, 4, dtype=torch.float64), torch.tensor([2])
    >>> CrossEntropy().value(f, y), CrossEntropy().gradient(f, y)
    (tensor([1.3863], dtype=torch.float64), tensor([[ 0.2500,  0.2500, -0.7500,  0.2500]], dtype=torch.float64))
    """

    name = "cross_entropy"
    class_per_sample = True

    def value(self, f: Tensor, y: Tensor) -> Tensor:
        """ln(1 + exp(LSE_{c≠y}(f_c − f_y))) [n]."""
        others = (f - f.gather(1, y[:, None])).scatter(1, y[:, None], -torch.inf)
        return F.softplus(others.logsumexp(1), threshold=50)

    def gradient(self, f: Tensor, y: Tensor) -> Tensor:
        """∂l/∂f_c = p_c for c ≠ y, and −Σ_{c≠y} p_c for c = y  [n, C]."""
        p_others = f.softmax(1).scatter(1, y[:, None], 0.0)
        return p_others.scatter(1, y[:, None], -p_others.sum(1, keepdim=True))

    def curvature_times(self, f: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """Λ v with Λ = diag p − p pᵀ; v [n, C, ...] → [n, C, ...].

        Row c is p_c Σ_k p_k (v_c − v_k): for the row of a class with p ≈ 1 the plain form p_c v_c − p_c Σ p_k v_k
        subtracts two equal numbers, so that row is taken as minus the sum of the others (the columns of Λ sum to 0).
        """
        p = f.softmax(1).reshape(*f.shape, *[1] * (v.dim() - 2))
        top = p.argmax(1, keepdim=True)
        reference = v.gather(1, top.expand(-1, 1, *v.shape[2:]))
        shifted = v - reference  # Λ ignores a constant added to v; now the top entry is exactly 0
        product = p * (shifted - (p * shifted).sum(1, keepdim=True))
        rest = product.scatter(1, top.expand_as(reference), 0.0)
        return product.scatter(1, top.expand_as(reference), -rest.sum(1, keepdim=True))

    def curvature_root_times(self, f: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """L v with Lᵀ L = Λ: row c is √p_c (v_c − Σ_k p_k v_k); v [n, C, ...] → [n, C, ...].

        v is taken relative to the row of the largest score, as above.
        """
        p, top = f.softmax(1), f.argmax(1).reshape(-1, 1, *[1] * (v.dim() - 2))
        shifted = v - v.gather(1, top.expand(-1, 1, *v.shape[2:]))
        mean = (p[:, None, :] @ shifted.flatten(2)).reshape(len(v), 1, *v.shape[2:])
        return shifted.sub_(mean).mul_(p.sqrt().reshape(*f.shape, *[1] * (v.dim() - 2)))

    def curvature_root_transposed_times(self, f: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """Lᵀ v with Lᵀ L = Λ: √p ∘ v − p Σ_c √p_c v_c; v [n, C] → [n, C].

        The row of the largest score is minus the sum of the others (the columns of L sum to 0). √p is taken through
        the logarithm: it is differentiated in training, and the root has no derivative where p is rounded to 0.
        """
        p, top = f.softmax(1), f.argmax(1, keepdim=True)
        weighted = (f.log_softmax(1) / 2).exp() * v
        product = weighted - p * weighted.sum(1, keepdim=True)
        rest = product.scatter(1, top, 0.0)
        return rest.scatter(1, top, -rest.sum(1, keepdim=True))

    def curvature_diagonal(self, f: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """The diagonal of vᵀ Λ v, Σ_c p_c v_c² − (Σ_c p_c v_c)² [n, m], for v [n, C, m].

        v is taken relative to the row of the largest score. So at least 1/C of the first term is left: the largest p
        is no smaller.
        """
        p = f.softmax(1)[:, None]
        shifted = v - v.gather(1, f.argmax(1)[:, None, None].expand(-1, 1, v.shape[2]))
        mean = (p @ shifted)[:, 0]
        return (p @ shifted.square_())[:, 0].addcmul_(mean, mean, value=-1)

    def correct(self, f: Tensor, y: Tensor) -> Tensor:
        """Whether the largest score is the label's [n]."""
        return f.argmax(1) == y


@dataclass(frozen=True)
class BinaryCrossEntropy:
    """−ln p(y) of one score, p(1) = 1/(1 + e^−f). y [n] int64 in {0, 1}."""

    name = "bce"
    class_per_sample = True

    def value(self, f: Tensor, y: Tensor) -> Tensor:
        """ln(1 + e^{−s f}), s = ±1  [n]."""
        return F.softplus(-self._sign(y) * f[:, 0], threshold=50)

    def gradient(self, f: Tensor, y: Tensor) -> Tensor:
        """−s σ(−s f)  [n, 1]."""
        s = self._sign(y)
        return (-s * torch.sigmoid(-s * f[:, 0]))[:, None]

    def curvature_times(self, f: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """Λ v with Λ = σ(f) σ(−f)."""
        return (torch.sigmoid(f) * torch.sigmoid(-f)).reshape(len(f), 1, *[1] * (v.dim() - 2)) * v

    def curvature_root_times(self, f: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """√Λ v; the root through the logarithm, which has a derivative where σ is rounded to 0."""
        logarithm = (F.logsigmoid(f) + F.logsigmoid(-f)) / 2
        return logarithm.exp().reshape(len(f), 1, *[1] * (v.dim() - 2)) * v

    def curvature_root_transposed_times(self, f: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """√Λ v."""
        return self.curvature_root_times(f, y, v)

    def curvature_diagonal(self, f: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """The diagonal of vᵀ Λ v [n, m], v [n, 1, m]."""
        return self.curvature_times(f, y, v.square())[:, 0]

    def correct(self, f: Tensor, y: Tensor) -> Tensor:
        """Whether the score is on the label's side of 0 (a score of exactly 0 counts as class 1)  [n]."""
        return (f[:, 0] >= 0) == (y == 1)

    @staticmethod
    def _sign(y: Tensor) -> Tensor:
        return 2.0 * y.to(torch.float64) - 1.0


@dataclass(frozen=True)
class SquaredError:
    """½ ‖f − y‖², summed over the outputs. y [n, C] float64."""

    name = "mse"
    class_per_sample = False

    def value(self, f: Tensor, y: Tensor) -> Tensor:
        """½ ‖f − y‖²  [n]."""
        return (f - y).square().sum(1) / 2

    def gradient(self, f: Tensor, y: Tensor) -> Tensor:
        """The residual f − y  [n, C]."""
        return f - y

    def curvature_times(self, f: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """Λ = identity."""
        return v.clone()

    def curvature_root_times(self, f: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """√Λ = identity; a copy, as for the other losses, so that nobody can spoil v through it."""
        return v.clone()

    def curvature_root_transposed_times(self, f: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """√Λ v, a copy."""
        return v.clone()

    def curvature_diagonal(self, f: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """The diagonal of vᵀ v [n, m], v [n, C, m]."""
        return v.square().sum(1)


@dataclass(frozen=True)
class TokenCrossEntropy:
    """The mean of −ln p_y over the labelled positions of a sample. f [n, T·C], y [n, T] int64, negative: left out.

    >>> f, y = torch.zeros(1, 6, dtype=torch.float64), torch.tensor([[1, -100, 0]])
    >>> TokenCrossEntropy(2).value(f, y), TokenCrossEntropy(2).weights(y)
    (tensor([0.6931], dtype=torch.float64), tensor([[0.5000, 0.0000, 0.5000]], dtype=torch.float64))
    """

    classes: int  # C
    name = "cross_entropy"
    class_per_sample = False

    @staticmethod
    def weights(y: Tensor) -> Tensor:
        """What each position counts [n, T]: 1 / (labelled positions of the sample), or 0."""
        labelled = (y >= 0).double()
        return labelled / labelled.sum(1, keepdim=True)

    def value(self, f: Tensor, y: Tensor) -> Tensor:
        """Σ_t w_t l(f_t, y_t)  [n]."""
        each = CrossEntropy().value(self._rows(f), _classes(y)).reshape(y.shape)
        return (self.weights(y) * each).sum(1)

    def gradient(self, f: Tensor, y: Tensor) -> Tensor:
        """w_t ∂l/∂f_t, position after position  [n, T·C]."""
        return self._weighted(CrossEntropy().gradient(self._rows(f), _classes(y)), self.weights(y), f.shape)

    def curvature_times(self, f: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """Λ v: a block w_t Λ_t for each position, nothing between them; v [n, T·C, ...] → [n, T·C, ...]."""
        product = CrossEntropy().curvature_times(self._rows(f), y, self._rows(v))
        return self._weighted(product, self.weights(y), v.shape)

    def curvature_root_times(self, f: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """L v with Lᵀ L = Λ, from the blocks √w_t L_t."""
        product = CrossEntropy().curvature_root_times(self._rows(f), y, self._rows(v))
        return self._weighted(product, self.weights(y).sqrt(), v.shape)

    def curvature_root_transposed_times(self, f: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """Lᵀ v; v [n, T·C] → [n, T·C]."""
        product = CrossEntropy().curvature_root_transposed_times(self._rows(f), y, self._rows(v))
        return self._weighted(product, self.weights(y).sqrt(), v.shape)

    def curvature_diagonal(self, f: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """The diagonal of vᵀ Λ v [n, m], v [n, T·C, m]."""
        each = CrossEntropy().curvature_diagonal(self._rows(f), y, self._rows(v))
        return (self.weights(y)[:, :, None] * each.reshape(*y.shape, -1)).sum(1)

    def correct(self, f: Tensor, y: Tensor) -> Tensor:
        """Whether the largest score of a position is its label's [n, T]; False where there is none."""
        return CrossEntropy().correct(self._rows(f), y.flatten()).reshape(y.shape)

    def _rows(self, values: Tensor) -> Tensor:
        """[n, T·C, ...] → [n·T, C, ...]."""
        return values.reshape(-1, self.classes, *values.shape[2:])

    def _weighted(self, rows: Tensor, weights: Tensor, shape: torch.Size) -> Tensor:
        """Rows [n·T, C, ...] times their positions' weights [n, T], as [n, T·C, ...]."""
        return (rows * weights.reshape(-1, *[1] * (rows.dim() - 1))).reshape(shape)


def _classes(y: Tensor) -> Tensor:
    """Labels [n·T], any class where there is none."""
    return y.flatten().clamp(min=0)


Loss = CrossEntropy | BinaryCrossEntropy | SquaredError | TokenCrossEntropy

LOSS_OF_TASK: dict[str, Loss] = {
    "classification": CrossEntropy(),
    "binary": BinaryCrossEntropy(),
    "regression": SquaredError(),
}


def loss_of(task: str, classes: int) -> Loss:
    """The loss of a task, over so many classes where they count."""
    return TokenCrossEntropy(classes) if task == "tagging" else LOSS_OF_TASK[task]
