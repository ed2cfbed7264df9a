"""What `--help` shows, how quickly, and what a shell completes."""

from __future__ import annotations

import os
import re
import resource
import stat
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from forks import Forks
from places import ROOT
from test_cli import command, done

from audit.cli import COMMANDS
from audit.settings import Settings

HEAVY = {"torch", "onnx", "onnx2torch", "onnxruntime", "weasyprint", "matplotlib", "numpy", "pyarrow", "PIL", "jinja2"}
NAMES = [module.__name__.rpartition(".")[2] for module in COMMANDS]


@pytest.mark.parametrize("asked", [("--help",), ("report", "--help")])
def test_help_is_quick_and_wakes_nothing_heavy(asked: tuple[str, ...], tmp_path: Path) -> None:
    spent = []
    for _ in range(3):
        before = _cpu_of_children()
        assert done(*asked, cwd=tmp_path).startswith("Usage: gen-audit ")
        spent.append(_cpu_of_children() - before)
    assert min(spent) < 0.3
    names = "import atexit, sys; atexit.register(lambda: print(*sys.modules))\n"
    awake = {name.split(".")[0] for name in done(*asked, cwd=tmp_path, before=names).split()}
    assert "typer" in awake and not awake & HEAVY


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_the_commands_are_declared_without_pydantic() -> None:
    """Typer wakes it by itself, once it parses the flags of a command."""
    code = "import sys, audit.cli; print(*sys.modules)"
    awake = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "audit.settings" in awake.split() and "pydantic" not in awake.split()


def test_the_package_is_the_program() -> None:
    asked = [sys.executable, "-m", "audit", "--version"]
    assert subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.startswith("gen-audit ")


def test_the_options_stand_in_groups(forks: Forks, tmp_path: Path) -> None:
    shown = groups(forks.done("report", "--help", cwd=tmp_path))
    assert list(shown) == ["Arguments", "Model", "Data", "Measures", "Output", "Resources", "Options"]
    for setting in fields(Settings):
        flag = f"--{setting.name.replace('_', '-')}"
        assert [group for group, flags in shown.items() if flag in flags] == [setting.metadata["group"]]
    assert {"--out", "--format", "--json"} <= shown["Output"].keys()
    assert shown["Options"].keys() == {"--config", "--help"}


def test_the_options_show_their_types(forks: Forks, tmp_path: Path) -> None:
    shown = {
        flag: kind
        for flags in groups(forks.done("report", "--help", cwd=tmp_path)).values()
        for flag, kind in flags.items()
    }
    wanted = {
        "--seed": "<int>",
        "--delta": "<float>",
        "--arch": "<text>",
        "--resize": "<int,int>",
        "--mean": "<float,float>",
        "--classes": "<text,text>",
        "--config": "<path>",
        "--channels": "<auto|rgb|bgr|gray>",
        "--conv": "",
    }
    assert {flag: shown[flag] for flag in wanted} == wanted


@pytest.mark.parametrize("name", NAMES)
def test_no_command_speaks_of_pythons_types(name: str, forks: Forks, tmp_path: Path) -> None:
    assert not re.search(r"<str>|<list|Path\]", forks.done(name, "--help", cwd=tmp_path))


def groups(text: str) -> dict[str, dict[str, str]]:
    """The long flags of each group of a help text, with the type that stands behind each."""
    parts = re.split(r"^(\w+):\n", text, flags=re.MULTILINE)
    flag = re.compile(r"^  (?:-\w, )?(--[\w-]+)(?: (<\S+>))?(?=\s)", re.MULTILINE)
    return {name: dict(flag.findall(body)) for name, body in zip(parts[1::2], parts[2::2], strict=True)}


COMPLETED = {
    "che": "check",
    "check --base": "--baseline",
    "report --task b": "binary",
    "report --layout s": "safetensors",
    "report --dtype float": "float16 float32 float64",
    "report -f html,p": "html,pdf",
    "compare -f m": "md",
    "schema v": "verdict",
    "explain fisher.gamma_f": "fisher.gamma_full",
    "report mod": "",  # with nothing to say, bash goes on to files
}


def test_bash_completes_commands_flags_and_values(tmp_path: Path) -> None:
    program = tmp_path / "gen-audit"
    program.write_text(f"#!{command()[0]}\nimport sys; sys.argv[0] = 'gen-audit'\nfrom audit.cli import main\nmain()\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    script = (
        'eval "$(gen-audit --show-completion bash)"\ncomplete -p gen-audit\n'
        "try() { COMP_WORDS=(gen-audit $@); COMP_CWORD=$#; _gen_audit_completion gen-audit; echo ${COMPREPLY[@]}; }\n"
    ) + "".join(f"try {typed}\n" for typed in COMPLETED)
    shell = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    registered, *completed = shell.stdout.splitlines()
    assert "-o default" in registered and shell.stderr == ""
    assert dict(zip(COMPLETED, completed, strict=True)) == COMPLETED
