"""A few train samples, for checks that need the whole machinery but not all of the data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from torch import nn

from audit.curvature.spectrum import Spectra
from audit.measures.contract import Audit
from audit.network.records import Records

FEW = 64


def few_samples(audit: Audit, network: nn.Module | None = None, most: int = FEW) -> Audit:
    """The audit on at most `most` train samples, evenly picked; with another network where one is given."""
    network = audit.network if network is None else network
    n = len(audit.train)
    rows = np.unique(np.linspace(0, n - 1, min(most, n)).astype(int))
    capture = replace(audit.capture, network=network, chunk=min(audit.capture.chunk, len(rows)))
    records = Records(capture, audit.train.x[rows], audit.train.y[rows], audit.train.room, full=True)
    spectra = Spectra(records, audit.settings.directions, audit.settings.seed)
    return replace(audit, network=network, capture=capture, train=records, spectra=spectra)
