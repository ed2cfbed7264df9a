"""The memory that an audit may take, and how what comes from outside is held to it."""

from __future__ import annotations

import _thread
import ctypes
import gc
import mmap
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from audit.errors import BudgetError, DataError, UsageError, unreadable

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
BESIDE = 700 << 20  # bytes that reading may take beside the budget: libraries, a first forward pass
STACKS = 16 << 20  # bytes for each processor: two libraries start a thread on it, and its stack counts, used or not
LARGEST_REPORT = 1 << 27  # characters
MOST_VALUES = 4_000_000  # of a report
_BEFORE: ContextVar[int | None] = ContextVar("before", default=None)  # bytes taken before a model and data were read
LARGE = 1 << 22  # weights of a network, below which its copies may wait for the collector's turn
COPIES = 4  # of a model file, while it is converted and compared with its own runtime


def budget_bytes(memory: str | None) -> int:
    """Bytes of "512MB", "2G", "1.5 GiB"; a quarter of this machine's memory where nothing is said.

    >>> budget_bytes("1.5 GiB"), budget_bytes("512K")
    (1610612736, 524288)
    """
    if memory is None:
        return _machine_bytes() // 4
    match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,15})?)\s*([KMGT]?)(?:I?B)?\s*", memory.upper())
    if match is None or float(match[1]) == 0:
        raise UsageError(f"--memory: {memory!r} is not an amount of memory; write it like 512MB or 2GB.")
    return int(float(match[1]) * UNITS[match[2]])


def _machine_bytes() -> int:
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 8 << 30  # Windows has no sysconf; a small machine is the safe guess


def require_room(needed: int, memory: str | None, what: object) -> None:
    """Refuses what its header says is larger than the budget, before any of it is read."""
    budget = budget_bytes(memory)
    if needed > budget:
        raise BudgetError(
            f"{what}: takes {needed / 2**20:,.0f} MB once it is read, more than the memory budget of "
            f"{budget / 2**20:,.0f} MB; raise --memory, or give less of it."
        )


def report_text(path: Path, remedy: str = "name a report.json") -> str:
    """The text of a report.json, read no further than any report goes: what is named may be a device without end."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(LARGEST_REPORT + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({unreadable(error)}); {remedy}.") from error
    if len(text) > LARGEST_REPORT:
        raise UsageError(f"{path}: is larger than 128 MB, which no report is; {remedy}.")
    if sum(map(text.count, ",[{")) > MOST_VALUES:  # each takes hundreds of bytes once it is read
        raise UsageError(f"{path}: holds more than {MOST_VALUES:,} values, which no report does; {remedy}.")
    return text


def refuse_outside(path: Path, folder: Path, called: str = "data folder") -> None:
    """Refuses a link that leaves the folder that was given: what it leads to was not given to the audit."""
    target = Path(os.path.realpath(path))  # which a loop of links does not hold
    if path.is_symlink() and not target.is_relative_to(os.path.realpath(folder)):
        raise DataError(
            f"{path}: is a link to {target}, outside the {called}, and is not followed; put the file itself "
            "there, or remove the link."
        )


def found_text(path: Path, remedy: str) -> str:
    """As `report_text`, of a file that is merely found in a folder: where it waits for a writer, nobody named it."""
    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: is no ordinary file; {remedy}.")
    return report_text(path, remedy)


def appear(path: Path, write: Callable[[Path], Any]) -> None:
    """A file that is there whole or not at all; a link that lies where it is written first is not written through."""
    unfinished = path.with_name(f".{path.name}")
    unfinished.unlink(missing_ok=True)
    write(unfinished)
    os.replace(unfinished, path)


@contextmanager
def memory_limited(memory: str | None, model: Path | None = None) -> Iterator[None]:
    """Within it, taking more than the budget and some room beside it is a MemoryError, whoever asks for it.

    The system counts what can be written to, so files that are only mapped are free. Elsewhere than on Linux there is
    no such count, and the limits that headers set must do.
    """
    before = _BEFORE.get() or _taken()
    if before is None:
        with _noted():
            yield
        return
    import resource

    copies = COPIES * model.stat().st_size if model is not None and model.is_file() else 0
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = before + budget_bytes(memory) + BESIDE + STACKS * (os.cpu_count() or 1) + copies
    limits = [limit for limit in (most, soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
    try:
        with _noted():
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


READING: list[bool] = []
"""An entry for each reading or trying that is under way: `audit.cli` lets no single step of it compute for long."""


@contextmanager
def _noted() -> Iterator[None]:
    READING.append(True)
    try:
        yield
    finally:
        READING.pop()


@contextmanager
def one_budget() -> Iterator[None]:
    """Within it, all that is read shares one budget: what one attempt leaves behind the next one does not get again."""
    token = _BEFORE.set(_taken())
    try:
        yield
    finally:
        _BEFORE.reset(token)


def give_back() -> None:
    """Returns to the system what was freed: glibc keeps it, in pieces that a later stage cannot use."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # other C libraries have no such function
            ctypes.CDLL(None).malloc_trim(0)


