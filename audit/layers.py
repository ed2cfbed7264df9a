"""Finds the dense layers of a network, and says for every other layer with weights why it is passed by.

A layer is judged by what it does on real samples, not by its class alone: it is watched through two small forward
passes, and its answer is exchanged between samples to see what depends on it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from audit.errors import ModelError
from audit.model.base import Model

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
NORMS = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm, nn.modules.instancenorm._InstanceNorm)

Calls = list[tuple[Tensor, Tensor]]  # (input, output) of each time a module was called in one forward pass


@dataclass(frozen=True)
class DenseLayer:
    """A layer z = W x + b, applied to T tokens of each sample."""

    name: str  # what the report calls it
    module: str  # its path in the network
    op: str  # what the file calls it: "linear", "gemm", "matmul", "conv1x1", …
    in_features: int
    out_features: int
    bias: bool
    tokens: int  # T: vectors per sample, over all its calls
    calls: int  # more than 1: the same weights are used again (tied)
    tied_with: tuple[str, ...]  # other layers that hold the very same weights
    batch_axis: int  # where the samples are in its input and output
    feature_axis: int  # where the features are: −1, or 1 for a convolution
    cut_point: bool  # everything that reaches the output runs through it
    fed_by_input: bool  # its input is the network's input, unchanged but for its shape

    def weight(self, network: nn.Module) -> Tensor:
        """W [out, in]."""
        weight = network.get_submodule(self.module).weight
        assert isinstance(weight, Tensor)
        return weight.reshape(self.out_features, self.in_features)

    def arrange(self, values: Tensor, n: int) -> Tensor:
        """The layer's raw input or output as [n, T, features]."""
        if self.feature_axis != -1:
            values = values.movedim(self.feature_axis, -1)
        return values.movedim(self.batch_axis, 0).reshape(n, -1, values.shape[-1])


@dataclass(frozen=True)
class PassedBy:
    """A layer with weights that is not measured as a dense layer, and why."""

    name: str
    op: str
    why: str


@dataclass(frozen=True)
class Layers:
    """Every layer with weights: measured, or passed by with its reason."""

    dense: tuple[DenseLayer, ...]
    passed_by: tuple[PassedBy, ...]


def find_layers(model: Model, example: Tensor) -> Layers:
    """Looks at every module with weights while `example` [n ≥ 2, ...] runs through the network."""
    network, dense, passed = model.network, [], []
    probe = _Probe(network, example, fixed_batch=model.input.batch is not None)
    for path, module in _modules_with_weights(network).items():
        found = _judge(model, path, module, probe)
        dense.append(found) if isinstance(found, DenseLayer) else passed.append(found)
    order = {path: position for position, path in enumerate(probe.calls)}
    dense.sort(key=lambda layer: order[layer.module])
    if not dense:
        seen = ", ".join(f"{layer.name} ({layer.op})" for layer in passed[:5]) or "no layer with weights at all"
        raise ModelError(
            f"{model.path.name}: no dense layer was found (it has {seen}); gen-audit measures dense layers, so audit a "
            "model that has one, such as a network with a linear head."
        )
    return Layers(tuple(dense), tuple(passed))


def _judge(model: Model, path: str, module: nn.Module, probe: _Probe) -> DenseLayer | PassedBy:
    """The dense layer behind `module`, or the reason it is passed by."""
    name = model.names.get(path, path) or "(top level)"
    op = model.ops.get(path, _op(module))
    calls = probe.calls.get(path, [])
    if not isinstance(module, (nn.Linear, *CONVOLUTIONS)):
        return PassedBy(name, op, _why_not_dense(module))
    if not calls:
        return PassedBy(name, op, "it is never used on the way from the input to the audited output")
    if isinstance(module, CONVOLUTIONS):
        if (why := _why_no_dense_convolution(module, calls)) is not None:
            return PassedBy(name, op, why)
        op = "conv1x1"
    batch_axis = probe.batch_axis(path)
    layer = DenseLayer(
        name=name,
        module=path,
        op=op,
        in_features=module.weight.shape[1],
        out_features=module.weight.shape[0],
        bias=module.bias is not None,
        tokens=0,
        calls=len(calls),
        tied_with=_sharing(model, path, module),
        batch_axis=batch_axis if batch_axis is not None else 0,
        feature_axis=-1 if isinstance(module, nn.Linear) else 1,
        cut_point=False,
        fed_by_input=False,
    )
    if batch_axis is None or (why := probe.why_not_separable(layer)) is not None:
        return PassedBy(name, op, why if batch_axis is not None else "its inputs cannot be told apart by sample")
    return probe.completed(layer)


def _modules_with_weights(network: nn.Module) -> dict[str, nn.Module]:
    """Modules that own parameters themselves; shared ones once, under their first name."""
    return {path: module for path, module in network.named_modules() if any(True for _ in module.parameters(False))}


def _op(module: nn.Module) -> str:
    if isinstance(module, CONVOLUTIONS):
        return "conv"
    return "linear" if isinstance(module, nn.Linear) else type(module).__name__.lower()


def _why_not_dense(module: nn.Module) -> str:
    if isinstance(module, NORMS):
        return "a normalisation: one factor per feature, not a weight matrix"
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return "an embedding: a look-up table, its input is not a vector"
    if isinstance(module, nn.RNNBase):
        return "a recurrent layer: its weights act again on their own output"
    if isinstance(module, nn.PReLU):
        return "an activation with a learnt slope, not a weight matrix"
    return "not a dense layer: its weights do not enter as a plain product W x + b"


