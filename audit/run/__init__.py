"""The road: a model and data in, a report out."""
