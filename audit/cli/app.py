"""The Typer app, and the arguments and flags that several commands share."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from audit import __version__
from audit.errors import UsageError, unreadable
from audit.render.output import FILES
from audit.settings import CONFIG_NAME, KINDS, Settings

if TYPE_CHECKING:
    from audit.measures.report import Report

app = typer.Typer(
    name="gen-audit",
    help="Will this model hold up on data it has not seen, and why or why not?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: half the start-up time, and the README can quote it
    context_settings={"help_option_names": ["-h", "--help"]},
)

FORMATS = tuple(FILES)

ModelPath = Annotated[
    Path, typer.Argument(metavar="MODEL", help="ONNX, .pt2, TorchScript, state_dict (.pt, .pth) or .safetensors file.")
]
DataPath = Annotated[Path, typer.Argument(metavar="DATA", help="Folder with a train and a test split.")]
ConfigPath = Annotated[
    Path | None, typer.Option(help=f"Settings file (default: {CONFIG_NAME} in the data folder, then in this one).")
]
Output = Annotated[Path, typer.Option("-o", "--out", help="Folder to write the report into.")]
Formats = Annotated[str, typer.Option("-f", "--format", help=f"Which files to write, of {','.join(FORMATS)}.")]
Templates = Annotated[
    Path | None, typer.Option(help="Folder whose templates take the place of those of the same name.")
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress and no summary; errors only.")]
PolicyPath = Annotated[
    Path | None,
    typer.Option("--policy", help=f"File with the rules (default: [policy] in {CONFIG_NAME}, or built in)."),
]
BaselinePath = Annotated[
    Path | None, typer.Option("--baseline", help="A report.json that the release is held against.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Turn warnings into failures.")]
ReportPath = Annotated[Path, typer.Argument(metavar="REPORT", help="A report.json.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]


def with_settings(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds a flag for each setting (all, or those named) to a command that takes them as `**flags`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.kind is not p.VAR_KEYWORD]
        command.__signature__ = inspect.Signature([*own, *_flags(names)])  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in [*own, *_flags(names)]}
        return command

    return decorate


def _flags(names: tuple[str, ...]) -> list[inspect.Parameter]:
    flags = []
    for knob in fields(Settings):
        if names and knob.name not in names:
            continue
        kind = bool if isinstance(knob.default, bool) else str
        words = knob.metadata["meaning"] + _choices(KINDS[knob.name].choices) + _default(knob.default)
        name = f"--{knob.name.replace('_', '-')}"
        option = typer.Option(name, help=words, show_default=False)
        annotation = Annotated[kind | None, option]  # type: ignore[valid-type]
        flags.append(inspect.Parameter(knob.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
    return flags


def _choices(choices: tuple[str, ...]) -> str:
    return f" ({', '.join(choices)})" if choices else ""


def _default(default: Any) -> str:
    return "" if default in (None, False, "auto") else f" [default: {default}]"


def _version(asked: bool) -> None:
    if asked:
        print(f"gen-audit {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Will this model hold up on data it has not seen, and why or why not?"""


def chosen_formats(text: str) -> tuple[str, ...]:
    """The formats named in `-f html,pdf`, or a sentence."""
    wanted = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    unknown = [word for word in wanted if word not in FORMATS]
    if unknown or not wanted:
        raise UsageError(f"-f: {text!r} names no format that exists; choose among {', '.join(FORMATS)}.")
    return wanted


def read_report(path: Path) -> Report:
    """A report.json, or a sentence that says why it is none."""
    from audit.measures.report import Report

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({unreadable(error)}); name a report.json.") from error
    return Report.from_json(text, str(path))


def run(model: Path, data: Path, settings: Settings, quiet: bool) -> Report:
    """The audit, with progress on a terminal."""
    from audit.run.pipeline import run_audit
    from audit.run.progress import progress_for

    progress = progress_for(quiet)
    try:
        return run_audit(model, data, settings, shlex.join(["gen-audit", *sys.argv[1:]]), progress).report
    finally:
        progress.close()
