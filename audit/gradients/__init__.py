"""Per-sample gradients of every parameter, seen through their inner products only."""
