"""TorchScript is a language: none of its ways to a file, a library or an endless loop is open to a model."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_networks import silent

from audit.errors import ModelError
from audit.model import canonical_form, load_model
from audit.settings import Settings

HERE = f"__torch__.{__name__}"
CALL = "torch.linear(input, weight, bias)"


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)


def edited(folder: Path, edit: Callable[[str], str], member: str = "modules/linear") -> Path:
    """A saved network with some of its code rewritten by hand."""
    with silent():
        torch.jit.script(Plain()).save(folder / "plain.pt")
    edits = 0
    with zipfile.ZipFile(folder / "plain.pt") as old, zipfile.ZipFile(folder / "m.pt", "w") as new:
        for name in old.namelist():
            if name.endswith(".debug_pkl"):
                continue
            content = old.read(name)
            if member in name and name.endswith(".py"):  # torch adds a number where it knows the class already
                text = content.decode()
                assert edit(text) != text
                content = edit(text).encode()
                edits += 1
            new.writestr(name, content)
    assert edits == 1
    return folder / "m.pt"


def audited(path: Path) -> None:
    with silent():
        canonical_form(load_model(path, Settings()), torch.randn(4, 6))


def before(line: str) -> Callable[[str], str]:
    """The network's own code with a line before its answer."""
    return lambda text: text.replace(f"    return {CALL}", f"    {line}\n    return {CALL}")


def test_the_unedited_network_is_read(tmp_path: Path) -> None:
    audited(edited(tmp_path, lambda text: text.replace("    weight = self", "    # a comment\n    weight = self")))


FILES = [
    'torch.save(input, "{file}")',
    'torch . \\\n      save(input, "{file}")',
    'getattr(torch, "save")(input, "{file}")',
    'getattr(torch, "sa" "ve")(input, "{file}")',
    'ops.aten.save(input, "{file}")',
    'input = torch.add(input, torch.from_file("{file}", True, 6))',
    'input = torch.add(input, ops.aten.from_file("{file}", True, 6))',
    'input = torch.add(input, getattr(ops.aten, "from_file")("{file}", True, 6))',
    "ops.profiler._record_function_enter_new('{file}', None)",
    'print("{file}")',
    "a = ops.aten.manual_seed(1)",
]


