"""What an unfinished audit has measured: kept beside its output, so that a later run goes on from there.

One JSON file for each measure that has finished, one for what the capture pass saw, and one that says what they are
about; each appears in one step. They are read by the types of the report, so that a file can do no more than be wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import NoneType
from typing import Any, get_type_hints

from audit import __version__
from audit.errors import UsageError
from audit.measures.catalogue import CATALOGUE, LayerBlocks, NetworkBlocks, ReportBlocks
from audit.measures.contract import Measurement
from audit.measures.suite import Tail
from audit.report.conduct import Plan
from audit.report.fields import adapter_of
from audit.run.progress import MEASURE
from audit.settings import Settings, flag
from audit.settings.limits import appear, found_text, refuse_outside

ABOUT, TAILS = "about", "tails"
LAYERS, WHOLE = get_type_hints(LayerBlocks), get_type_hints(NetworkBlocks) | get_type_hints(ReportBlocks)
ANEW = "leave --resume out to begin anew"


@dataclass(frozen=True)
class About:
    """What was audited how; another run must be about the same to go on."""

    version: str  # of gen-audit
    model: str  # sha256
    data: str
    settings: dict[str, Any]
    plan: Plan


class Partial:
    """The folder with what is finished; it appears with the first measure that is."""

    def __init__(self, folder: Path, resume: bool) -> None:
        if folder.is_symlink():
            raise UsageError(
                f"{folder}: is a link, where an unfinished audit is kept; remove it, or choose another -o."
            )
        self.folder, self._resume = folder, resume
        self._about: About | None = None
        self.measurements: Mapping[str, Measurement] = {}
        self.tails: Mapping[str, Tail] | None = None
        self._timings: dict[str, float] = {}
        if not resume:
            self.remove()

    @property
    def unfinished(self) -> bool:
        """Whether an earlier run left anything here."""
        return self._path(ABOUT).exists()

    @property
    def holds_something(self) -> bool:
        """Whether this run found or left anything to go on from."""
        return self._about is not None and self.unfinished

    def plan(self, model: str, data: str, settings: Settings) -> Plan | None:
        """The plan of the audit that is gone on with; None where there is none to be."""
        if not self._resume or not self.unfinished:
            return None
        earlier: About = self._read(ABOUT, About)
        now = About(__version__, model, data, _plain(settings), earlier.plan)
        if (other := _difference(earlier, now)) is not None:
            raise UsageError(f"--resume: {self.folder} is about another audit ({other}); {ANEW}.")
        return earlier.plan

    def begin(self, model: str, data: str, settings: Settings, plan: Plan, timings: dict[str, float]) -> None:
        """What the files to come are about; whatever an earlier run has finished is read, its times into `timings`."""
        self._timings = timings
        if self._resume and self.unfinished:
            if self._path(TAILS).exists():
                self.tails = self._read(TAILS, dict[str, Tail])
            keys = [entry.key for entry in CATALOGUE if self._path(entry.key).exists()]
            self.measurements = {key: self._measurement(key) for key in keys}
        self._about = About(__version__, model, data, _plain(settings), plan)  # last: with damaged files none goes on

    def keep(self, key: str, measured: Measurement) -> None:
        """One more measure is finished."""
        layers = {name: asdict(block) for name, block in measured.layers.items()}
        network = None if measured.network is None else asdict(measured.network)
        self._write(key, {"layers": layers, "network": network, "seconds": self._timings.get(MEASURE + key)})

    def keep_tails(self, tails: Mapping[str, Tail]) -> None:
        """The capture pass is finished."""
        self._write(TAILS, {name: asdict(tail) for name, tail in tails.items()})

    def remove(self) -> None:
        """The folder, and what this house has written into it."""
        if not self._path(ABOUT).exists():
            return
        for name in (*(entry.key for entry in CATALOGUE), TAILS, ABOUT):
            self._path(name).unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def _write(self, name: str, values: Any) -> None:
        assert self._about is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self._path(ABOUT).exists() and name != ABOUT:
            self._write(ABOUT, asdict(self._about))
        appear(self._path(name), lambda unfinished: unfinished.write_text(json.dumps(values), encoding="utf-8"))

    def _measurement(self, key: str) -> Measurement:
        hints = {"layers": dict[str, LAYERS.get(key, NoneType)], "network": WHOLE[key], "seconds": float}  # type: ignore[misc]
        values = self._read(key, dict[str, Any])
        read = {part: self._as(key, hint, json.dumps(values.get(part))) for part, hint in hints.items()}
        self._timings[MEASURE + key] = read["seconds"]
        return Measurement(read["layers"], read["network"])

    def _read(self, name: str, kind: Any) -> Any:
        path = self._path(name)
        refuse_outside(path, self.folder, "unfinished audit")
        return self._as(name, kind, found_text(path, ANEW))

    def _as(self, name: str, kind: Any, text: str) -> Any:
        try:
            return adapter_of(kind).validate_json(text)
        except ValueError as error:
            raise UsageError(f"--resume: {self._path(name)} is damaged; {ANEW}.") from error


def _plain(settings: Settings) -> dict[str, Any]:
    """As JSON has them: lists for tuples. An audit that ran out of memory may go on with less."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(settings)))
    return {name: value for name, value in plain.items() if name != "memory"}


def _difference(earlier: About, now: About) -> str | None:
    """What is not as it was, in words."""
    if earlier.version != now.version:
        return f"by gen-audit {earlier.version}"
    for name in ("model", "data"):
        if getattr(earlier, name) != getattr(now, name):
            return f"the {name} had another sha256"
    for name, value in now.settings.items():
        if earlier.settings.get(name) != value:
            return f"{flag(name)} was {earlier.settings.get(name)} then and is {value} now"
    return None
