"""Two models with labels at positions: their errors are compared sample by sample."""

from __future__ import annotations

import copy
import random

import numpy as np
import pytest
import torch
from formats import QUICK
from references.tagging import percentiles
from taggers import split, trained

from audit import audit_model
from audit.compare import Named
from audit.compare.compare import compare_reports
from audit.compare.differences import Answers, Asked, PairedAnswers, _paired

SAMPLED = 0.12  # of the width: a t-interval of the linearised ratio against 2,000 draws


def test_the_interval_of_a_difference_draws_whole_samples() -> None:
    rng = np.random.default_rng(0)
    asked = rng.integers(1, 20, 120).astype(float)
    old, new = (rng.binomial(asked.astype(int), rng.beta(2, 6, 120)).astype(float) for _ in range(2))
    loss = np.zeros(120)
    pairs = PairedAnswers(Answers(loss, old, asked), Answers(loss, new, asked), 120, 120, np.arange(120))
    found = _paired("test", "error", pairs, Asked())
    assert found.old == pytest.approx(old.sum() / asked.sum()) and found.new == pytest.approx(new.sum() / asked.sum())
    rows, draw = list(zip(old, new, asked, strict=True)), random.Random(0)
    drawn = []
    for _ in range(2000):
        some = draw.choices(rows, k=len(rows))
        drawn.append(sum(b - a for a, b, _ in some) / sum(m for _, _, m in some))
    low, high = percentiles(sorted(drawn))
    assert found.ci95 == pytest.approx((low, high), abs=SAMPLED * (high - low))


def test_a_damaged_tagger_is_worse_and_no_sample_is_called_wrong_as_a_whole() -> None:
    train, test = ((split(which)["x"], split(which)["y"]) for which in ("train", "test"))
    damaged = copy.deepcopy(trained("plain"))
    with torch.no_grad():
        damaged.head.weight.mul_(-1)
    old, new = (audit_model(network, train, test, **QUICK) for network in (trained("plain"), damaged))
    found = compare_reports(Named("old", old), Named("new", new), "gen-audit compare")
    assert found.verdict == "worse"
    first = next(number for number in found.numbers if number.key == "gap.test_error")
    assert (first.old, first.new) == (pytest.approx(old.gap.test_error), pytest.approx(new.gap.test_error))
    assert found.only_old_wrong is None
