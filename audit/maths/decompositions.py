"""Eigenvalues and singular values as torch finds them; a failure says whether the matrix itself was not finite."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

Found = TypeVar("Found")


class InfiniteMatrix(ArithmeticError):
    """A matrix to be decomposed holds infinity or NaN: some product before it was too large to be held."""


def eigh(A: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues [..., n], ascending, and eigenvectors [..., n, n] of symmetric A [..., n, n]."""
    values, vectors = _of_finite(torch.linalg.eigh, A)
    return values, vectors


def eigvalsh(A: Tensor) -> Tensor:
    """Eigenvalues [..., n], ascending, of symmetric A [..., n, n].

    >>> eigvalsh(torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
    tensor([1., 2.])
    """
    values: Tensor = _of_finite(torch.linalg.eigvalsh, A)
    return values


def svd(A: Tensor, full_matrices: bool) -> tuple[Tensor, Tensor, Tensor]:
    """U, singular values, descending, and Vᵀ of A [..., m, n]."""
    U, sizes, Vt = _of_finite(partial(torch.linalg.svd, full_matrices=full_matrices), A)
    return U, sizes, Vt


def svdvals(A: Tensor) -> Tensor:
    """Singular values, descending, of A [..., m, n]."""
    sizes: Tensor = _of_finite(torch.linalg.svdvals, A)
    return sizes


def _of_finite(work: Callable[[Tensor], Found], A: Tensor) -> Found:
    try:
        return work(A)
    except LinAlgError as error:
        if bool(A.isfinite().all()):
            raise  # the matrix has another fault, which is ours
        raise InfiniteMatrix("a matrix to be decomposed is not finite") from error
