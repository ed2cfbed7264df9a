"""A report.json from a stranger: its pages fetch nothing, and show no picture but a small PNG."""

from __future__ import annotations

import base64
import copy
import io
import json
import logging
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from reports import classification, regression

from audit.errors import UsageError
from audit.measures import Report
from audit.render.page import render_html
from audit.render.pdf import PdfUnavailable, write_pdf
from audit.settings.limits import report_text


def png(width: int, height: int, kind: str = "PNG") -> str:
    stream = io.BytesIO()
    Image.new("L", (width, height)).save(stream, format=kind)
    return base64.b64encode(stream.getvalue()).decode()


def with_picture(**fields: Any) -> str:
    report = copy.deepcopy(classification())
    picture = {"split": "test", "index": 0, "width": 4, "height": 4, "png": png(4, 4), **fields}
    report["gallery"] = {"thumbnails": [picture], "pairs": [], "about": "Pictures."}
    return json.dumps(report)


SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>'


def huge() -> str:
    """A PNG whose header promises more pixels than the report does."""
    content = bytearray(base64.b64decode(png(4, 4)))
    content[16:24] = (40000).to_bytes(4, "big") * 2
    content[29:33] = zlib.crc32(bytes(content[12:29])).to_bytes(4, "big")
    return base64.b64encode(bytes(content)).decode()


@pytest.mark.parametrize(
    "fields",
    [
        {"png": base64.b64encode(SVG).decode()},
        {"png": png(4, 4, "GIF")},
        {"png": png(4, 4)[:-8] + "€€€"},
        {"png": "x"},
        {"png": ""},
        {"png": png(4, 4), "width": 5},
        {"png": png(2000, 2000), "width": 2000, "height": 2000},
        {"png": huge()},
        {"png": huge(), "width": 40000, "height": 40000},
        {"png": png(4, 4) + "A" * 10**6},
    ],
)
def test_a_picture_is_a_small_png(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"^report.json: is damaged \(gallery.thumbnails\[0\] is no small PNG"):
        Report.from_json(with_picture(**fields))


def test_pictures_as_audits_make_them_are_read() -> None:
    assert Report.from_json(with_picture()).gallery is not None


def test_the_pdf_fetches_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(base64.b64decode(png(4, 4)))
    svg = base64.b64encode(SVG.replace(b"/etc/passwd", str(secret).encode())).decode()
    page = (
        f'<link rel="stylesheet" href="file://{secret}"><style>@import "file://{secret}";'
        f'p {{background: url("file://{secret}")}}</style><p>text</p><img src="file://{secret}">'
        f'<img src="http://127.0.0.1:9/x.png"><img src="data:image/svg+xml;base64,{svg}">'
        f'<img src="data:image/png;base64,{svg}"><object data="file://{secret}"></object>'
    )
    opened: list[str] = []

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and event in ("open", "socket.connect") and str(secret) in str(arguments):
            opened.append(event)

    watching = True
    sys.addaudithook(watch)
    with caplog.at_level(logging.CRITICAL, "weasyprint"):
        write_pdf(page, tmp_path / "page.pdf")
    watching = False
    assert opened == []
    assert b"/Image" not in (tmp_path / "page.pdf").read_bytes()


def damaged(task: str, path: str, value: Any) -> str:
    """A report with another value, or none, at a path."""
    report = copy.deepcopy({"classification": classification, "regression": regression}[task]())
    *outer, last = path.split(".")
    block: Any = report
    for name in outer:
        block = block[int(name)] if isinstance(block, list) else block[name]
    if value is GONE:
        del block[int(last) if isinstance(block, list) else last]
    else:
        block[int(last) if isinstance(block, list) else last] = value
    return json.dumps(report)


GONE = object()


@pytest.mark.parametrize(
    ("task", "path", "value"),
    [
        ("regression", "layers.1.duality.sigma_w", GONE),
        ("regression", "layers.1.duality.sigma_g.0", GONE),
        ("regression", "layers.0.duality.mean_term", GONE),
        ("regression", "layers.2.duality.flat", None),
        ("regression", "calibration.outputs.0.residuals", [1.0]),
        ("regression", "network.sensitivity.histogram.edges.40", GONE),
        ("classification", "layers.1.duality.widths.4.direction", 10**30),
        ("classification", "hygiene.class_balance.test.2", GONE),
        ("classification", "gap.test_loss", "NaN"),
        ("classification", "gap.test_loss", float("nan")),
        ("classification", "gap.test_loss", 10**400),
        ("classification", "gap", GONE),
        ("classification", "layers", [[[[]]]]),
    ],
)
def test_a_report_is_checked_whole_before_anything_draws_it(task: str, path: str, value: Any) -> None:
    with pytest.raises(UsageError, match=r"^report.json: is (damaged|not a gen-audit/1 report) \(") as caught:
        Report.from_json(damaged(task, path, value))
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("text", ["[" * 10**6, "{" * 10**6, '{"a":' * 10**5, "9" * 10**5, '"' + "a" * 10**6, "\x00"])
def test_nested_and_endless_documents_are_a_sentence(text: str) -> None:
    with pytest.raises(UsageError, match=r"^report.json: is not a gen-audit/1 report"):
        Report.from_json(text)


def test_a_number_that_foretells_nothing_is_damage() -> None:
    report = copy.deepcopy(classification())
    change = next(change for change in report["consequences"]["changes"] if change["theory"])
    change["theory"]["number"] = "layers.fc.x\x1b[2J"
    with pytest.raises(UsageError, match=r"is damaged \(consequences\.changes\[\d+\]\.theory\.number"):
        Report.from_json(json.dumps(report), "report.json")


def test_a_report_of_millions_of_values_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text('{"schema": "gen-audit/1", "x": [' + "[]," * 2_000_000 + "[]]}")
    with pytest.raises(UsageError, match=r"report\.json: holds more than 4,000,000 values, which no report does"):
        report_text(path)


def test_a_page_that_takes_minutes_is_not_drawn_on_paper(tmp_path: Path) -> None:
    with pytest.raises(PdfUnavailable, match="its page has 6 MB of text, which takes minutes to draw"):
        write_pdf("<p>a</p>" * 750_000, tmp_path / "a.pdf")
    with pytest.raises(PdfUnavailable, match="its page has 6 MB"):
        write_pdf(f'<img src="data:image/png;base64,{png(4, 4)}">' + "a" * 6_000_000, tmp_path / "a.pdf")
    assert not (tmp_path / "a.pdf").exists()


def test_a_layer_may_lack_one_of_its_numbers(tmp_path: Path) -> None:
    report = copy.deepcopy(classification())
    for layer in report["layers"][:-1]:
        layer["flatness"]["rho_sigma"] = layer["flatness"]["rho_sigma_ci95"] = None
    read = Report.from_json(json.dumps(report), "report.json")
    assert "neuron-wise curvature" in render_html(read)
    report["layers"][-1]["flatness"]["rho_sigma"] = report["layers"][-1]["flatness"]["rho_sigma_ci95"] = None
    assert "neuron-wise curvature" not in render_html(Report.from_json(json.dumps(report), "report.json"))
