"""Writes `expected/*.json`: what an audit of each bundled network gives, without what depends on the moment or machine.

Run it after a change that is meant to change numbers (about a minute); `make test-slow` compares.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from audit.run.pipeline import run_audit
from audit.run.progress import Progress
from audit.settings import Settings

HERE = Path(__file__).parent
CASES = {"healthy": "mnist", "large-batch": "mnist", "mislabelled": "mnist-mislabelled"}
LEFT_OUT = {"created", "command", "settings", "timings", "outcomes", "plan", "thumbnails", "path", "platform", "python"}
LONGEST = 12  # lists beyond it are left out: the numbers that are made from them stay


def audited(name: str) -> dict[str, Any]:
    """The values of a fresh audit, as in report.json."""
    report = run_audit(HERE / f"{name}.onnx", HERE / CASES[name], Settings(memory="1GB"), "", Progress()).report
    values: dict[str, Any] = json.loads(report.to_json())
    return values


def trimmed(value: Any) -> Any:
    """A value without keys that are left out and without long lists."""
    if isinstance(value, dict):
        kept = {key: trimmed(inner) for key, inner in value.items() if key not in LEFT_OUT}
        return {key: inner for key, inner in kept.items() if not (isinstance(inner, list) and len(inner) > LONGEST)}
    return [trimmed(inner) for inner in value] if isinstance(value, list) else value


def main() -> None:
    """Writes one file per network, or those of the networks named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CASES)}; all where none is given")
    names = parser.parse_args().names
    if unknown := sorted(set(names) - set(CASES)):
        parser.error(f"{unknown[0]}: is no bundled network; choose from {', '.join(CASES)}.")
    (HERE / "expected").mkdir(exist_ok=True)
    for name in names or CASES:
        text = json.dumps(trimmed(audited(name)), indent=1, ensure_ascii=False)
        (HERE / "expected" / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
