"""Every measure of the catalogue is complete, and the rest of the house takes it from there."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import get_args, get_type_hints

import pytest
from places import EXAMPLE, ROOT

from audit.measures import KNOWN_PATHS, Report
from audit.measures.catalogue import CATALOGUE, Entry, LayerBlocks, NetworkBlocks, ReportBlocks
from audit.measures.suite import MEASURES
from audit.measures.workload import Demand
from audit.render.cards import ALL_CARDS
from audit.render.comparison_pages import SECTIONS as COMPARED_SECTIONS
from audit.render.summary import appendix, body
from audit.run.plan import STAGES

EVERY = pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.key)
HOLDERS = (ReportBlocks, NetworkBlocks, LayerBlocks)


@EVERY
def test_all_its_files_are_there(entry: Entry) -> None:
    room = ROOT / "audit" / "measures" / entry.key
    named = [room / name for name in ("__init__.py", "measure.py", "block.py", "card.py")]
    named += [ROOT / "templates" / "parts" / f"{entry.key}.html.j2", ROOT / "tests" / "references" / f"{entry.key}.py"]
    assert [str(path) for path in named if not path.is_file()] == []
    assert list((ROOT / "tests" / "measures" / entry.key).glob("test_*.py"))


@EVERY
def test_it_is_known_by_one_key_everywhere(entry: Entry) -> None:
    (measure,) = [measure for measure in MEASURES if measure.key == entry.key]
    assert measure.cards == entry.cards and measure.question.endswith("?")
    assert any(entry.key in {field.name for field in fields(holder)} for holder in HOLDERS)
    assert all(card.id.startswith(f"{entry.key}.") and card in ALL_CARDS for card in entry.cards)
    report = Report.from_json(EXAMPLE.read_text(encoding="utf-8"))
    drawn = [section for section in (*body(report, None), *appendix(report, None)) if section.key == entry.key]
    assert [section.title for section in drawn] == ([] if entry.block(report) is None else [entry.title])
    assert all(bool(section.decision) == (section in appendix(report, None)) for section in drawn)


@EVERY
def test_its_room_says_what_it_takes_and_a_plan_has_it(entry: Entry) -> None:
    (measure,) = [measure for measure in MEASURES if measure.key == entry.key]
    assert isinstance(measure.demand, Demand) and STAGES[entry.key] is measure.demand
    assert measure.demand is import_module(f"audit.measures.{entry.key}").DEMAND
    assert measure.demand.rests_on in ("", *(other.key for other in CATALOGUE))


def test_a_plan_has_every_measure_once_and_none_before_what_it_rests_on() -> None:
    order = list(STAGES)
    assert sorted(order) == sorted(["forward", *(entry.key for entry in CATALOGUE), "checks"])
    assert all(order.index(demand.rests_on) < order.index(key) for key, demand in STAGES.items() if demand.rests_on)


@EVERY
def test_what_it_compares_stands_in_a_report(entry: Entry) -> None:
    for number in entry.compared:
        assert "number" in KNOWN_PATHS.kinds_of(number.key), number.key
        assert number.section in COMPARED_SECTIONS


def test_blocks_belong_to_measures_and_only_the_gap_is_in_every_report() -> None:
    keys = {entry.key for entry in CATALOGUE}
    for holder in HOLDERS:
        hints = get_type_hints(holder)
        assert set(hints) <= keys
        assert [name for name, hint in hints.items() if type(None) not in get_args(hint)] in ([], ["gap"])


def test_a_room_without_an_entry_is_noticed() -> None:
    rooms = {path.parent.name for path in (ROOT / "audit" / "measures").glob("*/measure.py")}
    assert rooms == {entry.key for entry in CATALOGUE}
