"""The report as one HTML file, readable on a phone, in the dark and on paper, and as Markdown; no script, no network.

Beneath stands how Jinja is set up: everything escaped, nothing undefined, the same bytes every time.
"""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateSyntaxError
from jinja2.bccache import Bucket, BytecodeCache, FileSystemBytecodeCache
from markupsafe import Markup, escape

from audit import __version__
from audit.compare import Comparison
from audit.errors import UsageError
from audit.measures import Report
from audit.render import beside_twins, cards, samples, scale, sections, sentences, small_changes, summary
from audit.report import numbers

PACKAGED = Path(__file__).parents[1] / "templates"  # in an installed wheel
CHECKOUT = Path(__file__).parents[2] / "templates"  # in a checkout, also when installed as editable
# What a reader of paper does not see; text is escaped and holds neither tags nor quotes.
FOR_MACHINES = re.compile(r'</?data\b[^>]*>|<wbr>| (?:role|aria-[a-z]+|scope|tabindex|title|datetime)="[^"]*"')
POWER = "10[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]"
WITHIN_NUMBER = re.compile(rf"(?<=\d) (?=%|× {POWER})|(?<=×) (?={POWER})")  # spaces at which no line may end
ID = re.compile(r' id="([^"]*)"')
INNER_LINK = re.compile(r'<a [^>]*href="#(?P<to>[^"]*)"[^>]*>(?P<words>.*?)</a>', re.DOTALL)
ADVICE_TO_COMPARE = re.compile(r"(?: or|[:;,])[^.:;,]*(?:, [^.:;]*)?\(`gen-audit compare`\)")
BEFORE_INLINE = re.compile(r" (?=<(?:a|b|code|em|span|strong)\b)")


def render_html(
    report: Report,
    paper: bool = False,
    templates: Path | None = None,
    comparison: Comparison | None = None,
    short: bool = False,
) -> str:
    """The page of a report; the same report gives the same bytes.

    On `paper` nothing can be folded: definition cards become short paragraphs, tables that only a screen folds away are
    left out, and so are the tags that only a machine reads, which a PDF would take long to lay out. `comparison` with a
    baseline gets a section of its own. A `short` page has no appendix, and no links into it.
    """
    if comparison is not None:
        report = without_advice_to_compare(report)
    page = draw("report.html.j2", templates, report=report, paper=paper, comparison=comparison, short=short)
    page = without_dead_links(page) if short else page
    page = WITHIN_NUMBER.sub("\u00a0", page)
    return for_paper(page) if paper else page


def without_dead_links(page: str) -> str:
    """Links to what is not on the page become plain words.

    >>> without_dead_links('<h2 id="a">A</h2> <a href="#a">see A</a>, <a class="term" href="#b">see B</a>')
    '<h2 id="a">A</h2> <a href="#a">see A</a>, see B'
    """
    there = set(ID.findall(page))
    return INNER_LINK.sub(lambda link: link[0] if link["to"] in there else link["words"], page)


def without_advice_to_compare(report: Report) -> Report:
    """The report as a page shows it that has a comparison: nobody is told to make one."""
    findings = [replace(each, advice=_without_compare(each.advice)) for each in report.findings]
    not_judged = [replace(each, why=_without_compare(each.why)) for each in report.not_judged]
    return replace(report, findings=findings, not_judged=not_judged)


def _without_compare(text: str) -> str:
    """A text without the part that names the command, which is the last of its sentence.

    >>> _without_compare("Hold it against a limit (`gen-audit check`) or an old model (`gen-audit compare`).")
    'Hold it against a limit (`gen-audit check`).'
    >>> _without_compare("They have no scale: only a second model gives one (`gen-audit compare`). Look.")
    'They have no scale. Look.'
    """
    return ADVICE_TO_COMPARE.sub("", text)


def for_paper(page: str) -> str:
    """Without the tags for machines, and with a break after every space before a tag.

    WeasyPrint 70 breaks a line behind its first word where all of it but that space would fit.
    """
    return BEFORE_INLINE.sub(" \u200b", FOR_MACHINES.sub("", page))


def render_markdown(report: Report, templates: Path | None = None, whole: Sequence[str] = ()) -> str:
    """The summary of a report; the same report gives the same bytes. `whole` are files beside it that have all."""
    return draw("report.md.j2", templates, report=report, rest=_rest(whole))


def _rest(whole: Sequence[str]) -> str:
    """Where the reader of a summary finds what it leaves out.

    >>> _rest(["report.html", "report.json"]), _rest(["report.json"])
    ('report.html and report.json have the rest', 'report.json has the rest')
    >>> _rest([])
    'gen-audit report -f html,json writes the rest'
    """
    if not whole:
        return "gen-audit report -f html,json writes the rest"
    return f"{whole[0]} has the rest" if len(whole) == 1 else f"{', '.join(whole[:-1])} and {whole[-1]} have the rest"


# The templates.


def draw(name: str, own: Path | None, **values: Any) -> str:
    """A template filled in; templates of the same name in the folder `own` take the place of ours."""
    if own is not None:
        check_templates(own)
    try:
        return environment(not name.endswith(".md.j2"), own).get_template(name).render(**values)
    except Exception as error:
        if own is None:
            raise
        raise UsageError(f"{_place(error, own)}: cannot be drawn ({error}); mend the template.") from error


