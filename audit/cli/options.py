"""The arguments and flags of the commands: how `--help` shows them, and which values a shell completes.

Where no values are known, as for a file, the shell completes paths.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import Field, fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from audit.errors import UsageError
from audit.render import FILES
from audit.settings import KINDS, Kind, Settings, flag
from audit.settings.config import CONFIG_NAME

FORMATS = tuple(FILES)
PAGES = ("html", "pdf", "json", "md")
GROUPS = ("Arguments", "Twins", "Model", "Data", "Measures", "Policy", "Output", "Resources", "Options")
TYPES = {"<str>": "<text>", "<list[Path]>": "<path>..."}  # as Typer calls them, and as `--help` does
REPEATED = ("drop",)  # settings whose flag may be given several times: a column's name may have a comma in it
LINE = 64  # letters of choices that fit beside the name of a flag; more of them stand in its help


class GroupedCommand(TyperCommand):
    """A command whose `--help` lists its options by `rich_help_panel` in plain text, too."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes one section for each group that has options here, in the order of `GROUPS`."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is None:
                continue
            for typers, ours in TYPES.items():
                record = record[0].replace(typers, ours), record[1]
            argument = parameter.param_type_name == "argument"
            group = "Arguments" if argument else getattr(parameter, "rich_help_panel", None) or "Options"
            groups.setdefault(group, []).append(record)
        for group in sorted(groups, key=GROUPS.index):
            with formatter.section(group):
                formatter.write_dl(groups[group])


def completing(words: Sequence[str]) -> Callable[[str], list[str]]:
    """Completes to one of these words; of several separated by commas, the last one."""

    def complete(incomplete: str) -> list[str]:
        before, comma, begun = incomplete.rpartition(",")
        return [f"{before}{comma}{word}" for word in words if word.startswith(begun)]

    return complete


def formats_option(formats: tuple[str, ...]) -> Any:
    """`-f`, for a command that writes these formats."""
    return typer.Option(
        "-f",
        "--format",
        metavar="<text,text>",
        help=f"Which files to write, of {','.join(formats)}.",
        autocompletion=completing(formats),
        rich_help_panel="Output",
    )


def output_option(what: str) -> Any:
    """`-o`, for a command that writes something."""
    return typer.Option("-o", "--out", help=f"Folder to write the {what}.", rich_help_panel="Output")


ModelPath = Annotated[
    Path, typer.Argument(metavar="MODEL", help="ONNX, .pt2, TorchScript, state_dict (.pt, .pth) or .safetensors file.")
]
DataPath = Annotated[Path, typer.Argument(metavar="DATA", help="Folder with a train and a test split.")]
ReportPath = Annotated[Path, typer.Argument(metavar="REPORT", help="A report.json.")]
ConfigPath = Annotated[
    Path | None,
    typer.Option(
        help=f"Settings file (default: {CONFIG_NAME} in the data folder, which may describe the data only, then in "
        "this one)."
    ),
]
Output = Annotated[Path, output_option("report into")]
Formats = Annotated[str, formats_option(FORMATS)]
PageFormats = Annotated[str, formats_option(PAGES)]
Templates = Annotated[
    Path | None,
    typer.Option(help="Folder whose templates take the place of those of the same name.", rich_help_panel="Output"),
]
BaselinePath = Annotated[
    Path | None,
    typer.Option("--baseline", help="An earlier report.json to compare this one with.", rich_help_panel="Output"),
]
BesideTwins = Annotated[
    str | None,
    typer.Option(
        "--twins",
        metavar="<folder>|<time>",
        help="Hold the model beside the twins of a folder, or of as many as 10m, say, suffice to make.",
        rich_help_panel="Measures",
    ),
]
Short = Annotated[
    bool, typer.Option("--short", help="Leave the appendix for experts out of the pages.", rich_help_panel="Output")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead.", rich_help_panel="Output")]
Quiet = Annotated[
    bool, typer.Option("-q", "--quiet", help="No progress and no summary; errors only.", rich_help_panel="Output")
]

PlanPath = Annotated[
    Path | None,
    typer.Option("--plan", help="Measure as this report.json did, instead of planning.", rich_help_panel="Resources"),
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Say what would be measured how, and for how long.", rich_help_panel="Resources"),
]

Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with an audit that was interrupted.", rich_help_panel="Resources")
]


def with_settings(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds a flag for each setting (all, or those named) to a command that takes them as `**flags`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.kind is not p.VAR_KEYWORD]
        flags = [_parameter(setting) for setting in fields(Settings) if not names or setting.name in names]
        command.__signature__ = inspect.Signature([*own, *flags])  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in [*own, *flags]}
        return command

    return decorate


def _parameter(setting: Field[Any]) -> inspect.Parameter:
    """The flag of a setting, not yet of its type: `audit.settings` takes it from every place in the same way."""
    kind = KINDS[setting.name]
    repeated = setting.name in REPEATED
    metavar = _metavar(replace(kind, several=kind.several and not repeated))
    listed = f" ({', '.join(kind.choices)})" if kind.choices and len(metavar) > LINE else ""
    default = "" if setting.default in (None, False, "auto") else f" [default: {setting.default}]"
    name = flag(setting.name)
    option = typer.Option(
        f"{name}/--no-{name.removeprefix('--')}" if kind.plain is bool else name,
        help=f"{setting.metadata['meaning']}{listed}{default}",
        show_default=False,
        metavar="<text>" if listed else metavar,
        autocompletion=completing(kind.choices) if kind.choices else None,
        rich_help_panel=setting.metadata["group"],
    )
    plain = list[str] if repeated else bool if kind.plain is bool else str
    annotation = Annotated[plain | None, option]  # type: ignore[valid-type]
    return inspect.Parameter(setting.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _metavar(kind: Kind) -> str:
    """What is to be given: `<int>`, `<float,float>` or the words to choose from."""
    name = "text" if kind.plain is str else kind.plain.__name__
    return f"<{'|'.join(kind.choices) or (f'{name},{name}' if kind.several else name)}>"


def chosen_formats(text: str) -> tuple[str, ...]:
    """The formats named in `-f html,pdf`, or a sentence."""
    wanted = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    unknown = [word for word in wanted if word not in FORMATS]
    if unknown or not wanted:
        raise UsageError(f"-f: {text!r} names no format that exists; choose among {', '.join(FORMATS)}.")
    return wanted
