"""Comparison of audits: two models, or two recipes with several seeds each, on the same samples. Never wakes torch.

`result.py` says what a comparison is and which numbers it has, `comparable.py` refuses what would mean nothing,
`differences.py` pairs two models on the samples that both reports have, `network_numbers.py` compares what was measured
inside the network, `compare.py` puts two models side by side and `recipes.py` two recipes.
"""