@cache
def environment(html: bool, own: Path | None = None) -> Environment:
    """The templates with the filters they share. Whatever is inserted is escaped, for HTML or for Markdown."""
    env = Environment(
        loader=FileSystemLoader([*([own] if own else []), PACKAGED, CHECKOUT]),
        autoescape=html,
        finalize=None if html else cell,
        undefined=StrictUndefined,
        optimized=False,  # folding constants takes longer than it saves on one page
        bytecode_cache=compiled_templates(),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    env.filters.update({function.__name__: function for function in FILTERS})
    env.globals.update(sentences=sentences, hygiene=samples, sections=sections, gallery=samples, summary=summary)
    env.globals.update(planned=sections, order=summary, glossary=cards, small_changes=small_changes)
    env.globals.update(beside_twins=beside_twins)
    env.globals.update({function.__name__: function for function in (sentences.title, sentences.gap_sentences)})
    env.globals.update({function.__name__: function for function in (scale.axis, scale.thinned, scale.running)})
    env.globals.update(gutter=scale.gutter, cards=cards)
    return env


def check_templates(own: Path) -> None:
    """Refuses a folder that replaces nothing: a misspelt name would be passed over in silence."""
    if not own.is_dir():
        raise UsageError(f"--templates {own}: is no folder; name the one that holds your templates.")
    names = template_names()
    if not any((own / name).is_file() for name in names):
        raise UsageError(f"--templates {own}: holds none of the files that it could replace: {', '.join(names)}.")


def template_names() -> list[str]:
    """Every template that can be replaced, as a path below the folder."""
    folders = [folder for folder in (PACKAGED, CHECKOUT) if folder.is_dir()]
    found = {path.relative_to(folder).as_posix() for folder in folders for path in folder.rglob("*") if path.is_file()}
    return sorted(name for name in found if name.endswith((".j2", ".css")))


def _place(error: Exception, own: Path) -> str:
    """File and line of the template that failed."""
    if isinstance(error, TemplateSyntaxError):
        return f"{error.filename or error.name}, line {error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(own)]
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else f"--templates {own}"


def data(value: float | None, kind: str = "number") -> Markup:
    """A number for the eye with its full value in the markup, for whoever checks it."""
    shown = numbers.shown(value, kind)
    return Markup("<data value='{}'>{}</data>").format(value, shown) if value is not None else escape(shown)


def breakable(text: str) -> Markup:
    """A path or layer name that may be broken after its separators, so that a narrow screen can show it."""
    marked = escape(text)
    for separator in "/._-":
        marked = marked.replace(separator, Markup(f"{separator}<wbr>"))
    return marked


def marked(text: str) -> Markup:
    """Text whose `names` stand in backticks, with the names set as code.

    >>> str(marked("unless `hessian` says a < b"))
    'unless <code>hessian</code> says a &lt; b'
    """
    parts = text.split("`")
    if len(parts) % 2 == 0:  # an odd backtick opens nothing
        return escape(text)
    pieces = [Markup("<code>{}</code>").format(part) if place % 2 else escape(part) for place, part in enumerate(parts)]
    return Markup("").join(pieces)


def short(text: str, most: int = 44) -> str:
    """A name that fits beside a bar: the middle of a long one is left out.

    >>> short("encoder.layers.0.mlp.fc1", 15)
    'encoder…mlp.fc1'
    """
    text = " ".join(text.split())
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}…{text[half + 1 - most :]}"


def cell(value: Any) -> str:
    r"""Text for one line of Markdown, or one cell of its tables: nothing in it is read as markup.

    >>> print(cell("<b>a</b> | *c*"))
    \<b\>a\</b\> \| \*c\*
    >>> print(cell("@org/team"))  # a space of no width: a comment must not call people, and a backslash does not help
    @&#8203;org/team
    """
    text = " ".join(str(value).split())
    for special in "\\`*_[]<>|#":
        text = text.replace(special, f"\\{special}")
    return text.replace("@", "@&#8203;")


FILTERS: tuple[Callable[..., Any], ...] = (
    *(numbers.number, numbers.percent, numbers.share, numbers.points, numbers.shown, numbers.interval, numbers.seconds),
    *(sentences.used, sentences.layer_remarks),
    *(data, breakable, marked, short, scale.tint),
)


# Remembers compiled templates in the user's own temporary folder: compiling them takes longer than filling them in.


class CompiledTemplates(FileSystemBytecodeCache):
    """Jinja's folder of compiled templates, known by their source; a full disk only costs the time saved."""

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep a compiled template for the next run, if there is room."""
        with contextlib.suppress(OSError):
            super().dump_bytecode(bucket)


def compiled_templates() -> BytecodeCache | None:
    """The folder, or None where no temporary folder is safe: someone else could write there what we would run."""
    try:
        return CompiledTemplates(pattern=f"gen-audit-{__version__}-%s.cache")
    except (OSError, RuntimeError):
        return None
