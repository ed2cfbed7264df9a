"""From labels and outputs to a task: what is recognised, what is refused, what is noted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from audit.data.dataset import Data, Split
from audit.data.labels import class_order, neutral, to_indices
from audit.data.task import resolve_task
from audit.errors import DataError

PATH = Path("folder")


def labelled(train: object, test: object | None = None, names: tuple[str, ...] | None = None) -> Data:
    splits = []
    for y in (train, train if test is None else test):
        array = np.asarray(y)
        splits.append(Split(np.zeros((len(array), 2)), array, len(array)))
    return Data(*splits, path=PATH, layout="npz", sha256="", classes=names)


def refusal(data: Data, outputs: int, head: str = "none", task: str = "auto") -> str:
    with pytest.raises(DataError) as caught:
        resolve_task(data, outputs, head, task)
    text = str(caught.value)
    assert text.startswith(f"{PATH}: ") and text.endswith(".") and "\n" not in text
    return text.removeprefix(f"{PATH}: ")


@pytest.mark.parametrize(
    ("y", "outputs", "head", "task"),
    [
        ([0, 1, 2], 3, "none", "classification"),
        ([0.0, 1.0, 2.0], 3, "softmax", "classification"),
        ([0, 1, 1], 2, "none", "classification"),
        ([0, 1, 1], 1, "none", "binary"),
        ([0.0, 1.0, 1.0], 1, "sigmoid", "binary"),
        ([-1, 1, 1], 1, "none", "binary"),
        ([0, 1, 1], 1, "sigmoid_pair", "binary"),
        ([0.5, 1.5, 2.0], 1, "none", "regression"),
        ([151, 75, 141], 1, "none", "regression"),
        ([[0.1, 0.2], [1, 2], [3, 4]], 2, "none", "regression"),
        ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], 3, "none", "classification"),
        ([[1.0, 0.0], [0.0, 1.0]], 1, "none", "binary"),
    ],
)
def test_tasks_are_recognised(y: list[object], outputs: int, head: str, task: str) -> None:
    found, data = resolve_task(labelled(y), outputs, head, "auto")
    assert found == task
    if task == "regression":
        assert data.train.y.dtype == np.float64
        np.testing.assert_array_equal(data.train.y, np.reshape(y, (-1, outputs)))
        assert data.classes is None
    else:
        assert data.train.y.dtype == np.int64
        assert data.train.y.shape == (len(y),)
        assert data.classes is not None
        assert len(data.classes) == max(outputs, 2)


def test_names_are_resolved_by_the_number_of_outputs() -> None:
    assert resolve_task(labelled([0, 1, 1], names=("cat", "dog")), 1, "none", "auto")[0] == "binary"
    task, data = resolve_task(labelled([0, 1, 1], names=("cat", "dog")), 2, "none", "auto")
    assert (task, data.classes) == ("classification", ("cat", "dog"))


def test_minus_one_and_one_become_zero_and_one() -> None:
    _, data = resolve_task(labelled([-1, 1, -1]), 1, "none", "auto")
    assert data.train.y.tolist() == [0, 1, 0]
    assert data.classes == ("-1", "1")
    assert "Labels -1 and 1 are the classes 0 and 1 of the output." in data.notes


def test_the_users_word_overrides() -> None:
    task, data = resolve_task(labelled([0, 1, 1]), 1, "none", "regression")
    assert task == "regression"
    assert data.train.y.tolist() == [[0.0], [1.0], [1.0]]
    one_hot = [[1, 0], [0, 1]]
    assert resolve_task(labelled(one_hot), 2, "none", "regression")[1].train.y.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_labels_beyond_the_outputs() -> None:
    assert refusal(labelled([0, 1, 7]), 3) == (
        "has the label 7 but the model has 3 outputs, so labels go from 0 to 2; if they are names, say --classes 0,1,7."
    )
    assert refusal(labelled([0, 1], [0, 5]), 2) == (
        "has the label 5 but the model has 2 outputs, so labels go from 0 to 1; "
        "correct the labels, or check that this is the right model."
    )
    assert refusal(labelled([-1, 1]), 2).endswith("if they are names, say --classes -1,1.")


def test_labels_that_count_from_one() -> None:
    assert refusal(labelled([1, 2, 3]), 3) == (
        "has the label 3 but the model has 3 outputs, so labels go from 0 to 2; "
        "if they count from 1, say --classes 1,2,3."
    )


@pytest.mark.parametrize(("outputs", "head"), [(1, "none"), (1, "sigmoid"), (3, "none")])
@pytest.mark.parametrize("value", [0, 7])
def test_one_class_only(outputs: int, head: str, value: int) -> None:
    data = labelled([value, value, value])
    assert refusal(data, outputs, head) == f"every label is '{value}'; an audit needs at least two classes."


def test_one_class_in_train_only() -> None:
    text = refusal(labelled([1, 1, 1], [0, 1, 2], names=("a", "b", "c")), 3)
    assert text == "every train label is 'b'; an audit needs at least two classes."


def test_one_class_in_test_is_a_note() -> None:
    _, data = resolve_task(labelled([0, 1], [1, 1]), 2, "none", "auto")
    assert "Every test label is '1'." in data.notes


def test_gaps_and_unseen_classes_are_notes() -> None:
    _, data = resolve_task(labelled([0, 1, 1], [0, 3, 1]), 5, "none", "auto")
    assert data.notes == (
        "No train sample has the class 2, 3, 4.",
        "Test samples have the class 3, which no train sample has.",
    )


def test_names_that_are_too_few_or_too_many() -> None:
    assert refusal(labelled([0, 1, 1], names=("cat", "dog")), 10) == (
        "the labels name 2 classes (cat, dog) but the model has 10 outputs; "
        "name the class of every output, in order, with --classes."
    )
    assert refusal(labelled([0, 1, 2], names=("a", "b", "c")), 1) == (
        "the model has one output, which tells two classes apart, but there are 3 classes (a, b, c)."
    )


def test_binary_refusals() -> None:
    assert refusal(labelled([0, 1, 2]), 1, "sigmoid").endswith("but there are the labels 0, 1, 2.")
    assert refusal(labelled([1, 2, 2]), 1, "sigmoid") == (
        "two classes must be 0 and 1 but the labels are 1 and 2; name them with --classes."
    )
    assert refusal(labelled([1, 2, 2]), 1) == (
        "the labels are 1 and 2 and the model has one output; "
        "say --classes 1,2 for two classes, or --task regression for quantities."
    )
    assert refusal(labelled([0, 1]), 2, task="binary") == (
        "--task binary needs one output but the model has 2; use --task classification."
    )


def test_classification_refusals() -> None:
    assert refusal(labelled([0.5, 1]), 2, task="classification") == (
        "--task classification needs whole labels but one is 0.5; use --task regression."
    )
    assert refusal(labelled([0, 1]), 1, task="classification") == (
        "--task classification needs several outputs but the model has one; use --task binary."
    )
    assert refusal(labelled([[1, 1], [0, 1]]), 2, task="classification") == (
        "--task classification needs one class per sample but the rows of y are not one-hot."
    )
    assert refusal(labelled([[1, 0], [0, 1]]), 5) == "labels are one-hot over 2 classes but the model has 5 outputs."


def test_regression_refusals() -> None:
    assert refusal(labelled([0.5, 1]), 3) == "each sample has 1 target(s) but the model has 3 output(s)."
    assert refusal(labelled([[0.5, 1], [1, 1]]), 1) == "each sample has 2 target(s) but the model has 1 output(s)."
    assert refusal(labelled([0, 1], names=("a", "b")), 1, task="regression") == (
        "--task regression needs numbers but the labels are names (a, b)."
    )
    assert refusal(labelled([0.5, 0.7]), 1, "sigmoid") == (
        "the model ends in sigmoid, so its outputs are class probabilities, "
        "but the labels are quantities rather than one class per sample."
    )


def test_class_order() -> None:
    assert class_order(["10", "2", "1"]) == ("1", "2", "10")
    assert class_order(["b", "a", "10"]) == ("10", "a", "b")


def test_an_order_that_text_would_sort_otherwise_is_said() -> None:
    *_, names, notes = to_indices(np.array(["2", "10"]), np.array(["2", "10"]), None, None, "folder")
    assert names == ("2", "10")
    assert notes == [
        "Classes in the order of the outputs: 2, 10; as text they would sort 10, 2: "
        "if the model was trained so, say it with --classes."
    ]


def test_classes_set_the_order() -> None:
    names = np.array(["dog", "cat", "dog"])
    train, test, classes, notes = to_indices(names, names[:2], None, ("dog", "cat", "fox"), "folder")
    assert (train.tolist(), test.tolist(), classes) == ([0, 1, 0], [0, 1], ("dog", "cat", "fox"))
    assert notes == ["Classes are in the order given: dog, cat, fox."]


@pytest.mark.parametrize("kind", [int, float])
def test_classes_name_numbers(kind: type) -> None:
    shifted = np.array([3, 8, 8], kind)
    assert to_indices(shifted, shifted, None, ("8", "3"), "folder")[0].tolist() == [1, 0, 0]
    plain = np.array([0, 1, 1], kind)
    assert to_indices(plain, plain, None, ("cat", "dog"), "folder")[0].tolist() == [0, 1, 1]
    hot = np.eye(2, dtype=kind)
    assert to_indices(hot, hot, None, ("cat", "dog"), "folder")[0].tolist() == [0, 1]


def test_classes_must_cover_every_label() -> None:
    names = np.array(["dog", "cat", "emu"])
    with pytest.raises(DataError) as error:
        to_indices(names, names, None, ("dog", "fox"), "folder")
    assert str(error.value) == "folder: the labels cat, emu are missing from --classes; name every class, in order."
    with pytest.raises(DataError) as error:
        to_indices(names, names, None, ("dog", "dog"), "folder")
    assert str(error.value) == "--classes: 'dog' is named twice; name each class once."


def test_neutral_forms() -> None:
    assert neutral(np.array([[1], [2]], np.uint8), "y").tolist() == [1, 2]
    assert neutral(np.array([[[1.0]], [[2.0]]]), "y").shape == (2,)
    assert neutral(np.array([True, False]), "y").dtype == np.int64
    assert neutral(np.array([b"a", b"b"]), "y").tolist() == ["a", "b"]
    with pytest.raises(DataError, match=r"^y: labels have shape \(2, 2, 2\); expected one label"):
        neutral(np.zeros((2, 2, 2)), "y")
    with pytest.raises(DataError, match="neither numbers nor class names"):
        neutral(np.zeros(2, complex), "y")
