"""Finds the templates and sets Jinja up: everything escaped, nothing undefined, the same bytes every time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from audit.cards import ALL_CARDS
from audit.render import hygiene, numbers, scale, sections, words

PACKAGED = Path(__file__).parents[1] / "templates"  # in an installed wheel
CHECKOUT = Path(__file__).parents[2] / "templates"  # in a checkout, also when installed as editable


@cache
def environment(escaped: bool) -> Environment:
    """The templates with the filters they share; `escaped` for HTML."""
    env = Environment(
        loader=FileSystemLoader([PACKAGED, CHECKOUT]),
        autoescape=escaped,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    env.filters.update({function.__name__: function for function in FILTERS})
    env.globals.update(words=words, hygiene=hygiene, title=words.title, gap_sentences=words.gap_sentences)
    env.globals.update(
        sections=sections, cards=ALL_CARDS, axis=scale.axis, thinned=scale.thinned, running=scale.running
    )
    return env


def data(value: float | None, kind: str = "number") -> Markup:
    """A number for the eye with its full value in the markup, for whoever checks it."""
    words = numbers.shown(value, kind)
    return Markup("<data value='{}'>{}</data>").format(value, words) if value is not None else escape(words)


def breakable(text: str) -> Markup:
    """A path or layer name that may be broken after its separators, so that a narrow screen can show it."""
    marked = escape(text)
    for separator in "/._-":
        marked = marked.replace(separator, Markup(f"{separator}<wbr>"))
    return marked


def short(text: str, most: int = 44) -> str:
    """A name that fits beside a bar: the middle of a long one is left out.

    >>> short("encoder.layers.0.mlp.fc1", 15)
    'encoder….mlp.fc1'
    """
    text = " ".join(text.split())
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}…{text[-half - 1 :]}"


def cell(value: Any) -> str:
    """Text for one cell of a Markdown table: one line, nothing in it read as markup."""
    text = " ".join(str(value).split())
    for special in "\\`*_[]<>|#":
        text = text.replace(special, f"\\{special}")
    return text


FILTERS: tuple[Callable[..., Any], ...] = (
    *(numbers.number, numbers.percent, numbers.share, numbers.points, numbers.shown, numbers.interval, numbers.seconds),
    *(words.used, words.layer_remarks),
    *(data, breakable, short, cell),
)
