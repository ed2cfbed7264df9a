"""Einsum as a matrix product: which of its equations are a dense layer in disguise, in ONNX and in torch alike."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Product:
    """y[batch, outs] = Σ x[batch, ins] w[...], with ins the last axes of x and outs the last axes of y.

    `order` permutes w's axes to (outs, ins). `kept` is how many leading axes x and y share; None behind an ellipsis.
    """

    order: tuple[int, ...]
    ins: int
    outs: int
    kept: int | None


def matrix_product(equation: str, weight_side: int) -> Product | None:
    """The product behind an equation such as `bti,oi->bto` or `abc,cde->abde`; None where it is something else."""
    left, arrow, y = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow or len(terms) != 2:
        return None
    x, w = terms[1 - weight_side], terms[weight_side]
    if "." in w or any(len(set(term)) != len(term) for term in (x.replace(".", ""), w, y.replace(".", ""))):
        return None
    ins = [axis for axis in w if axis in x]
    outs = [axis for axis in w if axis not in x]
    summed = x[len(x) - len(ins) :] if ins else ""
    batch = x[: len(x) - len(ins)]
    given = y[len(batch) :]
    if not ins or not outs or set(summed) != set(ins) or y[: len(batch)] != batch or set(given) != set(outs):
        return None
    order = tuple(w.index(axis) for axis in given + summed)
    return Product(order, len(ins), len(outs), None if "." in batch else len(batch))
