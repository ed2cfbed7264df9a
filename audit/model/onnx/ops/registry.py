"""How an operator is registered, and the one module that stands for all of them.

An operator is a plain function: its positional parameters are the ONNX inputs (None where absent), its keyword-only
parameters the ONNX attributes with their ONNX defaults. Three more keyword names are filled in when a function asks:
`opset` (the version of its domain), `outputs` (how many the node has) and `like` (an empty tensor of the network's own
number type and device, which follows `network.to(...)`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import onnx
import torch
from torch import Tensor, nn

from audit.model.onnx.ops.values import (
    Graph,
    OnnxMapping,
    OnnxNode,
    OperationConverterResult,
    add_converter,
    attribute_value,
    get_converter,
    plain_domain,
)

SCOPE = "gen_audit/"
"""Prefix of the domains that hold the converters made here, so that onnx2torch's own stay as its users know them."""

OBSOLETE = {"consumed_inputs", "is_test"}
"""Attributes of the first opsets that say nothing about the result of an inference."""

Function = Callable[..., Any]
AnyFunction = TypeVar("AnyFunction", bound=Function)
Converter = Callable[[OnnxNode, Graph], OperationConverterResult]
Own = Callable[[Mapping[int, nn.Parameter], Mapping[str, Any]], nn.Module | None]
"""From a node's weights and attributes, the module that does the same and is known by its class, where there is one."""


@dataclass(frozen=True)
class Operator:
    """What is known about one operator: its function, its kind in a report, and which inputs are its weights."""

    function: Function
    kind: str
    weights: Mapping[int, str]
    keywords: frozenset[str] | None  # None: any attribute will do
    accepts: Callable[[Mapping[str, Any]], bool]
    own: Own | None = None

    def knows(self, attributes: Mapping[str, Any]) -> bool:
        """Whether the function heeds all of these attributes."""
        known = self.keywords is None or set(attributes) - OBSOLETE <= self.keywords
        return known and self.accepts(attributes)


class Operation(nn.Module):
    """One node of the graph: an operator's function, the node's attributes, and its weights as Parameters."""

    like: Tensor

    def __init__(
        self,
        operator: Operator,
        settings: dict[str, Any],
        weights: Mapping[int, nn.Parameter],
        like: Tensor,
        single: bool,
    ) -> None:
        super().__init__()
        self.single = single
        self.function = operator.function
        self.settings = settings
        self.slots = {position: operator.weights[position] for position in weights}
        for position, weight in weights.items():
            self.register_parameter(operator.weights[position], weight)
        self.follows = operator.keywords is not None and "like" in operator.keywords
        self.register_buffer("like", like if self.follows else None, persistent=False)

    def forward(self, *inputs: Tensor | None) -> Any:
        """The operator's result; inputs that are weights of this module are passed as None."""
        arguments = [getattr(self, self.slots[i]) if i in self.slots else value for i, value in enumerate(inputs)]
        settings = {**self.settings, "like": self.like} if self.follows else self.settings
        result = self.function(*arguments, **settings)
        return result[0] if self.single and isinstance(result, tuple) else result

    def extra_repr(self) -> str:
        """The operator's name, as printed in the network."""
        return getattr(self.function, "__name__", "").strip("_")


def operator(
    *names: str,
    domain: str = "",
    kind: str = "",
    weights: Mapping[int, str] | None = None,
    accepts: Callable[[Mapping[str, Any]], bool] = lambda attributes: True,
    own: Own | None = None,
) -> Callable[[AnyFunction], AnyFunction]:
    """Register a function as the converter of these operators, for every version of theirs.

    A module of its `own` stands for a node in place of the function; it is called without the inputs that are weights.
    """

    def register(function: AnyFunction) -> AnyFunction:
        for name in names:
            entry = Operator(function, kind or name.lower(), weights or {}, _keywords(function), accepts, own)
            add_converter(name, version=0, domain=SCOPE + domain)(_Converter(entry))
        return function

    return register


def as_function(function: Function, kind: str, weights: Mapping[int, str]) -> Converter:
    """The converter that calls a function, for one that builds a module of its own only where it can."""
    return _Converter(Operator(function, kind, weights, _keywords(function), lambda attributes: True))


def _keywords(function: Function) -> frozenset[str] | None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # torch's built-in functions: no attributes
        return frozenset()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class _Converter:
    """A converter as onnx2torch's registry wants it: node and graph to module and the values that it is called with."""

    operator: Operator

    def __call__(self, node: OnnxNode, graph: Graph) -> OperationConverterResult:
        names = node.input_values
        bound = {i: names[i] for i in self.operator.weights if i < len(names) and graph.is_weight(names[i])}
        attributes = (attribute.SerializeToString() for attribute in node.proto.attribute)
        key = (node.domain, node.operation_type, len(node.output_values), *attributes, *bound.items())
        if not bound or key not in graph.layers:
            weights = {i: graph.parameter(name) for i, name in bound.items()}
            like, single = torch.zeros((), dtype=graph.dtype), len(node.output_values) == 1
            settings = self.settings(node, graph)
            own = None if self.operator.own is None else self.operator.own(weights, settings)
            graph.layers[key] = own or Operation(self.operator, settings, weights, like, single)
        layer = graph.layers[key]
        inputs = tuple("" if i in bound else name for i, name in enumerate(names))
        if not isinstance(layer, Operation):
            inputs = tuple(filter(None, inputs))
        return OperationConverterResult(layer, OnnxMapping(inputs, node.output_values))

    def settings(self, node: OnnxNode, graph: Graph) -> dict[str, Any]:
        """The node's attributes, and what else the function asks for."""
        settings = {a.name: attribute_value(a, graph.dtype) for a in node.proto.attribute if a.name not in OBSOLETE}
        asked = self.operator.keywords or frozenset()
        extras = {"opset": graph.opsets.get(plain_domain(node.domain), 1), "outputs": len(node.output_values)}
        return settings | {name: value for name, value in extras.items() if name in asked}


def converter(name: str, domain: str) -> Callable[[Converter], Converter]:
    """Register a converter that builds its own module instead of wrapping a function."""
    register: Callable[[Converter], Converter] = add_converter(name, version=0, domain=SCOPE + domain)
    return register


def find_converter(node: onnx.NodeProto, opset: int) -> Converter | None:
    """The converter made here, else the one that onnx2torch or its user registered; None where there is neither."""
    domain = plain_domain(node.domain)
    for scoped, version in ((SCOPE + domain, 0), (domain, opset)):
        try:
            found: Converter = get_converter(node.op_type, version, scoped)
        except NotImplementedError:
            continue
        attributes = {attribute.name: attribute_value(attribute, torch.float32) for attribute in node.attribute}
        return found if not isinstance(found, _Converter) or found.operator.knows(attributes) else None
    return None


def kind_of(found: Converter, node: onnx.NodeProto) -> str:
    """What a report calls the operator: "gemm", "conv", "batchnorm", …."""
    stated = [attribute.s.decode() for attribute in node.attribute if attribute.name == "kind"]
    return found.operator.kind if isinstance(found, _Converter) else (stated or [node.op_type.lower()])[0]
