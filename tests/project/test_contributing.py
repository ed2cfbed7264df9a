"""CONTRIBUTING.md names files, folders and rooms; this keeps them true."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name

import pytest
from places import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PROSE = re.sub(r"^```.*?^```$", "", TEXT, flags=re.M | re.S)
QUOTED = re.compile(r"`([^`\s]+)`")
FILE = re.compile(r"[\w./-]+(/|\.(py|md|toml|txt|j2|css|json))")


def named() -> Iterator[tuple[str, list[Path]]]:
    """Every path in the prose, and the folders that it may start from: the root, and those of its paragraph."""
    for paragraph in PROSE.split("\n\n"):
        paths = [part for quoted in QUOTED.findall(paragraph) if FILE.fullmatch(part := quoted.removeprefix("…/"))]
        whole = [ROOT / part for part in paths if (ROOT / part).exists()]
        folders = [path if path.is_dir() else path.parent for path in whole]
        yield from ((part, [ROOT, *folders]) for part in paths)


@pytest.mark.parametrize(("part", "folders"), [pytest.param(*each, id=each[0]) for each in named()])
def test_every_path_exists(part: str, folders: list[Path]) -> None:
    assert any((folder / part).exists() for folder in folders), f"{part} is not in the tree"


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(audit\.[\w.]+)`", PROSE))))
def test_every_name_in_the_package_exists(name: str) -> None:
    assert resolve_name(name) is not None


def test_every_room_is_named() -> None:
    rooms = [path for path in (ROOT / "audit").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    names = {f"audit/{room.name}" + "/" * room.is_dir() for room in rooms if not room.name.startswith("__")}
    assert len(names) > 15
    assert {name for name in names if f"`{name}`" not in TEXT} == set()
