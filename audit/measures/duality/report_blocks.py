"""The blocks of the report, filled: which samples and classes carry the gap over pairs, and a layer's decomposition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from audit.data.dataset import Split
from audit.maths.resample import interval
from audit.measures.contract import Audit
from audit.measures.duality.basis import Basis
from audit.measures.duality.block import ClassShare, DualityBlock, GapOverPairs, SampleGap
from audit.measures.duality.decompose import Decomposition
from audit.measures.duality.layer_pairs import LayerPairs
from audit.measures.duality.pairs import Pairs
from audit.measures.duality.uncertainty import share_interval
from audit.network import DenseLayer
from audit.network.records import Outcome

LISTED = 20
NO_PAIRS = "no test sample has a train sample of its label, so there are no pairs to compare"

Array = NDArray[np.float64]


def gap_over_pairs(audit: Audit, pairs: Pairs) -> GapOverPairs:
    """The pairs with the largest gap, and the gap class by class."""
    classes = class_names(audit) if audit.loss.class_per_sample else None
    if not len(pairs):
        return GapOverPairs(
            asked=len(pairs.asked),
            pairs=0,
            unpaired=pairs.unpaired,
            gap=None,
            samples=[],
            samples_share=None,
            classes=None,
            skipped=NO_PAIRS,
        )
    test, partner = Outcome.of(chunk.test for chunk in pairs), Outcome.of(chunk.partner for chunk in pairs)
    gap = test.loss - partner.loss
    top = np.argsort(-gap, kind="stable")[:LISTED]
    total = float(gap.sum())
    draws = audit.bootstrap.means(gap[:, None])[:, 0]
    return GapOverPairs(
        asked=len(pairs.asked),
        pairs=len(pairs),
        unpaired=pairs.unpaired,
        gap=float(gap.mean()),
        gap_ci95=interval(draws),
        samples=[_sample(audit, pairs, test, partner, classes, int(k)) for k in top],
        samples_share=float(gap[top].sum()) / total if total > 0 else None,
        classes=None if classes is None else _by_class(audit, pairs, test, gap, classes),
    )


def class_names(audit: Audit) -> list[str]:
    """The names of the classes; their numbers where the data has no names."""
    if audit.data.classes is not None:
        return list(audit.data.classes)
    return [str(index) for index in range(max(2, audit.test_outcome.scores.shape[1]))]


def _sample(
    audit: Audit, pairs: Pairs, test: Outcome, partner: Outcome, classes: list[str] | None, k: int
) -> SampleGap:
    return SampleGap(
        index=_stored(audit.data.test, int(pairs.rows[k])),
        partner=_stored(audit.data.train, int(pairs.partner[k])),
        label=None if classes is None else classes[int(test.labels[k])],
        prediction=_prediction(test, classes, k),
        partner_prediction=_prediction(partner, classes, k),
        test_loss=float(test.loss[k]),
        partner_loss=float(partner.loss[k]),
        gap=float(test.loss[k] - partner.loss[k]),
    )


def _by_class(audit: Audit, pairs: Pairs, test: Outcome, gap: Array, classes: list[str]) -> list[ClassShare]:
    total, labels = float(gap.sum()), audit.test_outcome.labels[pairs.asked.numpy()]
    members = test.labels[:, None] == np.arange(len(classes))  # [K, classes]
    columns = np.concatenate([members * gap[:, None], members.astype(np.float64)], 1)
    parts, counts = np.split(audit.bootstrap.means(columns), 2, axis=1)
    whole, shares = parts.sum(1), []
    for label, name in enumerate(classes):
        mine = gap[test.labels == label]
        drawn = counts[:, label] > 0
        shares.append(
            ClassShare(
                name=name,
                pairs=len(mine),
                unpaired=int((labels == label).sum()) - len(mine),
                contribution=float(mine.sum()) / len(gap),
                share=float(mine.sum()) / total if total > 0 else None,
                mean_gap=float(mine.mean()) if len(mine) else None,
                contribution_ci95=interval(parts[:, label]),
                share_ci95=share_interval(parts[:, label], whole) if total > 0 else None,
                mean_gap_ci95=interval(parts[drawn, label] / counts[drawn, label]) if len(mine) else None,
            )
        )
    return shares


def _prediction(outcome: Outcome, classes: list[str] | None, k: int) -> str | None:
    if classes is None:
        return None
    scores = outcome.scores[k]
    return classes[int(scores[0] >= 0) if len(scores) == 1 else int(scores.argmax())]


def _stored(split: Split, position: int) -> int:
    return int(split.index[position]) if len(split.index) else position


# The block of a layer's decomposition: filled from what was found, or with the sentence that says why it is empty.


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
