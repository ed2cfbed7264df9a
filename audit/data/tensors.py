"""Torch tensors in `.safetensors` or `.pt`; a `.pt` file is only opened with weights_only, so it cannot run code."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audit.data import named
from audit.data.named import Thunk
from audit.data.source import Array, Folder, Match, unreadable
from audit.errors import DataError
from audit.settings import Settings

if TYPE_CHECKING:
    from torch import Tensor


def find(folder: Folder, settings: Settings) -> list[Match]:
    """The tensor layouts that the folder speaks for."""
    return [
        *named.find(folder, "safetensors", (".safetensors",), _open_safetensors),
        *named.find(folder, "pt", (".pt", ".pth"), _open_pt),
    ]


def _open_safetensors(path: Path) -> Mapping[str, Thunk]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise unreadable(path, "safetensors", error, "write it again with safetensors.torch.save_file") from error
    return {key: partial(as_array, tensor) for key, tensor in tensors.items()}


def _open_pt(path: Path) -> Thunk | Mapping[str, Thunk]:
    content = _load(path)
    if _is_tensor(content):
        return partial(as_array, content)
    if isinstance(content, (tuple, list)) and len(content) == 2:
        content = {"x": content[0], "y": content[1]}
    if not isinstance(content, Mapping):
        raise DataError(
            f"{path}: holds a {type(content).__name__}; save a dict of tensors x and y, or the pair (x, y)."
        )
    return {str(key): partial(as_array, tensor) for key, tensor in content.items() if _is_tensor(tensor)}


def _load(path: Path) -> Any:
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise DataError(
            f"{path}: holds more than tensors (or is no torch file), and pickles are never opened; "
            "save a dict of tensors x and y with torch.save."
        ) from error
    except Exception as error:  # a damaged file can trip the unpickler's stack machine in any way
        raise unreadable(path, "a torch file", error, "write it again with torch.save") from error


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def as_array(tensor: Tensor) -> Array:
    """The numbers of a tensor of any layout, on any device."""
    import torch

    dense = (tensor.to_dense() if tensor.layout is not torch.strided else tensor).detach().cpu()
    array: Array = (dense.float() if dense.dtype is torch.bfloat16 else dense).numpy()
    return array
