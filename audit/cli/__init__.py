"""The command line: the only room that prints, exits, or knows Typer. Everything heavy is imported when needed.

One file holds one command. To add one, write it and name it in the import below, which is also the order of `--help`.
"""

from __future__ import annotations

import _thread
import os
import select
import signal
import socket
import sys
import time
import traceback
from threading import Thread, Timer, main_thread
from typing import NoReturn

from audit import __version__

from audit.cli import report, twins, check, compare, history, overview, verify  # isort: skip
from audit.cli import init, config, layers, render, explain, schema  # isort: skip
from audit.cli.app import app as app
from audit.cli.terminal import any_alphabet, complain
from audit.errors import AuditError, out_of_memory
from audit.settings.limits import CUT_SHORT, READING, SOON, answer_faults

WAIT_ASLEEP = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "0"}
"""For torch's threads, as read by the OpenMP of GCC and of Intel: one that waits for another does not keep a processor
busy meanwhile. On a machine with other work, such as a shared runner, that halves an audit's time; alone, it costs a
few per cent at most."""

STOPS = (signal.SIGINT, signal.SIGTERM)
FAULT = getattr(signal, "SIGBUS", None)
GRACE, PATIENCE = 3.0, 30.0  # seconds of computing, and of waiting, in which a signal is answered the ordinary way
LONGEST = 60.0  # seconds of computing of one native call while files are read and a model is tried out
_HEARD: set[int] = set()
"""Signals that Python has answered."""
COMMANDS = (report, twins, check, compare, history, overview, verify, init, config, layers, render, explain, schema)


def main() -> None:
    """Runs a command; every error leaves as one sentence and a documented exit code."""
    if "OMP_WAIT_POLICY" not in os.environ:
        for name, value in WAIT_ASLEEP.items():
            os.environ.setdefault(name, value)  # read when torch wakes, which is later
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
    any_alphabet(sys.stdout, sys.stderr)
    sys.unraisablehook = _dropped
    for stop in STOPS:  # Typer would say "Aborted!" and leave with the code of a failed gate
        signal.signal(stop, _interrupted)
    if FAULT is not None:
        signal.signal(FAULT, _cut_short)
        answer_faults(_divided)
    _watch()
    try:
        app()
    except AuditError as error:
        _leave(" ".join(str(error).splitlines()), error.exit_code)
    except OSError as error:
        _leave(_system_fault(error), 2)
    except Exception as error:
        if out_of_memory(error):
            _leave("The machine ran out of memory; lower --memory or --samples.", 2)
        for line in traceback.format_exc().splitlines():
            complain(line)
        _leave(
            f"this is a fault of gen-audit {__version__} itself, not of your files; please report it with the lines "
            "above.",
            3,
        )


def _leave(sentence: str, code: int) -> NoReturn:
    complain(f"gen-audit: {sentence}")
    sys.exit(code)


def _system_fault(error: OSError) -> str:
    """A full disk, a limit on files, a folder that vanished, a pipe that nobody reads: no fault of ours."""
    where = f"{error.filename}: " if error.filename is not None else ""
    reason = error.strerror or type(error).__name__
    return f"{where}cannot be read or written ({reason}); make room or name another place."


INTERRUPTED = "interrupted; no report is left half-written"


def _interrupted(which: int, _frame: object) -> NoReturn:
    """Leave at once; reports appear in one step at the end, so there is nothing half done."""
    _HEARD.add(which)
    for stop in STOPS:
        signal.signal(stop, signal.SIG_IGN)  # a second one must not break the tidying up
    _leave(INTERRUPTED, 128 + which)


def _dropped(error: sys.UnraisableHookArgs) -> None:
    """An end that came where Python drops errors, as in a generator that is being closed, comes once more."""
    if not isinstance(error.exc_value, SystemExit):
        sys.__unraisablehook__(error)
    elif isinstance(error.exc_value.code, int) and (which := error.exc_value.code - 128) in set(STOPS):
        signal.signal(which, lambda which, _frame: sys.exit(128 + which))
        Timer(SOON, _thread.interrupt_main, (which,)).start()


def _cut_short(which: int, _frame: object) -> NoReturn:
    """Leave at once, too: an error that is raised anywhere may be taken for what is wrong there."""
    _HEARD.add(which)
    if not CUT_SHORT:
        sys.exit(128 + which)
    _leave(_shortened(), 2)


def _shortened() -> str:
    return f"{CUT_SHORT[-1]}: was cut short while it was read; audit it once it is finished."


def _divided() -> NoReturn:
    """Leave from within native code, which cannot go on: nothing is tidied up but by the next run."""
    complain(
        "gen-audit: the model divides the smallest whole number by -1, or one by 0, which ends what runs it; mend it."
    )
    os._exit(2)


# Python answers a signal once native code comes back to it, which may take hours. So a thread of its own hears of each
# as it arrives, and of calls that do not come back.


def _watch() -> None:
    told, tells = socket.socketpair()
    tells.setblocking(False)
    signal.set_wakeup_fd(tells.detach(), warn_on_full_buffer=False)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))  # a worker's signals are its own
    Thread(target=_watched, args=(told,), daemon=True).start()


def _watched(told: socket.socket) -> NoReturn:
    place, begin = _place(), _computed()
    while True:
        if select.select([told], [], [], 1)[0]:
            which = told.recv(1)[0]
            if which in (*STOPS, FAULT):
                _end_without_answer(which)
        elif place != _place() or not READING:
            place, begin = _place(), _computed()
        elif _computed() - begin > LONGEST:
            _end_now(
                f"one step of reading a file, or of trying the model out, takes over {LONGEST:g} seconds; give a "
                "smaller one, or one that is whole.",
                2,
            )


def _end_without_answer(which: int) -> None:
    """Ends the process, with nothing tidied up but by the next run, unless Python answers soon."""
    begin, late = _computed(), time.monotonic() + PATIENCE
    while which not in _HEARD:
        time.sleep(SOON)
        if _computed() - begin < GRACE and time.monotonic() < late:
            continue
        if signal.getsignal(which) is _interrupted:  # it is not held back for the moment
            _end_now(INTERRUPTED, 128 + which)
        if signal.getsignal(which) is _cut_short and CUT_SHORT:
            _end_now(_shortened(), 2)


def _end_now(sentence: str, code: int) -> NoReturn:
    complain(f"gen-audit: {sentence}")
    os._exit(code)


def _place() -> tuple[int, int]:
    """Where Python stands: the same as before while native code runs."""
    frame = sys._current_frames()[main_thread().ident or 0]
    return id(frame), frame.f_lasti


def _computed() -> float:
    """Seconds that the main thread has computed; none where the system does not tell."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return 0.0
    return time.clock_gettime(time.pthread_getcpuclockid(main_thread().ident or 0))
