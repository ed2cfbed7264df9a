"""`gen-audit twins`: train networks like the model, to hold it beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from audit.cli.app import command
from audit.cli.options import AsJson, ConfigPath, DataPath, ModelPath, Quiet, output_option, with_settings
from audit.cli.terminal import complain, say, say_whole
from audit.settings.config import config_files, resolve

if TYPE_CHECKING:
    from audit.twins import TwinSet

OWN = "Twins"
SETTINGS = (
    *("arch", "trust_pickle", "output", "input", "fix_input", "input_shape", "task"),
    *("layout", "label", "drop", "test_fraction", "reshape", "scale", "mean", "std", "resize", "channels", "dtype"),
    *("classes", "samples", "test_samples", "seed", "conv", "memory", "device"),
)

Folder = Annotated[Path, output_option("twins into; a folder that holds some is gone on with")]
Budget = Annotated[
    str, typer.Option("--budget", help="Time to make them in, such as 90s, 10m, 1h or none.", rich_help_panel=OWN)
]
Kinds = Annotated[
    str | None,
    typer.Option("--kinds", help="Which kinds, such as plain,half,decay (default: all).", rich_help_panel=OWN),
]
Count = Annotated[int | None, typer.Option("--count", min=1, help="How many of each kind.", rich_help_panel=OWN)]
RecipePath = Annotated[
    Path | None,
    typer.Option("--recipe", help="TOML file that says how the model was trained.", rich_help_panel=OWN),
]
FrozenTrunk = Annotated[
    bool,
    typer.Option(
        "--frozen-trunk",
        help="Train only the dense layers before the scores, on the rest as it is.",
        rich_help_panel=OWN,
    ),
]
EngineOption = Annotated[
    str,
    typer.Option(
        "--engine",
        help="Who trains: local, the processors of this machine, or ray, the cluster of RAY_ADDRESS.",
        rich_help_panel=OWN,
    ),
]


@command()
@with_settings(*SETTINGS)
def twins(
    model: ModelPath,
    data: DataPath,
    out: Folder = Path("twins"),
    budget: Budget = "10m",
    kinds: Kinds = None,
    count: Count = None,
    recipe: RecipePath = None,
    frozen_trunk: FrozenTrunk = False,
    engine: EngineOption = "local",
    config: ConfigPath = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    **flags: Any,
) -> None:
    """Train networks like MODEL on DATA, to hold it beside them."""
    from audit.run.pipeline import files_of
    from audit.run.plan import budget_seconds
    from audit.run.progress import Progress
    from audit.twins.engines import chosen_engine
    from audit.twins.kinds import chosen_kinds
    from audit.twins.make import Wish, make_folder
    from audit.twins.problem import set_problem
    from audit.twins.recipes import read_recipe

    wish = Wish(
        kinds=chosen_kinds(None if kinds is None else kinds.split(",")),
        count=count,
        recipe=None if recipe is None else read_recipe(recipe),
        budget=budget_seconds(budget),
        engine=chosen_engine(engine),
        say=(lambda line: None) if quiet else complain,
    )
    settings = resolve(flags, config_files(config, data))
    problem = set_problem(files_of(model, data), settings, Progress(), frozen_trunk)
    with going_on(out):
        made = make_folder(problem, out, wish)
    if as_json:
        say_whole(json.dumps(_summary(made), indent=2, ensure_ascii=False))
    elif not quiet:
        _print(made, out)


@contextmanager
def going_on(folder: Path) -> Iterator[None]:
    """Says, where the training is ended from outside, that the twins in the folder are kept."""
    from audit.twins import INDEX

    try:
        yield
    except (SystemExit, KeyboardInterrupt):
        if (folder / INDEX).exists():
            complain(f"gen-audit: what was trained is kept in {folder}; the same command goes on from there.")
        raise


def _summary(made: TwinSet) -> dict[str, Any]:
    """How many of which kind; everything else is in twins.json."""
    kinds: dict[str, int] = {}
    for twin in made.twins:
        if twin.family == made.family:
            kinds[twin.kind] = kinds.get(twin.kind, 0) + 1
    return {"family": made.family, "recipe_given": made.recipe_given, "kinds": kinds, "left_out": dict(made.left_out)}


def _print(made: TwinSet, out: Path) -> None:
    summary = _summary(made)
    found = ", ".join(f"{count} {kind}" for kind, count in summary["kinds"].items())
    others = len(made.twins) - sum(summary["kinds"].values())
    why = "" if made.recipe_given else ", made in the search for it"
    more = f"; {others} of other recipes{why}" if others else ""
    say(f"{len(made.twins)} twins at train loss {made.about.target:.4g}; recipe {made.family}: {found}{more}")
    for kind, why in made.left_out:
        say(f"left out: {kind} ({why})")
    say(out / "twins.json")
