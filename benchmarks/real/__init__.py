"""Audits of networks of real size: `python -m benchmarks.real`."""
