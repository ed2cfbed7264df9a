"""Renderers: one finished `Report` in, one file out. A renderer never computes."""
