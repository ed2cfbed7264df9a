"""The command line: the only room that prints, exits, or knows Typer. Everything heavy is imported when needed.

One file holds one command. To add one, write it and name it in the import below, which is also the order of `--help`.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from typing import NoReturn

from audit import __version__

from audit.cli import report, check, compare, history, verify, init, config, layers, render, explain, schema  # isort: skip
from audit.cli.app import app as app
from audit.errors import AuditError

WAIT_ASLEEP = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "0"}
"""For torch's threads, as read by the OpenMP of GCC and of Intel: one that waits for another does not keep a processor
busy meanwhile. On a machine with other work, such as a shared runner, that halves an audit's time; alone, it costs a
few per cent at most."""

COMMANDS = (report, check, compare, history, verify, init, config, layers, render, explain, schema)


def main() -> None:
    """Runs a command; every error leaves as one sentence and a documented exit code."""
    if "OMP_WAIT_POLICY" not in os.environ:
        for name, value in WAIT_ASLEEP.items():
            os.environ.setdefault(name, value)  # read when torch wakes, which is later
    for stop in (signal.SIGINT, signal.SIGTERM):  # Typer would say "Aborted!" and leave with the code of a failed gate
        signal.signal(stop, _interrupted)
    try:
        app()
    except AuditError as error:
        print(f"gen-audit: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except MemoryError:
        print("gen-audit: The machine ran out of memory; lower --memory or --samples.", file=sys.stderr)
        sys.exit(2)
    except Exception:
        traceback.print_exc()
        print(
            f"gen-audit: this is a fault of gen-audit {__version__} itself, not of your files; please report it with "
            "the lines above.",
            file=sys.stderr,
        )
        sys.exit(3)


def _interrupted(which: int, _frame: object) -> NoReturn:
    """Leave at once; reports are written in one step at the end, so there is nothing half done."""
    print("gen-audit: interrupted; no report was written", file=sys.stderr)
    sys.exit(128 + which)
