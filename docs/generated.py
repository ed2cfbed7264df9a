"""Pages that are written from the code at build, so that nothing is said twice: measures, findings, words, files.

MkDocs calls the functions named `on_…`. A line `<!-- file: samples/ci/github.yml -->` on a page becomes that file,
`<!-- part: CONTRIBUTING.md, How to add … -->` the text beneath that heading, `<!-- report: md -->` the example, and
`<!-- table: kinds -->` a table of TABLES. The line right below a call is for who reads the page in the checkout: a
link to the file that fills the place. It goes with the call, and links of OF_CHECKOUT become those of the built pages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from audit.measures.catalogue import CATALOGUE, Entry
from audit.render.cards import OF_FINDINGS, PARTS, WORDS
from audit.render.page import marked
from audit.report.fields import Card
from audit.report.twins import CARDS as OF_TWINS
from audit.twins.kinds import KINDS

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "build" / "docs-report"  # an audit that `make docs` makes before it builds
UNITS = ROOT / "benchmarks" / "twin_units.json"  # seconds of a twin, written by `python -m benchmarks.twin_units`
CORES = (1, 64, 640)
CALL = re.compile(r"^<!-- (?P<what>file|part|report|table): (?P<name>.+?) -->$(?P<instead>\n.+)?", re.MULTILINE)
OF_CHECKOUT = {  # what a page links to in the checkout, and what it is in the built documentation
    "../audit/findings/rules": "findings.md",
    "../samples/README.md": "example/report.html",
    "../samples/report-page-1.png": "example/page-1.png",
    "../SECURITY.md": "security.md",
}
LANGUAGES = {".yml": "yaml", ".yaml": "yaml", ".py": "python", ".toml": "toml"}


def pages() -> dict[str, str]:
    """Address and Markdown of every page that is written from the code."""
    measures = {f"measures/{entry.key}.md": measure_page(entry) for entry in CATALOGUE}
    security = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    rest = {"findings.md": findings_page(), "words.md": words_page(), "security.md": security}
    return {**measures, "measures/twins.md": twins_page(), **rest}


def measure_page(entry: Entry) -> str:
    """One measure: what it changes for the decision, and a card for each of its numbers."""
    place = (
        f"For experts: its section stands in the report's appendix. For the decision: {entry.decision}"
        if entry.decision
        else "For everyone: its section stands in the body of the report."
    )
    follows = "\n\n!!! warning\n    Compare these numbers only at the same train loss, on the same data."
    warning = follows if entry.follows_train_loss else ""
    return "\n\n".join([f"# {entry.title}", f"{place}{warning}", *map(card_text, entry.cards)])


def twins_page() -> str:
    """What networks trained anew say of a model."""
    opening = (
        "For everyone: its section stands in the body of the report, where there are twins: networks of the model's "
        "own architecture, trained anew on its data (`gen-audit twins`)."
    )
    return "\n\n".join(["# Beside its twins", opening, *map(card_text, OF_TWINS)])


def findings_page() -> str:
    """Every rule with its conditions, and where its limits come from."""
    opening = (
        "Sentences that rules write from the numbers of a report, each with a level: **concern**, a fault is shown; "
        "**watch**, a person should look; **note**, a fact without a scale; **good**, looked for and not found. "
        "`gen-audit explain findings.mislabelled` prints one of these."
    )
    return "\n\n".join(["# Findings", opening, *map(card_text, OF_FINDINGS)])


def words_page() -> str:
    """The glossary."""
    rows = Markup("").join(Markup("<dt>{}</dt><dd>{}</dd>\n").format(word, says) for word, says in WORDS.items())
    return f"# Words\n\n<dl>\n{rows}</dl>\n"


def card_text(card: Card) -> str:
    """A definition card: HTML beneath its heading, in which Markdown finds nothing to obey."""
    labels = dict(PARTS) | ({"Speaks when": "formula"} if card.id.startswith("findings.") else {})
    if "Speaks when" in labels:
        del labels["Formula"]
    given = [(label, getattr(card, part)) for label, part in labels.items() if getattr(card, part)]
    rows = Markup("").join(Markup("<dt>{}</dt><dd>{}</dd>\n").format(label, marked(words)) for label, words in given)
    heading = f"## {_plain(card.title)} {{ #{card.id} }}"
    return f"{heading}\n\n<p>{marked(card.meaning)} <code>{escape(card.id)}</code></p>\n<dl>\n{rows}</dl>"


def _plain(title: str) -> str:
    return re.sub(r"([\\`*_\[\]<>#{}])", r"\\\1", title)


def filled(markdown: str) -> str:
    """A page with its calls replaced by what they name, and its links by those of the built pages."""
    for here, built in OF_CHECKOUT.items():
        markdown = markdown.replace(f"]({here})", f"]({built})")
    return CALL.sub(lambda call: WRITERS[call["what"]](call["name"]), markdown)


def _file(name: str) -> str:
    text = (ROOT / name).read_text(encoding="utf-8").rstrip()
    return f"```{LANGUAGES.get(Path(name).suffix, '')}\n{text}\n```"


def _part(name: str) -> str:
    file, _, heading = name.partition(", ")
    text = (ROOT / file).read_text(encoding="utf-8")
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0].strip()


def _report(name: str) -> str:
    """The Markdown of the example, a heading deeper."""
    return (EXAMPLE / f"report.{name}").read_text(encoding="utf-8").replace("# ", "### ", 1).strip()


def _kinds() -> str:
    """The kinds of twins, in order of worth."""
    head = "| kind | changed | question | made |\n|---|---|---|---:|\n"
    return head + "\n".join(f"| `{kind.name}` | {kind.change} | {kind.question} | {kind.count} |" for kind in KINDS)


def _costs() -> str:
    """Plain twins an hour, computed from the seconds that one takes."""
    head = "| network | parameters | training | measuring | one core | 64 cores | ten such machines |\n"
    return (
        head + "|---|---:|---:|---:|---:|---:|---:|\n" + "\n".join(map(_cost, json.loads(UNITS.read_text()).values()))
    )


def _cost(unit: dict[str, Any]) -> str:
    seconds = unit["training"] + unit["measuring"]
    rates = [f"{_rounded(3600 * cores / seconds):,}" for cores in CORES]
    taken = [f"{unit[part]:.1f} s" for part in ("training", "measuring")]
    return f"| {' | '.join([unit['network'], format(unit['parameters'], ','), *taken, *rates])} |"


def _rounded(value: float) -> int:
    """To two digits: more were not measured."""
    return int(float(f"{value:.2g}"))


TABLES = {"kinds": _kinds, "costs": _costs}
WRITERS = {"file": _file, "part": _part, "report": _report, "table": lambda name: TABLES[name]()}


# What MkDocs calls.


def on_config(config: Any) -> Any:
    """Puts the measures into the navigation, in the order of the catalogue."""
    if not (EXAMPLE / "report.html").is_file():
        raise SystemExit(f"{EXAMPLE}: has no report to show; run `make docs`.")
    measures = [{entry.title: f"measures/{entry.key}.md"} for entry in CATALOGUE]
    measures.append({"Beside its twins": "measures/twins.md"})
    config["nav"] = [{"Measures": measures} if "Measures" in each else each for each in config["nav"]]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages written from the code, and the example report with its picture."""
    for file in _files(config):
        files.append(file)
    return files


def _files(config: Any) -> Iterator[Any]:
    from mkdocs.structure.files import File

    for name, text in pages().items():
        yield File.generated(config, name, content=text)
    yield File.generated(config, "example/report.html", content=(EXAMPLE / "report.html").read_text(encoding="utf-8"))
    yield File.generated(config, "example/page-1.png", abs_src_path=str(ROOT / "samples" / "report-page-1.png"))


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fills in what a page calls for."""
    return filled(markdown)
