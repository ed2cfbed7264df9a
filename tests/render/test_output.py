from __future__ import annotations

import itertools
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from audit.errors import UsageError
from audit.render import check_writable, staged


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_folder_appears_whole(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    with staged(out) as stage:
        (stage / "report.json").write_text("{}")
        assert not out.exists()
    assert names(out) == ["report.json"]
    assert names(tmp_path / "deep") == ["out"]


def test_what_else_lies_in_the_folder_is_left_alone_but_old_reports_go(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for name in ("report.json", "report.pdf", "mine.txt"):
        (out / name).write_text("old")
    with staged(out) as stage:
        (stage / "report.json").write_text("new")
    assert names(out) == ["mine.txt", "report.json"]
    assert (out / "report.json").read_text() == "new"


def test_after_a_failure_everything_is_as_before(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "report.json").write_text("old")
    with pytest.raises(RuntimeError), staged(out) as stage:
        (stage / "report.json").write_text("half")
        raise RuntimeError
    assert (out / "report.json").read_text() == "old"
    assert names(tmp_path) == ["out"]


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(UsageError) as caught, staged(tmp_path / "out"):
        pass
    assert str(caught.value) == f"{tmp_path / 'out'}: is a file, not a folder; name another folder with -o."


def test_drawing_a_page_again_keeps_the_report_beside_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "report.json").write_text("old")
    with staged(out, new_audit=False) as stage:
        (stage / "report.pdf").write_text("page")
    assert names(out) == ["report.json", "report.pdf"]


def test_a_place_that_takes_no_files_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^/proc/report: cannot be written to \(.+\); name another folder with -o\.$"):
        check_writable(Path("/proc/report"))
    check_writable(tmp_path / "out")
    assert names(tmp_path) == []


def test_a_file_that_was_read_for_the_report_is_never_removed(tmp_path: Path) -> None:
    baseline = tmp_path / "report.json"
    baseline.write_text("baseline")
    with staged(tmp_path, read=baseline) as stage:
        (stage / "report.md").write_text("new")
    assert names(tmp_path) == ["report.json", "report.md"]


def test_a_folder_in_the_place_of_a_file_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "report.pdf").mkdir()
    with pytest.raises(UsageError) as caught:
        check_writable(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}/report.pdf: is a folder, where a file of the report belongs; name another folder with -o."
    )


def test_a_folder_in_the_place_of_another_page_leaves_everything_as_before(tmp_path: Path) -> None:
    (tmp_path / "compare.html").mkdir()
    with pytest.raises(UsageError, match=r"compare\.html: is a folder"), staged(tmp_path, new_audit=False) as stage:
        (stage / "a.json").write_text("new")
        (stage / "compare.html").write_text("new")
    assert names(tmp_path) == ["compare.html"]


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder on another file system, as a mounted volume is."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev or not os.access(memory, os.W_OK):
        pytest.skip("there is no second file system")
    folder = Path(tempfile.mkdtemp(dir=memory))
    yield folder
    shutil.rmtree(folder)


def test_a_folder_on_another_file_system_takes_a_report(tmp_path: Path, elsewhere: Path) -> None:
    out = tmp_path / "out"
    out.symlink_to(elsewhere)  # its parent is here, its files are there
    (elsewhere / "report.json").write_text("old")
    with staged(out) as stage:
        (stage / "report.json").write_text("new")
    assert (elsewhere / "report.json").read_text() == "new"
    assert names(elsewhere) == ["report.json"] and names(tmp_path) == ["out"]


def test_a_writable_folder_below_a_read_only_one_takes_a_report(tmp_path: Path) -> None:
    out = tmp_path / "parent" / "out"
    out.mkdir(parents=True)
    out.parent.chmod(0o555)
    try:
        with staged(out) as stage:
            assert stage.parent == out
            (stage / "report.json").write_text("new")
    finally:
        out.parent.chmod(0o755)
    assert names(out) == ["report.json"]


def test_what_a_killed_run_left_is_removed_and_what_a_running_one_needs_is_not(tmp_path: Path) -> None:
    left = tmp_path / ".gen-audit-0123456789abcdef"
    left.mkdir()
    (left / "report.json").write_text("half")
    mine = tmp_path / ".gen-audit-notes"
    mine.mkdir()
    for folder in (left, mine):
        os.utime(folder, (0, 0))
    with staged(tmp_path) as first:
        os.utime(first, (0, 0))
        with staged(tmp_path) as second:
            (second / "report.json").write_text("second")
            assert first.is_dir() and not left.exists()
        (first / "report.json").write_text("first")
    assert names(tmp_path) == [".gen-audit-notes", "report.json"] and (tmp_path / "report.json").read_text() == "first"


def test_a_link_to_nowhere_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("nowhere")
    with pytest.raises(UsageError, match="is a link to what does not exist"):
        check_writable(tmp_path / "out")


class Ended(BaseException):
    """As the command line ends at a signal."""


def written_until(out: Path, moment: int) -> int:
    """Writes a report and sends SIGTERM to itself at one of the moments at which Python looks for signals.

    These are the begin of a function and the end of one in C. Returned is how many there were.
    """
    passed = 0

    def profile(_frame: FrameType, event: str, _: object) -> None:
        nonlocal passed
        passed += event in ("call", "c_return")
        if passed == moment:
            passed += 1
            signal.raise_signal(signal.SIGTERM)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        with staged(out) as stage:
            for name in ("report.html", "report.json"):
                (stage / name).write_text("new")
    finally:
        sys.setprofile(before)
    return passed


def test_a_signal_at_any_moment_leaves_one_report_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: None)  # where the command line lets it come once more

    def end(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second one must not break the tidying up
        raise Ended

    out, seen = tmp_path / "out", set()
    before = signal.getsignal(signal.SIGTERM)
    try:
        for moment in itertools.count(1, 7):
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir()
            (out / "report.json").write_text("old")
            signal.signal(signal.SIGTERM, end)
            try:
                if written_until(out, moment) < moment:
                    break
            except Ended:
                pass
            found = {name: (out / name).read_text() for name in names(out)}
            assert found in ({"report.json": "old"}, {"report.html": "new", "report.json": "new"}), moment
            seen.add(len(found))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert moment > 100 and seen == {1, 2}
