"""The pages of a regression speak of targets and outputs, and leave out what only classes have."""

from __future__ import annotations

import re
from typing import Any

import pytest
import reports
from drawn import render_html
from pages import Page

from audit.render.page import environment

WIDE = 6.8  # of a letter in the figures
TEXT = re.compile(r'<text [^>]*x="([\d.]+)" y="([\d.]+)"[^>]*?(?: text-anchor="(\w+)")?>([^<]+)<')


def section(report: dict[str, Any], name: str) -> str:
    html = render_html(report)
    start = html.index(f'<section aria-labelledby="{name}">')
    return Page(html[start : html.index("</section>", start) + len("</section>")]).text


def with_outputs(outputs: int) -> dict[str, Any]:
    report = reports.regression()
    report["model"]["outputs"] = outputs
    report["network"]["sensitivity"]["skipped"] = None
    return report


@pytest.mark.parametrize("outputs", [1, 3])
def test_sensitivity_of_a_regression_is_about_outputs_and_their_units(outputs: int) -> None:
    words = section(with_outputs(outputs), "sensitivity")
    assert not re.search(r"\b(scores?|logits?|what decides)\b", words)
    assert f"in units of the target{'s' if outputs > 1 else ''} for one unit of the input" in words
    assert (
        ("does the model's output answer" in words) == ("one, as the model has one output" in words) == (outputs == 1)
    )
    assert ("over how many directions of the 3 outputs" in words) == (outputs == 3)


def test_sensitivity_of_classes_is_about_scores() -> None:
    words = section(reports.classification(), "sensitivity")
    assert "twice the logits is twice the sensitivity with the same answers" in words
    assert "do the model's scores answer" in words and "Log-volume of what decides" in words
    assert "over how many directions of the 10 scores" in words


def test_the_share_at_the_number_of_classes_is_shown_where_there_are_classes() -> None:
    of_classes, of_targets = (section(report, "duality") for report in reports.both().values())
    for words in ("The share at a fixed count, the number of classes", "Sharp share at a fixed count"):
        assert words in of_classes and words not in of_targets
    assert "All directions together. Layer" in of_targets
    assert "In the source study, of classifiers, smaller steps" in of_targets


def curve(values: list[float], border: int, level: float) -> list[tuple[str, float, float, str]]:
    """Words of the picture of a running sum, with where they begin and end, and the border's place as the first."""
    draw = environment(html=True).get_template("parts/figures.svg.j2").module
    points = list(enumerate(values, start=1))
    svg = str(draw.curve("Sum", points, "direction", "sum", "A sum.", False, border, level, "all directions"))
    (place,) = re.findall(r'<line [^>]*x1="([\d.]+)"[^>]*stroke-dasharray="4 3"', svg)
    found = [("border", float(place), float(place), "")]
    for x, y, anchor, words in TEXT.findall(svg):
        width = WIDE * len(words)
        start = float(x) - {"": 0, "middle": width / 2, "end": width}[anchor]
        found.append((words, start, start + width, y))
    return found


@pytest.mark.parametrize("border", [1, 2, 8, 13, 15])
@pytest.mark.parametrize("level", [16.0, -16.0])
def test_border_crosses_no_word_and_names_both_of_its_sides_or_none(border: int, level: float) -> None:
    (_, at, _, _), *words = curve([level * rank / 16 for rank in range(1, 17)], border, level)
    named = {word for word, *_ in words} & {"sharp", "flat"}
    assert named == ({"sharp", "flat"} if border < 15 else set())
    for word, start, end, y in words:
        assert float(y) > 160 or end <= at or at <= start, (word, start, end, at)  # below stand the axis' numbers


def test_words_of_the_level_stand_where_the_curve_does_not_come() -> None:
    for level in (16.0, -16.0):
        values = [level * rank / 16 for rank in range(1, 17)]
        heights = {word: float(y) for word, _, _, y in curve(values, 4, level) if y}
        ends = heights["all directions"]
        assert ends < 54 if level > 0 else 140 < ends < 154
