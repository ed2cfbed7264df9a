"""What `compare` and `history` share: they write their result as pages and tell it in lines, or as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from audit.render.write import Written
    from audit.report.schema import Document

Pages = Annotated[str, typer.Option("-f", "--format", help="Which files to write, of html,pdf,json,md.")]


Result = TypeVar("Result", bound="Document")


def make_pages(
    out: Path,
    formats: str,
    make: Callable[[], Result],
    write: Callable[[Result, Path, Sequence[str]], Written],
    lines: Callable[[Result], Iterable[str]],
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Make a result, write it into `out`, and say so; what cannot be written is refused before the work."""
    from audit.cli.terminal import tell_missing
    from audit.render.comparison_pages import chosen_pages
    from audit.render.output import check_writable, staged

    wanted = chosen_pages(formats)
    check_writable(out)
    result = make()
    with staged(out, new_audit=False) as stage:
        written = write(result, stage, wanted).checked()
    tell_missing(written)
    if as_json:
        print(result.to_json(), end="")
    elif not quiet:
        print("\n".join([*lines(result), *(str(out / name) for name in written.files)]))
