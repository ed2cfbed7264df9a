"""The hops of `report`: files that its control passes through once, which whoever follows the road must open for that.

While a report is made, control goes from function to function, and now and then from one file of `audit/` to another. A
file that is entered so exactly once is a *hop*: a step of the road that nothing else needs. What is entered again and
again (mathematics, values that many rooms share) is a tool, known after the first time; a hop is only in between. What
runs while modules are imported is not counted; a generator is entered anew whenever it goes on.

    python benchmarks/hops.py            of this tree
    python benchmarks/hops.py FOLDER     of another one, such as an older commit in a worktree

The audit is always that of the bundled healthy network on 200 train and 100 test samples, as JSON. Measured so:

|                                                              | commit 0ec839e | now |
|--------------------------------------------------------------|---------------:|----:|
| hops: files that are entered exactly once                    |             72 |  25 |
| files whose functions run                                    |            181 | 155 |
| files of the road: functions that run once, all the way      |            125 | 111 |
| … of them, those that call on into another file              |             42 |  44 |

The other rows say how much there is, which grows with what is measured; the first says how much of it is corridor.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

ASKED = ("-o", "out", "-f", "json", "-q", "--samples", "200", "--test-samples", "100")


class Place(NamedTuple):
    """A function of the package; none where control comes from outside."""

    file: str
    function: str


OUTSIDE = Place("", "")
Calls = Mapping[tuple[Place, Place], int]  # caller and called → how often


class Watch:
    """A profile function that counts the calls between functions of the package in `root`."""

    def __init__(self, root: Path) -> None:
        self.calls: Counter[tuple[Place, Place]] = Counter()
        self._package, self._root = f"{root / 'audit'}{os.sep}", root

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Notes a call, unless a module is being imported."""
        if event != "call" or not self._is_ours(frame):
            return
        callers = []
        above: FrameType | None = frame
        while above is not None:
            if self._is_ours(above):
                callers.append(above)
            above = above.f_back
        if not any(each.f_code.co_name == "<module>" for each in callers):
            caller = self._place(callers[1]) if len(callers) > 1 else OUTSIDE
            self.calls[caller, self._place(frame)] += 1

    def _is_ours(self, frame: FrameType) -> bool:
        return frame.f_code.co_filename.startswith(self._package)

    def _place(self, frame: FrameType) -> Place:
        code = frame.f_code
        return Place(str(Path(code.co_filename).relative_to(self._root)), f"{code.co_name}:{code.co_firstlineno}")


def hops(calls: Calls) -> list[str]:
    """The files that control enters exactly once from another file or from outside."""
    entered: Counter[str] = Counter()
    for (caller, called), times in calls.items():
        entered[called.file] += times * (caller.file != called.file)
    return sorted(file for file, times in entered.items() if times == 1)


def road(calls: Calls) -> set[Place]:
    """Functions that run once, and are called by such ones all the way from outside."""
    times: Counter[Place] = Counter()
    for (_, called), count in calls.items():
        times[called] += count
    found, last = set(), {OUTSIDE}
    while last:
        last = {called for caller, called in calls if caller in last and times[called] == 1} - found
        found |= last
    return found


def watched(root: Path) -> Calls:
    """The calls of a report by the package in `root`."""
    sys.path.insert(0, str(root))
    from audit.cli import main

    watch, sample = Watch(root), root / "samples"
    sys.argv = ["gen-audit", "report", str(sample / "healthy.onnx"), str(sample / "mnist"), *ASKED]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        threading.setprofile(watch)
        sys.setprofile(watch)
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
            os.chdir(root)
    return watch.calls


def printed(calls: Calls) -> str:
    """All counts, and the hops by name."""
    way = road(calls)
    call_on = {caller.file for caller, called in calls if {caller, called} <= way and caller.file != called.file}
    lines = [
        *hops(calls),
        f"{len(hops(calls))} hops: files that are entered exactly once",
        f"{len({called.file for _, called in calls})} files whose functions run",
        f"{len({place.file for place in way})} files of the road: functions that run once, all the way",
        f"{len(call_on)} of them call on into another file",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(printed(watched(Path(*sys.argv[1:2] or [Path(__file__).parents[1]]).resolve())))
