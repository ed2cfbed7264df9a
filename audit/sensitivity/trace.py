"""Tr H of ½‖f − y‖² over all parameters: S(θ), and what the curvature of the network adds; or why there is none."""

from __future__ import annotations

import torch
from torch import Tensor

from audit.layers import dense_only
from audit.measure import Audit
from audit.record import LayerRecord, Record
from audit.repeated import feeds_itself
from audit.sensitivity.columns import Array, column
from audit.sensitivity.sharpness import residual_trace, straight_in
from audit.watch import as_fed

TRACE_COLUMNS = 1024  # second derivatives per sample, above which the exact trace is left out
NOT_TWICE = "the network cannot be differentiated twice"


class TraceFold:
    """What Tr H has beyond S(θ), sample by sample, until a reason is found that there is no such number."""

    def __init__(self, audit: Audit, beyond_dense: tuple[str, ...]) -> None:
        self._audit, self._dense = audit, dense_only(audit.layers)
        self._parts: list[Array] = []
        self.skipped = self._why_none(beyond_dense)

    def see(self, record: Record) -> None:
        """Adds a chunk, where the network behind a layer is curved."""
        curved = [record.layers[layer.name] for layer in self._dense]
        curved = [layer for layer in curved if layer.residual_times is not None]
        self.skipped = self.skipped or self._why_not_here(record, curved)
        if self.skipped is None:
            extra: Tensor = torch.zeros(len(record.f), dtype=torch.float64, device=record.f.device)
            for layer in curved:
                extra = extra + residual_trace(layer, layer.layer.bias)
            self._parts.append(column(extra))

    def parts(self) -> list[Array]:
        """Chunk after chunk; nothing where it was given up half-way."""
        return [] if self.skipped else self._parts

    def _why_not_here(self, record: Record, curved: list[LayerRecord]) -> str | None:
        if any(record.layers[layer.name].curvature != "exact" for layer in self._dense):
            return NOT_TWICE
        if curved and self._audit.loss.name != "mse":
            return "the network is curved in its weights and ½‖f − y‖² is not its loss, so the trace has no targets"
        if any(layer.layer.tokens * layer.layer.out_features > TRACE_COLUMNS for layer in curved):
            return f"a curved layer has more than {TRACE_COLUMNS} outputs: the exact trace would cost that many passes"
        return None

    def _why_none(self, beyond_dense: tuple[str, ...]) -> str | None:
        """Weights that act on their own answers enter squared; elsewhere, what bends the scores has no cheap trace."""
        audit = self._audit
        if any(layer.calls > 1 and feeds_itself(audit, layer) for layer in self._dense):
            return "a layer is fed by its own earlier answers, so the scores are not linear in its weights"
        x = as_fed(audit.network, audit.train.x[torch.arange(audit.capture.fixed_batch or 4) % len(audit.train.x)])
        try:
            bent = next((name for name in beyond_dense if not straight_in(audit.network, name, x)), None)
        except RuntimeError:
            return NOT_TWICE
        return None if bent is None else f"the scores are curved in {bent}, which no dense layer holds"
