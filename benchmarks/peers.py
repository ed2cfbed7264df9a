"""The same numbers the peers' way: BackPACK, PyHessian, curvlinops with SciPy, and plain torch.func.

Each is written as its documentation suggests, and then as favourably as it allows: only the wanted parameters ask for
gradients, gradients of a sample are formed once where they fit into memory, and `chunk` (samples at once) and `form`
(where a peer has several ways) are whatever runs quickest.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, vmap

from audit.measures.fisher.measure import draw_subsets
from benchmarks.cases import Case
from benchmarks.exact import dense_weights
from benchmarks.ours import Array, Run

POOL_BYTES = 1 << 30  # all drawn samples' gradients are kept where they take no more than this


def backpack_traces(case: Case, chunk: int, form: str) -> Run:
    """Tr H of each dense layer: the exact diagonal of the Gauss–Newton matrix of the loss."""
    from backpack import backpack, extend, extensions

    network, loss_of = extend(case.fresh()), extend(nn.CrossEntropyLoss(reduction="sum"))
    weights = _only(network, dense_weights(network))

    def run() -> Array:
        totals = np.zeros(len(weights))
        for x, y in _chunks(case, chunk):
            with backpack(extensions.DiagGGNExact()), _quiet():
                loss_of(network(x), y).backward()
            totals += [float(weight.diag_ggn_exact.sum()) for weight in weights]
        return totals / len(case.x)

    return run


def backpack_sharpness(case: Case, chunk: int, form: str) -> Run:
    """S(θ): the trace of the Gauss–Newton matrix of ‖f‖²/2, whose curvature in f is 1 (BackPACK's loss has 2)."""
    from backpack import backpack, extend, extensions

    network, loss_of = extend(case.fresh()), extend(nn.MSELoss(reduction="sum"))

    def run() -> Array:
        total = 0.0
        for x, _ in _chunks(case, chunk):
            with backpack(extensions.DiagGGNExact()), _quiet():
                f = network(x)
                loss_of(f, torch.zeros_like(f)).backward()
            total += sum(float(parameter.diag_ggn_exact.sum()) for parameter in network.parameters())
        return np.array([total / 2 / len(case.x)])

    return run


def pyhessian_top(case: Case, chunk: int, form: str, tolerance: float) -> Run:
    """λ_max of each dense layer by power iteration, all samples in one batch so that its graph is used again."""
    from pyhessian import hessian

    network = case.fresh()

    def run() -> Array:
        found = []
        torch.manual_seed(0)
        with _default_dtype(case.x.dtype), _quiet():
            for name in dense_weights(network):
                _only(network, [name])
                operator = hessian(network, nn.CrossEntropyLoss(), data=(case.x, case.y), cuda=False)
                found.append(operator.eigenvalues(maxIter=1000, tol=tolerance)[0][0])
                network.zero_grad()
        return np.array(found)

    return run


def curvlinops_top(case: Case, chunk: int, form: str, k: int, tolerance: float) -> Run:
    """The k largest eigenvalues of each dense layer: SciPy's `eigsh` on a curvlinops operator."""
    from scipy.sparse.linalg import eigsh

    network, loss_of, kind = case.fresh(), nn.CrossEntropyLoss(), getattr(_curvlinops(), f"{form}LinearOperator")
    batches = list(_chunks(case, chunk))

    def top(name: str) -> Array:
        linear = kind(network, loss_of, _only(network, [name]), batches, check_deterministic=False).to_scipy()
        start = np.random.default_rng(0).standard_normal(linear.shape[0])
        values, _ = eigsh(linear, k, which="LA", tol=tolerance, v0=start)
        return np.sort(values)[::-1]

    def run() -> Array:
        with _quiet():
            return np.concatenate([top(name) for name in dense_weights(network)])

    return run


def vmap_log_determinant(case: Case, chunk: int, form: str) -> Run:
    """γ̂ from per-sample gradients by `vmap(grad)`."""
    network = case.fresh().requires_grad_(False)
    values = dict(network.named_parameters())

    def loss(given: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(network, given, (x[None],)), y[None])

    of_samples = vmap(grad(loss), in_dims=(None, 0, 0))

    def gradients(rows: NDArray[np.int64]) -> Tensor:
        parts = of_samples(values, case.x[rows], case.y[rows])
        return torch.cat([part.flatten(1) for part in parts.values()], 1)

    return partial(_log_determinant, case, gradients)


def backpack_log_determinant(case: Case, chunk: int, form: str) -> Run:
    """γ̂ from BackPACK's per-sample gradients."""
    from backpack import backpack, extend, extensions

    network, loss_of = extend(case.fresh()), extend(nn.CrossEntropyLoss(reduction="sum"))

    def gradients(rows: NDArray[np.int64]) -> Tensor:
        with backpack(extensions.BatchGrad()), _quiet():
            loss_of(network(case.x[rows]), case.y[rows]).backward()
        return torch.cat([parameter.grad_batch.flatten(1) for parameter in network.parameters()], 1)

    return partial(_log_determinant, case, gradients)


def jacrev_input_map(case: Case, chunk: int, form: str) -> Run:
    """MLS and log-volume from every sample's input Jacobian."""
    network = case.fresh().requires_grad_(False)
    jacobian = vmap(jacrev(lambda x_i: network(x_i[None])[0]))

    def run() -> Array:
        s = torch.cat([torch.linalg.svdvals(jacobian(x).flatten(2).double()) for x, _ in _chunks(case, chunk)])
        full = s[:, -1] > max(s.shape[1], case.x[0].numel()) * torch.finfo(case.x.dtype).eps * s[:, 0]
        return np.array([float(s[:, 0].mean()), float(s[full].log().sum(1).mean())])

    return run


def floor(case: Case, chunk: int, form: str) -> Run:
    """One forward and C backward passes, to every dense layer's answer and on to the input.

    Below this no exact ∂f/∂z and ∂f/∂input can be had, and the suite needs both. Unlike in the capture pass nothing is
    kept. No gradient with respect to a weight is asked for.
    """
    network = case.fresh().requires_grad_(False)
    answers: list[Tensor] = []

    def hook(_module: nn.Module, _inputs: tuple[Tensor, ...], z: Tensor) -> Tensor:
        answers.append(z)
        return z

    for module in network.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(hook)

    def backward(x: Tensor) -> float:
        answers.clear()
        leaf = x.clone().requires_grad_()
        f = network(leaf)
        targets = [*answers, leaf]
        if form == "side by side":
            units = torch.eye(f.shape[1], dtype=f.dtype)[:, None, :].expand(-1, *f.shape)
            return float(torch.autograd.grad(f, targets, units, is_grads_batched=True)[0][0, 0, 0])
        rows = [torch.autograd.grad(total, targets, retain_graph=True) for total in f.sum(0)]
        return float(rows[-1][0][0, 0])

    return lambda: np.array([backward(x) for x, _ in _chunks(case, chunk)])


def _log_determinant(case: Case, gradients: Callable[[NDArray[np.int64]], Tensor]) -> Array:
    """Mean ln det over the subsets; every drawn sample's gradient is formed once where all of them fit into memory."""
    chosen = case.settings
    subsets = draw_subsets(len(case.x), chosen.subset_size, chosen.subsets, chosen.seed)
    pool = np.unique(subsets)
    size = sum(parameter.numel() for parameter in case.network.parameters()) * case.x.element_size()
    if len(pool) * size <= POOL_BYTES:
        G = torch.cat([gradients(rows) for rows in np.array_split(pool, len(pool) // 100 + 1)])
        grams = [G[rows] @ G[rows].T for rows in np.searchsorted(pool, subsets)]
    else:
        grams = [G @ G.T for G in map(gradients, subsets)]
    return np.array([float(torch.linalg.slogdet(torch.stack(grams).double())[1].mean())])


def _chunks(case: Case, chunk: int) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(torch.split(case.x, chunk), torch.split(case.y, chunk), strict=True)


def _only(network: nn.Module, names: list[str]) -> list[nn.Parameter]:
    """The named parameters; no other one asks for a gradient any more."""
    network.requires_grad_(False)
    return [network.get_parameter(name).requires_grad_(True) for name in names]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's remarks on BackPACK's hooks, on the graph that PyHessian keeps, and on its own torch.jit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """PyHessian draws its start vectors in the default precision."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _curvlinops() -> ModuleType:
    with _quiet():
        return importlib.import_module("curvlinops")
