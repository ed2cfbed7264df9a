"""TorchScript archives: torch.jit.load interprets them without unpickling Python objects.

Their own language can write files (torch.save), so code that does is refused before it is loaded.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from audit.errors import ModelError
from audit.model.base import InputSpec, Model
from audit.model.detect import sha256
from audit.model.foreign import check_weights, first_line, float_type, quiet
from audit.settings import Settings

TOUCHES_FILES = re.compile(rb"\b(?:torch|aten)[\s\\]*\.[\s\\]*(?:save|from_file)[\s\\]*\(")


def load(path: Path, settings: Settings) -> Model:
    """The script module as it is. Its input shape is not known before data is at hand: see `trace`."""
    _refuse_file_access(path)
    try:
        with quiet():
            network = torch.jit.load(path, map_location="cpu").eval()  # type: ignore[no-untyped-call]
    except Exception as error:
        raise _broken(path, error) from error
    check_weights({**network.state_dict(), **_embedded(network)}, path)
    arguments = [argument.name for argument in network.forward.schema.arguments[1:] if not argument.has_default_value()]
    if len(arguments) > 1:
        names = ", ".join(arguments)
        raise ModelError(f"{path}: takes {len(arguments)} inputs ({names}); give a model that takes one tensor.")
    return Model(
        network=network,
        path=path,
        format="torchscript",
        sha256=sha256(path),
        input=InputSpec(next(iter(arguments), "input"), shape=None, dtype=float_type(network)),
        output=settings.output or "",
    )


def converted(network: torch.jit.ScriptModule, example: Tensor) -> ExportedProgram:
    """The script as an exported program, by torch's own converter."""
    from torch._export.converter import TS2EPConverter

    program = TS2EPConverter(network, (example,)).convert()
    trained = {name for name, _ in network.named_parameters()}
    for spec in program.graph_signature.input_specs:  # to the converter every tensor is a buffer
        if spec.kind is InputKind.BUFFER and spec.target in trained:
            spec.kind = InputKind.PARAMETER
            program.state_dict[spec.target] = nn.Parameter(program.state_dict[spec.target], requires_grad=False)
    return program


def _refuse_file_access(path: Path) -> None:
    """Reads the code with the reader that torch.jit.load uses, so that both see the same; it ignores case."""
    try:
        reader = torch._C.PyTorchFileReader(str(path))
        code = [reader.get_record(name) for name in reader.get_all_records() if name.lower().endswith(".py")]
    except Exception as error:
        raise _broken(path, error) from error
    if any(TOUCHES_FILES.search(text) for text in code):
        raise ModelError(f"{path}: its code reads or writes files when it runs; audit the source model instead.")


def _broken(path: Path, error: Exception) -> ModelError:
    return ModelError(f"{path}: is truncated or corrupt TorchScript ({first_line(error)}); save or copy it again.")


def _embedded(network: torch.jit.ScriptModule) -> dict[str, Tensor]:
    """Weights that torch.jit.freeze wrote into the graph as constants."""
    graph: Any = network.inlined_graph  # must outlive its nodes
    return {
        node.output().debugName(): node.t("value")
        for node in graph.findAllNodes("prim::Constant")
        if node.hasAttribute("value") and node.kindOf("value") == "t"
    }
