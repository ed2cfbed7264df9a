"""The eigenpairs of a layer's Hessian: all by `eigh`, or the largest by iteration and judged in double precision."""

from __future__ import annotations

import torch
from torch import Tensor

from audit.curvature import LayerHessian
from audit.curvature.formed_hessian import SingleHessian
from audit.maths.blocks import DENSE_LIMIT, EIGENVECTORS, blocks
from audit.maths.decompositions import eigh
from audit.maths.lanczos import BLOCK, EigenPairs, allowed, iterated, scale_of
from audit.network import DenseLayer
from audit.network.records import Records

__all__ = ["EigenPairs", "LayerHessian", "all_eigenpairs", "top_eigenpairs"]

SMALL = 400  # weights up to which eigh of the matrix is quicker than any iteration
ONE_SPACE = 1e-10  # eigenvalues closer than this, relative to the largest, are one eigenspace
CLOSE = 3e-7  # … and closer than this, single precision cannot tell whether they are
MIXTURES = 2  # sums of all vectors that residuals are seen on: the signs of one may happen to cancel them
FEW = 2  # directions whose products are taken anew in double precision; of more, a mixture is


def all_eigenpairs(hessian: LayerHessian) -> EigenPairs:
    """The complete eigenbasis, by `eigh` of the rows of H that are not zero: dead inputs and units are left out.

    Along the weights that are left out H is zero, so each of them is an eigenvector by itself.
    """
    H = hessian.dense()
    used = (H != 0).any(1)
    H = H if bool(used.all()) else H[used][:, used]
    values, columns = eigh(H)
    values, vectors = values.flip(0), columns.T.flip(0)  # a copy, with the vectors as rows
    del columns
    parts = blocks(max(1, len(values)), 1, EIGENVECTORS)  # an empty one where H = 0
    residuals = torch.cat([(vectors[part] @ H - values[part, None] * vectors[part]).norm(dim=1) for part in parts])
    del H
    if not bool(used.all()):
        values, vectors, residuals = _with_unused(values, vectors, residuals, used)
    return EigenPairs(values, vectors.reshape(-1, *hessian.shape), residuals / scale_of(values), 0)


