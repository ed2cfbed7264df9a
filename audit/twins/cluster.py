"""Tasks on a Ray cluster: that of RAY_ADDRESS, or one on this machine alone. Ray is imported when asked for."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from audit.errors import UsageError
from audit.twins.work import Task, Workplace
from audit.twins.worker import Answer, Parcel, alone, attempt, parcel_of

ADDRESS = "RAY_ADDRESS"
PATIENCE = 10.0  # seconds, until a machine counts as not there


def check_installed() -> None:
    """Refuses before anything is done for it."""
    if find_spec("ray") is None:
        raise UsageError("--engine ray: Ray is not installed; install it with `pip install 'gen-audit[ray]'`.")


class Cluster:
    """Tasks as Ray's tasks, one processor each. Ray is not to try again: what is lost is counted here."""

    def __init__(self, place: Workplace) -> None:
        check_installed()
        parcel = parcel_of(place.one_of(os.cpu_count() or 1))
        with _own_signals():
            self._ray: Any = import_module("ray")
            self._ours = not self._ray.is_initialized()
            if self._ours:
                _connect(self._ray)
        self._parcel = self._ray.put(parcel)  # once to every machine
        self._attempt = self._ray.remote(num_cpus=1, max_retries=0)(attempt_here)
        self._running: list[Any] = []

    @property
    def size(self) -> int:
        """Processors that the cluster has now."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def begin(self, task: Task) -> Any:
        """Hands it to the cluster."""
        reference = self._attempt.remote(self._parcel, sys.path, task)
        self._running.append(reference)
        return reference

    def wait(self) -> tuple[Any, Answer | None]:
        """The next answer, and whose it is; None for a task whose worker or machine is no more."""
        (reference, *_), _ = self._ray.wait(self._running, num_returns=1)
        self._running.remove(reference)
        try:
            return reference, self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise UsageError(
                f"--engine ray: a worker cannot begin ({_reason(error)}); install this version of gen-audit on every "
                "machine of the cluster."
            ) from error
        except self._ray.exceptions.RayError:
            return reference, None

    def close(self) -> None:
        """Ends what is running; leaves a cluster as it was found."""
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        if self._ours:
            self._ray.shutdown()


def attempt_here(parcel: Parcel, path: list[str], task: Task) -> Answer:
    """One task in a process of the cluster, which finds modules where its sender does, say on a shared disk."""
    sys.path += [place for place in path if place not in sys.path]
    alone()
    return attempt(partial(_opened, parcel), task)


@lru_cache(maxsize=1)  # a process does many tasks of one parcel
def _opened(parcel: Parcel) -> Workplace:
    own = replace(parcel, arrays=[array.copy() for array in parcel.arrays])  # Ray's cannot be written to
    place: Workplace = own.opened()
    return place


def _connect(ray: Any) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anybody
    address = os.environ.get(ADDRESS, "")
    host, _, port = address.removeprefix("ray://").rpartition(":")
    own = {} if address else {"include_dashboard": False}
    try:
        if port.isdecimal():  # Ray itself would try for minutes
            socket.create_connection((host, int(port)), PATIENCE).close()
        ray.init(log_to_driver=False, logging_level="ERROR", **own)
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        raise UsageError(
            f"{ADDRESS}={address}: no Ray cluster can be had there ({_reason(error)}); start one with `ray start "
            f"--head`, or unset {ADDRESS} for one on this machine alone."
        ) from error


def _reason(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:200].rstrip(".")


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray answers SIGTERM in its own way from the import on; whoever runs the audit has decided that already."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
