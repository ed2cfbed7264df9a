"""The benchmark on tiny networks: peers and gen-audit give the exact numbers; no time is asserted."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from tolerances import SOLVED
from torch import nn

from audit.settings import Settings
from benchmarks import __main__ as bench
from benchmarks import cases, clock, compare, footprint, hops, least, suite, tasks
from benchmarks.cases import Case, Recipe, make_case, perceptron
from benchmarks.real import build, epoch, recipes, samples
from benchmarks.real.cases import CASES
from benchmarks.real.measure import Row
from benchmarks.real.table import markdown
from benchmarks.real.watch import watch


def small_lenet() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 2, 5), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten()),
        *(nn.Linear(72, 24), nn.ReLU(), nn.Linear(24, 10)),
    )


RECIPES = {
    "dense": Recipe(lambda: perceptron(784, 30, 24, 10), 40, 1, (784,)),
    "convolution": Recipe(small_lenet, 30, 1, (1, 28, 28)),
}


def tiny(name: str, monkeypatch) -> Case:
    monkeypatch.setattr(cases, "RECIPES", RECIPES)
    made = make_case(name, Settings(subsets=3, subset_size=8, bootstrap=50, directions=2, widths=1))
    return replace(made, x_test=made.x_test[:40], y_test=made.y_test[:40])


@pytest.fixture(scope="module", autouse=True)
def little_to_collect() -> Iterator[None]:
    """Every timing collects garbage first: what other tests have left in this process is kept out of it."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(params=RECIPES)
def case(request, monkeypatch) -> Case:
    return tiny(request.param, monkeypatch)


@pytest.fixture
def dense(monkeypatch) -> Case:
    return tiny("dense", monkeypatch)


@pytest.mark.parametrize("task", tasks.TASKS, ids=lambda task: task.key)
def test_everybody_gives_the_exact_value(task, case):
    missing = [peer.package for peer in task.peers if not compare.present(peer)]
    errors = compare.check(task, case)
    assert set(errors) == {"gen-audit"} | {peer.name for peer in task.peers if compare.present(peer)}
    assert errors["gen-audit"] <= task.loose
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed; the others agree")


@pytest.mark.parametrize("task", tasks.TASKS, ids=lambda task: task.key)
def test_a_wrong_value_is_never_timed(task, dense):
    wrong = tasks.Peer("wrong", "torch", lambda _case, _chunk, _form: lambda: 1.1 * task.exact(_case))
    with pytest.raises(compare.WrongValueError, match=r"wrong , .* away from the exact value"):
        compare.check(tasks.Task(task.key, task.title, task.prepare, task.exact, (wrong,), task.loose), dense)


def test_values_do_not_depend_on_how_many_samples_go_at_once(dense):
    for task in tasks.TASKS:
        for peer in filter(compare.present, task.peers):
            if peer.chunked:
                whole, parts = (peer.prepare(dense, chunk, peer.forms[0])() for chunk in (len(dense.x), 25))
                assert compare.relative_error(parts, whole) <= peer.loose, peer.name


def test_a_comparison_times_everybody(dense):
    rows = compare.compare(tasks.TASKS[5], dense, rounds=3, patience=0.0)
    assert [row["peer"] for row in rows] == ["torch.func vmap(jacrev)"]
    assert all(len(row["ours_seconds"]) == len(row["peer_seconds"]) == 3 for row in rows)
    assert rows[0]["ratio_least"] <= rows[0]["ratio"] <= rows[0]["ratio_most"]


def test_the_floor_is_the_capture_pass_without_its_records(case):
    first = [float(record.layers[case.audit().layers[0].name].J[0, 0].flatten()[0]) for record in case.audit().train]
    floor = tasks.FLOOR.prepare(case, len(case.x), "side by side")()
    again = tasks.FLOOR.prepare(case, len(case.x), "one by one")()
    assert len(first) == len(floor) == len(again) == 1
    assert floor[0] == pytest.approx(first[0], rel=SOLVED)
    assert np.isfinite(again).all()