def _with_unused(values: Tensor, vectors: Tensor, residuals: Tensor, used: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The pairs on the weights `used` [dim], and one of eigenvalue 0 for each other weight, in descending order."""
    unused = torch.nonzero(~used)[:, 0]
    order = torch.argsort(torch.cat([values, values.new_zeros(len(unused))]), descending=True, stable=True)
    place = torch.argsort(order)  # where each pair goes
    whole = vectors.new_zeros(len(used), len(used))
    whole[place[: len(values), None], torch.nonzero(used)[:, 0]] = vectors
    whole[place[len(values) :], unused] = 1.0
    padded = [torch.cat([part, part.new_zeros(len(unused))])[order] for part in (values, residuals)]
    return padded[0], whole, padded[1]


def top_eigenpairs(
    hessian: LayerHessian, k: int, tolerance: float = 1e-6, seed: int = 0, values_only: bool = False
) -> EigenPairs:
    """The k largest eigenpairs, or all of them where there are fewer, each residual as `allowed` under `tolerance`.

    Values [k] in descending order, vectors [k, out, in] orthonormal. `seed`: of the random start.

    An eigenspace is not cut in two: where the k-th eigenvalue has some more eigenvectors, these are kept, too; but one
    that makes up more than half of the k pairs may have any number of them, and is cut. With `values_only`,
    `tolerance` is asked of the eigenvalues alone. By Kato and Temple the error of a Ritz value is at most ‖residual‖²
    over its distance to the rest of the spectrum, so fewer iterations will do.
    """
    k = min(k, hessian.dim)
    if values_only:
        return _largest(hessian, k, tolerance, seed, values_only)
    asked, block = min(k + 1, hessian.dim), BLOCK  # the next one tells whether the eigenspace goes on
    while True:
        pairs = _largest(hessian, asked, tolerance, seed, block=block)
        end, width = _end_of_space(pairs.values, k)
        if end is not None or asked == hessian.dim or 2 * width > k:
            end = end or k
            return EigenPairs(pairs.values[:end], pairs.vectors[:end], pairs.residuals[:end], pairs.iterations)
        asked = min(k + 2 * width, hessian.dim)
        while block <= width:  # a block as wide as the eigenspace misses none of it
            block *= 2


def _end_of_space(values: Tensor, k: int) -> tuple[int | None, int]:
    """How many eigenvalues there are up to the end of the k-th one's eigenspace, and how many are seen of that space.

    None where no eigenvalue beyond it is among `values`.
    """
    near = ONE_SPACE * scale_of(values)
    if abs(values[k - 1]) <= near:  # the null space is no direction's place
        return k, 0
    edges = (torch.nonzero(values[:-1] - values[1:] > near)[:, 0] + 1).tolist()
    start = max((edge for edge in edges if edge < k), default=0)
    return next((edge for edge in edges if edge >= k), None), len(values) - start


def _largest(
    hessian: LayerHessian, k: int, tolerance: float, seed: int, values_only: bool = False, block: int = BLOCK
) -> EigenPairs:
    """The k largest pairs: iterations run in single precision where they can; what they found is judged in double."""
    if (hessian.dim <= SMALL or 4 * k >= hessian.dim) and hessian.formable:
        pairs = all_eigenpairs(hessian)
        return EigenPairs(pairs.values[:k], pairs.vectors[:k], pairs.residuals[:k], 0)
    single = hessian.single()
    if single is not None and single.dim > 4 * k:
        pairs = _in_double(hessian, single, iterated(single, k, tolerance, seed, values_only, block), tolerance, seed)
        if values_only:
            return pairs
        if _loose(pairs, tolerance) or _close(pairs.values):
            pairs = _polished(hessian, pairs, tolerance)
        if not _loose(pairs, tolerance):
            return pairs
    return iterated(hessian, k, tolerance, seed, values_only, block)


def _close(values: Tensor) -> bool:
    return bool((-values.diff() <= CLOSE * scale_of(values)).any())


def _in_double(
    hessian: LayerHessian, single: SingleHessian, rough: EigenPairs, tolerance: float, seed: int
) -> EigenPairs:
    """`rough` pairs of the Hessian in single precision, with their residuals under the Hessian itself.

    The largest eigenvalue is taken anew. Residuals of many pairs are seen on sums of all vectors with random signs,
    each vector the longer the less residual it is allowed: the square of a sum's residual is, in the mean over signs,
    the sum of their squares, so where it is within `tolerance`, each is very likely within what it is allowed.
    """
    V = _orthonormal(single.whole(rough.vectors).flatten(1))
    k, walks = len(V), rough.iterations + 1
    if k <= FEW:
        return _ritz(V, hessian.times(V.reshape(k, *hessian.shape)).flatten(1), hessian.shape, walks)
    values = rough.values.to(V) * single.scale
    signs = torch.randint(2, (MIXTURES, k), generator=torch.Generator().manual_seed(seed)).to(V) * 2 - 1
    limits = allowed(values, tolerance)
    weights = signs * tolerance / limits
    product, *mixtures = hessian.times(torch.cat([V[:1], weights @ V]).reshape(-1, *hessian.shape)).flatten(1)
    values[0] = V[0] @ product
    scale = scale_of(values)
    seen = (torch.stack(mixtures) - (weights * values) @ V).norm(dim=1).max() / scale  # to be held against `tolerance`
    residuals = torch.maximum(rough.residuals.to(V), seen * limits / tolerance)
    residuals[0] = (product - values[0] * V[0]).norm() / scale
    return EigenPairs(values, V.reshape(k, *hessian.shape), residuals, walks)


def _loose(pairs: EigenPairs, tolerance: float) -> bool:
    return not bool((pairs.residuals <= allowed(pairs.values, tolerance)).all())


def _polished(hessian: LayerHessian, pairs: EigenPairs, tolerance: float) -> EigenPairs:
    """The pairs with every residual taken in double precision; where one is too large, the best in twice the span.

    The other half of that span is the residuals themselves: where H would lead the vectors next.
    """
    V, k = pairs.vectors.flatten(1), len(pairs.values)
    H_V = _times(hessian, V)
    found = _ritz(V, H_V, hessian.shape, pairs.iterations + -(-k // BLOCK))
    if not _loose(found, tolerance):
        return found
    turned = found.vectors.flatten(1) @ V.T
    V, H_V = turned @ V, turned @ H_V
    R = H_V - found.values[:, None] * V
    R = R[found.residuals > allowed(found.values, tolerance) / 2]  # the others are good enough
    N = _orthonormal(torch.cat([V, torch.linalg.qr((R - (R @ V.T) @ V).T)[0].T]))[k:]
    found = _ritz(torch.cat([V, N]), torch.cat([H_V, _times(hessian, N)]), hessian.shape, found.iterations)
    walks = found.iterations + -(-len(N) // BLOCK)
    return EigenPairs(found.values[:k], found.vectors[:k], found.residuals[:k], walks)


def _times(hessian: LayerHessian, V: Tensor) -> Tensor:
    """H V [m, dim], as many directions at once as an iteration takes: more would need memory, and are no quicker."""
    parts = (V[part].reshape(-1, *hessian.shape) for part in blocks(len(V), 1, BLOCK))
    return torch.cat([hessian.times(part).flatten(1) for part in parts])


def _orthonormal(V: Tensor) -> Tensor:
    """V [k, dim], whose rows are nearly orthonormal, made so to rounding: L⁻¹ V with V Vᵀ = L Lᵀ."""
    for _ in range(2):
        V = torch.linalg.inv(torch.linalg.cholesky(V @ V.T)) @ V
    return V


def _ritz(V: Tensor, H_V: Tensor, shape: tuple[int, int], iterations: int) -> EigenPairs:
    """The best eigenpairs in the span of V [k, dim]."""
    T = V @ H_V.T
    values, Y = (part.flip(-1) for part in eigh((T + T.T) / 2))
    V, H_V = Y.T @ V, Y.T @ H_V
    residuals = (H_V - values[:, None] * V).norm(dim=1) / scale_of(values)
    return EigenPairs(values, V.reshape(-1, *shape), residuals, iterations)


# The eigenpairs that several measures ask for, found once per layer.


TOLERANCE = 1e-7  # relative error asked of λ_max where nothing else is wanted
ROUGHLY = 1e-4  # relative error asked of directions that only serve to compare many networks


class Spectra:
    """Eigenpairs of each layer's Hessian over the train records.

    Only the largest pair of a layer is remembered: a whole basis may take more memory than everything else. Where
    `most` is given, no layer gets more than so many, and these no more precise than a comparison needs.
    """

    def __init__(self, train: Records, directions: int, seed: int, most: int | None = None) -> None:
        self._train, self._directions, self._seed, self._most = train, directions, seed, most
        self._largest: dict[str, tuple[float, Tensor, float]] = {}

    def leading(self, layer: DenseLayer) -> EigenPairs:
        """All eigenpairs of a layer of up to 4,096 weights, the largest `directions` of a larger or too curved one."""
        hessian = LayerHessian(self._train, layer)
        if self._most is not None:
            few = self._most if hessian.formable else self._directions
            pairs = top_eigenpairs(hessian, few, ROUGHLY, self._seed)
        elif hessian.formable:
            pairs = all_eigenpairs(hessian)
        else:
            pairs = top_eigenpairs(hessian, self._directions, seed=self._seed)
        self._remember(layer, pairs)
        return pairs

    def may_be_incomplete(self, layer: DenseLayer) -> bool:
        """Whether the layer's basis may lack directions, so that its trace is not their sum."""
        large = layer.in_features * layer.out_features > DENSE_LIMIT
        return self._most is not None or large or (layer.tokens > 1 and layer.patches is None)

    def largest(self, layer: DenseLayer) -> tuple[float, Tensor, float]:
        """λ_max, its eigenvector [out, in], and its residual relative to λ_max."""
        if layer.name not in self._largest:
            hessian = LayerHessian(self._train, layer)
            self._remember(layer, top_eigenpairs(hessian, 1, TOLERANCE, self._seed, values_only=True))
        return self._largest[layer.name]

    def _remember(self, layer: DenseLayer, pairs: EigenPairs) -> None:
        largest = float(pairs.values[0]), pairs.vectors[0].clone(), float(pairs.residuals[0])
        self._largest[layer.name] = largest
