"""Batch normalisation that an ONNX file holds with fixed statistics, made into a layer that learns its own."""

from __future__ import annotations

import torch
from torch import Tensor, fx, nn

from audit.network.hooks import is_fixed_batch_norm


class BatchNorm(nn.modules.batchnorm._BatchNorm):
    """Over the samples and all positions of each channel, whatever the dimensions."""

    def _check_input_dim(self, input: Tensor) -> None:
        """Any will do."""


def with_live_norms(network: nn.Module) -> nn.Module:
    """The network, changed in place: it answers as before in use, and takes the batch's statistics in training."""
    if not isinstance(network, fx.GraphModule):
        return network
    for node in network.graph.nodes:
        if node.op == "call_module" and is_fixed_batch_norm(network.get_submodule(node.target)):
            operation = network.get_submodule(node.target)
            x, _, _, mean, variance = node.args
            statistics = [_constant(network, part) for part in (mean, variance)]
            network.set_submodule(node.target, _layer(operation, *statistics))
            node.args = (x,)
    network.graph.eliminate_dead_code()
    network.recompile()
    return network


def _constant(network: fx.GraphModule, node: fx.Node) -> Tensor:
    return network.get_buffer(str(node.target))


def _layer(operation: nn.Module, mean: Tensor, variance: Tensor) -> BatchNorm:
    settings = getattr(operation, "settings", {})
    layer = BatchNorm(len(mean), eps=settings.get("epsilon", 1e-5)).to(mean.dtype)
    state: dict[str, Tensor] = {"weight": operation.get_parameter("weight"), "bias": operation.get_parameter("bias")}
    state |= {"running_mean": mean, "running_var": variance, "num_batches_tracked": torch.tensor(0)}
    layer.load_state_dict(state)
    return layer.requires_grad_(False)
