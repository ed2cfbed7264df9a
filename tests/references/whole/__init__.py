"""A whole audit the slow way: plain autograd in float64, one sample and one weight after the other.

Nothing here is taken from the audit, and nothing is clever: what a formula names is formed. The answer has the shape of
the report's JSON, so that the two are laid side by side number by number.
"""

from __future__ import annotations

from references.whole.duality import carriers, duality, hessian
from references.whole.fisher import fisher, layer_fisher
from references.whole.flatness import flatness, network_flatness
from references.whole.gap import gap
from references.whole.problem import Block, Problem
from references.whole.samples import sample_of
from references.whole.sensitivity import layer_sensitivity, sensitivity


def whole(problem: Problem, subsets: list[list[int]], settings: Block) -> Block:
    """Everything that a report says about a network and its gap, intervals aside."""
    samples = [sample_of(problem, i) for i in range(len(problem.x))]
    layers = []
    for path in problem.dense:
        H = hessian(problem, path)
        layers.append(
            {
                "duality": duality(problem, path, H, settings),
                "flatness": flatness(problem.weight(path), H),
                "sensitivity": layer_sensitivity(problem, path, samples),
                "fisher": layer_fisher(problem, path, samples, subsets),
            }
        )
    return {
        "gap": gap(problem),
        "layers": layers,
        "network": {
            "duality": carriers(problem),
            "flatness": network_flatness([layer["flatness"] for layer in layers]),
            "fisher": fisher(problem, samples, subsets, settings),
            "sensitivity": sensitivity(problem, samples),
        },
    }
