"""Means over answers that come in clusters: samples are drawn, never the answers within one.

The positions of one sample are no independent pieces of evidence: a bootstrap over them would be too sure.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from audit.maths.resample import TRAIN, Bootstrap, interval
from audit.maths.shares import wilson

Array = NDArray[np.float64]
Samples = NDArray[np.int64]


def cluster_sums(columns: Array, sample: Samples, samples: int) -> Array:
    """Sums over the answers of each sample; columns [P, k] and sample [P] → [samples, k].

    >>> cluster_sums(np.array([[1.0], [2.0], [5.0]]), np.array([0, 0, 1]), 2)
    array([[3.],
           [5.]])
    """
    sums = np.zeros((samples, columns.shape[1]))
    np.add.at(sums, sample, columns)
    return sums


def cluster_means(columns: Array, sample: Samples, bootstrap: Bootstrap, stream: int = TRAIN) -> Array:
    """Means over answers under all draws of samples, Σ_i c_i S_i / Σ_i c_i m_i: columns [P, k] → [draws, k].

    S_i [k] are the sums of sample i, m_i its answers and c_i how often it is drawn. Every sample has an answer.
    """
    sums = cluster_sums(np.column_stack([columns, np.ones(len(columns))]), sample, int(sample[-1]) + 1)
    means = bootstrap.means(sums, stream)
    return np.asarray(means[:, :-1] / means[:, -1:])


def cluster_share(hits: Array, asked: Array, bootstrap: Bootstrap, stream: int = TRAIN) -> tuple[float, float]:
    """The 95 % interval of Σ hits / Σ asked, of each sample [n], by a bootstrap over samples.

    Where all answers are alike every draw is, too: then it is Wilson's of as many answers as there are samples.
    """
    share = float(hits.sum() / asked.sum())
    if share in (0.0, 1.0):
        return wilson(share, len(hits))
    means = bootstrap.means(np.stack([hits, asked], 1), stream)
    return interval(means[:, 0] / means[:, 1]) or wilson(share, len(hits))
