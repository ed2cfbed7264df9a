"""The report in a notebook's cell: the gap, what was found, and nothing that could disturb the page around it."""

from __future__ import annotations

from markupsafe import Markup

from audit.measures.gap.block import GapReport
from audit.measures.report import Report
from audit.render.sentences import gap_sentences, title
from audit.report.numbers import interval, number, percent, points
from audit.report.report import Finding

ROW = Markup("<tr><th>{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>")
HEAD = Markup("<tr><th></th><th>train</th><th>test</th><th>gap</th><th>95 % interval of the gap</th></tr>")


def render_notebook(report: Report) -> str:
    """Plain elements without styles of their own; every name is escaped."""
    said = [Markup("<p><b>Warning:</b> {}</p>").format(warning) for warning in report.warnings]
    said += [Markup("<p>{}</p>").format(sentence) for sentence in gap_sentences(report)]
    checks = [check.status for check in report.checks if check.kind == "check"]
    closing = f"{checks.count('passed')} self-checks passed, {checks.count('failed')} failed, "
    closing += f"{checks.count('skipped')} skipped. report.save(folder) writes the whole report."
    parts = [Markup("<h4>{}</h4>").format(title(report)), *said, _table(report.gap), _findings(report.findings)]
    return str(Markup("<div>{}<p>{}</p></div>").format(Markup("").join(parts), closing))


def _table(gap: GapReport) -> Markup:
    loss = map(number, (gap.train_loss, gap.test_loss, gap.loss_gap))
    rows = [ROW.format("mean loss", *loss, interval(gap.loss_gap_ci95))]
    if gap.error_gap is not None:
        error = (percent(gap.train_error), percent(gap.test_error), points(gap.error_gap))
        rows.append(ROW.format("wrong answers", *error, interval(gap.error_gap_ci95, "points")))
    if gap.test_rmse is not None:
        rows.append(ROW.format("RMSE", number(gap.train_rmse), number(gap.test_rmse), "", ""))
    return Markup("<table>{}{}</table>").format(HEAD, Markup("").join(rows))


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
