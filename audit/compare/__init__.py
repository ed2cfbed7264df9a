"""Comparison of audits: two models, or two recipes with several seeds each, on the same samples. Never wakes torch.

`shares.py`, `means.py` and `seeds.py` hold the statistics, `differences.py` applies them to two reports, `compare.py`
and `groups.py` judge, `matched.py` brings two networks to one train loss (the only file here that wakes torch).
"""
