"""Blocks of the report, one file per measure: plain values that measures fill and renderers read. No torch here."""