def test_the_suite_is_timed_stage_by_stage(dense):
    found = suite.time_suite(dense, rounds=1, patience=0.0)
    assert {"capture", "measure flatness", "measure fisher"} <= set(found["stages"])
    assert found["suite"]["median"] > 0 and found["checks"]["median"] > 0


def test_the_least_of_directions_is_a_basis_of_every_small_layer_and_a_product_for_each_kept_direction(dense):
    counted = least.least_directions(dense)().tolist()
    assert counted[0] <= 720 and counted[1] <= 240 and counted[2] == 2


def test_a_hundred_labels_are_given_by_ink():
    images = np.zeros((200, 2, 2), np.uint8)
    images[:, 0, 0] = np.arange(200)
    labels = cases.by_ink(images, np.repeat(np.arange(10), 20))
    assert np.array_equal(np.bincount(labels), np.full(100, 2)) and labels[0] == labels[1] == 0 and labels[-1] == 99


def test_rounds_end_when_patience_does():
    times = clock.in_turn({"a": lambda: lambda: np.zeros(1)}, rounds=9, patience=0.0)
    assert len(times["a"]) == clock.LEAST_ROUNDS


def test_results_are_printed_and_written(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(footprint, "START_UP", {"nothing": ("-c", "")})
    output = tmp_path / "new" / "results.json"
    monkeypatch.setattr(sys, "argv", ["bench", "--only", "start-up", "--threads", "1", "-o", str(output)])
    bench.main()
    written = json.loads(output.read_text(encoding="utf-8"))
    assert written["start_up"]["nothing"]["wall"] > 0 and written["machine"]["packages"]["torch"] == torch.__version__
    assert "nothing" in capsys.readouterr().out


@pytest.mark.slow
def test_peak_memory_is_taken_in_a_child(monkeypatch, tmp_path):
    monkeypatch.setattr(footprint, "SIZES", (20,))
    torch.save(cases.RECIPES["784-30-30-10"].network().state_dict(), tmp_path / "weights.pt")
    (row,) = footprint.peak_memory(make_case("784-30-30-10", Settings(), 20, tmp_path / "weights.pt"))
    assert row["samples"] == 20 and 0 < row["suite_mb"] <= row["checks_mb"] and row["imports_mb"] > 50


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_every_real_network_has_its_size_and_learns(name):
    recipe = recipes.RECIPES[name]
    device = "meta" if recipe.parameters > 1e8 else "cpu"
    with torch.device(device):
        network = recipe.network()
        x = torch.rand(2, *((3, 64, 64) if name == "resnet50" else recipe.shape))
        inputs = (torch.randint(1000, (2, 64)), torch.ones(2, 64).long()) if name == "bert-mini" else (x,)
        f = network(*inputs)
        f.square().mean().backward()
    size = sum(parameter.numel() for parameter in network.parameters())
    assert size == pytest.approx(recipe.parameters, rel=0.01)
    gradients = [parameter.grad for parameter in network.parameters()]
    assert all(gradient is not None for gradient in gradients)
    assert device == "meta" or all(bool(gradient.isfinite().all()) for gradient in gradients)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n == "resnet50" else []) for n in CASES])
def test_every_real_case_has_the_samples_that_it_names(name):
    case = CASES[name]
    recipe = recipes.RECIPES[case.recipe]
    train, test = recipe.samples()
    (x, *_), classes = recipe.fed({key: value[:2] for key, value in train.inputs.items()}), len(np.unique(train.y))
    assert len(train.y) == case.train >= case.audited and classes == len(np.unique(test.y)) > 1
    assert all(len(split.y) == len(x) for split in (train, test) for x in split.inputs.values())
    assert x.shape == (2, *recipe.shape) and not np.array_equal(train.y[:2], train.y[-2:])


