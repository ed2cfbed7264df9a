"""The order of the classes: found where it is wrong, left alone where classes are merely alike, rare or guessed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.data.class_order import class_order
from audit.report.conduct import ClassOrder


def judged(labels: np.ndarray, answers: np.ndarray, classes: int) -> ClassOrder:
    names = [str(k) for k in range(classes)]
    return class_order(labels, answers, names, names)


def answered(rng: np.random.Generator, labels: np.ndarray, classes: int, right: float) -> np.ndarray:
    """Right on a share of the samples, any class on the others."""
    return np.where(rng.random(len(labels)) < right, labels, rng.integers(classes, size=len(labels)))


# Of 100 classes with 20 samples each, one permutation in 200 has two classes whose swap ten samples cannot prove.
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.8, 1.0]), st.sampled_from([(2, 100), (10, 60), (100, 30)]))
def test_any_permutation_is_found_and_undone_by_the_flag(seed: int, right: float, size: tuple[int, int]) -> None:
    classes, each = size
    rng = np.random.default_rng(seed)
    outputs = np.repeat(np.arange(classes), each)  # what each sample is to the model
    answers = answered(rng, outputs, classes, right)
    called = rng.permutation(classes)  # what the data call that class
    order = judged(called[outputs], answers, classes)
    flag = order.cure.removeprefix("--classes ").split(",") if order.cure else [str(k) for k in range(classes)]
    assert flag == [str(label) for label in called]
    assert order.right_if_moved == pytest.approx((answers == outputs).mean())


@pytest.mark.parametrize("seed", range(20))
def test_guessers_and_look_alikes_are_left_alone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(10), 60)
    assert judged(labels, rng.integers(10, size=600), 10).moved == []
    alike = np.where(labels < 2, rng.integers(2, size=600), labels)  # 0 and 1 cannot be told apart
    assert judged(labels, alike, 10).moved == []
    assert judged(labels, np.where(labels < 2, 0, labels), 10).moved == []  # one of two always wins


@pytest.mark.parametrize("seed", range(5))
def test_two_swapped_classes_among_good_answers_are_found(seed: int) -> None:
    rng = np.random.default_rng(seed)
    outputs = np.repeat(np.arange(10), 30)
    swapped = np.where(outputs == 3, 7, np.where(outputs == 7, 3, outputs))
    order = judged(swapped, answered(rng, outputs, 10, 0.95), 10)
    assert sorted(order.moved) == ["3", "7"] and order.right > 0.7
    assert order.cure == "--classes 0,1,2,7,4,5,6,3,8,9"


def test_names_with_spaces_are_quoted() -> None:
    outputs = np.repeat([0, 1], 50)
    order = class_order(1 - outputs, outputs, ["a cat", "dog"], ["a cat", "dog"])
    assert order.cure == "--classes 'dog,a cat'"
