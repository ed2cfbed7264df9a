"""The action, the hooks and the examples for continuous integration do what they say: their own lines are run here."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
import yaml
from formats import QUICK, data_of, example_of, trained, write_onnx
from places import ROOT, SUPPORT

REPORT = SUPPORT / "example_report.json"
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = {step["id"]: step for step in ACTION["runs"]["steps"] if "run" in step}
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")  # as the runner calls it
FAILING = "[policy.gap.test_error]\nmax = 0.001\n"


def sample(name: str) -> Any:
    return yaml.safe_load((ROOT / "samples" / "ci" / name).read_text(encoding="utf-8"))


def environment(folder: Path, programs: Path = Path(sys.executable).parent, **more: str) -> dict[str, str]:
    """What the runner sets, and gen-audit on the path."""
    files = {name: str(folder / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, **files, "PATH": path, "GITHUB_ACTION_PATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}


def step(name: str, folder: Path, programs: Path = Path(sys.executable).parent, **inputs: str) -> tuple[int, str, str]:
    """Runs a step of the action with its inputs; exit code, standard output and standard error."""
    given = {key: value.get("default", "") for key, value in ACTION["inputs"].items()} | inputs
    variables = {
        key: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda match: given[match[1]], value)
        for key, value in STEPS[name]["env"].items()
    }
    env = environment(folder, programs, **variables)
    done = subprocess.run([*BASH, STEPS[name]["run"]], cwd=folder, env=env, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def outputs(folder: Path) -> dict[str, str]:
    lines = (folder / "GITHUB_OUTPUT").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_the_action_passes_a_good_report(tmp_path: Path) -> None:
    code, printed, complaints = step("check", tmp_path, model=str(REPORT), formats="md,junit,sarif")
    assert code == 0, complaints
    assert outputs(tmp_path) == {"verdict": "passed", "report": "gen-audit-report"}
    written = {path.name for path in (tmp_path / "gen-audit-report").iterdir()}
    assert written == {"report.md", "report.junit.xml", "report.sarif"}
    assert any(line.startswith("passed") for line in printed.splitlines())
    assert "healthy.onnx" in (tmp_path / "GITHUB_STEP_SUMMARY").read_text(encoding="utf-8")


def test_the_action_fails_by_its_policy_and_says_so_in_every_place(tmp_path: Path) -> None:
    (tmp_path / "my policy.toml").write_text(FAILING, encoding="utf-8")
    code, printed, complaints = step("check", tmp_path, model=str(REPORT), policy="my policy.toml", formats="junit")
    assert code == 1 and outputs(tmp_path)["verdict"] == "failed"
    assert "gap.test_error.max" in printed and "::error file=" in complaints
    assert 'failures="1"' in (tmp_path / "gen-audit-report" / "report.junit.xml").read_text(encoding="utf-8")
    assert "failed" in (tmp_path / "GITHUB_STEP_SUMMARY").read_text(encoding="utf-8").splitlines()[0]


def test_the_action_tells_an_audit_that_could_not_run_from_a_gate_that_failed(tmp_path: Path) -> None:
    code, _, complaints = step("check", tmp_path, model="nowhere.json")
    assert code == 2 and outputs(tmp_path) == {"verdict": "error"}
    assert complaints.startswith("gen-audit: nowhere.json: cannot be read")


def test_the_action_hands_on_every_input(tmp_path: Path) -> None:
    given = {"baseline": str(REPORT), "strict": "true", "args": "--json\n --quiet", "formats": "md", "out": "my out"}
    code, printed, complaints = step("check", tmp_path, model=str(REPORT), **given)
    verdict = yaml.safe_load(printed)
    assert (code in (0, 1), verdict["strict"], verdict["baseline"]) == (True, True, "samples/healthy.onnx"), complaints
    assert (tmp_path / "my out" / "report.md").exists()
    assert set(re.findall(r"inputs\.([\w-]+)", str(ACTION["runs"]))) == set(ACTION["inputs"])


def test_no_input_adds_an_output_of_its_own(tmp_path: Path) -> None:
    code, _, complaints = step("check", tmp_path, model=str(REPORT), formats="md", out="out\nverdict=passed")
    assert (code, complaints) == (2, "out: a line break is no part of a folder's name.\n")
    assert outputs(tmp_path) == {"verdict": "error"}


def test_nothing_in_an_input_is_run(tmp_path: Path) -> None:
    wicked = '"; touch pwned; "$(touch pwned)`touch pwned`'
    step(
        "check", tmp_path, **{name: wicked for name in ("model", "data", "policy", "out", "formats", "args", "strict")}
    )
    assert not list(tmp_path.rglob("pwned"))
    assert all("${{" not in each["run"] for each in STEPS.values())


@pytest.mark.slow
def test_the_action_installs_its_own_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into a fresh environment that sees this one's packages, without the network."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    venv.create(tmp_path / "venv", with_pip=True)
    (site,) = (tmp_path / "venv").glob("lib/*/site-packages")
    import numpy

    (site / "others.pth").write_text(str(Path(numpy.__file__).parents[1]), encoding="utf-8")
    programs = tmp_path / "venv" / "bin"
    code, _, complaints = step(
        "install", tmp_path, programs, **{"pip-args": "--no-deps --no-index --no-build-isolation --no-cache-dir"}
    )
    assert code == 0, complaints
    code, _, complaints = step("check", tmp_path, programs, model=str(REPORT), formats="md")
    assert code == 0, complaints
    shown = subprocess.run(
        [programs / "python", "-c", "import audit; print(audit.__file__)"], cwd=tmp_path, capture_output=True
    )
    assert str(site) in shown.stdout.decode()


def test_the_hooks_judge_what_their_arguments_name(tmp_path: Path) -> None:
    (entry,) = {hook["entry"] for hook in HOOKS}
    asked = [*shlex.split(entry), str(REPORT)]
    done = subprocess.run(asked, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names = {"gen-audit": ["m.onnx", "a/m.pt2", "m.safetensors"], "gen-audit-report": ["a/report.json"]}
    for hook in HOOKS:
        assert hook["language"] == "system" and not hook["pass_filenames"]
        assert all(re.search(hook["files"], name) for name in names[hook["id"]])
        assert not re.search(hook["files"], "m.onnx.txt")


@pytest.mark.slow
def test_the_gitlab_job_leaves_the_artifacts_that_it_names(tmp_path: Path) -> None:
    job = sample("gitlab.yml")["audit"]
    data_of("relu").save(tmp_path / "data")
    write_onnx(trained("relu"), example_of("relu"), tmp_path / "model.onnx", opset=13)
    quick = {f"GEN_AUDIT_{name.upper()}": str(value) for name, value in QUICK.items()}
    env = environment(tmp_path, MODEL="model.onnx", DATA="data", **quick)
    done = subprocess.run([*BASH, "\n".join(job["script"])], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    reports = job["artifacts"]["reports"].values()
    assert all((tmp_path / path).is_file() for path in reports) and job["artifacts"]["when"] == "always"


def test_the_github_example_names_inputs_and_outputs_that_exist() -> None:
    (steps,) = (job["steps"] for job in sample("github.yml")["jobs"].values())
    (ours,) = (each for each in steps if each.get("uses") == "./gen-audit")
    assert set(ours["with"]) <= set(ACTION["inputs"])
    assert set(re.findall(r"outputs\.(\w+)", str(steps))) <= set(ACTION["outputs"])


def test_the_pre_commit_example_names_a_hook_that_exists() -> None:
    (repo,) = sample("pre-commit.yaml")["repos"]
    assert {hook["id"] for hook in repo["hooks"]} <= {hook["id"] for hook in HOOKS}


def test_the_pre_commit_example_names_a_revision_that_a_checkout_has() -> None:
    (repo,) = sample("pre-commit.yaml")["repos"]
    found = subprocess.run(["git", "rev-parse", "--verify", repo["rev"]], cwd=ROOT, capture_output=True)
    assert found.returncode == 0 or not (ROOT / ".git").exists()
