"""The block of a layer's decomposition: filled from what was found, or with the sentence that says why it is empty."""

from __future__ import annotations

from dataclasses import replace

from audit.measures.duality.basis import Basis
from audit.measures.duality.block import DualityBlock
from audit.measures.duality.decompose import Decomposition
from audit.measures.duality.layer import LayerPairs
from audit.network.layers import DenseLayer


def with_residuals(block: DualityBlock, numbers: LayerPairs) -> DualityBlock:
    """How far the duality is off on these pairs, and their gap."""
    return replace(
        block,
        tolerance=numbers.tolerance,
        max_residual=numbers.max_residual,
        mean_residual=numbers.mean_residual,
        relative_residual=numbers.relative_residual,
        dual_residual=numbers.dual_residual,
        gap=numbers.mean_gap,
    )


def is_fitted(layer: DenseLayer, numbers: LayerPairs) -> bool:
    """Whether the duality fails only because a convolution has more patches than weights can answer to."""
    alone = layer.calls == 1 and not layer.tied_with and not numbers.used_elsewhere
    return layer.patches is not None and layer.cut_point and alone


def approximation(numbers: LayerPairs) -> str:
    """What a least-squares fit means for the numbers."""
    relative = "" if numbers.relative_residual is None else f" ({numbers.relative_residual:.0%} of a pair's |Δl|)"
    return (
        "a convolution: no weights do to all of its patches what exchanging the sample does, so the dual weights are "
        f"the least-squares ones, and with them the loss is off by {numbers.mean_residual:.3g} on average{relative}; "
        "the contributions add up to the gap all the same, since g is defined by it (g = Δl ΔW/‖ΔW‖²)"
    )


def filled(block: DualityBlock, numbers: LayerPairs, basis: Basis, found: Decomposition) -> DualityBlock:
    """Everything about the directions."""
    return replace(
        block,
        basis_complete=basis.complete,
        basis_residual=basis.residual,
        basis_orthonormality=basis.orthonormality,
        directions=len(found.contribution),
        eigenvalues=found.projections.values.tolist(),
        sigma_g=found.projections.sigma_g.tolist(),
        sigma_g_std=found.direction_errors.sigma_g,
        sigma_w=found.sigma_w.tolist(),
        sigma_w_std=found.direction_errors.sigma_w,
        cumulative_w=found.sigma_w.cumsum().tolist(),
        cumulative_w_std=found.direction_errors.cumulative_w,
        c=found.c,
        c_std=found.direction_errors.c,
        contribution=found.contribution.tolist(),
        contribution_std=found.direction_errors.contribution,
        mean_term=numbers.mean_term,
        mean_term_std=found.total_errors.mean_term,
        target_term=numbers.target_term,
        target_term_std=found.total_errors.target_term,
        sharp=found.sharp,
        flat=found.flat,
        fixed=found.fixed,
        remainder=found.remainder,
        total_g=numbers.total_g,
        total_g_std=found.total_errors.total_g,
        total_w=numbers.total_w,
        total_w_std=found.total_errors.total_w,
        total_w_second_moment=numbers.second_moment_w,
        total_w_second_moment_std=found.total_errors.second_moment_w,
        share_skipped=found.share_skipped,
    )


def why_not_dual(layer: DenseLayer, numbers: LayerPairs) -> str:
    """The sentence for a layer whose dual weights do not do what exchanging the sample does."""
    error = f"with its dual weights the loss is off by up to {numbers.max_residual:.3g}"
    if layer.calls > 1 or layer.tied_with or numbers.used_elsewhere:
        return f"the layer's weights are used more than once, so no single change of them stands for a sample: {error}"
    if not layer.cut_point:
        return f"another path leads round this layer, so its weights alone do not decide the loss: {error}"
    if numbers.dual_residual > numbers.tolerance:
        return f"the layer's tokens depend on each other, so no weights answer to all of them: {error}"
    return f"the network's arithmetic is too coarse for an equality to be seen: {error}"