@pytest.mark.parametrize("line", FILES)
def test_what_a_network_has_no_use_for_is_refused_before_anything_runs(
    line: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "written"
    path = edited(tmp_path, before(line.format(file=target)))
    with pytest.raises(ModelError, match=r"m\.pt: (its code calls \w+::\w+, which a network|is truncated or corrupt)"):
        audited(path)
    assert not target.exists()
    assert "written" not in capfd.readouterr().out


@pytest.mark.parametrize(
    "edit",
    [
        lambda text, file: text.replace(
            "in_features : Final[int] = 6", f'in_features : Final[int] = (torch.save(torch.ones([1]), "{file}"), 6)[1]'
        ),
        lambda text, file: text.replace(
            "input: Tensor) -> Tensor:",
            f'input: Tensor, k: int=(torch.save(torch.ones([1]), "{file}"), 6)[1]) -> Tensor:',
        ),
        lambda text, file: (
            text
            + "  def __setstate__(self: __torch__.torch.nn.modules.linear.Linear,\n    state: Tensor) -> NoneType:\n"
            + f'    torch.save(state, "{file}")\n    return None\n'
        ),
    ],
    ids=["constant", "default", "setstate"],
)
def test_nothing_runs_while_it_is_loaded(edit: Callable[[str, Path], str], tmp_path: Path) -> None:
    target = tmp_path / "written"
    path = edited(tmp_path, lambda text: edit(text, target))
    with pytest.raises(ModelError, match="runs code while it is loaded"):
        audited(path)
    assert not target.exists()


def test_no_class_of_a_library_is_built(tmp_path: Path) -> None:
    path = edited(tmp_path, before("a = __torch__.torch.classes.profiler._RecordFunction()"))
    with pytest.raises(ModelError, match=r"m\.pt: "):
        audited(path)


LOOPS = [
    "while True:\n      input = torch.add(input, 0)",
    "for i in range(4611686018427387904):\n      input = torch.add(input, 0)",
    "n = 1048576 * 1048576\n    for i in range(n):\n      input = torch.add(input, 0)",
    "n = int(torch.sum(torch.abs(input)) * 1e15)\n    for i in range(n):\n      input = torch.add(input, 0)",
    "for i in range(9999):\n      for j in range(9999):\n        input = torch.add(input, 0)",
]


@pytest.mark.parametrize("line", LOOPS)
def test_an_endless_loop_is_refused_before_it_runs(line: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"m\.pt: .*(whose end cannot be foreseen|steps for one batch)"):
        audited(edited(tmp_path, before(line)))


def test_what_computes_for_days_in_few_words_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("audit.model.torch.LONGEST", 0.2)
    lines = "a = torch.ones([500, 500])\n    for i in range(9999):\n      a = torch.mm(a, a)"
    path = edited(tmp_path, before(f"{lines}\n    input = torch.add(input, torch.mul(torch.sum(a), 0.))"))
    with pytest.raises(ModelError, match=r"pass of a few samples takes over 0.2 seconds, and an audit takes thousands"):
        audited(path)


def test_code_without_end_is_refused_before_torch_reads_it(tmp_path: Path) -> None:
    lines = "\n    ".join(["input = torch.tanh(input)"] * 40_001)
    with pytest.raises(ModelError, match=r"linear\S*\.py has more than 40,000 statements"):
        audited(edited(tmp_path, before(lines)))


def test_what_no_graph_could_hold_is_ended(tmp_path: Path) -> None:
    path = edited(tmp_path, before("for i in range(50000):\n      input = torch.tanh(input)"))
    with pytest.raises(ModelError, match="pass of a few samples runs more than 40,000 operators, and an audit takes"):
        audited(path)


def test_functions_that_call_each_other_are_counted_not_run(tmp_path: Path) -> None:
    functions = ["def f0(x: Tensor) -> Tensor:\n  return torch.add(x, 0)\n"]
    functions += [
        f"def f{k}(x: Tensor) -> Tensor:\n  return {HERE}.f{k - 1}({HERE}.f{k - 1}(x))\n" for k in range(1, 45)
    ]
    path = edited(
        tmp_path,
        lambda text: "".join(functions) + text.replace("return (fc)", f"x = {HERE}.f44(x)\n    return (fc)"),
        member="torchscript.py",
    )
    with pytest.raises(ModelError, match=r"m\.pt: .*steps for one batch"):
        audited(path)


def resaved(folder: Path, member: str, change: Callable[[bytes], bytes]) -> Path:
    """A saved network with one of its members changed; the pickle of its tensors is data.pkl, numbers are data/0, …"""
    with silent():
        torch.jit.script(Plain()).save(folder / "plain.pt")
    with zipfile.ZipFile(folder / "plain.pt") as old, zipfile.ZipFile(folder / "m.pt", "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.partition("/")[2] == member:
                assert change(content) != content
                content = change(content)
            new.writestr(name, content)
    return folder / "m.pt"


BEYOND = [
    ("data/0", lambda content: content[:-4]),
    ("data/1", lambda content: b""),
    ("data.pkl", lambda content: content.replace(b"K\x12", b"K\xff", 1)),  # 18 numbers in storage 0
    ("data.pkl", lambda content: content.replace(b"K\x03K\x06t", b"K\x63K\x06t", 1)),  # of shape [3, 6]
    ("data.pkl", lambda content: content.replace(b"K\x06K\x01t", b"K\x77K\x01t", 1)),  # and strides (6, 1)
    (
        "data.pkl",
        lambda content: re.sub(b"(Qq.K)\\0", b"\\1\\t", content, count=1, flags=re.DOTALL),
    ),  # the offset in it
    ("data.pkl", lambda content: content.replace(b"X\x01\x00\x00\x000", b"X\x01\x00\x00\x007", 1)),  # another key
    ("data.pkl", lambda content: content.replace(b"_rebuild_tensor_v2", b"_rebuild_meta_tensor_no_storage", 1)),
    ("data.pkl", lambda content: content.replace(b"\x80\x02", b"\x80\x020N", 1)),  # POP, which readers differ on
]


@pytest.mark.parametrize(("member", "change"), BEYOND)
def test_no_tensor_reaches_beyond_its_numbers_into_memory(
    member: str, change: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=r"m\.pt: is truncated or corrupt TorchScript \(.*\); save or copy it again"):
        audited(resaved(tmp_path, member, change))