def _why_no_dense_convolution(module: nn.Module, calls: Calls) -> str | None:
    assert isinstance(module, CONVOLUTIONS)
    if set(module.kernel_size) != {1} or module.groups != 1:
        return "a convolution: its weights are shared over positions, so the exact duality does not hold"
    if any(values.shape[2:].numel() != 1 for call in calls for values in call):
        return "a 1×1 convolution over a map larger than 1×1: its weights are shared over positions"
    return None


def _sharing(model: Model, path: str, module: nn.Module) -> tuple[str, ...]:
    """Names of the other modules that hold the same weight storage."""
    pointer = module.weight.data_ptr()  # type: ignore[operator, union-attr]
    return tuple(
        model.names.get(other, other)
        for other, candidate in _modules_with_weights(model.network).items()
        if other != path and any(weight.data_ptr() == pointer for weight in candidate.parameters(False))
    )


class _Probe:
    """A few samples, what every layer saw of them, and experiments on single layers."""

    def __init__(self, network: nn.Module, example: Tensor, fixed_batch: bool) -> None:
        self.network, self.a, self.b = network, example, example.roll(1, 0)
        self.f_a, self.calls = watch(network, self.a)
        self.f_b, self.calls_b = watch(network, self.b)
        self.fewer = None if fixed_batch or len(example) < 3 else watch(network, example[:-1])[1]
        self.n = len(example)

    def batch_axis(self, path: str) -> int | None:
        """The axis that shrinks with the batch; with a fixed batch, the first that is a multiple of it."""
        shape = self.calls[path][0][1].shape
        if self.fewer is None:
            axes = [axis for axis in range(len(shape) - 1) if shape[axis] % self.n == 0]
        else:
            fewer = self.fewer[path][0][1].shape
            axes = [axis for axis in range(len(shape)) if shape[axis] * (self.n - 1) == fewer[axis] * self.n]
        return axes[0] if axes else None

    def why_not_separable(self, layer: DenseLayer) -> str | None:
        """Exchanging one sample's answer at this layer must change that sample's scores and no other's."""
        first_only = self._with_answers_of_b(layer, rows=1)
        if self.n > 1 and not torch.allclose(first_only[1:], self.f_a[1:], rtol=1e-4, atol=1e-6):
            return "its inputs cannot be told apart by sample"
        if torch.equal(self._with_answers_of_b(layer, rows=self.n, noise=1.0), self.f_a):
            return "the audited output does not depend on it"
        return None

    def completed(self, layer: DenseLayer) -> DenseLayer:
        """`layer` with its token count and its place in the network filled in."""
        swapped = self._with_answers_of_b(layer, rows=self.n)
        tokens = [layer.arrange(x, self.n) for x, _ in self.calls[layer.module]]
        return DenseLayer(
            **{
                **layer.__dict__,
                "tokens": sum(x.shape[1] for x in tokens),
                "cut_point": torch.allclose(swapped, self.f_b, rtol=1e-4, atol=1e-6),
                "fed_by_input": len(tokens) == 1
                and tokens[0].numel() == self.a.numel()
                and torch.equal(tokens[0].flatten(), self.a.flatten().to(tokens[0].dtype)),
            }
        )

    @torch.no_grad()
    def _with_answers_of_b(self, layer: DenseLayer, rows: int, noise: float = 0.0) -> Tensor:
        """Scores of `a` when, in its first `rows` samples, this layer answers as it does for `b`."""
        answers = iter(self.calls_b[layer.module])

        def exchange(_module: nn.Module, _inputs: object, z: Tensor) -> Tensor:
            other = next(answers)[1]
            mixed, source = z.clone(), other + noise * (1 + other.abs().mean())
            axis, count = layer.batch_axis, rows * z.shape[layer.batch_axis] // self.n
            mixed.narrow(axis, 0, count).copy_(source.narrow(axis, 0, count))
            return mixed

        with hooked(self.network, {layer.module: exchange}):
            return scores(self.network, self.a)


def scores(network: nn.Module, x: Tensor) -> Tensor:
    """Scores f [n, C]: a network with one output may answer [n]."""
    f: Tensor = network(x)
    return f.reshape(len(x), -1)


@torch.no_grad()
def watch(network: nn.Module, x: Tensor) -> tuple[Tensor, Mapping[str, Calls]]:
    """One forward pass: the scores, and input and output of every call of every module that owns weights."""
    calls: dict[str, Calls] = defaultdict(list)

    def keep(path: str) -> Callable[..., None]:
        return lambda _module, inputs, output: calls[path].append((inputs[0].clone(), output.clone()))

    watched = {
        path: keep(path)
        for path, module in _modules_with_weights(network).items()
        if isinstance(module, (nn.Linear, *CONVOLUTIONS))
    }
    with hooked(network, watched):
        return scores(network, x), calls


@contextmanager
def hooked(network: nn.Module, hooks: Mapping[str, Callable[..., Tensor | None]]) -> Iterator[None]:
    """Forward hooks by module path, taken off again whatever happens."""
    with ExitStack() as stack:
        for path, hook in hooks.items():
            handle = network.get_submodule(path).register_forward_hook(hook)
            stack.callback(handle.remove)
        yield
