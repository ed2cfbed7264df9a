"""Looking into a network while it runs: scores, hooks, and what every layer was given and answered."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from audit.errors import ModelError

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)

Calls = list[tuple[Tensor, Tensor]]  # (input, output) of each time a module was called in one forward pass


class Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operator that runs while it is on."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here: torch need not load its compiler, which takes a second, only to keep it out."""
        return False


def scores(network: nn.Module, x: Tensor) -> Tensor:
    """Scores f [n, C] of the samples x [n, …]: a network with one output may answer [n]."""
    return _rows(network(x), len(x))


def _rows(f: Tensor, n: int) -> Tensor:
    if f.dim() == 0 or len(f) != n:
        raise ModelError(
            f"{n} samples give an answer of shape {list(f.shape)}, not one row of scores each; export the model with "
            "an output [n, classes] and a free batch size."
        )
    return f.reshape(n, -1)


@torch.no_grad()
def watch(
    network: nn.Module, x: Tensor, runner: Callable[[Tensor], Tensor] | None = None
) -> tuple[Tensor, Mapping[str, Calls]]:
    """One forward pass: the scores, and input and output of every call of every dense layer and convolution.

    `runner` runs the network on x in another way than by calling it.
    """
    calls: dict[str, Calls] = defaultdict(list)

    def keep(path: str) -> Callable[..., None]:
        return lambda _module, inputs, output: calls[path].append((inputs[0].clone(), output.clone()))

    watched = {
        path: keep(path)
        for path, module in modules_with_weights(network).items()
        if isinstance(module, (nn.Linear, *CONVOLUTIONS))
    }
    with hooked(network, watched):
        return _rows((runner or network)(x), len(x)), calls


def is_fixed_batch_norm(module: nn.Module) -> bool:
    """An ONNX file's BatchNormalization: an operator that is handed its statistics as inputs 3 and 4."""
    own = dict(module.named_parameters(recurse=False))
    return module.extra_repr() == "batch_norm" and set(own) == {"weight", "bias"}


@contextmanager
def hooked(
    network: nn.Module,
    hooks: Mapping[str, Callable[..., Tensor | None]],
    before: Mapping[str, Callable[..., Tensor | None]] | None = None,
) -> Iterator[None]:
    """Forward hooks by module path, and hooks that come `before` a module runs, taken off again whatever happens."""
    with ExitStack() as stack:
        for path, hook in hooks.items():
            stack.callback(network.get_submodule(path).register_forward_hook(hook).remove)
        for path, hook in (before or {}).items():
            stack.callback(network.get_submodule(path).register_forward_pre_hook(hook).remove)
        yield


def arrange(values: Tensor, n: int, batch_axis: int, feature_axis: int) -> Tensor:
    """A layer's raw input or output as [n, T, features], from where samples and features lie in it.

    >>> arrange(torch.zeros(5, 3, 8), n=3, batch_axis=1, feature_axis=-1).shape  # 5 tokens of 3 samples
    torch.Size([3, 5, 8])
    """
    if feature_axis != -1:
        values = values.movedim(feature_axis, -1)
    return values.movedim(batch_axis, 0).reshape(n, -1, values.shape[-1])


def has_convolutions(network: nn.Module) -> bool:
    """Whether any module is a convolution."""
    return any(isinstance(module, CONVOLUTIONS) for module in network.modules())


def modules_with_weights(network: nn.Module) -> dict[str, nn.Module]:
    """Modules that own parameters themselves; shared ones once, under their first name."""
    return {path: module for path, module in network.named_modules() if any(True for _ in module.parameters(False))}
