"""Arrays, data sets and loaders: every sample is read once, in its order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from formats import data_of, trained
from in_memory import assert_same, audited, numbers, pairs, tensors, wine
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from audit.data.in_memory import data_in_memory
from audit.settings import Settings


class OneHot(Dataset):  # type: ignore[type-arg]
    def __init__(self, inner: TensorDataset) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = self.inner[index]
        return x, nn.functional.one_hot(y, 3)


class Stream(IterableDataset):  # type: ignore[type-arg]
    def __init__(self, inner: TensorDataset) -> None:
        self.inner = inner

    def __iter__(self) -> Any:
        return (self.inner[index] for index in range(len(self.inner)))


def test_however_the_samples_are_handed_over_the_numbers_are_the_same() -> None:
    train, test = tensors("relu")
    torch.manual_seed(5)
    shuffled = DataLoader(OneHot(train), batch_size=7, shuffle=True, drop_last=True)
    one_hot = (data_of("relu").x_test.tolist(), np.eye(3)[data_of("relu").y_test])
    network = nn.DataParallel(trained("relu"))
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        report = audited(network, shuffled, one_hot)
    assert "The train loader was read in the order of its data set, every sample once." in report.data.notes
    assert_same(numbers(report)["gap"], numbers(wine())["gap"])
    stream = audited(trained("relu"), Stream(train), test)
    assert_same(numbers(stream), numbers(wine()))
    assert stream.data.sha256 == wine().data.sha256 and stream.model.sha256 == wine().model.sha256


def test_a_sampler_of_a_subset_makes_the_split() -> None:
    train, test = tensors("relu")
    rows = [40, 3, 100, *range(50, 90)]
    split = data_in_memory(DataLoader(train, 8, sampler=SubsetRandomSampler(rows)), test, Settings()).train
    x, y = pairs("relu")[0]
    assert (split.x == x[sorted(rows)]).all() and (split.y == y[sorted(rows)]).all()


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 7, "shuffle": True, "drop_last": True},
        {"batch_size": None},
        {"batch_size": 8, "sampler": WeightedRandomSampler([1.0] * 110, 30)},
        {"batch_size": 8, "sampler": DistributedSampler(range(110), num_replicas=2, rank=0)},  # type: ignore[arg-type]
        {"batch_sampler": BatchSampler(RandomSampler(range(110)), 9, drop_last=False)},
    ],
    ids=lambda options: "-".join(options),
)
def test_every_sample_is_read_once_and_in_order(options: dict[str, Any]) -> None:
    train, test = tensors("relu")
    split = data_in_memory(DataLoader(train, **options), test, Settings()).train
    assert (split.x == data_of("relu").x_train).all() and (split.y == data_of("relu").y_train).all()


class Jittered(Dataset):  # type: ignore[type-arg]
    """Random augmentation."""

    def __len__(self) -> int:
        return 110

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        x, y = data_of("relu").x_train[index], data_of("relu").y_train[index]
        return torch.from_numpy(x) + 0.01 * torch.randn(13), int(y)


def test_samples_that_change_from_reading_to_reading_are_named() -> None:
    notes = data_in_memory(Jittered(), pairs("relu")[1], Settings()).notes
    assert any("The train samples change from reading to reading" in note for note in notes)


def test_a_share_can_be_held_out() -> None:
    data = data_in_memory(pairs("relu")[0], None, Settings(test_fraction=0.3))
    assert (len(data.train), len(data.test), data.split_is_ours) == (77, 33, True)
