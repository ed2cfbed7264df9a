"""Audits over time: the reports of a folder in their order, and what changed along the way. Never wakes torch."""
