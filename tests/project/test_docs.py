"""The documentation: what is written from the code is complete, and what a page calls for or names exists."""

from __future__ import annotations

import importlib.util
import re
from html import unescape
from types import ModuleType

import pytest
from places import ROOT

from audit.cli import app
from audit.measures.catalogue import CATALOGUE
from audit.render.cards import ALL_CARDS, OF_FINDINGS, WORDS, find_cards
from audit.report.twins import CARDS as OF_TWINS

DOCS = ROOT / "docs"
COUNTS = re.compile(r"<!-- counts: (begin|end) -->")  # between which `make fuzz` writes its table
LINK = re.compile(r"\]\(([^)\s]+)\)")
OF_MAKE = re.compile(r"`make [^`]*`")
PAGES = sorted(DOCS.glob("*.md"))
WRITTEN = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@pytest.fixture(scope="module")
def generated() -> ModuleType:
    """The hooks of MkDocs, which need no MkDocs to write their pages."""
    spec = importlib.util.spec_from_file_location("generated", DOCS / "generated.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_card_stands_on_one_page_in_its_own_words(generated: ModuleType) -> None:
    pages = generated.pages()
    assert {f"measures/{entry.key}.md" for entry in CATALOGUE} <= set(pages)
    whole = "\n".join(pages.values())
    cards = [card for entry in CATALOGUE for card in entry.cards] + [*OF_TWINS, *OF_FINDINGS]
    for card in cards:
        assert whole.count(f"{{ #{card.id} }}") == 1, card.id
        assert card.meaning.replace("`", "") in unescape(re.sub(r"</?code>", "", whole)), card.id
    assert {card.id for card in ALL_CARDS} - {card.id for card in cards} == {"bottom_line.level"}


def test_a_card_cannot_become_markup(generated: ModuleType) -> None:
    card = generated.Card("x.y", "a_b <b>*c*", "If <script> & `name`.", "a < b", "counting")
    text = generated.card_text(card)
    assert "<script>" not in text and "<code>name</code>" in text and "a &lt; b" in text
    assert text.startswith(r"## a\_b \<b\>\*c\* { #x.y }")


def test_the_glossary_is_short_known_to_explain_and_in_the_documentation(generated: ModuleType) -> None:
    assert len(WORDS) <= 25
    for word, says in WORDS.items():
        assert find_cards(word)[0].meaning == says and says.endswith(".")
        assert f"<dt>{word}</dt>" in generated.words_page()


@WRITTEN
def test_what_a_page_calls_for_exists(page, generated: ModuleType) -> None:
    text = page.read_text(encoding="utf-8")
    for call in generated.CALL.finditer(text):
        if call["what"] != "report":
            assert len(generated.WRITERS[call["what"]](call["name"])) > 100, call[0]
    assert "<!--" not in generated.CALL.sub("", COUNTS.sub("", text))


@WRITTEN
def test_a_page_can_be_read_in_the_checkout(page, generated: ModuleType) -> None:
    text = page.read_text(encoding="utf-8")
    for call in generated.CALL.finditer(text):
        assert LINK.search(call["instead"] or ""), f"{call[0]}: nothing says where to find it without `make docs`"
    for target in LINK.findall(text):
        if "://" not in target and not target.startswith("#"):
            assert (page.parent / target.partition("#")[0]).exists(), target


def test_what_stands_for_the_checkout_is_not_built(generated: ModuleType) -> None:
    built = generated.filled((DOCS / "python.md").read_text(encoding="utf-8"))
    assert "```python" in built and "The file is" not in built and "<!--" not in built
    index = generated.filled((DOCS / "index.md").read_text(encoding="utf-8"))
    assert "](findings.md)" in index and "](../" not in index
    assert {name for name in generated.OF_CHECKOUT.values() if not name.startswith("example/")} <= set(
        generated.pages()
    )


@WRITTEN
def test_every_flag_on_a_page_is_one_of_a_command(page) -> None:
    from typer.main import get_command

    known = {flag for command in get_command(app).commands.values() for one in command.params for flag in one.opts}
    text = OF_MAKE.sub("", page.read_text(encoding="utf-8"))
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
    assert named <= known
