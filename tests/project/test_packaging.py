"""What a user installs: a wheel that works from any folder, and pins that cover everything."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from places import ROOT, SUPPORT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PINS = [line for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if "==" in line]
SET_UP = ("Makefile", "constraints.txt", "pyproject.toml", ".ci/run")


def name_of(requirement: str) -> str:
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")


def run(*command: object, cwd: Path, **environment: str) -> str:
    """Standard output of a command that neither sees the checkout nor the network."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | environment
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    offline = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "wheel", *offline, "--wheel-dir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """A folder of site-packages with gen-audit in it and nothing else; what it needs comes from this environment."""
    folder = tmp_path_factory.mktemp("site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_wheel_holds_the_package_its_templates_and_its_licence(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    pages = {"audit/templates/report.html.j2", "audit/templates/report.css"}
    assert {"audit/cli/__init__.py", "audit/py.typed", *pages} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"audit", "gen_audit"}


def test_wheel_draws_a_page_from_another_folder(installed, tmp_path):
    code = (
        "import sys, audit.render.page; from audit.render import page as t\n"
        "from audit.measures import Report\n"
        "print(audit.render.__file__, t.PACKAGED.is_dir(), t.CHECKOUT.is_dir())\n"
        "report = Report.from_json(open(sys.argv[1], encoding='utf-8').read())\n"
        "print(len(t.render_html(report)) > 10_000)\n"
    )
    example = SUPPORT / "example_report.json"
    where, drawn = run(sys.executable, "-c", code, example, cwd=tmp_path, PYTHONPATH=str(installed)).splitlines()
    assert where == f"{installed / 'audit' / 'render' / '__init__.py'} True False"
    assert drawn == "True"


def test_wheel_runs_from_another_folder(installed, tmp_path):
    (entry,) = installed.glob("*.dist-info/entry_points.txt")
    assert "gen-audit = audit.cli:main" in entry.read_text(encoding="utf-8")
    code = "import sys, audit.cli; sys.argv = ['gen-audit', '--help']; audit.cli.main()"
    printed = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(installed))
    assert "Will this model hold up on data it has not seen" in printed


def test_everything_asked_for_is_pinned():
    asked = PROJECT["build-system"]["requires"] + PROJECT["project"]["dependencies"]
    asked += [one for extra in PROJECT["project"]["optional-dependencies"].values() for one in extra]
    assert {name_of(one) for one in asked} <= {name_of(pin) for pin in PINS}


def test_pins_leave_no_python_with_two_versions_or_none():
    packaging = pytest.importorskip("packaging.requirements")
    parsed = [packaging.Requirement(pin) for pin in PINS]
    for python in ("3.10", "3.11", "3.12", "3.13"):
        apply = [pin.name for pin in parsed if pin.marker is None or pin.marker.evaluate({"python_version": python})]
        assert sorted(apply) == sorted({pin.name for pin in parsed}), python


def test_pins_satisfy_the_ranges_for_users():
    packaging = pytest.importorskip("packaging.requirements")
    ranges = {name_of(one): packaging.Requirement(one).specifier for one in PROJECT["project"]["dependencies"]}
    for pin in map(packaging.Requirement, PINS):
        (version,) = (clause.version for clause in pin.specifier)
        assert ranges.get(pin.name, pin.specifier).contains(version), pin


@pytest.mark.parametrize("name", SET_UP)
def test_set_up_names_no_machine_and_no_registry(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert not re.search(r"/(home|root|opt|tmp|work|usr/local)/|https?://|index-url|find-links", text)


def test_continuous_integration_runs_what_everyone_runs():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text(encoding="utf-8").splitlines()[-1] == "exec make test"


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("broken", ["ruff", "mypy", "lint-imports", "python", None])
def test_a_failing_step_fails_make_test(broken, tmp_path):
    """The real Makefile with the steps' programs played by scripts, one of which fails."""
    (tmp_path / "bin").mkdir()
    for stamp in (".installed", ".installed-dev"):
        (tmp_path / stamp).touch()
    for program in ("ruff", "mypy", "lint-imports", "python"):
        script = tmp_path / "bin" / program
        script.write_text(f"#!/bin/sh\necho ran {program}\nexit {int(program == broken)}\n", encoding="utf-8")
        script.chmod(0o755)
    env = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    done = subprocess.run(["make", "test", f"VENV={tmp_path}"], cwd=ROOT, env=env, capture_output=True, text=True)
    assert (done.returncode != 0) == (broken is not None)
    ran = [line.removeprefix("ran ") for line in done.stdout.splitlines() if line.startswith("ran ")]
    assert ran[-1] == (broken or "python")
