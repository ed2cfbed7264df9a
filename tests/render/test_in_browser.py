"""The page as a reader meets it: in a real browser at three widths, light and dark, and before real checkers.

Needs chromium, node, java and three npm packages; `make test-page` fetches the packages and runs this file.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import reports
from drawn import render_html
from places import SUPPORT

TOOLS = Path(os.environ.get("GEN_AUDIT_PAGE_TOOLS", "build/page-tools"))
PICTURES = Path(os.environ.get("GEN_AUDIT_PAGE_PICTURES", "out/pages"))
CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)
HOSTILE = "<script>alert(1)</script>"
SPOILT = """<!DOCTYPE html><html><head><title></title></head><body><main>
<p style="width: 3000px; color: #eee; background: #fff">too wide and too pale</p>
<p style="overflow: hidden; width: 40px; white-space: nowrap">these words are cut off in their middle</p>
<figure><svg viewBox="0 0 100 100" aria-label="spoilt"><text x="10" y="20">one</text><text x="12" y="22">other</text>
<text x="95" y="80">outside</text></svg></figure></main></body></html>"""

pytestmark = pytest.mark.slow


def missing() -> str:
    """What is not there, or nothing."""
    programs = [name for name in ("node", "java") if shutil.which(name) is None]
    packages = [
        name for name in ("axe-core", "playwright-core", "vnu-jar") if not (TOOLS / "node_modules" / name).is_dir()
    ]
    return ", ".join([*programs, *([] if CHROMIUM else ["chromium"]), *packages])


if absent := missing():
    pytest.skip(f"not here: {absent}; `make test-page` fetches the packages", allow_module_level=True)


def hostile() -> dict:
    report = reports.classification()
    for layer in report["layers"]:
        layer["name"] = f"block.{HOSTILE}.with.a.very.long.name.indeed.{layer['name']}"
    report["model"]["path"] = f"{'folder/' * 20}{HOSTILE}.onnx"
    for row in [*report["gap"]["per_class"], *report["network"]["duality"]["classes"]]:
        row["name"] = f"{HOSTILE} {row['name']}"
    return report


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    drawn = {name: render_html(report) for name, report in {**reports.both(), "hostile": hostile()}.items()}
    for name, html in (drawn | {"spoilt": SPOILT}).items():
        (folder / f"{name}.html").write_text(html, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in (*drawn, "spoilt")}


@pytest.fixture(scope="module")
def seen(pages) -> dict[str, dict[str, list[str]]]:
    """What the browser says of each page in each view; pictures of all of them are left in PICTURES."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    script = SUPPORT / "browser.mjs"
    command = ["node", script, TOOLS.resolve(), CHROMIUM, PICTURES.resolve(), *pages.values()]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


def test_every_page_was_opened_in_every_view(pages, seen):
    views = {name.partition(" on ")[2] for name in seen}
    assert views == {"phone", "phone-dark", "laptop", "laptop-dark", "print"}
    assert len(seen) == len(pages) * len(views)
    assert all(
        (PICTURES / f"{name}-{view}.png").stat().st_size > 10_000
        for name in pages
        for view in views
        if name != "spoilt"
    )


def test_nothing_overflows_is_cut_or_collides(seen):
    assert {view: found["faults"] for view, found in seen.items() if found["faults"] and "spoilt" not in view} == {}


def test_axe_finds_no_violation(seen):
    found = {
        view: said["accessibility"] for view, said in seen.items() if said["accessibility"] and "spoilt" not in view
    }
    assert found == {}


def test_no_script_runs_and_nothing_is_logged(seen):
    assert {view: found["messages"] for view, found in seen.items() if found["messages"] and "spoilt" not in view} == {}


def test_the_checkers_do_find_faults(seen):
    faults = " ".join(seen["spoilt on laptop"]["faults"])
    for words in (
        "the page is 3",
        "beyond the edge: too wide",
        "cut off: these words",
        "touch: one and other",
        "leaves its",
    ):
        assert words in faults
    ids = {said.partition(":")[0] for said in seen["spoilt on laptop"]["accessibility"]}
    assert {"color-contrast", "document-title", "html-has-lang"} <= ids


def test_the_nu_html_checker_finds_no_error(pages):
    jar = next((TOOLS / "node_modules" / "vnu-jar").rglob("vnu.jar"))
    command = ["java", "-jar", jar, "--format", "json", "--exit-zero-always", *pages.values()]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stderr)["messages"]
    errors = [f"{Path(one['url']).stem}: {one['message']}" for one in said if one["type"] == "error"]
    assert [error for error in errors if not error.startswith("spoilt")] == []
    assert any(error.startswith("spoilt") for error in errors)
