"""Tolerances of formulas have names, each with one meaning: `tests/support/tolerances.py`."""

from __future__ import annotations

import ast
import re

import tolerances
from places import ROOT

FINEST = 1e-8  # relative tolerances up to here are of formulas in float64, and have a name for what they allow
BARE = re.compile(r"\b(?:rtol|rel)=(\d[\d.]*(?:e-\d+)?)\b")


def test_no_test_has_a_bare_tolerance_for_a_formula() -> None:
    files = [path for path in sorted((ROOT / "tests").rglob("*.py")) if path.name != "tolerances.py"]
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files}
    assert len(texts) > 200
    bare = [(name, text) for name, found in texts.items() for text in BARE.findall(found) if 0 < float(text) <= FINEST]
    assert bare == []


def test_every_tolerance_has_one_name_and_every_name_a_meaning() -> None:
    path = ROOT / "tests" / "support" / "tolerances.py"
    text = path.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if re.match(r"[A-Z_]+ = ", line)]
    assert len(lines) > 8 and all(" # " in line for line in lines)
    values = [
        float(ast.literal_eval(line.split(" = ")[1].split(" #")[0])) for line in lines if "not relative" not in line
    ]
    assert values == [getattr(tolerances, line.split(" = ")[0]) for line in lines if "not relative" not in line]
    assert len(set(values)) == len(values)
