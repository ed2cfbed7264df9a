"""The report in a notebook's cell: the gap, what was found, and nothing that could disturb the page around it."""

from __future__ import annotations

from markupsafe import Markup

from audit.measures.report import Report
from audit.render.notebook_tables import GapTable
from audit.render.page import draw
from audit.render.sentences import gap_sentences, title
from audit.report.report import Finding


def render_notebook(report: Report) -> str:
    """Plain elements without styles of their own; every name is escaped."""
    said = [Markup("<p><b>Warning:</b> {}</p>").format(warning) for warning in report.warnings]
    said += [Markup("<p>{}</p>").format(sentence) for sentence in gap_sentences(report)]
    checks = [check.status for check in report.checks if check.kind == "check"]
    closing = f"{checks.count('passed')} self-checks passed, {checks.count('failed')} failed, "
    closing += f"{checks.count('skipped')} skipped. report.save(folder) writes the whole report."
    gap = Markup(GapTable(**vars(report.gap))._repr_html_())
    parts = [Markup("<h4>{}</h4>").format(title(report)), *said, gap, pictures(report), _findings(report.findings)]
    return str(Markup("<div>{}<p>{}</p></div>").format(Markup("").join(parts), closing))


def pictures(report: Report) -> Markup:
    """The gap, the classes and what small changes do, drawn as on the page."""
    return Markup(draw("notebook.html.j2", None, report=report))


def _findings(findings: list[Finding]) -> Markup:
    """Folded, but for those that ask for attention."""
    item = Markup("<details{}><summary><b>{}:</b> {}</summary><p>{} {}</p></details>")
    return Markup("").join(
        item.format(
            " open" if each.level in ("concern", "watch") else "",
            *(each.level.capitalize(), each.title, each.explanation, each.advice),
        )
        for each in findings
    )
