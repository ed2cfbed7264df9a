"""Reference networks of the audited model's own architecture, on its own data, at its own train loss."""
