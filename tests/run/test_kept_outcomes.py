"""What a report keeps of each sample."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
from drawn import render_html
from hypothesis import given
from hypothesis import strategies as st
from places import EXAMPLE, REGRESSION

from audit.data.splits import content_digest
from audit.measures import Report
from audit.report.blocks import Outcomes, SplitOutcomes
from audit.run.assemble import chosen

EXAMPLES = [EXAMPLE, REGRESSION]


@given(st.sets(st.integers(0, 500), min_size=1, max_size=60), st.integers(1, 30))
def test_two_audits_of_overlapping_samples_keep_the_same_of_them(positions, most):
    """Whatever a larger audit keeps of a smaller one's samples, the smaller one keeps too."""
    larger = np.array(sorted(positions))
    smaller = larger[::2]
    kept = set(larger[chosen(larger, most)].tolist())
    assert len(kept) == min(most, len(larger))
    assert kept & set(smaller.tolist()) <= set(smaller[chosen(smaller, most)].tolist())


@given(st.permutations(range(12)))
def test_rows_are_kept_in_the_order_of_their_positions(order):
    positions = np.array(order)
    assert positions[chosen(positions, 12)].tolist() == sorted(order)
    assert (np.diff(positions[chosen(positions, 5)]) > 0).all()


def test_content_digest_tells_samples_apart_but_not_folders():
    x, y = np.arange(12.0).reshape(3, 4), np.array([0, 1, 0])
    assert content_digest(x, y) == content_digest(np.asfortranarray(x), y.copy())
    assert content_digest(x, y) != content_digest(x.reshape(4, 3), y)
    assert content_digest(x, y) != content_digest(x, 1 - y)
    assert content_digest(x, y) == content_digest(x.astype(np.float32), y)
    assert content_digest(x / 3, y) != content_digest((x / 3).astype(np.float32), y)
    assert content_digest(x, y) != content_digest(x.astype(np.float16), y)


def test_content_digest_is_of_all_blocks(monkeypatch):
    x = np.arange(12.0).reshape(6, 2)
    whole = content_digest(x), content_digest(x / 3)
    monkeypatch.setattr("audit.data.splits.HASHED", 5)
    assert (content_digest(x), content_digest(x / 3)) == whole
    x[5, 1] += 1e-9  # the last number alone is no single one
    assert content_digest(x) not in whole


def test_reports_without_outcomes_still_load():
    for path in EXAMPLES:
        report = json.loads(path.read_text(encoding="utf-8"))
        report.pop("outcomes", None)
        assert Report.from_json(json.dumps(report)).outcomes is None


def test_outcomes_are_not_on_the_page():
    report = Report.from_json(EXAMPLES[0].read_text(encoding="utf-8"))
    split = SplitOutcomes(sha256="c0ffee", samples=1, positions=[0], loss=[0.123456789], wrong=[0])
    bare, told = replace(report, outcomes=None), replace(report, outcomes=Outcomes(train=split, test=split))
    assert render_html(json.loads(told.to_json())) == render_html(json.loads(bare.to_json()))


def test_lists_of_numbers_stand_on_one_line_and_nothing_else_changes():
    report = Report.from_json(EXAMPLES[0].read_text(encoding="utf-8"))
    split = SplitOutcomes(sha256="", samples=3, positions=[0, 1, 2], loss=[1e-20, 0.5, 2.0], wrong=[0, 1, 1])
    told = {**report.__dict__, "outcomes": Outcomes(train=split, test=split), "warnings": ["[\n1, 2\n]", "[ 1 ]"]}
    text = Report(**told).to_json()
    assert '"loss": [1e-20, 0.5, 2.0],' in text
    assert json.loads(text) == json.loads(json.dumps(Report(**told).to_dict()))
