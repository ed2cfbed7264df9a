"""Every measure: its blocks in the report, the title of its section, its cards, how its numbers compare. No torch.

A new measure is a folder `measures/<key>/` with `__init__.py` (what it takes), `measure.py` (whose `MEASURE` does the
work), `block.py` and `card.py`, a template `templates/parts/<key>.html.j2`, and its lines here: the rest of the house
takes it from this file.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from audit.measures.calibration import card as calibration
from audit.measures.calibration.block import Calibration
from audit.measures.consequences import card as consequences
from audit.measures.consequences.block import Consequences
from audit.measures.duality import card as duality
from audit.measures.duality.block import DualityBlock, GapOverPairs
from audit.measures.fisher import card as fisher
from audit.measures.fisher.block import LayerFisher, NetworkFisher
from audit.measures.flatness import card as flatness
from audit.measures.flatness.block import LayerFlatness, NetworkFlatness
from audit.measures.gap import card as gap
from audit.measures.gap.block import GapReport
from audit.measures.hygiene import card as hygiene
from audit.measures.hygiene.block import Hygiene
from audit.measures.sensitivity import card as sensitivity
from audit.measures.sensitivity.block import LayerSensitivity, NetworkSensitivity
from audit.report.fields import Card, Compared


@dataclass(frozen=True, kw_only=True)
class ReportBlocks:
    """What measures of the model and its data as a whole leave in the report itself."""

    gap: GapReport
    calibration: Calibration | None = None
    consequences: Consequences | None = None
    hygiene: Hygiene | None = None


@dataclass(frozen=True, kw_only=True)
class NetworkBlocks:
    """What was measured of the network as a whole."""

    duality: GapOverPairs | None = None
    flatness: NetworkFlatness | None = None
    fisher: NetworkFisher | None = None
    sensitivity: NetworkSensitivity | None = None


@dataclass(frozen=True, kw_only=True)
class LayerBlocks:
    """What was measured of one dense layer."""

    duality: DualityBlock | None = None
    flatness: LayerFlatness | None = None
    fisher: LayerFisher | None = None
    sensitivity: LayerSensitivity | None = None


@dataclass(frozen=True)
class Entry:
    """One measure as the rest of the house knows it."""

    key: str  # of its blocks in the JSON, its folder, its template and its section
    title: str  # heading of its section
    cards: tuple[Card, ...]
    compared: tuple[Compared, ...] = ()  # numbers by which two reports are compared
    follows_train_loss: bool = False  # made of derivatives of the loss or the scores, so that they move with it
    called: str = ""  # within a sentence; the title in small letters where empty
    decision: str = ""  # what its section, one for experts, changes for the decision; empty where it is for everyone
    in_part: tuple[str, str] | None = None  # where `skipped` is about single numbers only: of the network, of a layer

    @property
    def place(self) -> Literal["report", "network"]:
        """Where its block for the whole model stands."""
        return "report" if self.key in KEYS_OF_REPORT else "network"

    def block(self, report: Any) -> Any:
        """Its block of a `Report` for the whole model; None where it was not part of the audit."""
        return getattr(report if self.place == "report" else report.network, self.key)


KEYS_OF_REPORT = tuple(block.name for block in fields(ReportBlocks))
KEYS_OF_LAYERS = tuple(block.name for block in fields(LayerBlocks))

CATALOGUE = (
    Entry("gap", "The observed gap", gap.CARDS, gap.COMPARED, called="the gap"),
    Entry("calibration", "Calibration", calibration.CARDS, calibration.COMPARED),
    Entry(
        "consequences",
        "What small changes do",
        consequences.CARDS,
        called="what small changes do",
        in_part=("What small changes of the input do", ""),
    ),
    Entry(
        "duality",
        "Where the gap comes from",
        duality.CARDS,
        duality.COMPARED,
        follows_train_loss=True,
        decision="where to look first, at the data (mostly flat) or at the training recipe (mostly sharp); no more.",
    ),
    Entry(
        "flatness",
        "Flatness",
        flatness.CARDS,
        flatness.COMPARED,
        follows_train_loss=True,
        decision="nothing by itself; it ranks models of one architecture on the same data at the same train loss.",
    ),
    Entry(
        "fisher",
        "Fisher information",
        fisher.CARDS,
        fisher.COMPARED,
        follows_train_loss=True,
        called="Fisher information",
        decision="nothing by itself; it compares two models at the same train loss, and is never a limit.",
    ),
    Entry(
        "sensitivity",
        "Sensitivity and volume",
        sensitivity.CARDS,
        sensitivity.COMPARED,
        follows_train_loss=True,
        called="sensitivity",
        decision="whether small changes of the input or the weights can move the answers far; by itself no verdict.",
        in_part=("Some sensitivities and volumes", "Some volumes"),
    ),
    Entry("hygiene", "Data hygiene", hygiene.CARDS),
)
"""In the order of the report."""
