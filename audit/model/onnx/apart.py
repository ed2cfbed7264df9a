"""Keep the samples of a batch apart where an exporter has mixed them with the tokens for the sake of one product."""

from __future__ import annotations

from onnx import GraphProto, NodeProto

from audit.model.onnx.graph import add_constant, constants, fresh, producers, to_array, uses


def keep_samples_apart(graph: GraphProto, domain: str) -> None:
    """Turn Reshape → Dense → Reshape into Reshape → Dense, on the second shape.

    nn.MultiheadAttention flattens [tokens, samples, width] before its out_proj, so that a sample's rows lie scattered;
    a dense layer does not mind the shape before the features, but whoever looks at single samples does.
    """
    made, counts, known = producers(graph), uses(graph), constants(graph)
    for last in [node for node in graph.node if _reshapes(node) and node.input[1] in known]:
        dense = made.get(last.input[0])
        first = (
            None if dense is None or (dense.domain, dense.op_type) != (domain, "Dense") else made.get(dense.input[0])
        )
        if dense is None or first is None or not _reshapes(first) or counts[dense.output[0]] != 1:
            continue
        outputs, inputs = known[dense.input[1]].dims
        shape = to_array(known[last.input[1]])
        flat = to_array(known[first.input[1]]).tolist() if first.input[1] in known else []
        if len(flat) == 2 and flat[1] == inputs and len(shape) and shape[-1] == outputs and 0 not in shape:
            shape = shape.copy()
            shape[-1] = inputs
            name = add_constant(graph, fresh(graph, f"{dense.name}.shape"), shape)
            _swap(first.input[0], name, dense, last)


def _reshapes(node: NodeProto) -> bool:
    return node.op_type == "Reshape" and len(node.input) == 2


def _swap(x: str, shape: str, dense: NodeProto, last: NodeProto) -> None:
    """Let the two nodes change places: first x is reshaped, then comes the layer."""
    layer, between, output = NodeProto(), dense.output[0], last.output[0]
    layer.CopyFrom(dense)
    dense.CopyFrom(last)
    dense.input[:], dense.output[:] = [x, shape], [between]
    last.CopyFrom(layer)
    last.input[0], last.output[0] = between, output
