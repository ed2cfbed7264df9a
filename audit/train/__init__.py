"""Regularizers for training loops, from the papers behind the measures.

from audit.train import FisherRegularizer, flatness_penalty
"""

from audit.train.fisher import FisherRegularizer
from audit.train.flatness import flatness_penalty

__all__ = ["FisherRegularizer", "flatness_penalty"]
