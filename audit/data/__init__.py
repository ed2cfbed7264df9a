"""Data: one file per layout, each giving the same `Data`."""

from __future__ import annotations

from audit.data.base import Data, Split
from audit.data.fit import fit
from audit.data.read import data_sha256, describe, read_data
from audit.data.settle import settle_task

__all__ = ["Data", "Split", "data_sha256", "describe", "fit", "read_data", "settle_task"]
