"""Feng & Tu (2022): what the activity–weight split does along the axes of training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from papers.claims import (
    TOLERANCE,
    Claim,
    always,
    correlation,
    mean,
    mean_of,
    more,
    ratio,
    share,
    trend,
)
from papers.statistics import SAME, Above, Below, Floats, Rows, Statistic, Table, Within

GAP, SHARP, FLAT = "aw.gap", "aw.sharp", "aw.flat"
STRONG = Above(0.7)
PARTS = (SHARP, FLAT)


def _error(table: Table) -> Floats:
    """How far the sum over directions is off the gap over pairs, relative to it."""
    return np.abs(table[SHARP] + table[FLAT] + table["aw.mean_term"] - table[GAP]) / table[GAP]


SAME_NOISE = (("rate=0.05", "batch=50"), ("rate=0.025", "batch=100"), ("rate=0.0125", "batch=200"))


def _same_noise(table: Table) -> tuple[Statistic, Sequence[str]]:
    """The gap at a smaller rate over that at the larger batch of the same α/B, in the mean over the three pairs."""

    def statistic(rows: Rows) -> float:
        means = [[mean_of(table, table[GAP], rows, name) for name in pair] for pair in SAME_NOISE]
        return float(np.mean([rate / batch for rate, batch in means]))

    return statistic, [name for pair in SAME_NOISE for name in pair]


IDENTITIES = (
    always("Eqs 1, 6", "A test sample does to a layer what a change of its weights does: the losses agree",
           lambda table: (table["aw.residual"] < 1e-9).astype(float), "aw.residual"),
    always("Eq. 9", "The directions and the product of means add up to the gap over pairs",
           lambda table: (_error(table) < TOLERANCE).astype(float), _error),
    mean("Eq. 11, Fig. S1", "The product of means is negligible: below a twentieth of the gap",
         lambda table: np.abs(table["aw.mean_term"]) / table[GAP], Below(0.05)),
    mean("Fig. S3A", "The gap over pairs is that of test against train: within a twentieth",
         lambda table: np.abs(table[GAP] / table["loss_gap"] - 1), Below(0.05)),
    always("Discussion", "Scaling whole layers against each other moves neither part of the gap",
           lambda table: np.where(np.isnan(table["rescaled.aw_moved"]), np.nan, table["rescaled.aw_moved"] < 1e-6),
           "rescaled.aw_moved"),
    always("Eq. 11", "c_n is never negative (first 50 directions)",
           lambda table: (table["aw.c_negative"] == 0).astype(float)),
)  # fmt: skip

SIZES = (
    correlation("Fig. S3B", "The gap goes with the test error, strongly", (GAP, "test_error"), STRONG),
    mean("Fig. 2A", "ln σ_g² and ln H_n go together over directions, strongly", "aw.g_and_H", STRONG),
    correlation("Fig. 2A, inset", "T_g goes with the trace of the Hessian, strongly", ("aw.total_g", "aw.trace"),
                STRONG),
    correlation("Fig. 2B", "T_w goes with the weights' norm where decay and start vary, strongly",
                ("aw.total_w", "fc2.weight_norm_squared"), STRONG, ("decay", "start")),
    mean("Section 4", "At the base, the 10 sharpest directions hold more than half of the gap", "aw.sharp_share",
         Above(0.5), ("base",)),
    mean("Section 4", "At the base, the sharp directions hold about half of the variance of g", "aw.sharp_variance",
         Within(0.4, 0.6), ("base",)),
    mean("Fig. 3", "At the base, σ_g drops steepest behind about 10 directions", "aw.count", Within(8, 12),
         ("base",)),
)  # fmt: skip


def _of_sgd(axis: str, figure: str, words: str, falls: bool) -> tuple[Claim, ...]:
    """Figs 3A–C for the rate, 3D–F for the batch: the same claims, turned round."""
    down = Below() if falls else Above()
    goes = "falls" if falls else "grows"
    return (
        trend(f"Fig. {figure}", f"{words}: σ_g of the 10 sharpest directions {goes}", axis, "aw.sharp_g", down),
        ratio(f"Fig. {figure}", f"{words}: σ_g of the flat directions does not change", axis, "aw.flat_g", SAME),
        ratio(f"Fig. {figure}", f"{words}: Σσ_w does not change", axis, "aw.sum_w", SAME),
        trend(f"Fig. {figure}", f"{words}: the gap {goes}", axis, GAP, down),
        trend(f"Fig. {figure}", f"{words}: its sharp part {goes}", axis, SHARP, down),
        ratio(f"Fig. {figure}", f"{words}: its flat part does not change", axis, FLAT, SAME),
        more(f"Fig. {figure}", f"{words}: the sharp part changes more than the flat one", axis, PARTS, not falls),
        ratio("Fig. 2B", f"{words}: T_w does not change", axis, "aw.total_w", SAME),
        ratio("Fig. S2", f"{words}: c_n does not change", axis, "aw.c", SAME),
    )


def _of_size(axis: str, figure: str, words: str, falls: bool) -> tuple[Claim, ...]:
    """Figs 4A–C for decay, 4D–F for the start."""
    down = Below() if falls else Above()
    goes = "falls" if falls else "grows"
    return (
        ratio(f"Fig. {figure}", f"{words}: σ_g of the 10 sharpest directions does not change", axis, "aw.sharp_g",
              SAME),
        trend(f"Fig. {figure}", f"{words}: Σσ_w {goes}", axis, "aw.sum_w", down),
        trend(f"Fig. {figure}", f"{words}: the gap {goes}", axis, GAP, down),
        ratio(f"Fig. {figure}", f"{words}: its sharp part does not change", axis, SHARP, SAME),
        trend(f"Fig. {figure}", f"{words}: its flat part {goes}", axis, FLAT, down),
        more(f"Fig. {figure}", f"{words}: the flat part changes more than the sharp one", axis, PARTS[::-1],
             not falls),
        trend("Fig. S5", f"{words}: σ_w {goes} more in flat directions than in sharp ones", axis,
              share("aw.flat_w", "aw.sharp_w"), down),
        ratio("Fig. S2", f"{words}: c_n does not change", axis, "aw.c", SAME),
    )  # fmt: skip


OTHERS = (
    Claim("Fig. S11", "The gap depends on α/B alone: small rates and large batches of one α/B have the same",
          "ratio of means", _same_noise, SAME),
    trend("Fig. S6A", "More dropout: σ_g of the 10 sharpest directions falls", "dropout", "aw.sharp_g", Below()),
    trend("Fig. S6B", "More dropout: Σσ_w grows", "dropout", "aw.sum_w", Above()),
    trend("Fig. S6C", "More dropout: the sharp part falls", "dropout", SHARP, Below()),
    trend("Fig. S6C", "More dropout: the flat part grows", "dropout", FLAT, Above()),
    trend("Fig. S7A", "More samples: σ_g of the 10 sharpest directions falls", "part", "aw.sharp_g", Below()),
    trend("Fig. S7A", "More samples: σ_g of the flat directions falls", "part", "aw.flat_g", Below()),
    trend("Fig. S7B", "More samples: Σσ_w grows a little", "part", "aw.sum_w", Above()),
    trend("Fig. S7C", "More samples: c_n falls", "part", "aw.c", Below()),
    trend("Fig. S7D", "More samples: the sharp part falls", "part", SHARP, Below()),
    trend("Fig. S7D", "More samples: the flat part falls", "part", FLAT, Below()),
    more("Fig. S7D", "More samples: the sharp part falls more than the flat one", "part", PARTS, False),
    trend("Fig. S7E", "More wrong labels: σ_g of the flat directions grows", "wrong", "aw.flat_g", Above()),
    trend("Fig. S7E", "More wrong labels: σ_g of the 10 sharpest directions falls", "wrong", "aw.sharp_g", Below()),
    mean("Fig. S7E", "With a fifth of the labels wrong, σ_g has no sudden drop: an elbow in less than half", "aw.elbow",
         Below(0.5), ("wrong=0.2",)),
    trend("Fig. S7F", "More wrong labels: Σσ_w grows", "wrong", "aw.sum_w", Above()),
    trend("Fig. S7G", "More wrong labels: c_n grows", "wrong", "aw.c", Above()),
    trend("Fig. S7H", "More wrong labels: the gap grows", "wrong", GAP, Above()),
    more("Fig. S7H", "More wrong labels: the flat part grows more than the sharp one", "wrong", PARTS[::-1], True),
)  # fmt: skip

CLAIMS = (
    *IDENTITIES,
    *SIZES,
    *_of_sgd("rate", "3A–C", "Larger rate", True),
    *_of_sgd("batch", "3D–F", "Larger batch", False),
    *_of_size("decay", "4A–C", "More decay", True),
    *_of_size("start", "4D–F", "Larger start", False),
    *OTHERS,
)
