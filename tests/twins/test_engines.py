"""Twins are the same whoever makes them; a lost worker costs its task only, and nothing outlives the one who asked."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from places import ROOT
from torch import Tensor, nn
from twin_cases import fitted_network, small_folder, small_network

from audit.errors import UsageError
from audit.run.in_memory import sources_of
from audit.run.progress import Progress
from audit.settings import Settings
from audit.twins import Recipe, TwinSet, read_twins
from audit.twins.engines import LOST, chosen_engine
from audit.twins.in_memory import trained_by
from audit.twins.kinds import Kind, chosen_kinds
from audit.twins.make import Wish, make_folder
from audit.twins.problem import Problem, set_problem
from audit.twins.work import Change

RECIPE = Recipe(rate=0.2, batch=10)
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: gen-audit[ray]")


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    folder = small_folder(tmp_path_factory.mktemp("blobs"))
    with ExitStack() as stack:
        return set_problem(sources_of(fitted_network(), str(folder), None, stack), Settings(), Progress())


def wish(*kinds: str, workers: int = 2, count: int = 2) -> Wish:
    return Wish(kinds=chosen_kinds(kinds), count=count, recipe=RECIPE, workers=workers)


@pytest.fixture(scope="module")
def alone(problem: Problem, tmp_path_factory: pytest.TempPathFactory) -> TwinSet:
    """Three kinds, one after the other in this process."""
    return make_folder(problem, tmp_path_factory.mktemp("alone"), wish("plain", "half", "decay", workers=1))


def assert_same(found: TwinSet, expected: TwinSet) -> None:
    assert [twin.name for twin in found.twins] == [twin.name for twin in expected.twins]
    for one, other in zip(found.twins, expected.twins, strict=True):
        assert (one.epochs, one.restarts, one.reached) == (other.epochs, other.restarts, other.reached)
        assert one.test_loss == pytest.approx(other.test_loss, rel=1e-4)
        assert one.numbers == pytest.approx(other.numbers, rel=1e-3)
    assert found.test_losses == pytest.approx(expected.test_losses, rel=1e-3, abs=1e-5)


def test_a_pool_makes_the_same_twins(problem: Problem, alone: TwinSet, tmp_path: Path) -> None:
    said: list[str] = []
    made = make_folder(problem, tmp_path, replace(wish("plain", "half", "decay"), say=said.append))
    assert_same(made, alone)
    assert_same(read_twins(tmp_path), alone)
    assert [line.split(":")[0] for line in said] == ["plain (given)", "half (given)", "decay (given)"]


@pytest.mark.slow
def test_a_pool_goes_on_with_a_folder(problem: Problem, alone: TwinSet, tmp_path: Path) -> None:
    make_folder(problem, tmp_path, wish("plain"))
    assert_same(make_folder(problem, tmp_path, wish("plain", "half", "decay")), alone)


def own(seed: int, x: Tensor, y: Tensor, change: Change) -> nn.Module:
    network = small_network(seed=seed)
    optimizer = torch.optim.Adam(network.parameters(), 0.05)
    for _ in range(300):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(x), y)
        if loss <= change.goal.target:
            break
        loss.backward()
        optimizer.step()
    return network


def killed(times: int, kind: str, notes: Path) -> Callable[..., nn.Module]:
    """Trains as `own`, but kills its own process the first times that it is at this kind."""

    def train(seed: int, x: Tensor, y: Tensor, change: Change) -> nn.Module:
        before = len(list(notes.iterdir()))
        if change.kind == kind and before < times:
            (notes / f"{before}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return own(seed, x, y, change)

    return train


def with_training(function: Any, *kinds: str, **more: Any) -> Wish:
    asked = wish(*kinds, count=1)
    return replace(asked, recipe=Recipe(), train_with=trained_by(function), **more)


def test_a_killed_worker_costs_its_task_only_and_it_is_tried_again(problem: Problem, tmp_path: Path) -> None:
    (notes := tmp_path / "notes").mkdir()
    made = make_folder(problem, tmp_path / "twins", with_training(killed(2, "half", notes), "plain", "half", "decay"))
    assert [twin.kind for twin in made.twins] == ["plain", "half", "decay"]
    assert len(list(notes.iterdir())) == 2


@pytest.mark.slow
def test_what_kills_every_worker_is_left_out_with_its_reason(problem: Problem, tmp_path: Path) -> None:
    (notes := tmp_path / "notes").mkdir()
    made = make_folder(problem, tmp_path / "twins", with_training(killed(9, "half", notes), "plain", "half", "decay"))
    assert [twin.kind for twin in made.twins] == ["plain", "decay"]
    assert dict(made.left_out)["half"] == LOST == "its worker was lost 3 times, perhaps for want of memory"
    assert len(list(notes.iterdir())) == 3


def test_the_error_of_a_worker_is_that_of_the_task(problem: Problem, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"train_with: answered with a int; return the trained nn\.Module"):
        make_folder(problem, tmp_path, with_training(lambda *_: 1, "plain", "half"))


def test_what_cannot_be_sent_is_done_here(problem: Problem, tmp_path: Path) -> None:
    lock, here, said = threading.Lock(), os.getpid(), list[str]()

    def train(*given: Any) -> nn.Module:
        assert os.getpid() == here and not lock.locked()
        return own(*given)

    made = make_folder(problem, tmp_path, with_training(train, "plain", "half", say=said.append))
    assert len(made.twins) == 2
    assert said[0].startswith("one task after the other: the model cannot be sent to other processes (")


@pytest.mark.slow
def test_a_kind_of_ones_own_is_sent(problem: Problem, tmp_path: Path) -> None:
    hot = Kind("hot", "three times the rate", "Would it help?", 1, lambda recipe: replace(recipe, rate=0.6))
    asked = Wish(kinds=chosen_kinds(["plain"], [hot]), count=1, recipe=RECIPE, workers=2)
    assert [twin.kind for twin in make_folder(problem, tmp_path, asked).twins] == ["plain", "hot"]


def test_an_engine_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"--engine: there is no engine 'dask'; the engines are local and ray\."):
        chosen_engine("dask")
    monkeypatch.setattr("audit.twins.pool.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"Ray is not installed; install it with `pip install 'gen-audit\[ray\]'`"):
        chosen_engine("ray")


SCRIPT = """
import time, os, sys
from pathlib import Path
sys.path[:0] = {path!r}
import torch
from twin_cases import blobs, fitted_network
from audit import make_twins
print("once", flush=True)
torch.set_num_threads(2)

