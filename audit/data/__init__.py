"""Data: one file per layout, each giving the same `Data`."""
