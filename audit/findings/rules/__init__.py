"""Every rule, the heaviest first: within a level, findings stand in this order."""

from __future__ import annotations

from audit.findings.rule import FindingRule
from audit.findings.rules import (
    balance,
    calibration,
    conflicts,
    dead_units,
    few_test,
    few_train,
    gap,
    gap_classes,
    gap_layers,
    gap_samples,
    leaked,
    minimum,
    mislabelled,
    near_copies,
    own_split,
    pac_bayes,
    sensitive,
    steep,
    trust,
    underfit,
    volume,
    worse_than_guessing,
    wrong_input,
)

RULES: tuple[FindingRule, ...] = (
    # whether the numbers say anything at all
    wrong_input.RULE,
    leaked.RULE,
    trust.RULE,
    # what is wrong with the data or the model
    mislabelled.RULE,
    worse_than_guessing.RULE,
    underfit.RULE,
    balance.RULE,
    own_split.RULE,
    near_copies.RULE,
    few_test.RULE,
    # the gap, and where it sits
    gap.RULE,
    conflicts.RULE,
    steep.STEEP,
    steep.FLAT,
    gap_classes.RULE,
    gap_samples.RULE,
    few_train.RULE,
    gap_layers.RULE,
    calibration.RULE,
    # what the theory can say here
    minimum.RULE,
    dead_units.RULE,
    sensitive.RULE,
    volume.RULE,
    pac_bayes.RULE,
)
