"""One file per question that the audit answers."""
