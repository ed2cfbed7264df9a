"""The definition cards: complete, unique, found by any name, and printed without waking torch."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

import pytest
from typer.testing import CliRunner

from audit.cli import app
from audit.errors import UsageError
from audit.measures import LayerReport, Report
from audit.measures.catalogue import CATALOGUE
from audit.measures.catalogue import NetworkBlocks as NetworkReport
from audit.render.cards import ALL_CARDS, ALSO, field_cards, find_cards


def dataclasses_in(hint: Any) -> list[type[Any]]:
    """The dataclasses that a type mentions: `Chain | None` and `list[Bound]` alike."""
    if isinstance(hint, type) and is_dataclass(hint):
        return [hint]
    return [inner for part in get_args(hint) for inner in dataclasses_in(part)]


BLOCKS = [
    (name, block)
    for holder in (LayerReport, NetworkReport, Report)
    for name, hint in get_type_hints(holder).items()
    for block in dataclasses_in(hint)
    if name in {entry.key for entry in CATALOGUE}
]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["explain", *arguments])


def is_number(hint: Any) -> bool:
    return hint in (int, float) or any(is_number(part) for part in get_args(hint))


def numbers_of(prefix: str, block: type[Any]) -> list[tuple[str, str]]:
    """Path and description of every number of a block."""
    found = []
    for field in fields(block):
        hint = get_type_hints(block)[field.name]
        inner = dataclasses_in(hint)
        if not inner and is_number(hint):
            found.append((f"{prefix}.{field.name}", field.metadata.get("description", "")))
        for deeper in inner:
            found += numbers_of(f"{prefix}.{field.name}", deeper)
    return found


NUMBERS = sorted({pair for name, block in BLOCKS for pair in numbers_of(name, block)})


@pytest.mark.parametrize(("path", "description"), NUMBERS, ids=[path for path, _ in NUMBERS])
def test_every_number_is_explained(path, description):
    assert description or find_cards(path)


def test_every_field_of_a_block_leads_to_a_card():
    assert [card.id for card in field_cards() if not find_cards(card.id)] == []


def test_cards_are_unique_and_say_what_a_reader_needs():
    assert len({card.id for card in ALL_CARDS}) == len(ALL_CARDS)
    for card in ALL_CARDS:
        assert card.title and card.formula and card.source, card.id
        assert card.meaning.endswith((".", "?")), card.id


def test_cards_name_numbers_that_exist():
    known = {card.id for card in field_cards()}
    assert {card.id for card in ALL_CARDS if not card.id.startswith(("hygiene.", "findings."))} <= known


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("kappa", "flatness.kappa"),
        ("κ", "flatness.kappa"),
        ("network.flatness.kappa_sum", "flatness.kappa"),
        ("layers[2].duality.sharp.share", "duality.sharp.share"),
        ("layers.0.flatness.rho", "flatness.rho"),
        ("layers[0].duality.sigma_g", "duality.sigma_g"),
        ("layers[0].duality.sigma_g[3]", "duality.sigma_g"),
        ("fisher.gamma_std", "fisher.gamma_std"),
        ("bounds", "sensitivity.bounds"),
        ("layers.fc1.flatness.kappa", "flatness.kappa"),
        ("layers.block.0.fc.duality.sharp.share", "duality.sharp.share"),
        ("layers.*.flatness.rho", "flatness.rho"),
        ("network.sensitivity.bounds.prop-3.4.tightness", "sensitivity.bounds.tightness"),
        ("calibration.ece", "calibration.test.ece"),
        ("calibration.train.ece", "calibration.train.ece"),
        ("calibration.temperature", "calibration.scaling.temperature"),
        ("calibration.outputs.0.coverage.share-95.limit", "calibration.outputs.coverage.limit"),
    ],
)
def test_a_number_is_found_by_any_of_its_names(name, first):
    assert find_cards(name)[0].id == first


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gap.test_error", "gap.test_error: Test error How often the model is wrong on unseen samples;"),
        ("gap.train_error", "share of wrong answers; null for regression"),
        ("gap.test_accuracy", "accuracy is 1 − error"),
        ("gap.test_loss", "half the squared error"),
    ],
)
def test_a_split_is_explained_by_a_card_of_its_own_not_by_that_of_the_gap(name, words):
    shown = " ".join(run(name).stdout.split())
    assert words in shown and "_gap:" not in shown


def test_part_of_a_number_brings_the_card_of_the_whole():
    assert [card.id for card in find_cards("gamma_std")] == ["fisher.gamma_std", "fisher.gamma"]


def test_unknown_name_suggests_the_nearest():
    with pytest.raises(UsageError) as error:
        find_cards("kapa")
    assert str(error.value).startswith("kapa: is no number of the report (did you mean flatness.kappa or ")
    assert str(error.value).endswith("?); `gen-audit explain --all` prints them all.")
    with pytest.raises(UsageError, match=r"^zzz: is no number of the report; `gen-audit explain --all`"):
        find_cards("zzz")


def test_explain_prints_meaning_formula_and_source():
    shown = run("kappa").stdout
    assert shown.startswith("flatness.kappa: κ\n  Sharpest curvature of the layer")
    assert "  Formula:     κ^l = ‖W_l‖² λ_max(H_l)" in shown
    assert "  Source:      Petzka" in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_explain_all_prints_every_card_and_json_holds_them_in_full():
    shown = run("--all").stdout
    assert all(f"{card.id}: {card.title}" in shown for card in ALL_CARDS)
    cards = json.loads(run("--all", "--json").stdout)
    assert [card["id"] for card in cards] == [card.id for card in ALL_CARDS]
    assert json.loads(run("kappa", "--json").stdout)[0]["formula"] == find_cards("kappa")[0].formula


@pytest.mark.parametrize("arguments", [(), ("kappa", "--all")])
def test_explain_wants_one_name_or_all(arguments):
    error = run(*arguments).exception
    assert str(error) == "explain: takes the name of one number, or --all; try `gen-audit explain kappa`."


def test_explaining_wakes_nothing_heavy():
    code = (
        "import sys; sys.argv = ['gen-audit', 'explain', '--all']\n"
        "from audit.cli import app\n"
        "app(standalone_mode=False)\n"
        "print([m for m in ('torch', 'onnx', 'numpy', 'jinja2') if m in sys.modules], file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stderr.strip() == "[]"


def test_every_other_name_of_a_number_leads_to_a_card() -> None:
    known = {card.id for card in ALL_CARDS}
    assert all(known.issuperset(ids) and name == name.lower() for name, ids in ALSO.items())
