"""`gen-audit compare` as a user meets it: files, sentences, exit codes, and no torch where two reports are enough."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from forks import Finished, Forks
from made_reports import answers, leaked, made, split

from audit.cli import main

BLOCKED = (
    "import sys\n"
    "class Blocked:\n"
    "    def find_spec(self, name, path=None, target=None):\n"
    "        if name.split('.')[0] in ('torch', 'onnx', 'onnx2torch', 'onnxruntime'):\n"
    "            raise ImportError(f'{name} is not installed here')\n"
    "sys.meta_path.insert(0, Blocked())\n"
)


Run = Callable[..., Finished]


@pytest.fixture
def run(forks: Forks) -> Run:
    """`run("compare", …, cwd=folder)` where torch cannot be had."""
    return partial(forks.run, before=BLOCKED)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reports of three old and three new seeds, a leaked one, and one of another test set."""
    folder = tmp_path_factory.mktemp("reports")
    for seed in range(3):
        for name, share in (("old", 0.05), ("new", 0.25)):
            wrong = answers(300, share, 10 * seed + len(name) + round(100 * share))
            report = made(f"{name}{seed}", test=split(wrong + 0.1, wrong)).report
            (folder / name).mkdir(exist_ok=True)
            (folder / name / f"{seed}.json").write_text(report.to_json(), encoding="utf-8")
    (folder / "leaked.json").write_text(leaked(report).to_json(), encoding="utf-8")
    other = made("other", test=split(np.ones(5), np.ones(5), "else")).report
    text = other.to_json().replace(other.data.sha256, "0" * 64)
    (folder / "other.json").write_text(text, encoding="utf-8")
    return folder


def test_two_reports_become_pages_without_torch(run, folder, tmp_path):
    done = run("compare", folder / "old/0.json", folder / "new/0.json", "-o", "out", "-f", "html,md,json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Verdict on the new side: worse.\nThe new model is worse than the old one")
    page = (tmp_path / "out/comparison.html").read_text(encoding="utf-8")
    assert page.index("What changed") < page.index("What both models did") < page.index("What was compared")
    assert "<script" not in page and "http" not in re.sub(r"http-equiv", "", page)
    assert "Verdict on the new model: worse." in (tmp_path / "out/comparison.md").read_text(encoding="utf-8")
    values = json.loads((tmp_path / "out/comparison.json").read_text(encoding="utf-8"))
    assert values["verdict"] == "worse" and values["old"]["name"] == "old0.onnx"


@pytest.mark.parametrize(
    ("command", "name"), [(["compare", "old/0.json", "old/0.json"], "comparison"), (["history", "old"], "history")]
)
def test_json_is_printed_and_the_pages_are_written_all_the_same(run, folder, tmp_path, command, name):
    asked = [command[0], *(folder / part for part in command[1:])]
    done = run(*asked, "--json", "-o", "out", "-f", "json,md", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (tmp_path / f"out/{name}.json").read_text(encoding="utf-8")
    assert (tmp_path / f"out/{name}.md").exists()


def test_the_schema_is_json_with_the_flag_and_without(monkeypatch, capsys):
    told = []
    for flags in ([], ["--json"]):
        monkeypatch.setattr("sys.argv", ["gen-audit", "schema", "history", *flags])
        with pytest.raises(SystemExit) as left:
            main()
        assert not left.value.code
        told.append(capsys.readouterr().out)
    assert told[0] == told[1] and json.loads(told[0])


@pytest.mark.parametrize("command", [["compare", "old/0.json", "new/0.json"], ["history", "old"]])
def test_the_json_follows_its_published_schema(folder, tmp_path, command, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.argv", ["gen-audit", *command, "--json", "-o", str(tmp_path / "out")])
    with pytest.raises(SystemExit):
        main()
    values = json.loads(capsys.readouterr().out)
    monkeypatch.setattr("sys.argv", ["gen-audit", "schema", {"compare": "comparison"}.get(command[0], command[0])])
    with pytest.raises(SystemExit):
        main()
    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(values, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**values, "schema": "gen-audit/1"}, schema)


def test_groups_by_name_and_by_folder_agree(run, folder, tmp_path):
    listed = ",".join(str(folder / f"old/{seed}.json") for seed in range(3))
    one = run("compare", "--group", listed, "--group", folder / "new", "--json", cwd=tmp_path)
    two = run("compare", "--group", folder / "old", "--group", folder / "new", "--json", cwd=tmp_path)
    assert (one.returncode, one.stderr) == (0, "")
    first, second = json.loads(one.stdout), json.loads(two.stdout)
    assert first["verdict"] == "worse" and first["about"] == "recipes"
    assert first["numbers"] == second["numbers"]


def test_a_leak_is_said_first(run, folder, tmp_path):
    done = run("compare", folder / "old/0.json", folder / "leaked.json", "-o", "out", "-f", "html", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines()[1].startswith("No verdict: the test split is void.")
    page = (tmp_path / "out/comparison.html").read_text(encoding="utf-8")
    assert page.index("Void: read this first") < page.index("What changed")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["old/0.json"], "compare: takes two report.json, or two models and the folder with their data."),
        (["old/0.json", "other.json"], "were judged on different test samples"),
        (["old/0.json", "missing.json"], "missing.json: cannot be read"),
        (["old/0.json", "new/0.json", "old"], "compare: takes two report.json, or two models and the folder with"),
        (["--group", "old"], "compare: takes --group exactly twice"),
        (["--group", "old", "--group", "other.json"], "--group other.json: has one report; give at least two seeds"),
        (["--group", ",", "--group", "new"], "--group ',': names no report; give a.json,b.json or the folder"),
        (["--group", "", "--group", "new"], "--group '': names no report; give a.json,b.json or the folder"),
        (["old/0.json", "new/0.json", "-f", "docx"], "-f: 'docx' names no format that exists here"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_sentence(folder, arguments, sentence, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.argv", ["gen-audit", "compare", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    told = capsys.readouterr().err
    assert left.value.code == 2 and sentence in told
    assert told.count("\n") == 1 and not (folder / "gen-audit-comparison").exists()


def test_a_refusal_leaves_the_process_with_code_2(run, folder):
    done = run("compare", "old/0.json", "other.json", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
