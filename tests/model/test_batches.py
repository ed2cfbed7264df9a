"""Samples are cast and batches filled in one place."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from audit.model.base import InputSpec, as_fed, batches, filled, reference_of, trial_batches


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize(("n", "size", "counts"), [(5, 2, [2, 2, 1]), (4, 2, [2, 2]), (3, None, [3]), (1, 4, [1])])
def test_every_batch_has_the_size_asked_for(n: int, size: int | None, counts: list[int], as_tensor: bool) -> None:
    x = np.arange(2.0 * n).reshape(n, 2)
    parts = list(batches(torch.from_numpy(x), size) if as_tensor else batches(x, size))
    assert [count for _, count in parts] == counts
    assert all(len(part) == (size or n) for part, _ in parts)
    np.testing.assert_array_equal(np.concatenate([part[:count] for part, count in parts]), x)
    last, count = parts[-1]
    assert all(bool((row == last[count - 1]).all()) for row in last[count:])  # the last sample again


def test_a_full_batch_is_not_copied() -> None:
    x = torch.zeros(4, 2)
    assert filled(x, 2) is x


def test_samples_follow_the_weights_and_whole_numbers_stay_whole() -> None:
    network = nn.Linear(3, 2).double()
    assert as_fed(network, torch.zeros(1, 3)).dtype == torch.float64
    assert as_fed(network, torch.zeros(1, 3, dtype=torch.int64)).dtype == torch.int64


def test_a_reference_is_fed_the_batch_it_insists_on() -> None:
    sizes: list[int] = []

    def forward(x: torch.Tensor) -> torch.Tensor:
        sizes.append(len(x))
        return 2 * x

    x = np.arange(5, dtype=np.float32)[:, None]
    np.testing.assert_array_equal(reference_of(forward, [torch.float32], 2)(x), 2 * x)
    np.testing.assert_array_equal(reference_of(forward, [torch.float32], None, smallest=8)(x), 2 * x)
    assert sizes == [2, 2, 2, 8]


def test_trials_fill_open_sizes_in() -> None:
    shapes = [tuple(x.shape) for (x,) in trial_batches([InputSpec("x", (3, None))], 2)]
    assert shapes == [(2, 3, size) for size in (8, 16, 32, 64, 224)]
    ((tokens, mask),) = trial_batches([InputSpec("x", (4,), torch.int64), InputSpec("mask", (4,))], 2)
    assert tokens.dtype == torch.int64 and set(tokens.flatten().tolist()) <= {0, 1}
    assert bool((mask == 1).all())
