"""Weights without a network (.pt, .pth, .safetensors), which --arch builds; and whole pickled modules, if trusted."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from audit.errors import ModelError, UsageError
from audit.model import detect, sha256
from audit.model.base import Model, check_weights, first_line, quiet
from audit.model.packing import inputs_of
from audit.settings import Settings

WRAPPERS = ("state_dict", "model_state_dict", "model", "net", "network", "weights", "module")
PREFIXES = ("module.", "_orig_mod.", "model.", "net.")  # DataParallel, torch.compile, Lightning
SHOWN = 3  # names listed in a sentence


def load(path: Path, settings: Settings) -> Model:
    """The network with the file's weights. What shape it takes, `canonical_form` finds out with data."""
    form = "safetensors" if detect(path) == "safetensors" else "state_dict"
    notes: list[str] = []
    contents = _safetensors(path) if form == "safetensors" else _torch_file(path, settings.trust_pickle)
    found = _unwrapped(contents, path, notes)
    if isinstance(found, nn.Module):
        form, network = "pickle", found
        notes.append("The file was unpickled, as --trust-pickle allows.")
    else:
        check_weights(found, path)
        network = _network(found, path, settings.arch, notes)
    network = network.eval().requires_grad_(False)
    check_weights(network.state_dict(), path)
    inputs = inputs_of(network)
    return Model(
        network=network,
        path=path,
        format=form,
        sha256=sha256(path),
        input=inputs[0],
        others=inputs[1:],
        output=settings.output or "",
        notes=tuple(notes),
    )


def _safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise ModelError(f"{path}: is truncated or corrupt ({first_line(error)}); save or copy it again.") from error


def _torch_file(path: Path, trusted: bool) -> Any:
    """What torch.save wrote. Without trust only tensors and plain containers are read; nothing in the file can run."""
    try:
        with quiet():
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if "Unsupported global" not in str(error) and "GLOBAL" not in str(error) and not trusted:
            raise _broken(path, error) from error
        if not trusted:
            raise _untrusted(path) from error
    except Exception as error:
        raise _broken(path, error) from error
    try:
        with quiet():
            return torch.load(path, map_location="cpu", weights_only=False)
    except (ImportError, AttributeError) as error:
        raise ModelError(
            f"{path}: its pickle needs Python code that is not here ({first_line(error)}); run gen-audit where it "
            "can be imported."
        ) from error
    except Exception as error:
        raise _broken(path, error) from error


def _broken(path: Path, error: Exception) -> ModelError:
    return ModelError(f"{path}: is truncated, corrupt or no PyTorch file ({first_line(error)}); save or copy it again.")


def _untrusted(path: Path) -> ModelError:
    return ModelError(
        f"{path}: holds pickled Python objects{_objects_in(path)}, and unpickling runs code from the file; save its "
        "state_dict and pass --arch, or export it to ONNX or .pt2, or pass --trust-pickle if you trust its origin."
    )


def _objects_in(path: Path) -> str:
    """The classes the pickle asks for, read without loading it; the old format does not tell."""
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except Exception:
        return ""
    return f" ({_few(names)})" if names else ""


def _unwrapped(contents: Any, path: Path, notes: list[str]) -> nn.Module | dict[str, Tensor]:
    """The state_dict or the module inside what training scripts save around it."""
    if isinstance(contents, nn.Module):
        return contents
    if isinstance(contents, Mapping):
        for key in WRAPPERS:
            inner = contents.get(key)
            if isinstance(inner, nn.Module) or (isinstance(inner, Mapping) and _is_state_dict(inner)):
                notes.append(f"The weights were taken from the entry {key!r} of a training checkpoint.")
                return _unwrapped(inner, path, notes)
        if _is_state_dict(contents):
            return {str(key): value for key, value in contents.items() if isinstance(value, Tensor)}
    raise ModelError(
        f"{path}: holds {_described(contents)}, not a state_dict (names and tensors of a network); save "
        "model.state_dict() and pass --arch, or export the model to ONNX or .pt2."
    )


def _is_state_dict(value: Mapping[Any, Any]) -> bool:
    """Names and tensors; extra state that is not a tensor may be among them."""
    tensors = [each for each in value.values() if isinstance(each, Tensor)]
    return bool(tensors) and 2 * len(tensors) >= len(value) and all(isinstance(key, str) for key in value)


def _described(contents: Any) -> str:
    if isinstance(contents, Tensor):
        return f"one tensor of shape {list(contents.shape)}"
    if isinstance(contents, Mapping):
        return f"a dictionary with {_few([repr(key) for key in contents])}" if contents else "an empty dictionary"
    return f"an object of type {type(contents).__module__}.{type(contents).__qualname__}"


def _network(weights: dict[str, Tensor], path: Path, arch: str | None, notes: list[str]) -> nn.Module:
    if arch is None:
        raise ModelError(
            f"{path}: holds weights only ({len(weights)} tensors, such as {next(iter(weights))}); name the code that "
            "builds their network with --arch package.module:factory or --arch path/to/file.py:factory."
        )
    network = build(arch)
    kinds = {value.dtype for value in weights.values() if value.is_floating_point()}
    network = network.double() if torch.float64 in kinds else network.float()
    if halves := kinds & {torch.float16, torch.bfloat16}:
        half = str(next(iter(halves))).removeprefix("torch.")
        notes.append(f"The weights are stored in {half}; the audit computes with them in float32 or wider.")
    weights = _without_prefix(weights, set(network.state_dict()), notes)
    _check_fit(weights, network, f"{path}: does not fit --arch {arch}")
    network.load_state_dict(weights, strict=False)
    return network


def _without_prefix(weights: dict[str, Tensor], wanted: set[str], notes: list[str]) -> dict[str, Tensor]:
    """Names without what wrappers put before all of them, as long as that brings them nearer to the network's names."""
    while not wanted & set(weights):
        prefix = next((each for each in PREFIXES if all(name.startswith(each) for name in weights)), None)
        if prefix is None:
            break
        weights = {name.removeprefix(prefix): value for name, value in weights.items()}
        notes.append(f"The prefix {prefix!r} was taken off the names of the weights.")
    return weights


def _check_fit(weights: dict[str, Tensor], network: nn.Module, opening: str) -> None:
    wanted = network.state_dict()
    there = {wanted[name].data_ptr() for name in weights if name in wanted}  # a tied weight may be stored once
    absent = [name for name in wanted if name not in weights and not name.endswith("num_batches_tracked")]
    missing = [name for name in absent if wanted[name].data_ptr() not in there]
    unexpected = [name for name in weights if name not in wanted]
    if missing or unexpected:
        parts = [
            f"{count} missing from the file ({_few(missing)})" if (count := len(missing)) else "",
            f"{count} unknown to the network ({_few(unexpected)})" if (count := len(unexpected)) else "",
        ]
        which = " and ".join(filter(None, parts))
        raise ModelError(f"{opening}: of its weights, {which}; pass the code that built this file.")
    lazy = (nn.UninitializedParameter, nn.UninitializedBuffer)
    other = [
        f"{name} is {list(value.shape)} in the file and {list(wanted[name].shape)} in the network"
        for name, value in weights.items()
        if not isinstance(wanted[name], lazy) and value.shape != wanted[name].shape
    ]
    if other:
        more = f" and {len(other) - SHOWN} more" if len(other) > SHOWN else ""
        raise ModelError(f"{opening}: {', '.join(other[:SHOWN])}{more}; pass the code that built this file.")


def _few(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")


# `--arch`: the user's own code that builds the network which a file of weights belongs to.


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
