"""Where the settings of an audit come from.

A value is taken from the first place that names it: command-line flag, environment variable `GEN_AUDIT_<NAME>`,
`gen-audit.toml` (`--config FILE`, or else in the data folder, then in the working folder), `[tool.gen-audit]` in the
`pyproject.toml` of the working folder, the setting's default. A data folder may come from a stranger, so what is found
there may only describe the data; what runs code is taken from the command line or from `--config` alone.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from audit.errors import UsageError
from audit.settings import KINDS, Settings, flag, known_name, values_at
from audit.settings.limits import refuse_outside

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CONFIG_NAME = "gen-audit.toml"
PROJECT_NAME = "pyproject.toml"
POLICY = "policy"  # the one table of a file that holds no settings: `audit.policy` reads it
ENV_PREFIX = "GEN_AUDIT_"
DEFAULT_ORIGIN = "default"
LARGEST_FILE = 2**20  # bytes of a settings file

RUNS_CODE = frozenset({"arch", "trust_pickle"})
DESCRIBES_DATA = frozenset(
    (
        *("layout", "label", "drop", "task", "classes", "samples", "test_samples", "test_fraction", "seed"),
        *("scale", "mean", "std", "resize", "reshape", "channels", "dtype", "input_shape"),
    )
)

Place = Literal["named", "working", "data"]


@dataclass(frozen=True)
class ConfigFile:
    """A settings file, and who put it there: the user named it, or it was found in the working or the data folder."""

    path: Path
    place: Place = "named"

    def check(self, name: str, key: str) -> None:
        """Refuses the setting `name`, called `key` in the file, where the file has no say in it."""
        if self.place == "data" and name not in DESCRIBES_DATA:
            raise UsageError(
                f"{self.path}: sets {key}, but a file found in a data folder may only describe the data "
                f"({', '.join(sorted(DESCRIBES_DATA))}); give {flag(name)} yourself, or name your own file with "
                "--config."
            )
        if self.place == "working":
            _refuse_code(name, key, str(self.path))


DEEPEST = 100  # dots of one key: the parser's memory grows with their square


def config_files(config: Path | None = None, data: Path | None = None) -> tuple[ConfigFile, ...]:
    """The configuration files in force, strongest first: the one named, else those found; then pyproject.toml."""
    here = data is not None and data.exists() and data.samefile(Path())
    working: Place = "data" if here else "working"  # a file of both folders is the stranger's
    found = [ConfigFile(Path(CONFIG_NAME), working), ConfigFile(Path(PROJECT_NAME), working)]
    if config is not None:
        found[0] = ConfigFile(config)
    elif data is not None and not here:
        refuse_outside(data / CONFIG_NAME, data)
        found.insert(0, ConfigFile(data / CONFIG_NAME, "data"))
    return tuple(file for file in found if file.place == "named" or file.path.is_file())


def read_document(path: Path) -> dict[str, Any]:
    """What a gen-audit.toml says, or `[tool.gen-audit]` of a pyproject.toml."""
    document = _parsed(path)
    if path.name != PROJECT_NAME:
        return document
    inner: Any = document
    for key, place in (("tool", "tool"), ("gen-audit", "tool.gen-audit")):
        inner = inner.get(key, {})
        if not isinstance(inner, dict):
            raise UsageError(f"{path}: {place} is {inner!r}, not a table; write [tool.gen-audit].")
    return dict(inner)


def _parsed(path: Path) -> dict[str, Any]:
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{path}: is no file; name a settings file that exists.")
        if path.stat().st_size > LARGEST_FILE:
            raise UsageError(f"{path}: is larger than 1 MB, which no settings file is; name another one.")
        text = path.read_text(encoding="utf-8")
        if any(piece.count(".") > DEEPEST for piece in re.split(r"[,=\n]", text)):
            raise UsageError(f"{path}: has a key of more than {DEEPEST} parts; correct or remove it.")
        document: dict[str, Any] = tomllib.loads(text)
        return document
    except OSError as error:
        raise UsageError(f"{path}: cannot be opened ({error.strerror}); name a settings file that exists.") from error
    except (ValueError, RecursionError) as error:  # no UTF-8, no TOML, a number of thousands of digits, nested too deep
        raise UsageError(f"{path}: cannot be read as TOML ({error}); correct or remove it.") from error


def read_config(file: ConfigFile) -> dict[str, Any]:
    """The settings named in a file; its tables only group them, so `[data] scale = 1` sets `scale`."""
    flat: dict[str, Any] = {}
    for key, value in read_document(file.path).items():
        if key != POLICY or not isinstance(value, dict):
            flat.update(value if isinstance(value, dict) else {key: value})
    for key in flat:
        file.check(known_name(key, str(file.path)), key)
    return values_at((str(file.path), key, value) for key, value in flat.items())


def resolve(
    flags: Mapping[str, Any],
    config: Sequence[ConfigFile] = (),
    environ: Mapping[str, str] = os.environ,
) -> Settings:
    """One `Settings` from flags (None: not given), the environment and configuration files, strongest first."""
    return resolve_with_origins(flags, config, environ)[0]


def resolve_with_origins(
    flags: Mapping[str, Any],
    config: Sequence[ConfigFile] = (),
    environ: Mapping[str, str] = os.environ,
) -> tuple[Settings, dict[str, str]]:
    """The settings in force, and for each the place that it was taken from."""
    values: dict[str, Any] = {}
    origins = dict.fromkeys(KINDS, DEFAULT_ORIGIN)
    for file in reversed(config):
        named = read_config(file)
        values, origins = values | named, origins | dict.fromkeys(named, str(file.path))
    variables = [(key, key[len(ENV_PREFIX) :].lower(), environ[key]) for key in environ if key.startswith(ENV_PREFIX)]
    for variable, key, _ in variables:
        _refuse_code(known_name(key, variable), key, variable)
    given = [(flag(name), name, value) for name, value in flags.items() if value is not None]
    for places in (variables, given):
        values, origins = (
            values | values_at(places),
            origins | {known_name(key, where): where for where, key, _ in places},
        )
    return Settings(**values), origins


def _refuse_code(name: str, key: str, where: str) -> None:
    if name in RUNS_CODE:
        raise UsageError(
            f"{where}: sets {key}, which runs code, so it counts on the command line and in a file named with --config "
            f"alone; give {flag(name)} yourself."
        )
