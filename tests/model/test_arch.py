"""--arch: every way to get it wrong is a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn

from audit.errors import AuditError
from audit.model.torch.checkpoint import build

SOURCE = """
from torch import nn
from neighbour import WIDTH

network = nn.Linear(WIDTH, 3)
number = 3

def build():
    return nn.Linear(WIDTH, 2)

def broken():
    raise RuntimeError("no such width")

def greedy(width):
    return nn.Linear(width, 2)

def words():
    return "a network"

class Builders:
    build = staticmethod(build)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shapes.py").write_text(SOURCE)
    (tmp_path / "neighbour.py").write_text("WIDTH = 4\n")
    (tmp_path / "needy.py").write_text("import not_installed_anywhere\n")
    (tmp_path / "wrong.py").write_text("def build(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    yield tmp_path
    for name in ("shapes", "neighbour", "needy", "wrong"):
        __import__("sys").modules.pop(name, None)


@pytest.mark.parametrize(
    ("arch", "outputs"),
    [("shapes:build", 2), ("shapes:network", 3), ("shapes:Builders.build", 2), ("shapes.py:build", 2)],
)
def test_finds_the_network(here: Path, arch: str, outputs: int) -> None:
    network = build(arch)
    assert isinstance(network, nn.Linear) and network.out_features == outputs


def test_finds_the_network_in_a_file_elsewhere(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert isinstance(build(f"{here}/shapes.py:build"), nn.Linear)


@pytest.mark.parametrize(
    ("arch", "sentence"),
    [
        ("shapes", "names no factory; write package.module:factory or path/to/file.py:factory"),
        ("shapes:", "names no factory"),
        ("absent:build", "there is no module 'absent'; run gen-audit from the folder that holds it"),
        ("shapes.inner:build", "there is no module 'shapes.inner'|importing shapes.inner failed"),
        ("absent.py:build", "there is no file absent.py"),
        ("shapes:bild", "there is no 'bild' in it; it has Builders, broken, build"),
        ("shapes:number", "number is neither an nn.Module nor a function that builds one"),
        ("shapes:broken", r"calling broken\(\) failed \(RuntimeError: no such width\)"),
        (
            "shapes:greedy",
            r"calling greedy\(\) failed \(TypeError: .*width.*\); it must build the network without arguments",
        ),
        ("shapes:words", r"words\(\) returned str, not an nn.Module"),
        ("needy:build", "needy imports 'not_installed_anywhere', which is missing; install it"),
        ("wrong:build", r"importing wrong failed \(SyntaxError"),
    ],
)
def test_says_what_is_wrong(here: Path, arch: str, sentence: str) -> None:
    with pytest.raises(AuditError, match=rf"--arch {arch}: ({sentence})"):
        build(arch)
