"""The renderers on the values of a report's JSON, which tests change at will, also to what no reader would let in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from functools import cache, wraps
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from audit.measures import Report
from audit.render import ci, model_cards, notebook, page, sentences


def report_of(values: dict[str, Any]) -> Report:
    return made(Report, values)


def made(kind: Any, value: Any) -> Any:
    """The value as its type, checking nothing."""
    options = [part for part in get_args(kind) if part is not NoneType]
    if value is None:
        return None
    if get_origin(kind) in (Union, UnionType):
        return made(options[0], value) if len(options) == 1 else value
    if is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{name: made(hints[name], item) for name, item in value.items()})
    if get_origin(kind) is list:
        return [made(options[0], item) for item in value]
    return tuple(value) if get_origin(kind) is tuple else value


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _of_values(render: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(render)
    def rendered(values: dict[str, Any], *others: Any, **more: Any) -> Any:
        return render(report_of(values), *others, **more)

    return rendered


render_html = _of_values(page.render_html)
render_markdown = _of_values(page.render_markdown)
render_junit = _of_values(ci.render_junit)
render_sarif = _of_values(ci.render_sarif)
render_cyclonedx = _of_values(model_cards.render_cyclonedx)
render_model_index = _of_values(model_cards.render_model_index)
render_notebook = _of_values(notebook.render_notebook)
workflow_commands = _of_values(ci.workflow_commands)
gap_sentences = _of_values(sentences.gap_sentences)
