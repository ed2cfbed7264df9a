"""Finds the dense layers of a network, and says for every other layer with weights why it is passed by.

A layer is judged by what it does on real samples, not by its class alone: it is watched in a small forward pass, and
its answer is exchanged between two samples to see what depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from audit.errors import ModelError
from audit.model.base import Model
from audit.network.hooks import CONVOLUTIONS, Calls, Probe, arrange, modules_with_weights
from audit.network.patches import Patches, why_no_patches

NORMS = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm, nn.modules.instancenorm._InstanceNorm)
RECURRENT = ("lstm", "gru", "rnn")
CONVOLUTION = "a convolution: its weights are shared over positions, so the exact duality does not hold"
ON_REQUEST = "; --conv has it measured over its patches"


@dataclass(frozen=True)
class DenseLayer:
    """A layer z = W x + b, applied to T tokens of each sample; those of a convolution are its patches."""

    name: str  # what the report calls it
    module: str  # its path in the network
    op: str  # what the file calls it: "linear", "gemm", "matmul", "conv1x1", "conv", …
    in_features: int
    out_features: int
    bias: bool
    tokens: int  # T: vectors per sample, over all its calls
    calls: int  # more than 1: the same weights are used again (tied)
    tied_with: tuple[str, ...]  # other layers that hold the very same weights
    batch_axis: int  # where the samples are in its input and output
    feature_axis: int  # where the features are: −1, or 1 for a convolution
    cut_point: bool  # all paths to the output run through it
    fed_by_input: bool  # its input is the network's input, unchanged but for its shape
    patches: Patches | None = None  # of a convolution that is measured as a dense layer over its patches

    @property
    def has_wide_input(self) -> bool:
        """Whether its inputs far outnumber its outputs: then J = ∂f/∂z is worth keeping, and J W is not."""
        return self.in_features > 2 * self.out_features

    def weight(self, network: nn.Module) -> Tensor:
        """W [out, in]."""
        weight = network.get_submodule(self.module).weight
        assert isinstance(weight, Tensor)
        return weight.reshape(self.out_features, self.in_features)

    def arrange(self, values: Tensor, n: int) -> Tensor:
        """The layer's raw output as [n, T, out]."""
        return arrange(values, n, self.batch_axis, self.feature_axis)

    def arrange_input(self, values: Tensor, n: int) -> Tensor:
        """The layer's raw input as [n, T, in]."""
        if self.patches is not None:
            return self.patches.cut(values).reshape(n, -1, self.in_features)
        return arrange(values, n, self.batch_axis, self.feature_axis)


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


def entrance(layers: Sequence[DenseLayer]) -> DenseLayer | None:
    """The dense layer that everything enters through, if there is one; J W of a convolution is not ∂f/∂input."""
    entrances = (layer for layer in layers if layer.fed_by_input and layer.cut_point)
    return next((layer for layer in entrances if layer.patches is None), None)


def dense_only(layers: Sequence[DenseLayer]) -> tuple[DenseLayer, ...]:
    """The layers that sums and maxima over a network run over: no convolution, unless there is nothing else.

    So a network's numbers do not depend on whether its convolutions were looked at, too.
    """
    return tuple(layer for layer in layers if layer.patches is None) or tuple(layers)


def find_layers(model: Model, example: Tensor, convolutions: bool = False) -> Layers:
    """Looks at every module with weights while `example` runs through the network.

    `example` holds at least 2 samples; for a network with a fixed batch size, two batches. With `convolutions`,
    ordinary ones are measured as dense layers over their patches.
    """
    network, dense, passed_by = model.network, [], []
    try:
        probe = Probe(network, example, model.input.batch)
    except ModelError as error:
        raise ModelError(f"{model.path}: {error}") from error
    for path, module in modules_with_weights(network).items():
        found = _judge(model, path, module, probe, convolutions)
        dense.append(found) if isinstance(found, DenseLayer) else passed_by.append(found)
    order = {path: position for position, path in enumerate(probe.calls)}
    dense.sort(key=lambda layer: order[layer.module])
    return Layers(tuple(dense), tuple(passed_by))


def nothing_to_measure(model: Model, layers: Layers, convolutions: bool) -> str:
    """Why a model whose layers are all passed by cannot be audited."""
    seen = ", ".join(f"{layer.name} ({layer.op})" for layer in layers.passed_by[:5]) or "no layer with weights at all"
    ordinary = any(map(_ordinary, model.network.modules()))
    remedy = ", or have its convolutions measured with --conv" if ordinary and not convolutions else ""
    return (
        f"{model.path.name}: no dense layer was found (it has {seen}); gen-audit measures dense layers, so audit a "
        f"model that has one, such as a network with a linear head{remedy}."
    )


