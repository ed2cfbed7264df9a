"""The configuration files: which are in force, and what they say. Settings and policies both stand in them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from audit.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CONFIG_NAME = "gen-audit.toml"
PROJECT_NAME = "pyproject.toml"
POLICY = "policy"  # the one table of a file that holds no settings


def config_files(config: Path | None = None, data: Path | None = None) -> tuple[Path, ...]:
    """The configuration files in force, strongest first: the one named, else those found; then pyproject.toml."""
    folders = (data, Path()) if data is not None else (Path(),)
    found = dict.fromkeys(folder / CONFIG_NAME for folder in folders if (folder / CONFIG_NAME).is_file())
    project = Path(PROJECT_NAME)
    return (*(found if config is None else (config,)), *((project,) if project.is_file() else ()))


def read_document(path: Path) -> dict[str, Any]:
    """What a gen-audit.toml says, or `[tool.gen-audit]` of a pyproject.toml."""
    try:
        document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be opened ({error.strerror}); name a settings file that exists.") from error
    except ValueError as error:  # no UTF-8, no TOML, or a number of thousands of digits
        raise UsageError(f"{path}: cannot be read as TOML ({error}); correct or remove it.") from error
    if path.name != PROJECT_NAME:
        return document
    inner: Any = document
    for key, place in (("tool", "tool"), ("gen-audit", "tool.gen-audit")):
        inner = inner.get(key, {})
        if not isinstance(inner, dict):
            raise UsageError(f"{path}: {place} is {inner!r}, not a table; write [tool.gen-audit].")
    return dict(inner)
