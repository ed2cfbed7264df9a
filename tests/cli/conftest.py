"""What all tests of the command line share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from forks import Forks, forking


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """gen-audit as a process, without the time that importing takes."""
    with forking() as forks:
        yield forks
