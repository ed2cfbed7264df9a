"""Networks that are known to be piecewise linear from what they are made of: there is no curvature to be looked for.

Only what is surely so counts: chains of known modules, and traced graphs of known modules and functions. All others
are judged by what they do.
"""

from __future__ import annotations

import operator

import torch
from torch import fx, nn

STRAIGHT = {
    *(nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Flatten, nn.Unflatten, nn.Identity),
    *(nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.ReLU6, nn.Hardtanh),
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
    *(nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d),
}
STILL = {nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d}  # straight while nothing is trained
NORMS = {nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d}  # … and with statistics of their own
FUNCTIONS = {
    *(torch.flatten, torch.relu, torch.cat, torch.reshape, torch.permute, torch.transpose, torch.squeeze),
    *(torch.add, operator.add, nn.functional.relu, nn.functional.max_pool2d, nn.functional.avg_pool2d),
}
METHODS = {"flatten", "view", "reshape", "permute", "transpose", "contiguous", "squeeze", "unsqueeze", "relu", "add"}


def is_piecewise_linear(network: nn.Module) -> bool:
    """Whether the scores are, for certain, piecewise linear in what enters any of the network's modules."""
    if type(network) is nn.Sequential:
        return all(is_piecewise_linear(module) for module in network)
    if isinstance(network, fx.GraphModule):
        return all(_is_straight(node, network) for node in network.graph.nodes)
    kind = type(network)
    if kind in STILL or kind in NORMS:
        return not network.training and (kind in STILL or network.running_mean is not None)
    return kind in STRAIGHT


def _is_straight(node: fx.Node, network: fx.GraphModule) -> bool:
    if node.op == "call_module":
        return is_piecewise_linear(network.get_submodule(str(node.target)))
    if node.op == "call_function":
        return node.target in FUNCTIONS
    if node.op == "call_method":
        return node.target in METHODS
    return node.op in ("placeholder", "output")
