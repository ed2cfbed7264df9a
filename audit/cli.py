"""The command line: the only room that prints, exits, or knows Typer. Everything heavy is imported when needed."""

from __future__ import annotations

import inspect
import shlex
import sys
import traceback
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from audit import __version__
from audit.errors import AuditError, UsageError
from audit.settings import CONFIG_NAME, Settings, resolve

app = typer.Typer(
    name="gen-audit",
    help="Will this model hold up on data it has not seen, and why or why not?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: half the start-up time, and the README can quote it
    context_settings={"help_option_names": ["-h", "--help"]},
)

FORMATS = ("html", "pdf", "json", "md")

ModelPath = Annotated[
    Path, typer.Argument(metavar="MODEL", help="ONNX, .pt2, TorchScript, state_dict (.pt, .pth) or .safetensors file.")
]
DataPath = Annotated[Path, typer.Argument(metavar="DATA", help="Folder with a train and a test split.")]
ConfigPath = Annotated[Path | None, typer.Option(help=f"Settings file (default: {CONFIG_NAME} in the data folder).")]
Output = Annotated[Path, typer.Option("-o", "--out", help="Folder to write the report into.")]
Formats = Annotated[str, typer.Option("-f", "--format", help=f"Which files to write, of {','.join(FORMATS)}.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress and no summary; errors only.")]
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
        words = knob.metadata["meaning"] + _choices(knob.metadata["choices"]) + _default(knob.default)
        name = f"--{knob.name.replace('_', '-')}"
        option = typer.Option(name, help=words, show_default=False)
        annotation = Annotated[kind | None, option]  # type: ignore[valid-type]
        flags.append(inspect.Parameter(knob.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
    return flags


def _choices(choices: tuple[str, ...]) -> str:
    return f" ({', '.join(choices)})" if choices else ""


def _default(default: Any) -> str:
    return "" if default in (None, False, "auto") else f" [default: {default}]"


@app.command()
@with_settings()
def report(
    model: ModelPath,
    data: DataPath,
    out: Output = Path("gen-audit-report"),
    formats: Formats = "html,pdf,json",
    config: ConfigPath = None,
    quiet: Quiet = False,
    **flags: Any,
) -> None:
    """Audit MODEL on DATA and write the report."""
    from audit.output import check_writable, staged
    from audit.pipeline import run_audit
    from audit.progress import progress_for
    from audit.render import write_report
    from audit.terminal import print_outcome

    wanted = _formats(formats)
    settings = resolve(flags, _config(config, data))
    check_writable(out)
    progress = progress_for(quiet)
    try:
        result = run_audit(model, data, settings, shlex.join(["gen-audit", *sys.argv[1:]]), progress)
        with staged(out) as stage:
            written = write_report(result, stage, wanted)
            if not written.files:
                raise UsageError(written.missing[0])
    finally:
        progress.close()
    print_outcome(result, out, written, quiet)


@app.command()
@with_settings("arch", "trust_pickle", "output", "input", "conv")
def layers(model: ModelPath, as_json: AsJson = False, **flags: Any) -> None:
    """List the layers of MODEL: measured, or passed by and why."""
    from audit.listing import list_layers
    from audit.terminal import print_layers

    print_layers(*list_layers(model, resolve(flags)), as_json=as_json)


@app.command()
def schema() -> None:
    """Print the JSON Schema of report.json."""
    import json

    from audit.report import json_schema

    print(json.dumps(json_schema(), indent=2))


@app.command()
def render(
    report_file: Annotated[Path, typer.Argument(metavar="REPORT", help="A report.json.")],
    out: Output = Path("gen-audit-report"),
    formats: Formats = "html",
) -> None:
    """Draw the pages of a report.json again, without the model."""
    from audit.output import staged
    from audit.render import write_report
    from audit.report import Report

    wanted = _formats(formats)
    try:
        text = report_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{report_file}: cannot be read ({error}); name a report.json.") from error
    result = Report.from_json(text, str(report_file))
    with staged(out, new_audit=False) as stage:
        written = write_report(result, stage, wanted)
        if not written.files:
            raise UsageError(written.missing[0])
    for missing in written.missing:
        print(f"gen-audit: {missing}", file=sys.stderr)
    for name in written.files:
        print(out / name)


@app.command()
def explain(
    name: Annotated[str | None, typer.Argument(help="A number of the report, such as kappa or fisher.gamma.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every definition card, in the report's order.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print what a number of the report is and can tell."""
    import json
    from dataclasses import asdict

    from audit.cards import ALL_CARDS
    from audit.cards.lookup import find_cards
    from audit.cards.text import card_text

    if everything == (name is not None):
        raise UsageError("explain: takes the name of one number, or --all; try `gen-audit explain kappa`.")
    cards = list(ALL_CARDS) if name is None else find_cards(name)
    if as_json:
        print(json.dumps([asdict(card) for card in cards], indent=2, ensure_ascii=False))
    else:
        print("\n\n".join(map(card_text, cards)))


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


def _formats(text: str) -> tuple[str, ...]:
    wanted = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    unknown = [word for word in wanted if word not in FORMATS]
    if unknown or not wanted:
        raise UsageError(f"-f: {text!r} names no format that exists; choose among {', '.join(FORMATS)}.")
    return wanted


def _config(config: Path | None, data: Path) -> Path | None:
    if config is not None:
        return config
    beside = data / CONFIG_NAME
    return beside if beside.is_file() else None


def main() -> None:
    """Runs a command; every error leaves as one sentence and a documented exit code."""
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


if __name__ == "__main__":
    main()
