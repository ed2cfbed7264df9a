"""The parts of the activity–weight decomposition: pairs, dual weights, the eigenbasis, the split, the widths."""
