"""Models: one file per format, each giving the same `Model`."""