@pytest.mark.parametrize("suffix", [".onnx", ".pt2"])
def test_a_real_case_is_made_once_and_its_epoch_timed(suffix, monkeypatch, tmp_path):
    tiny = recipes.Recipe(lambda: perceptron(784, 8, 10), lambda: samples.mnist(60, 20), (784,), 6370, suffix, epochs=1)
    monkeypatch.setitem(recipes.RECIPES, "tiny", tiny)
    build.build("tiny", tmp_path)
    first = (tmp_path / f"model{suffix}").stat().st_mtime_ns
    build.build("tiny", tmp_path)
    made = json.loads((tmp_path / "made.json").read_text(encoding="utf-8"))
    assert (tmp_path / made["model"]).stat().st_mtime_ns == first and made["parameters"] == 6370
    assert {file.name for file in (tmp_path / "data").iterdir()} == {"train.npz", "test.npz"}
    monkeypatch.setattr(epoch, "LEAST", 0.1)
    timed = epoch.time_epoch("tiny", tmp_path, 60)
    assert timed["timed"] == 60 and timed["seconds"] > 0 and timed["epochs"] > 1


def test_a_command_is_ended_with_its_children_at_its_limit(tmp_path):
    left = tmp_path / "left"
    code = f"import subprocess; subprocess.run(['sh', '-c', 'sleep 2; touch {left}; sleep 60'])"
    run = watch(("-c", code), tmp_path / "log", 1.0, threads=1)
    assert run.code is None and 1.0 <= run.wall < 10 and run.peak > 1e6 and run.complaint == "ended after 1 s"
    time.sleep(2)
    assert not left.exists()


def test_a_command_that_fails_says_why(tmp_path):
    run = watch(("-c", "raise SystemExit('no such thing')"), tmp_path / "log", 20.0, threads=1)
    assert run.complaint == "exit code 1: no such thing" and not run.finished


ROW = Row(
    *("toy", 88_474, ".pt2", "3 measured, 0 passed by", "done", 0, 12.0, 20.0, 10**9, 2 * 10**9, 4.0, 5.0, 100, None),
    seconds_limit=15,
    bytes_limit=2e9,
    epochs_limit=5,
)


def test_a_real_case_passes_within_all_of_its_limits():
    assert ROW.verdict == "pass"
    assert replace(ROW, wall=30.0).verdict == "miss: time, epochs"
    assert replace(ROW, peak_above=3 * 10**9).verdict == "miss: memory"
    assert replace(ROW, code=2, outcome="exit code 2: refused").verdict == "miss: exit code 2: refused"


def test_a_real_case_ended_before_its_limits_is_left_open():
    ended = replace(ROW, code=None, outcome="ended after 12 s")
    assert ended.verdict == "open: ended after 12 s"
    assert replace(ended, peak_above=3 * 10**9).verdict == "miss: memory; ended after 12 s"


def test_what_an_ended_audit_took_is_printed_as_the_least():
    rows = [ROW, replace(ROW, code=None, outcome="ended after 12 s"), replace(ROW, code=2, outcome="exit code 2: no")]
    done, ended, failed = markdown(rows).splitlines()[2:]
    assert done == "| toy | 88,474 | .pt2 | 12.0 s | 15 s | 3.0 (≤ 5) | 20.0 s | 4.0 | 1.00 GB | 2 GB | – | pass |"
    assert "| ≥ 12.0 s | 15 s | ≥ 3.0 (≤ 5) | ≥ 20.0 s | ≥ 4.0 | ≥ 1.00 GB |" in ended
    assert "| 12.0 s | 15 s | – | 20.0 s | – |" in failed


def test_a_hop_is_a_file_that_is_entered_once():
    def place(file: str, function: str = "f") -> hops.Place:
        return hops.Place(file, function)

    calls = {
        (hops.OUTSIDE, place("cli")): 1,
        (place("cli"), place("corridor")): 1,
        (place("corridor"), place("corridor", "g")): 5,
        (place("corridor", "g"), place("tool")): 5,
        (place("corridor"), place("two", "f")): 1,
        (place("corridor"), place("two", "g")): 1,
    }
    assert hops.hops(calls) == ["cli", "corridor"]
    assert {each.file for each in hops.road(calls)} == {"cli", "corridor", "two"}
    assert "2 hops" in hops.printed(calls) and "4 files whose functions run" in hops.printed(calls)