def slow(seed, x, y, change):
    (Path({notes!r}) / str(os.getpid())).touch()
    if change.kind == "plain":
        return fitted_network()
    time.sleep(600)

make_twins(fitted_network(), blobs(), blobs(seed=1), train_with=slow, kinds=["plain", "half", "quarter"], count=1,
           folder={twins!r})
"""


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_the_one_who_asked(tmp_path: Path, stop: signal.Signals) -> None:
    (notes := tmp_path / "notes").mkdir()
    path = [str(ROOT), str(ROOT / "tests" / "support")]
    script, twins = tmp_path / "script.py", tmp_path / "twins"
    script.write_text(SCRIPT.format(path=path, notes=str(notes), twins=str(twins)))
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        until(lambda: len(list(notes.iterdir())) == 2 and (twins / "twins.json").exists())
        run.send_signal(stop)
        said, _ = run.communicate(timeout=240)
    assert said == "once\n"  # nobody runs the script again
    until(lambda: not any(alive(int(note.name)) for note in notes.iterdir()))
    assert [twin.kind for twin in read_twins(twins).twins] == ["plain"]


def until(condition: Callable[[], bool], seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{process}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


@needs_ray
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_that_is_not_there_is_named(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(UsageError, match=r"RAY_ADDRESS=127\.0\.0\.1:1: no Ray cluster can be had there \(.*refused"):
        make_folder(problem, tmp_path, replace(wish("plain"), engine="ray"))


@pytest.fixture(scope="module")
def two_machines() -> Iterator[Any]:
    """A Ray cluster of two nodes of one processor each, on this machine."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.mark.slow
@needs_ray
@pytest.mark.filterwarnings("ignore")
def test_ray_makes_the_same_twins(two_machines: Any, problem: Problem, alone: TwinSet, tmp_path: Path) -> None:
    made = make_folder(problem, tmp_path, replace(wish("plain", "half", "decay"), engine="ray"))
    assert_same(made, alone)


@pytest.mark.slow
@needs_ray
@pytest.mark.filterwarnings("ignore")
def test_a_worker_of_ray_that_is_killed_costs_its_task_only(
    two_machines: Any, problem: Problem, tmp_path: Path
) -> None:
    (notes := tmp_path / "notes").mkdir()
    asked = with_training(killed(5, "half", notes), "plain", "half", "decay", engine="ray")
    made = make_folder(problem, tmp_path / "twins", asked)
    assert [twin.kind for twin in made.twins] == ["plain", "decay"] and dict(made.left_out)["half"] == LOST
    (tmp_path / "fewer").mkdir()
    asked = with_training(killed(2, "half", tmp_path / "fewer"), "plain", "half", "decay", engine="ray")
    assert [twin.kind for twin in make_folder(problem, tmp_path / "twins", asked).twins] == ["plain", "half", "decay"]
