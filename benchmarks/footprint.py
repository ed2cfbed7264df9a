"""What an audit takes besides the time of its measures: peak memory, and the seconds before anything is measured.

Memory is measured in a child process, since a peak never goes down again:
`python -m benchmarks.footprint CASE SAMPLES WEIGHTS BUDGET PRECISION THREADS` is that child.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from audit.checks import run_checks
from audit.measures.suite import run_suite
from audit.run.progress import Progress
from audit.settings import Settings
from benchmarks.cases import Case, make_case

SIZES = (1000, 4000, 16000)
BUDGET = "1GB"
ROOT = Path(__file__).parent.parent
START_UP = {
    "gen-audit --help": ("-m", "audit", "--help"),
    "import of everything": ("-c", "import audit.run.pipeline"),
    "gen-audit layers": ("-m", "audit", "layers", "samples/healthy.onnx"),
}
REPEATS = 3


def peak_memory(case: Case) -> list[dict[str, object]]:
    """Peak memory of suite and checks with `--memory 1GB`, for growing numbers of samples (the same images again)."""
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "weights.pt"
        torch.save(case.network.state_dict(), weights)
        return [_in_child(case, n, weights) for n in SIZES]


def start_up() -> dict[str, dict[str, float]]:
    """Wall and processor seconds of commands that measure nothing, in a new process each; the best of three."""
    return {name: _command(arguments) for name, arguments in START_UP.items()}


def _in_child(case: Case, n: int, weights: Path) -> dict[str, object]:
    arguments = (case.name, str(n), str(weights), BUDGET, case.settings.precision, str(torch.get_num_threads()))
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks.footprint", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {"case": case.name, "samples": n, "budget": BUDGET, **json.loads(child.stdout)}


def _command(arguments: tuple[str, ...]) -> dict[str, float]:
    wall, cpu = [], []
    for _ in range(REPEATS):
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, check=True)
        wall.append(time.perf_counter() - begin)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {"wall": min(wall), "cpu": min(cpu)}


def _peak() -> int:
    """Bytes at the highest so far; not `ru_maxrss` on Linux, where a child starts with that of its parent."""
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS counts in bytes


def _child(name: str, n: str, weights: str, budget: str, precision: str, threads: str) -> None:
    torch.set_num_threads(int(threads))
    settings = Settings(memory=budget, precision=precision)
    standing = _peak()  # Python, torch and gen-audit, without model and data
    audit = make_case(name, settings, int(n), Path(weights)).audit()
    results = run_suite(audit, Progress())
    suite = _peak()
    run_checks(audit, results)
    megabytes = {"imports_mb": standing, "suite_mb": suite - standing, "checks_mb": _peak() - standing}
    print(json.dumps({key: value / 1e6 for key, value in megabytes.items()}))


if __name__ == "__main__":
    _child(*sys.argv[1:])
