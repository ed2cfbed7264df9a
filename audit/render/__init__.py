"""Renderers: one finished report in, one file out. A renderer never computes.

Here: which files there are, and how they are written so that a reader never meets a half-written one.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from audit.errors import UsageError

STAGE = ".gen-audit-"
STALE = re.compile(re.escape(STAGE) + "[0-9a-f]{16}")
STOPS = (signal.SIGINT, signal.SIGTERM)
YOUNG = 5.0  # seconds in which a new folder may not be locked yet

FILES = {
    "html": "report.html",
    "pdf": "report.pdf",
    "json": "report.json",
    "md": "report.md",
    "junit": "report.junit.xml",
    "sarif": "report.sarif",
    "cyclonedx": "report.cdx.json",
    "hf": "report.model-index.yml",
}
"""Every format and its file, under a name that its readers look for."""


@contextmanager
def staged(folder: Path, new_audit: bool = True, read: Path | None = None) -> Iterator[Path]:
    """A hidden folder to write into; only if all went well do its files appear in `folder`.

    It lies where a rename can reach: in a folder that exists, which may be a file system of its own, or else beside the
    new one. A new folder appears whole, in one rename. In one that exists, each file is replaced in one step; a new
    audit also removes the pages of an earlier one that it did not write again, but never a file that was `read` for it.
    Whatever else lies there is left alone.
    """
    check_writable(folder)
    with _hidden_folder(folder) as stage:
        with _locked(stage):
            yield stage
        with _undisturbed():
            _put(stage, folder, read, new_audit)


def _put(stage: Path, folder: Path, read: Path | None, new_audit: bool) -> None:
    """What was written appears."""
    os.chmod(stage, 0o777 & ~_umask())
    if not folder.exists():
        os.replace(stage, folder)
        return
    written = {file.name for file in stage.iterdir()}
    _check_files(folder, written)
    for name in sorted(written):
        os.replace(stage / name, folder / name)
    for name in set(FILES.values()) - written if new_audit else ():
        if read is None or not _same_file(folder / name, read):
            (folder / name).unlink(missing_ok=True)


@contextmanager
def _hidden_folder(folder: Path, trial: bool = False) -> Iterator[Path]:
    """A new one, gone at the end; named before it is there, as a signal may come between any two steps."""
    try:
        if not trial:
            folder.parent.mkdir(parents=True, exist_ok=True)
        place = next(near for near in (folder, *folder.absolute().parents) if near.exists())
        _remove_stale(place)
    except OSError as error:
        raise _not_writable(folder, error) from error
    stage = place / f"{STAGE}{secrets.token_hex(8)}"
    try:
        try:
            stage.mkdir(0o700)
        except OSError as error:
            raise _not_writable(folder, error) from error
        yield stage
    finally:
        try:
            _remove(stage)
        except BaseException:  # of a signal, before it could be held back; the next ones are ignored
            _remove(stage)
            raise


def _remove(stage: Path) -> None:
    with _undisturbed():  # a signal within rmtree may become an OSError, which would then be ignored
        shutil.rmtree(stage, ignore_errors=True)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Within it, what would end the run waits: pages of one report are not put beside those of another."""
    waiting: list[int] = []
    before: dict[int, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():  # no other is told of signals
            known = [stop for stop in STOPS if signal.getsignal(stop) is not None]  # None: of native code
            for stop in known:
                before[stop] = signal.signal(stop, lambda which, _frame: waiting.append(which))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for which in waiting[:1]:
            signal.raise_signal(which)


@contextmanager
def _locked(stage: Path) -> Iterator[bool]:
    """Holds the folder's lock, which ends with the process however that ends; says whether it was free."""
    try:
        import fcntl
    except ImportError:  # Windows, where nothing is ever called stale
        yield False
        return
    handle = os.open(stage, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        free = True
    except OSError:
        free = False
    try:
        yield free
    finally:
        os.close(handle)


def _remove_stale(place: Path) -> None:
    """Removes what a run that was killed has left: folders that nobody locks."""
    for stage in place.glob(f"{STAGE}*"):
        if not STALE.fullmatch(stage.name) or stage.is_symlink() or not stage.is_dir():
            continue
        with suppress(OSError), _locked(stage) as free:
            if free and time.time() - stage.stat().st_mtime > YOUNG:
                _remove(stage)


def check_writable(folder: Path) -> None:
    """Refuses an output folder that cannot become one, before any work is done."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: is a file, not a folder; name another folder with -o.")
    if folder.is_symlink() and not folder.exists():
        raise UsageError(f"{folder}: is a link to what does not exist; make that folder, or name another one with -o.")
    _check_files(folder, FILES.values())
    with _hidden_folder(folder, trial=True):  # permissions do not tell all: root cannot write into /proc either
        pass


def _not_writable(folder: Path, error: OSError) -> UsageError:
    return UsageError(f"{folder}: cannot be written to ({error.strerror}); name another folder with -o.")


def _check_files(folder: Path, names: Iterable[str]) -> None:
    """Refuses a folder in the place of a file, which could not be replaced in one step."""
    for taken in (folder / name for name in names if (folder / name).is_dir()):
        raise UsageError(f"{taken}: is a folder, where a file of the report belongs; name another folder with -o.")


def _same_file(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