def _ordinary(module: nn.Module) -> bool:
    """A convolution that is a dense layer over patches, if used once; a class of its own may answer otherwise."""
    if not isinstance(module, CONVOLUTIONS) or type(module) not in CONVOLUTIONS:
        return False
    return module.groups == 1 and module.padding_mode == "zeros"


def _judge(model: Model, path: str, module: nn.Module, probe: Probe, convolutions: bool) -> DenseLayer | PassedBy:
    """The dense layer behind `module`, or the reason it is passed by."""
    name = model.names.get(path, path) or "(top level)"
    op = model.ops.get(path, _op(module))
    calls = probe.calls.get(path, [])
    if not isinstance(module, (nn.Linear, *CONVOLUTIONS)):
        return PassedBy(name, op, _why_not_dense(module, op))
    if not calls:
        return PassedBy(name, op, "it is never used on the way from the input to the audited output")
    patches = _patches(module, calls, convolutions)
    if isinstance(patches, str):
        return PassedBy(name, op, patches)
    if isinstance(module, CONVOLUTIONS):
        op = "conv1x1" if patches is None else "conv"
    axis, features = probe.batch_axis(path), -1 if isinstance(module, nn.Linear) else 1
    influence = None if axis is None or (patches is not None and axis != 0) else probe.influence(path, axis)
    if axis is None or influence is None or influence.others:
        return PassedBy(name, op, "its inputs cannot be told apart by sample")
    if not influence.own:
        return PassedBy(name, op, "the audited output does not depend on it")
    x = probe.inputs(path, axis, features if patches is None else -1)
    return DenseLayer(
        name=name,
        module=path,
        op=op,
        in_features=module.weight[0].numel(),
        out_features=module.weight.shape[0],
        bias=module.bias is not None,
        tokens=sum(z.numel() for _, z in calls) // (probe.n * module.weight.shape[0]),
        calls=len(calls),
        tied_with=_sharing(model, path, module),
        batch_axis=axis,
        feature_axis=features,
        cut_point=influence.alone,
        fed_by_input=x.numel() == probe.a.numel() and torch.equal(x.flatten(), probe.a.flatten().to(x.dtype)),
        patches=patches,
    )


def _patches(module: nn.Module, calls: Calls, convolutions: bool) -> Patches | str | None:
    """The patches that a convolution is dense over, or why it is passed by; None of a layer that is dense as it is."""
    if not isinstance(module, CONVOLUTIONS) or (why := _why_no_dense_convolution(module, calls)) is None:
        return None
    if not convolutions:
        return why + (ON_REQUEST if _ordinary(module) and len(calls) == 1 else "")
    return why_no_patches(module, calls) or Patches.of(module, tuple(calls[0][0].shape[2:]))


def _op(module: nn.Module) -> str:
    """Its class in lower case, without the number of dimensions: "linear", "conv", "batchnorm", …."""
    return re.sub(r"\dd$", "", type(module).__name__.lower())


def _why_not_dense(module: nn.Module, op: str) -> str:
    """By class, or by what the file calls it: an ONNX operator that torch has no class for is computed by formula."""
    if isinstance(module, NORMS) or op.endswith("norm"):
        return "a normalisation: one factor per feature, not a weight matrix"
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) or op == "gather":
        return "an embedding: a look-up table, its input is not a vector"
    if isinstance(module, nn.RNNBase) or op in RECURRENT:
        return "a recurrent layer: its weights act again on their own output"
    if op == "prelu":
        return "an activation with a learnt slope, not a weight matrix"
    if op.startswith("conv"):
        return CONVOLUTION
    return "not a dense layer: its weights do not enter as a plain product W x + b"


def _why_no_dense_convolution(module: nn.Module, calls: Calls) -> str | None:
    assert isinstance(module, CONVOLUTIONS)
    if set(module.kernel_size) != {1} or module.groups != 1:
        return CONVOLUTION
    if any(values.shape[2:].numel() != 1 for call in calls for values in call):
        return "a 1×1 convolution over a map larger than 1×1: its weights are shared over positions"
    return None


def _sharing(model: Model, path: str, module: nn.Module) -> tuple[str, ...]:
    """Names of the other modules that hold the same weight storage."""
    pointer = module.weight.data_ptr()  # type: ignore[operator]
    return tuple(
        model.names.get(other, other)
        for other, candidate in modules_with_weights(model.network).items()
        if other != path and any(weight.data_ptr() == pointer for weight in candidate.parameters(False))
    )
