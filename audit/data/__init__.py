"""Data: one file per layout, each giving the same `Data`."""

from __future__ import annotations

from audit.data.dataset import Data, Split
from audit.data.fit import choose_fitting
from audit.data.folder import data_sha256, read_data
from audit.data.task import resolve_task

__all__ = ["Data", "Split", "choose_fitting", "data_sha256", "read_data", "resolve_task"]
