"""Progress: silent unless somebody watches a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")


class Progress:
    """Times the stages of an audit; this one says nothing."""

    def __init__(self) -> None:
        self.timings: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str, words: str) -> Iterator[None]:
        """Measures the wall time of a stage under `name`."""
        begin = time.perf_counter()
        self.show(words)
        yield
        self.timings[name] = self.timings.get(name, 0.0) + time.perf_counter() - begin

    def steps(self, items: Iterable[Item], total: int) -> Iterator[Item]:
        """Passes `items` through, counting them."""
        yield from items

    def show(self, words: str) -> None:
        """Says what is being done."""

    def close(self) -> None:
        """Leaves the terminal clean."""


class TerminalProgress(Progress):
    """A rich progress bar on stderr that appears only for what takes more than a second."""

    PATIENCE = 1.0

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("", total=None)
        self._begin = time.perf_counter()

    def show(self, words: str) -> None:
        """Describes the stage at hand."""
        self._bar.update(self._task, description=words, total=None, completed=0)
        self._wake()

    def steps(self, items: Iterable[Item], total: int) -> Iterator[Item]:
        """Advances the bar by one per item."""
        for done, item in enumerate(items, 1):
            yield item
            self._bar.update(self._task, total=total, completed=done)
            self._wake()

    def close(self) -> None:
        """Takes the bar off the screen."""
        self._bar.stop()

    def _wake(self) -> None:
        if time.perf_counter() - self._begin > self.PATIENCE and not self._bar.live.is_started:
            self._bar.start()


def progress_for(quiet: bool) -> Progress:
    """A bar where stderr is a terminal and nobody asked for silence."""
    return Progress() if quiet or not sys.stderr.isatty() else TerminalProgress()
