"""Renderers: one finished report in, one file out. A renderer never computes."""
