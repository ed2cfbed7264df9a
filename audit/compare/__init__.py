"""Comparison of audits: two models, or two recipes with several seeds each, on the same samples. Never wakes torch.

`shares.py`, `means.py` and `seeds.py` hold the statistics, `pairs.py` finds the samples that two reports share,
`differences.py` brings both together, `ground.py` refuses what would mean nothing, `compare.py` and `groups.py` judge.
"""
