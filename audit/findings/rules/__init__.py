"""Every rule, the heaviest first: within a level, findings stand in this order."""

from __future__ import annotations

from audit.findings.rule import FindingRule
from audit.findings.rules import (
    calibration,
    classes,
    feeding,
    gap,
    guessing,
    labels,
    self_checks,
    splits,
    steep,
    theory,
    too_little,
    twins,
)

RULES: tuple[FindingRule, ...] = (
    # whether the numbers say anything at all
    feeding.PREPROCESSING,
    feeding.CLASS_ORDER,
    guessing.WRONG_INPUT,
    feeding.BATCH_NORM,
    feeding.INPUT_RANGE,
    splits.LEAKED,
    labels.NEAR_COPIES,
    splits.SHIFTED,
    self_checks.TRUST,
    # what is wrong with the data or the model
    labels.MISLABELLED,
    guessing.WORSE_THAN_GUESSING,
    guessing.HARDLY_BETTER,
    gap.NEGATIVE_GAP,
    # what networks trained anew say of it
    twins.RESEMBLES,
    twins.TWIN_ERRORS,
    too_little.UNDERFIT,
    classes.WEAK_CLASS,
    classes.BALANCE,
    splits.OWN_SPLIT,
    splits.VALIDATION_SPLIT,
    feeding.CONSTANT_INPUTS,
    too_little.FEW_TEST,
    # the gap, and where it sits
    gap.GAP,
    labels.CONFLICTS,
    steep.STEEP,
    steep.FLAT,
    classes.GAP_CLASSES,
    gap.GAP_SAMPLES,
    too_little.FEW_TRAIN,
    steep.GAP_LAYERS,
    twins.TRIED_ADVICE,
    calibration.RULE,
    # what the theory can say here
    self_checks.MINIMUM,
    theory.DEAD_UNITS,
    theory.SENSITIVE,
    theory.VOLUME,
    theory.PAC_BAYES,
)
