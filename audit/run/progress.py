"""Progress over the plan of an audit: a bar on a terminal, elsewhere one line per stage, or nothing."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from audit.report.conduct import Plan, about_seconds, readable_seconds
from audit.settings.limits import give_back

if TYPE_CHECKING:
    from rich.progress import TaskID

Item = TypeVar("Item")
MEASURE = "measure "  # how the suite names the stage of a measure
UNMEASURED = ("forward", "capture", "checks")  # stages of a plan that are no measure
CAPTURED = 0.5  # of an exact measure of the layers, that the capture pass takes for it
ENOUGH = 0.1  # of a plan, after which its pace is known
WIDEST = 60  # letters of a line in a notebook's cell
SLOWEST = 8.0  # and the least and most that the pace is trusted to be


class Progress:
    """Times the stages of an audit; this one says nothing."""

    def __init__(self) -> None:
        self.timings: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str, words: str) -> Iterator[None]:
        """Measures the wall time of a stage under `name`; the memory that it needed is free for others afterwards."""
        begin = time.perf_counter()
        self.begin(name, words)
        yield
        give_back()
        spent = time.perf_counter() - begin
        self.timings[name] = self.timings.get(name, 0.0) + spent
        self.end(spent)

    def steps(self, items: Iterable[Item], total: int) -> Iterator[Item]:
        """Passes `items` through, counting them."""
        yield from items

    def about(self, name: str) -> None:
        """Learns that one of several audits begins, and what to call it; its plan is still to come."""

    def follow(self, plan: Plan, samples: int) -> None:
        """Learns what is to come, and of how many train samples, as soon as that is known."""

    def begin(self, name: str, words: str) -> None:
        """Says what is being done."""

    def end(self, spent: float) -> None:
        """Learns that the stage is over, after so many seconds."""

    def close(self) -> None:
        """Leaves the terminal clean."""


def _plain(name: str) -> str:
    """A file's name without letters that a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in name)


class Ahead:
    """How much of a plan is done, and how long the rest should take, in seconds as predicted."""

    def __init__(self, plan: Plan) -> None:
        self._weights = stage_seconds(plan)
        self.total = sum(self._weights.values())
        self._done = self._spent = self._weight = self._share = 0.0

    def begin(self, name: str) -> None:
        """A stage begins; one that the plan does not know weighs nothing."""
        self._weight, self._share = self._weights.pop(name, 0.0), 0.0

    def step(self, share: float) -> None:
        """So much of the stage is done."""
        self._share = share

    def end(self, spent: float) -> None:
        """The stage is over."""
        self._done, self._spent = self._done + self._weight, self._spent + spent
        self._weight = self._share = 0.0

    @property
    def completed(self) -> float:
        """Of `total`."""
        return self._done + self._weight * self._share

    def left(self, elapsed: float) -> float:
        """Seconds to come, `elapsed` seconds after the stage began: by its steps, or else by the pace so far."""
        known = self._done > ENOUGH * self.total
        pace = min(max(self._spent / self._done, 1 / SLOWEST), SLOWEST) if known else 1.0
        here = elapsed / self._share - elapsed if self._share else max(pace * self._weight - elapsed, 0.0)
        return here + pace * sum(self._weights.values())


def stage_seconds(plan: Plan) -> dict[str, float]:
    """Predicted seconds of the stages of the work, by the names that their times are kept by.

    The capture pass works for all exact measures of the layers; their eigenpairs are found by duality, which comes
    before flatness and needs them, too.
    """
    found: defaultdict[str, float] = defaultdict(float)
    for stage in plan.stages:
        captured = CAPTURED if stage.form == "exact" and stage.name in ("flatness", "sensitivity") else 0.0
        finished_by = "duality" if stage.name == "flatness" else stage.name
        found["capture"] += captured * stage.seconds
        found[stage.name if stage.name in UNMEASURED else MEASURE + finished_by] += (1 - captured) * stage.seconds
    return dict(found)