def let_go(numbers: int) -> None:
    """Frees at once what nobody has any more but itself, as graphs do, where so many weights may hang on it."""
    if numbers > LARGE:
        gc.collect()


def _taken() -> int | None:
    """Bytes that this process can write to; None where the system does not say."""
    if sys.platform != "linux":
        return None
    try:
        found = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"))
    except OSError:
        return None
    return int(found[1]) << 10 if found else None


# Signals that stand for a fault in what is being run. A handler in Python would come too late: native code goes on
# first, and is sent the signal again. So these are answered where they arrive, on 64-bit Linux alone; elsewhere they
# end the process.
#
# A file that is mapped into memory and cut short has no bytes behind the addresses that it had, and whoever reads
# there, in whatever library and thread, is sent SIGBUS. The smallest whole number divided by -1 is SIGFPE.


CUT_SHORT: list[str] = []
"""Files that were cut short while they were mapped."""
ADDRESS = 16  # where siginfo_t has it
SOON = 0.01  # seconds
MAP_FIXED, MAP_NORESERVE, SA_SIGINFO = 0x10, 0x4000, 4  # which Python does not name
_KEPT: list[object] = []  # what the system calls must stay where it is


def answer_faults(divided: Callable[[], None]) -> None:
    """From here on a mapped file that is cut short reads as zeros where it ended; Python's handler follows at once.

    Where native code divides what cannot be divided, `divided` is called, which must end the process.
    """
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return

    class Action(ctypes.Structure):
        _fields_ = (
            ("act", ctypes.c_void_p),
            ("mask", ctypes.c_byte * 128),
            ("flags", ctypes.c_int),
            ("_", ctypes.c_void_p),
        )

    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]

    def act(number: int, told: int, _: int) -> None:
        try:
            if number == signal.SIGFPE:
                divided()
            address = ctypes.c_void_p.from_address(told + ADDRESS).value or 0
            place, size, rights, path = _rest_of_mapping(address)
            how = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE
            if libc.mmap(place, size, rights, how, -1, 0) != place:
                raise LookupError(address)
            CUT_SHORT.append(path)
            _thread.start_new_thread(_tell, ())
        except BaseException:  # it would be sent again and again
            libc.sigaction(number, ctypes.byref(Action()), None)  # by default, it ends the process

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(act)
    _KEPT.append(handler)
    action = Action(ctypes.cast(handler, ctypes.c_void_p), flags=SA_SIGINFO)
    for number in (signal.SIGBUS, signal.SIGFPE):
        libc.sigaction(int(number), ctypes.byref(action), None)


def _tell() -> None:
    """Lets the handler in Python come, which must not raise within the one that lets the reading go on."""
    time.sleep(SOON)
    _thread.interrupt_main(signal.SIGBUS)


def _rest_of_mapping(address: int) -> tuple[int, int, int, str]:
    """From the page of an address to the end of the file's mapping: place, size, rights and the file."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        span, rights, *_, path = line.split(maxsplit=5)
        begin, end = (int(each, 16) for each in span.split("-"))
        if begin <= address < end and path.startswith("/") and "x" not in rights and rights != "rw-s":
            page = address & -mmap.PAGESIZE
            return page, end - page, mmap.PROT_READ | (mmap.PROT_WRITE if "w" in rights else 0), path
    raise LookupError(address)
