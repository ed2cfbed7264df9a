"""The command line: the only room that prints, exits, or knows Typer. Everything heavy is imported when needed.

One file holds one command. To add one, write it and name it in the import below, which is also the order of `--help`.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import traceback
from threading import Timer
from typing import NoReturn

from audit import __version__

from audit.cli import report, twins, check, compare, history, overview, verify  # isort: skip
from audit.cli import init, config, layers, render, explain, schema  # isort: skip
from audit.cli.app import app as app
from audit.cli.terminal import any_alphabet, complain
from audit.errors import AuditError, out_of_memory
from audit.settings.limits import CUT_SHORT, SOON, answer_faults

WAIT_ASLEEP = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "0"}
"""For torch's threads, as read by the OpenMP of GCC and of Intel: one that waits for another does not keep a processor
busy meanwhile. On a machine with other work, such as a shared runner, that halves an audit's time; alone, it costs a
few per cent at most."""

STOPS = (signal.SIGINT, signal.SIGTERM)
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
    if hasattr(signal, "SIGBUS"):
        signal.signal(signal.SIGBUS, _cut_short)
        answer_faults(_divided)
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


def _interrupted(which: int, _frame: object) -> NoReturn:
    """Leave at once; reports appear in one step at the end, so there is nothing half done."""
    for stop in STOPS:
        signal.signal(stop, signal.SIG_IGN)  # a second one must not break the tidying up
    _leave("interrupted; no report is left half-written", 128 + which)


def _dropped(error: sys.UnraisableHookArgs) -> None:
    """An end that came where Python drops errors, as in a generator that is being closed, comes once more."""
    if not isinstance(error.exc_value, SystemExit):
        sys.__unraisablehook__(error)
    elif isinstance(error.exc_value.code, int) and (which := error.exc_value.code - 128) in set(STOPS):
        signal.signal(which, lambda which, _frame: sys.exit(128 + which))
        Timer(SOON, _thread.interrupt_main, (which,)).start()


def _cut_short(which: int, _frame: object) -> NoReturn:
    """Leave at once, too: an error that is raised anywhere may be taken for what is wrong there."""
    if not CUT_SHORT:
        sys.exit(128 + which)
    _leave(f"{CUT_SHORT[-1]}: was cut short while it was read; audit it once it is finished.", 2)


def _divided() -> NoReturn:
    """Leave from within native code, which cannot go on: nothing is tidied up but by the next run."""
    complain(
        "gen-audit: the model divides the smallest whole number by -1, or one by 0, which ends what runs it; mend it."
    )
    os._exit(2)
