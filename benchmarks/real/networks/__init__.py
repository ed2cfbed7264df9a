"""The networks that are audited, each in the ordinary form of its kind, in plain torch."""
