"""The report in a notebook's cell: the gap, what was found, and nothing that could disturb the page around it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from markupsafe import Markup

from audit.errors import UsageError
from audit.measures import LayerReport, Report
from audit.measures.gap.block import ClassGap, GapReport
from audit.render.page import draw
from audit.render.sentences import gap_sentences, title
from audit.report import Finding
from audit.report.numbers import interval, number, percent, points


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


# Parts of a report that show themselves as small tables, in a notebook's cell and in print, and become data frames. No
# torch.
#
# Each is what it was before, a block or a list; a notebook finds `_repr_html_` on it, `print` its text, a program
# `to_frame`.


Cells = Sequence[str]
Row = dict[str, Any]
MOST_ROWS, LONGEST_CELL = 40, 80  # of a table in plain text
NO_PANDAS = "to_frame: pandas is not installed here; install it with `pip install pandas`, or take report.to_dict()."


class Shown:
    """A table of words for the eye, and of plain numbers for a program."""

    def heads(self) -> Cells:
        """What the columns are called, for the eye."""
        raise NotImplementedError

    def cells(self) -> list[Cells]:
        """One row of words for each line of the table."""
        raise NotImplementedError

    def rows(self) -> list[Row]:
        """The same lines as numbers, by names of columns."""
        raise NotImplementedError

    def __repr__(self) -> str:
        """The table in plain text, as it is printed: what stands in it as objects is too long to be read."""
        return text_table(self.heads(), self.cells())

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """A plain table without styles of its own; every name is escaped."""
        return str(html_table(self.heads(), self.cells()))

    def to_frame(self) -> Any:
        """A pandas data frame, where pandas is installed."""
        try:
            pandas = import_module("pandas")  # not among gen-audit's own libraries
        except ImportError as error:
            raise UsageError(NO_PANDAS) from error
        return pandas.DataFrame(self.rows())


def text_table(heads: Cells, rows: Sequence[Cells]) -> str:
    """Columns side by side; a control character in a name becomes a space, and what is long is cut.

    >>> print(text_table(("layer", "κ"), [("fc1", "0.5"), ("output", "12")]))
    layer   κ
    fc1     0.5
    output  12
    """
    lines = [[_cut(cell) for cell in row] for row in (heads, *rows[:MOST_ROWS])]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    said = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    if len(rows) > MOST_ROWS:
        said.append(f"… {len(rows) - MOST_ROWS:,} more: .rows() has them all")
    return "\n".join(said)


def _cut(cell: str) -> str:
    plain = " ".join("".join(letter if letter.isprintable() else " " for letter in cell).split())
    return plain if len(plain) <= LONGEST_CELL else f"{plain[: LONGEST_CELL - 1]}…"


def html_table(heads: Cells, rows: Sequence[Cells]) -> Markup:
    """A table whose first column names the row."""
    head = Markup("<tr>{}</tr>").format(_joined("<th>{}</th>", heads))
    body = [Markup("<tr><th>{}</th>{}</tr>").format(row[0], _joined("<td>{}</td>", row[1:])) for row in rows]
    return Markup("<table>{}{}</table>").format(head, Markup("").join(body))


def _joined(pattern: str, cells: Cells) -> Markup:
    return Markup("").join(Markup(pattern).format(cell) for cell in cells)


def _ends(bounds: Sequence[float] | None) -> tuple[float | None, float | None]:
    return (None, None) if bounds is None else (bounds[0], bounds[1])


class GapTable(Shown, GapReport):
    """The observed gap."""

    def heads(self) -> Cells:
        """Both splits and their difference."""
        return ("", "train", "test", "gap", "95 % interval of the gap")

    def cells(self) -> list[Cells]:
        """Loss, and wrong answers or RMSE."""
        loss = map(number, (self.train_loss, self.test_loss, self.loss_gap))
        found: list[Cells] = [("mean loss", *loss, interval(self.loss_gap_ci95))]
        if self.error_gap is not None:
            error = (percent(self.train_error), percent(self.test_error), points(self.error_gap))
            found.append(("wrong answers", *error, interval(self.error_gap_ci95, "points")))
        if self.test_rmse is not None:
            found.append(("RMSE", number(self.train_rmse), number(self.test_rmse), "", ""))
        return found

    def rows(self) -> list[Row]:
        """Loss, error, RMSE and R², those that the task has."""
        found = []
        for name, gap, bounds in (
            ("loss", self.loss_gap, self.loss_gap_ci95),
            ("error", self.error_gap, self.error_gap_ci95),
            ("rmse", None, None),
            ("r2", None, None),
        ):
            train, test = getattr(self, f"train_{name}"), getattr(self, f"test_{name}")
            if test is not None:
                low, high = _ends(bounds)
                found.append(
                    {"number": name, "train": train, "test": test, "gap": gap, "gap_low": low, "gap_high": high}
                )
        return found


class ClassTable(Shown, list[ClassGap]):
    """The classes of a classifier."""

    def heads(self) -> Cells:
        """Samples and errors."""
        return (
            "class",
            "train samples",
            "test samples",
            "wrong on train",
            "wrong on test",
            "95 % interval",
            "loss gap",
        )

    def cells(self) -> list[Cells]:
        """One row for each class."""
        return [
            (
                *(each.name, number(each.train_samples), number(each.test_samples)),
                *(percent(each.train_error), percent(each.test_error), interval(each.test_error_ci95, "percent")),
                number(each.loss_gap),
            )
            for each in self
        ]

    def rows(self) -> list[Row]:
        """One row for each class."""
        return [
            {
                "class": each.name,
                "train_samples": each.train_samples,
                "test_samples": each.test_samples,
                "train_error": each.train_error,
                "test_error": each.test_error,
                "test_error_low": _ends(each.test_error_ci95)[0],
                "test_error_high": _ends(each.test_error_ci95)[1],
                "train_loss": each.train_loss,
                "test_loss": each.test_loss,
                "loss_gap": each.loss_gap,
            }
            for each in self
        ]


class FindingTable(Shown, list[Finding]):
    """What was found."""

    def heads(self) -> Cells:
        """How grave, what, and what to do."""
        return ("level", "finding", "what to do")

    def cells(self) -> list[Cells]:
        """One row for each finding, in the order of their weight."""
        return [(each.level, each.title, each.advice) for each in self]

    def rows(self) -> list[Row]:
        """One row for each finding, in the order of their weight."""
        return [
            {name: getattr(each, name) for name in ("id", "level", "title", "explanation", "advice", "source")}
            for each in self
        ]


class LayerTable(Shown, list[LayerReport]):
    """The dense layers."""

    def heads(self) -> Cells:
        """What each is, and the numbers that are about it."""
        return ("layer", "kind", "in → out", "sharp part of the gap", "κ", "κ_τ", "ρ", "MLS")

    def cells(self) -> list[Cells]:
        """One row for each layer, from the input to the output."""
        return [
            (
                *(row["layer"], row["op"], f"{row['in_features']} → {row['out_features']}"),
                *(number(row[name]) for name in ("sharp_contribution", "kappa", "kappa_tau", "rho", "mls")),
            )
            for row in self.rows()
        ]

    def rows(self) -> list[Row]:
        """One row for each layer, from the input to the output."""
        found = []
        for layer in self:
            sharp = layer.duality.sharp if layer.duality is not None else None
            row: Row = {"layer": layer.name, "op": layer.op}
            row |= {"in_features": layer.in_features, "out_features": layer.out_features, "tokens": layer.tokens}
            row |= {"sharp_contribution": sharp and sharp.contribution, "sharp_share": sharp and sharp.share}
            for name in ("kappa", "kappa_tau", "rho", "rho_sigma", "relative_flatness"):
                row[name] = getattr(layer.flatness, name, None)
            row |= {"mls": getattr(layer.sensitivity, "mls", None), "gamma": getattr(layer.fisher, "gamma", None)}
            found.append(row)
        return found
