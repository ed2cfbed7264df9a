"""`--arch`: the user's own code that builds the network which a file of weights belongs to."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from audit.errors import ModelError, UsageError
from audit.model.foreign import first_line

FORM = "package.module:factory or path/to/file.py:factory"


def build(arch: str) -> nn.Module:
    """The network that `arch` names: an nn.Module, or what a callable without arguments returns."""
    place, colon, name = arch.rpartition(":")
    if not colon or not place or not name:
        raise UsageError(f"--arch {arch}: names no factory; write {FORM}.")
    found = _attribute(_imported(place, arch), name, arch)
    if isinstance(found, nn.Module):
        return found
    if not callable(found):
        raise UsageError(f"--arch {arch}: {name} is neither an nn.Module nor a function that builds one.")
    try:
        network = found()
    except Exception as error:
        raise ModelError(
            f"--arch {arch}: calling {name}() failed ({type(error).__name__}: {first_line(error)}); "
            "it must build the network without arguments."
        ) from error
    if not isinstance(network, nn.Module):
        raise ModelError(f"--arch {arch}: {name}() returned {type(network).__name__}, not an nn.Module.")
    return network


def _imported(place: str, arch: str) -> ModuleType:
    try:
        if place.endswith(".py"):
            return _from_file(Path(place), arch)
        if (here := str(Path.cwd())) not in sys.path:
            sys.path.insert(0, here)
        return importlib.import_module(place)
    except UsageError:
        raise
    except ModuleNotFoundError as error:
        if error.name and (place == error.name or place.startswith(f"{error.name}.")):
            raise UsageError(
                f"--arch {arch}: there is no module {error.name!r}; run gen-audit from the folder that holds it, "
                "install it, or write path/to/file.py:factory."
            ) from error
        raise ModelError(f"--arch {arch}: {place} imports {error.name!r}, which is missing; install it.") from error
    except Exception as error:
        problem = f"{type(error).__name__}: {first_line(error)}"
        raise ModelError(f"--arch {arch}: importing {place} failed ({problem}); correct it first.") from error


def _from_file(file: Path, arch: str) -> ModuleType:
    if not file.is_file():
        raise UsageError(f"--arch {arch}: there is no file {file}; write {FORM}.")
    spec = importlib.util.spec_from_file_location(f"gen_audit_arch_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    if (folder := str(file.resolve().parent)) not in sys.path:
        sys.path.insert(0, folder)  # the file's own neighbours, as when it is run
    spec.loader.exec_module(module)
    return module


def _attribute(module: ModuleType, name: str, arch: str) -> Any:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = sorted(key for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
            offer = ", ".join(known[:8]) or "nothing to call"
            raise UsageError(f"--arch {arch}: there is no {name!r} in it; it has {offer}.")
        found = getattr(found, part)
    return found
