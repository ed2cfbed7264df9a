"""The README quotes the command line's own help; this keeps the quotation true."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from places import ROOT


def test_the_help_in_the_readme_is_the_help() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    quoted = re.search(r"<!-- help: begin -->\n```\n(.*?)```\n<!-- help: end -->", readme, re.S)
    code = "import sys; sys.argv = ['gen-audit', '--help']; from audit.cli import main; main()"
    environ = {**os.environ, "COLUMNS": "80", "PYTHONPATH": str(ROOT)}
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ, check=True)
    assert quoted is not None
    assert quoted[1].split() == printed.stdout.split()
