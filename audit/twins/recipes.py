"""A recipe in a file: how the owner trained the model."""

from __future__ import annotations

import difflib
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from audit.errors import UsageError, unreadable
from audit.report.schema import adapter_of
from audit.twins.checked import range_fault
from audit.twins.index import Recipe

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LONGEST = 10_000  # letters of a file: its parser's memory grows with the square of a key's parts
NAMES = [each.name for each in fields(Recipe)]


def read_recipe(path: Path) -> Recipe:
    """The recipe of a TOML file, its values at the top or under [recipe]."""
    try:
        text = path.read_text(encoding="utf-8") if path.is_file() or not path.exists() else ""
        if len(text) > LONGEST or (not text and path.exists()):  # or a pipe, which would be waited for
            raise UsageError(f"{path}: is empty, no file, or longer than any recipe; name a recipe as TOML.")
        values = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({unreadable(error)}); name a recipe as TOML.") from error
    except (ValueError, RecursionError) as error:  # no TOML, a number of thousands of digits, nested too deep
        raise UsageError(f"{path}: is no TOML ({str(error).rstrip('.')}); write lines such as rate = 0.1.") from error
    recipe = values.get("recipe", values)
    if not isinstance(recipe, dict):
        raise UsageError(f"{path}: recipe is {recipe!r}, not a table; write [recipe].")
    return recipe_of(recipe, str(path))


def recipe_of(values: dict[str, Any], where: str) -> Recipe:
    """The recipe with these values; those that are not given are the usual ones."""
    for name in values:
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.0)[0]
            raise UsageError(f"{where}: a recipe has no {name!r}; the nearest one is {near!r}.")
    try:
        recipe: Recipe = adapter_of(Recipe).validate_python(values)
    except ValueError as error:
        first = error.errors()[0]  # type: ignore[attr-defined]
        raise UsageError(f"{where}: {first['loc'][0]} is {first['input']!r}; {first['msg'].lower()}.") from error
    if (fault := range_fault(recipe)) is not None:
        raise UsageError(f"{where}: {fault}.")
    return recipe
