"""The Fisher determinant of a ReLU network in fifty digits: forward, backward and Cholesky in `decimal`."""

from __future__ import annotations

from decimal import Decimal, localcontext

from torch import Tensor

DIGITS = 50
Vector = list[Decimal]
Dense = tuple[list[Vector], Vector]  # W [out][in], b [out]


def exact(values: Tensor) -> list:
    """The same numbers, digit for digit."""
    return [exact(value) if value.dim() else Decimal(float(value)) for value in values]


def layer_gradients(layers: list[tuple[Tensor, Tensor]], x: Tensor, y: Tensor) -> list[list[Vector]]:
    """For each dense layer the gradients [n][P] of the cross-entropy, weights first, ReLU between the layers."""
    network: list[Dense] = [(exact(W), exact(b)) for W, b in layers]
    with localcontext() as context:
        context.prec = DIGITS
        samples = [_backward(network, x_i, int(y_i)) for x_i, y_i in zip(exact(x), y, strict=True)]
    return [[sample[k] for sample in samples] for k in range(len(layers))]


def _backward(network: list[Dense], a: Vector, label: int) -> list[Vector]:
    inputs = []
    for W, b in network:
        inputs.append(a)
        z = [_dot(row, a) + b_o for row, b_o in zip(W, b, strict=True)]
        a = [max(value, Decimal(0)) for value in z]
    weights = [(value - z[label]).exp() for value in z]
    total = sum(weights)
    delta = [weight / total - (c == label) for c, weight in enumerate(weights)]
    found: list[Vector] = []
    for (W, _), a in zip(reversed(network), reversed(inputs), strict=True):
        found.insert(0, [d * value for d in delta for value in a] + delta)
        delta = [_dot(delta, column) if a[i] > 0 else Decimal(0) for i, column in enumerate(zip(*W, strict=True))]
    return found


def log_determinant(G: list[Vector]) -> float:
    """ln det(G Gᵀ), by Cholesky."""
    with localcontext() as context:
        context.prec = DIGITS
        L: list[Vector] = []
        total = Decimal(0)
        for i, g in enumerate(G):
            row: Vector = []
            for j in range(i):
                row.append((_dot(g, G[j]) - _dot(row, L[j][:j])) / L[j][j])
            pivot = _dot(g, g) - _dot(row, row)
            row.append(pivot.sqrt())
            L.append(row)
            total += pivot.ln()
        return float(total)


def _dot(a: Vector, b: Vector) -> Decimal:
    return sum((p * q for p, q in zip(a, b, strict=True)), Decimal(0))
