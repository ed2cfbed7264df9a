"""The rows of the benchmark as a Markdown table."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.real.measure import Row

HEAD = ("case", "parameters", "file", "audit", "limit", "÷ epoch", "CPU", "÷ epoch", "memory", "limit", "plan", "")


def markdown(rows: Sequence[Row]) -> str:
    """One line a case. An audit that was ended has a ≥ before what it took; one that failed has no ratio."""
    lines = [HEAD, ("---",) * len(HEAD), *(_cells(row) for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cells(row: Row) -> tuple[str, ...]:
    least = "≥ " if row.code is None else ""
    epochs_limit = "" if row.epochs_limit is None else f" (≤ {row.epochs_limit:g})"
    return (
        row.case,
        f"{row.parameters:,}",
        row.model,
        f"{least}{row.wall:.1f} s",
        f"{row.seconds_limit:g} s",
        f"{least}{row.epochs:.1f}{epochs_limit}" if row.code in (0, None) else "–",
        f"{least}{row.cpu:.1f} s",
        f"{least}{row.epochs_cpu:.1f}" if row.code in (0, None) else "–",
        f"{least}{row.peak_above / 1e9:.2f} GB",
        "–" if row.bytes_limit is None else f"{row.bytes_limit / 1e9:g} GB",
        "–" if row.predicted is None else f"{row.predicted:.1f} s",
        row.verdict,
    )
