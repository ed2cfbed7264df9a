"""What the page says of small changes stays true where they cost nothing, and where there is one dense layer."""

from __future__ import annotations

from dataclasses import replace

from made_reports import example

from audit.measures.consequences.block import Consequences
from audit.render.small_changes import lead, name, of_layers, short_name


def block(costs: dict[str, float]) -> Consequences:
    """The example's, with these dense layers and what their change costs."""
    found = example("classification").consequences
    assert found is not None
    layer, others = of_layers(found)[0], [change for change in found.changes if change.layer is None]
    layers = [replace(layer, layer=name, error_change=cost) for name, cost in costs.items()]
    return replace(found, changes=[*others, *layers])


def test_the_costliest_layer_is_named() -> None:
    assert lead(block({"fc1": 0.01, "fc2": 0.02}))[-1].startswith("Of the dense layers, fc2 costs most: with its")


def test_no_layer_is_said_to_cost_what_it_does_not() -> None:
    said = lead(block({"fc1": -0.01, "fc2": 0.0}))[-1]
    assert said == "With the weights of any one dense layer off by 5 % at random, it does no worse."
    assert lead(block({"0": 0.0}))[-1] == "With the weights of layer 0 off by 5 % at random, it does no worse."


def test_one_layer_is_not_compared_with_others() -> None:
    assert lead(block({"fc": 0.01}))[-1].startswith("With the weights of fc, the dense layer, off by 5 % at random, it")


def test_rows_call_a_bare_number_a_layer() -> None:
    change = of_layers(block({"0": 0.01}))[0]
    assert name(change).startswith("layer 0: ") and short_name(change).startswith("layer 0 ")
    assert name(replace(change, layer="fc")).startswith("fc: ")
