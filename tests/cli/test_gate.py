"""The gate as a user meets it: rules in, lines and an exit code out."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from forks import Forks
from formats import data_of, example_of, trained, write_onnx
from reports import EXAMPLE, classification
from test_cli import BLOCKED, FLAGS

from audit.cli.verify import _settings
from audit.measures import Report
from audit.policy.parse import DEFAULT


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory, forks: Forks) -> Path:
    """A folder with model.onnx, data/, and what the gate printed and wrote about them."""
    path = tmp_path_factory.mktemp("release")
    data_of("relu").save(path / "data")
    write_onnx(trained("relu"), example_of("relu"), path / "model.onnx", opset=13)
    asked = ["check", "model.onnx", "data", "-o", "out", "-f", "json,junit", *FLAGS]
    (path / "printed").write_text(forks.done(*asked, cwd=path))
    return path


def test_a_model_is_audited_judged_and_the_files_asked_for_are_written(release: Path, forks: Forks) -> None:
    *rules, last, first_file, second_file = (release / "printed").read_text().splitlines()
    assert [first_file, second_file] == [str(Path("out", name)) for name in ("report.json", "report.junit.xml")]
    statuses = [line.split("  ")[0].strip() for line in rules]
    kept = statuses.count("passed")
    assert set(statuses) == {"passed", "not measurable"}
    left = f"{len(rules) - kept} not measurable"
    assert last == f"passed: {kept} of {len(rules)} rules of the default policy; {left}"
    assert sorted(path.name for path in (release / "out").iterdir()) == ["report.json", "report.junit.xml"]
    printed = forks.done("check", "out/report.json", "--baseline", "out/report.json", cwd=release).splitlines()
    assert printed[-1].startswith("passed: ") and printed[-2].split() == rules[-1].split()


def test_a_report_is_judged_without_torch_and_told_as_json(forks: Forks, tmp_path: Path) -> None:
    asked = ["check", EXAMPLE, "--baseline", EXAMPLE, "--strict", "--json"]
    told = json.loads(forks.done(*asked, cwd=tmp_path, before=BLOCKED))
    assert (told["schema"], told["passed"], told["strict"]) == ("gen-audit/verdict/1", True, True)
    assert told["policy"] == "the default policy" and told["baseline"] == "samples/healthy.onnx"
    ids = [result["id"] for result in told["results"]]
    assert ids[:2] == ["gap.test_error.max_regression", "gap.test_loss.max_regression"] and len(set(ids)) == len(ids)
    schema = json.loads(forks.done("schema", "verdict", cwd=tmp_path))
    jsonschema.validate(told, schema)
    told["results"][0]["status"] = "perhaps"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(told, schema)


def test_a_finished_report_is_left_where_it_lies(forks: Forks, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_bytes(Path(EXAMPLE).read_bytes())
    forks.done("check", "report.json", "-o", ".", "-f", "junit", cwd=tmp_path)
    assert report.read_bytes() == Path(EXAMPLE).read_bytes() and (tmp_path / "report.junit.xml").exists()


@pytest.mark.slow
def test_a_leaked_test_split_fails(release: Path, forks: Forks, tmp_path: Path) -> None:
    train, test = (dict(np.load(release / "data" / f"{split}.npz")) for split in ("train", "test"))
    for key in ("x", "y"):
        test[key][:40] = train[key][:40]
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "train.npz", **train)
    np.savez(tmp_path / "data" / "test.npz", **test)
    finished = forks.run("check", release / "model.onnx", "data", "-q", *FLAGS, cwd=tmp_path)
    assert finished.returncode == 1
    first, last = finished.stdout.splitlines()
    assert first.startswith("failed  hygiene.leaked.void.is  is true, not false: ")
    assert last.endswith(": hygiene.leaked.void.is") and last.startswith("failed: 1 of ")


def test_a_warning_passes_unless_strict(forks: Forks, tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text("[policy.gap.error_gap]\nmax = 0.07\n")
    asked = ["check", EXAMPLE, "--policy", "rules.toml"]
    assert forks.run(*asked, cwd=tmp_path).returncode == 0
    strict = forks.run(*asked, "--strict", cwd=tmp_path)
    assert strict.returncode == 1
    assert strict.stdout.splitlines()[0].startswith("inconclusive (fails)  gap.error_gap.max  7.20 % (95 % interval")


def test_what_cannot_be_judged_is_said(forks: Forks, tmp_path: Path) -> None:
    model = forks.run("check", "model.onnx", cwd=tmp_path)
    assert model.stderr == (
        "gen-audit: model.onnx: is no report.json; name the data folder, too: gen-audit check model.onnx DATA.\n"
    )
    flag = forks.run("check", EXAMPLE, "--subset-size", "3", cwd=tmp_path)
    assert flag.stderr.startswith("gen-audit: --subset-size: the report is finished; give a model and data")
    assert (model.returncode, flag.returncode) == (2, 2)


def test_init_writes_the_default_once(forks: Forks, tmp_path: Path) -> None:
    assert forks.done("init", cwd=tmp_path) == "gen-audit.toml\n"
    written = tmp_path / "gen-audit.toml"
    assert written.read_bytes() == DEFAULT.read_bytes()
    written.write_text("seed = 7\n")
    again = forks.run("init", ".", cwd=tmp_path)
    assert (again.returncode, again.stderr) == (
        2,
        "gen-audit: gen-audit.toml: is there already; --force replaces it.\n",
    )
    assert json.loads(forks.done("init", "--force", "--json", cwd=tmp_path)) == {"file": "gen-audit.toml"}
    assert written.read_bytes() == DEFAULT.read_bytes()


def test_config_says_what_is_in_force_and_from_where(forks: Forks, tmp_path: Path) -> None:
    (tmp_path / "gen-audit.toml").write_text("seed = 7\n[policy.gap.test_error]\nmax = 0.1\n")
    (tmp_path / "pyproject.toml").write_text("[tool.gen-audit]\nbootstrap = 500\n")
    printed = [line.split() for line in forks.done("config", cwd=tmp_path).splitlines()]
    assert ["seed", "7", "gen-audit.toml"] in printed and ["bootstrap", "500", "pyproject.toml"] in printed
    assert ["task", '"auto"', "default"] in printed and ["policy", "1", "rule", "gen-audit.toml"] in printed
    told = json.loads(forks.done("config", "--json", cwd=tmp_path))
    assert told["settings"]["seed"] == {"value": 7, "from": "gen-audit.toml"}
    assert told["policy"]["from"] == "gen-audit.toml"
    assert told["policy"]["rules"][0]["path"] == "gap.test_error"


@pytest.mark.slow
def test_an_audit_is_reproduced(release: Path, forks: Forks) -> None:
    printed = forks.done("verify", "out/report.json", "model.onnx", "data", cwd=release).splitlines()
    assert printed[0] == "model and data: the files of the report" and printed[-1] == "reproduced"
    compared, same = (int(word.replace(",", "")) for word in printed[1].split() if word[0].isdigit())
    assert compared == same > 1000


@pytest.mark.slow
def test_the_one_number_that_was_changed_is_found(release: Path, forks: Forks) -> None:
    report = json.loads((release / "out" / "report.json").read_text())
    report["gap"]["test_error"] += 0.01
    (release / "forged.json").write_text(json.dumps(report))
    forged = forks.run("verify", "forged.json", "model.onnx", "data", "--json", cwd=release)
    told = json.loads(forged.stdout)
    assert (forged.returncode, told["reproduced"]) == (1, False)
    assert [one["path"] for one in told["differences"]] == ["gap.test_error"]
    assert told["identical"] == told["compared"] - 1 > 1000


@pytest.mark.parametrize("spelt", ["trust_pickle", "trust-pickle"])
def test_a_strangers_report_cannot_make_verify_run_code(spelt: str, forks: Forks, tmp_path: Path) -> None:
    report = classification()
    del report["settings"]["trust_pickle"]
    report["settings"] |= {spelt: True}
    (tmp_path / "report.json").write_text(json.dumps(report))
    refused = forks.run("verify", "report.json", "model.pt", "data", cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr == (
        "gen-audit: report.json: was made with --trust-pickle True, which runs code; "
        "give --trust-pickle yourself if you trust it.\n"
    )


@pytest.mark.parametrize("spelt", ["trust_pickle", "trust-pickle"])
def test_verify_takes_the_users_flags_before_the_reports_settings(spelt: str) -> None:
    report = Report.from_json(json.dumps(classification() | {"settings": {spelt: True, "arch": "evil:make"}}))
    settings = _settings(report, "report.json", {"trust_pickle": True, "arch": "mine:make", "memory": None})
    assert (settings.trust_pickle, settings.arch, settings.memory) == (True, "mine:make", None)


@pytest.mark.parametrize(("asked", "given"), [("1KB", "1KB"), ("99999TB", None)])
def test_a_strangers_report_cannot_make_verify_take_more_memory(asked: str, given: str | None) -> None:
    report = Report.from_json(json.dumps(classification() | {"settings": {"memory": asked}}))
    nothing = dict.fromkeys(("trust_pickle", "arch", "memory", "device"))
    assert _settings(report, "report.json", nothing).memory == given
    assert _settings(report, "report.json", nothing | {"memory": "9TB"}).memory == "9TB"


def test_verify_compares_hashes_before_it_loads_anything(forks: Forks, tmp_path: Path) -> None:
    report, model, data = classification(), tmp_path / "model.pt", tmp_path / "data"
    with zipfile.ZipFile(model, "w") as archive:
        archive.writestr("model/data.pkl", "no pickle")
    data.mkdir()
    for split in ("train", "test"):
        np.savez(data / f"{split}.npz", x=np.eye(4), y=np.arange(4) % 2)
    for sha256, other in (
        ("0" * 64, "model.pt is not the model of the report; its sha256 differs."),
        (
            hashlib.sha256(model.read_bytes()).hexdigest(),
            "data does not hold the data of the report; their sha256 differs.",
        ),
    ):
        report["model"]["sha256"] = sha256
        (tmp_path / "report.json").write_text(json.dumps(report))
        finished = forks.run("verify", "report.json", "model.pt", "data", cwd=tmp_path, before=BLOCKED)
        assert (finished.returncode, finished.stdout, finished.stderr) == (1, f"not reproduced: {other}\n", "")
