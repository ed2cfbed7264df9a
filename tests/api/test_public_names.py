"""The package as it is imported: light, complete, and used by examples that run."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT


def test_importing_the_package_wakes_nothing_heavy() -> None:
    code = "import audit, sys; woken = set(sys.modules); audit.Policy, audit.Report\n"
    code += "print({'numpy', 'pydantic'} & woken or {'torch', 'onnx'} & set(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_every_public_name_is_there() -> None:
    import audit

    assert all(getattr(audit, name) is not None for name in audit.__all__)
    with pytest.raises(AttributeError, match="module 'audit' has no attribute 'audit_models'"):
        audit.audit_models  # noqa: B018


@pytest.mark.parametrize("sample", sorted((ROOT / "samples" / "api").glob("*.py")), ids=lambda path: path.stem)
def test_the_examples_run(
    sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(sample), run_name="__main__")
    last = {
        "pytorch": "gen-audit-report/report.json",
        "lightning_style": "still training: True",
        "scikit_learn": "passed",
    }
    assert capsys.readouterr().out.strip().endswith(last[sample.stem])
