"""`gen-audit explain`: what a number of the report is."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from audit.cli.app import command
from audit.cli.options import AsJson, completing
from audit.cli.terminal import say_whole
from audit.errors import UsageError


def _numbers(incomplete: str) -> list[str]:
    from audit.render.cards import ALL_CARDS

    return completing([card.id for card in ALL_CARDS])(incomplete)


Number = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME", help="A number of the report, such as kappa or fisher.gamma.", autocompletion=_numbers
    ),
]


@command()
def explain(
    name: Number = None,
    everything: Annotated[bool, typer.Option("--all", help="Every definition card, in the report's order.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print what a number of the report is and can tell."""
    from audit.render.cards import ALL_CARDS, card_text, find_cards

    if everything == (name is not None):
        raise UsageError("explain: takes the name of one number, or --all; try `gen-audit explain kappa`.")
    cards = list(ALL_CARDS) if name is None else find_cards(name)
    if as_json:
        say_whole(json.dumps([asdict(card) for card in cards], indent=2, ensure_ascii=False))
    else:
        say_whole("\n\n".join(map(card_text, cards)))