class LineProgress(Progress):
    """One line per stage on stderr, for whoever reads a log: once there is a plan, what is done how."""

    def __init__(self) -> None:
        super().__init__()
        self._plan: Plan | None = None
        self._samples = 0

    def about(self, name: str) -> None:
        """Says which audit the lines to come are about."""
        self._plan = None
        self._say(_plain(name))

    def follow(self, plan: Plan, samples: int) -> None:
        """Says how long all of it should take."""
        self._plan, self._samples = plan, samples
        self._say(f"plan: {about_seconds(plan.seconds)} in all")

    def begin(self, name: str, words: str) -> None:
        """Says what is being done, and for how long."""
        plan = self._plan
        measures = name.startswith(MEASURE) or name in UNMEASURED
        if plan is not None and measures and (name != "capture" or plan.is_exact("flatness")):
            self._say(plan.stage(name.removeprefix(MEASURE)).told(self._samples))

    def _say(self, line: str) -> None:
        with suppress(OSError, ValueError):  # where stderr is closed, nobody wants to hear it
            print(line, file=sys.stderr, flush=True)


class TerminalProgress(Progress):
    """A rich progress bar on stderr that appears only for what takes more than a second."""

    PATIENCE = 1.0

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[left]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task: TaskID = self._bar.add_task("", total=None, left=_Left(self))
        self._begin = self._stage_begin = time.perf_counter()
        self._ahead: Ahead | None = None
        self._name = ""

    def about(self, name: str) -> None:
        """A bar of its own for each audit."""
        from rich.markup import escape

        self._name, self._ahead = escape(f"{_plain(name)} · "), None
        self._bar.update(self._task, completed=0)

    def follow(self, plan: Plan, samples: int) -> None:
        """One bar over the whole plan."""
        self._ahead = Ahead(plan)
        self._bar.update(self._task, total=self._ahead.total, completed=0)

    def begin(self, name: str, words: str) -> None:
        """Describes the stage at hand."""
        self._stage_begin = time.perf_counter()
        if self._ahead is not None:
            self._ahead.begin(name)
        self._bar.update(self._task, description=self._name + words)
        self._wake()

    def steps(self, items: Iterable[Item], total: int) -> Iterator[Item]:
        """Advances the bar by a part of its stage per item."""
        for done, item in enumerate(items, 1):
            yield item
            if self._ahead is not None:
                self._ahead.step(done / total)
                self._bar.update(self._task, completed=self._ahead.completed)
            self._wake()

    def end(self, spent: float) -> None:
        """Advances the bar by the rest of the stage."""
        if self._ahead is not None:
            self._ahead.end(spent)
            self._bar.update(self._task, completed=self._ahead.completed)

    def close(self) -> None:
        """Takes the bar off the screen."""
        self._bar.stop()

    def left(self) -> str:
        """The time to come in words; nothing before there is a plan."""
        if self._ahead is None:
            return ""
        return f"{readable_seconds(self._ahead.left(time.perf_counter() - self._stage_begin))} left"

    def _wake(self) -> None:
        if time.perf_counter() - self._begin > self.PATIENCE and not self._bar.live.is_started:
            self._bar.start()


class _Left:
    """Counts down whenever the bar is drawn, also where a stage takes long and has no steps."""

    def __init__(self, progress: TerminalProgress) -> None:
        self._progress = progress

    def __format__(self, _spec: str) -> str:
        return self._progress.left()


class CellProgress(Progress):
    """One line in a notebook's cell that says what is being done, and goes when all is."""

    def begin(self, name: str, words: str) -> None:
        """In the place of the words before."""
        self._say(f"\r{words} …".ljust(WIDEST))

    def close(self) -> None:
        """Leaves nothing behind."""
        self._say("\r" + " " * WIDEST + "\r")

    def _say(self, words: str) -> None:
        with suppress(OSError, ValueError):
            print(words, end="", file=sys.stderr, flush=True)


def progress_for(quiet: bool, in_cell: bool = False) -> Progress:
    """A bar where stderr is a terminal, lines where it is none, and nothing where silence was asked for."""
    if quiet:
        return Progress()
    if in_cell:
        return CellProgress()
    return TerminalProgress() if sys.stderr.isatty() else LineProgress()
