"""Fixtures that every test may use."""

from __future__ import annotations

import os
from collections.abc import Iterator

import hypothesis
import pytest
import torch
from forks import Forks, forking
from made_audits import AuditMaker, as_data, as_model

from audit.measures.contract import Audit
from audit.run.setup import set_up_audit
from audit.settings import Settings

torch.set_num_threads(1)
hypothesis.settings.register_profile("tests", deadline=None)  # a busy machine is no fault
hypothesis.settings.load_profile("tests")
os.environ.pop("GITHUB_STEP_SUMMARY", None)  # commands would speak to the workflow that runs the tests


@pytest.fixture
def make_audit() -> AuditMaker:
    """`make_audit(network, x, y, x_test, y_test, task="classification", **settings)` → the table for the measures."""

    def make(network, x, y, x_test, y_test, task="classification", **settings) -> Audit:  # type: ignore[no-untyped-def]
        model = as_model(network, tuple(x.shape[1:]))
        return set_up_audit(model, as_data(x, y, x_test, y_test), task, Settings(**settings))

    return make


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """gen-audit as a process, without the time that importing takes."""
    with forking() as forks:
        yield forks
