"""Does the same come out twice, and does it come out in single precision too?"""

from __future__ import annotations

import copy
from dataclasses import replace

import torch

from audit.checks.few_samples import few_samples
from audit.measures.catalogue import CATALOGUE
from audit.measures.contract import Audit
from audit.network.record import Record
from audit.report.blocks import Check, worst

FEW = 256
EVERYTHING = [entry.key for entry in CATALOGUE if entry.key != "hygiene"]  # which looks at the data


def check_determinism(audit: Audit) -> Check:
    """A second capture of the same samples must give the same bits."""
    few = few_samples(audit)
    first, second = (list(few.capture.full(few.train.x, few.train.y)) for _ in range(2))
    different = sum(not _same_bits(a, b) for a, b in zip(first, second, strict=True))
    words = "Chunks whose scores or Jacobians differ in any bit when the same samples are captured again."
    return worst("determinism", "The same samples give the same numbers twice", different, 0, words, EVERYTHING)


def check_single_precision(audit: Audit) -> Check:
    """The scores in float32, as the model would run in production, against float64."""
    few = few_samples(audit, most=FEW)
    double = replace(few.capture, network=copy.deepcopy(few.network).double())
    single = replace(few.capture, network=copy.deepcopy(few.network).float())
    precise, rough = (
        torch.cat([record.f for record in capture.forward(few.train.x, few.train.y)]) for capture in (double, single)
    )
    scale = max(float(precise.abs().max()), 1e-300)
    words = (
        f"Largest difference of a score between float32 and float64 over {len(few.train)} samples, relative to the "
        "largest score."
    )
    title = "Single and double precision agree"
    value = float((precise - rough).abs().max()) / scale
    return worst("single-precision", title, value, 1e-3, words, EVERYTHING)


def _same_bits(a: Record, b: Record) -> bool:
    layers = all(torch.equal(a.layers[name].J, b.layers[name].J) for name in a.layers)
    return torch.equal(a.f, b.f) and layers
