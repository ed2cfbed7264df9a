"""`gen-audit layers`: which layers would be measured."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from audit.cli.app import check_there, command
from audit.cli.options import AsJson, ModelPath, with_settings
from audit.cli.terminal import in_table, say, say_whole
from audit.settings.config import config_files, resolve

if TYPE_CHECKING:
    from audit.model.base import Model
    from audit.network import DenseLayer, Layers


@command()
@with_settings("arch", "trust_pickle", "output", "input", "fix_input", "input_shape", "conv")
def layers(model: ModelPath, as_json: AsJson = False, **flags: Any) -> None:
    """List the layers of MODEL: measured, or passed by and why."""
    check_there(model, None)
    from audit.run.list_layers import list_layers

    settings = resolve(flags, config_files())
    _print(*list_layers(model, settings), settings.conv, as_json)


def _print(model: Model, layers: Layers, convolutions: bool, as_json: bool) -> None:
    """Every layer with weights, measured or passed by; `convolutions`: whether these were to be measured, too."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from audit.network import nothing_to_measure

    if as_json:
        dense, passed_by = ([asdict(layer) for layer in part] for part in (layers.dense, layers.passed_by))
        say_whole(json.dumps({"layers": dense, "passed_by": passed_by}, indent=2))
        return
    table = Table(box=box.SIMPLE, title=in_table(f"{model.path.name}: {model.format}"), title_justify="left")
    for column in ("layer", "op", "in → out", "tokens", "what becomes of it"):
        table.add_column(column, overflow="fold")
    for layer in layers.dense:
        sizes = f"{layer.in_features} → {layer.out_features}"
        table.add_row(in_table(layer.name), in_table(layer.op), sizes, str(layer.tokens), in_table(_fate(layer)))
    for passed in layers.passed_by:
        table.add_row(in_table(passed.name), in_table(passed.op), "", "", in_table(f"passed by: {passed.why}"))
    Console().print(table)
    if not layers.dense:
        say(nothing_to_measure(model, layers, convolutions))


def _fate(layer: DenseLayer) -> str:
    tied = f"measured; same weights as {', '.join(layer.tied_with)}" if layer.tied_with else "measured"
    used = f"{tied}; used {layer.calls} times" if layer.calls > 1 else tied
    return used if layer.cut_point else f"{used}; bypassed by another path"
