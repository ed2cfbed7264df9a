"""A whole audit the slow way: plain autograd in float64, one sample and one weight after the other.

Nothing here is taken from the audit, and nothing is clever: what a formula names is formed. The answer has the shape of
the report's JSON, so that the two are laid side by side number by number.
"""

from __future__ import annotations

from references.whole.duality import carriers, duality, hessian, partners
from references.whole.fisher import fisher, layer_fisher
from references.whole.flatness import flatness, network_flatness
from references.whole.gap import gap
from references.whole.hygiene import hygiene
from references.whole.problem import Block, Problem
from references.whole.samples import sample_of
from references.whole.sensitivity import layer_sensitivity, sensitivity


def whole(problem: Problem, subsets: list[list[int]], settings: Block) -> Block:
    """Everything that a report says about a network and its gap, intervals aside."""
    samples = [sample_of(problem, i) for i in range(len(problem.x))]
    layers = []
    for path in problem.layers:
        H = hessian(problem, path)
        layers.append(
            {
                "duality": duality(problem, path, H, settings),
                "flatness": flatness(problem, path, H),
                "sensitivity": layer_sensitivity(problem, path, samples),
                "fisher": layer_fisher(problem, path, samples, subsets),
            }
        )
    summed = [layer["flatness"] for path, layer in zip(problem.layers, layers, strict=True) if path in problem.dense]
    return {
        "gap": gap(problem),
        "hygiene": hygiene(problem),
        "layers": layers,
        "network": {
            "duality": None if problem.partner_space == "features" else carriers(problem, partners(problem)),
            "flatness": network_flatness(summed),
            "fisher": fisher(problem, samples, subsets, settings),
            "sensitivity": sensitivity(problem, samples),
        },
    }
