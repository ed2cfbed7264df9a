"""Samples that a program hands over: arrays, tensors, a torch data set or a loader. Each is read once, in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, SubsetRandomSampler
from torch.utils.data import sampler as samplers
from torch.utils.data.distributed import DistributedSampler

from audit.data.array_files import as_array
from audit.data.dataset import Array, Data, Name, Preparation, Source, Stored, parse, rows_of, same_length, several
from audit.data.splits import content_digest, data_from
from audit.errors import DataError, UsageError
from audit.settings import Settings

NAME = Path("data in memory")
LAYOUT = "memory"
BATCH = 256
AGAIN = 3  # samples that are read twice, to see whether they stay the same
WHOLE = (samplers.SequentialSampler, samplers.RandomSampler, samplers.WeightedRandomSampler, DistributedSampler)
"""Samplers that only order, repeat or share out the data set; any other one says which samples are in the split."""
WANTED = "give a pair (x, y), or a torch Dataset or DataLoader that yields such pairs"


class About(NamedTuple):
    """What is known of samples beside their numbers."""

    features: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()


def data_in_memory(
    train: Any, test: Any, settings: Settings, preparation: Preparation | None = None, about: About | None = None
) -> Data:
    """The `Data` of two splits; without `test`, a share of `train` is held out as the settings say."""
    if settings.drop:
        raise UsageError("drop: samples in memory are taken as they are given; leave the column out of them.")
    splits: dict[str, Source] = {}
    parts, notes = [], list[str]()
    for name, samples in (("train", train), ("test", test)) if test is not None else (("all", train),):
        x, y, changed = _read(samples, name) if preparation is None else (*_raw_pair(samples, name, preparation), [])
        same_length(len(x), len(y), f"{name}: x", "y")
        splits[name] = Source(y, partial(rows_of, x), (Path(name),))
        parts += [x, y]
        notes += changed
    features, said = about or About()
    stored = Stored(splits, features=features, notes=(*said, *notes), sha256=content_digest(*parts))
    return data_from(stored, NAME, LAYOUT, settings, preparation)


def _read(samples: Any, name: str) -> tuple[Array, Array, list[str]]:
    """Samples [n, ...], labels [n] or [n, k], and what is to be said about them."""
    if isinstance(samples, Mapping) or (isinstance(samples, (tuple, list)) and len(samples) == 2):
        return *_pair(samples, name), []
    if not isinstance(samples, (DataLoader, Dataset)):
        raise DataError(f"{name}: a {type(samples).__name__} holds no labelled samples; {WANTED}.")
    loader = samples if isinstance(samples, DataLoader) else DataLoader(samples, BATCH)
    if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
        return *_joined(loader, name), []
    indices = _indices(loader)
    ordered = DataLoader(
        loader.dataset,
        batch_size=BATCH,
        sampler=indices,
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
        worker_init_fn=loader.worker_init_fn,
    )
    x, y = _joined(ordered, name)
    return x, y, [*_order_note(loader, name), *_change_note(loader, indices, x, name)]


def _indices(loader: DataLoader[Any]) -> list[int]:
    """The samples of the split in the order of the data set, each of them once, however the loader draws them."""
    if isinstance(loader.sampler, SubsetRandomSampler):
        return sorted({int(index) for index in loader.sampler.indices})
    if type(loader.batch_sampler) is samplers.BatchSampler and isinstance(loader.sampler, WHOLE):
        return list(range(len(loader.dataset)))  # type: ignore[arg-type]
    return sorted({int(index) for batch in loader.batch_sampler or () for index in batch})


def _joined(batches: Iterable[Any], name: str) -> tuple[Array, Array]:
    pairs = [_pair(_as_batch(batch), name) for batch in batches]
    if not pairs:
        raise DataError(f"{name}: yields no samples; {WANTED}.")
    shapes = {_shape(x) for x, _ in pairs}
    if len(shapes) > 1:
        one, other = sorted(shapes)[:2]
        raise DataError(f"{name}: samples have different shapes, such as {one} and {other}; give them all one shape.")
    xs, ys = zip(*pairs, strict=True)
    return np.concatenate(xs), np.concatenate(ys)


def _shape(x: Array) -> tuple[Any, ...]:
    """Of a sample; of one with several inputs, all of theirs."""
    return tuple(x.dtype[name].shape for name in x.dtype.names) if x.dtype.names else x.shape[1:]


def _as_batch(batch: Any) -> Any:
    """A lone sample, as a loader without batches yields it, as a batch of one."""
    if isinstance(batch, (tuple, list)) and len(batch) == 2 and np.ndim(batch[1]) == 0:
        x = batch[0]
        return {key: x[key][None] for key in x} if isinstance(x, Mapping) else x[None], [batch[1]]
    return batch


def _pair(pair: Any, name: str) -> tuple[Array, Array]:
    """Samples and labels, also of a dict that holds the labels beside the inputs, as tokenizers' collators make it."""
    if isinstance(pair, Mapping):
        labels = [key for key in pair if parse(str(key)).is_labels]
        if len(labels) != 1:
            raise DataError(
                f"{name}: a dict of {', '.join(map(str, pair))} needs one entry y (or labels) beside the inputs."
            )
        inputs = {key: value for key, value in pair.items() if key != labels[0]}
        lone = [parse(str(key)) for key in inputs] == [Name(None, "x", ())]
        pair = next(iter(inputs.values())) if lone else inputs, pair[labels[0]]
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        what = f"{len(pair)} parts" if isinstance(pair, (tuple, list)) else f"a {type(pair).__name__}"
        raise DataError(f"{name}: holds {what} where samples and labels were expected; {WANTED}.")
    y = _array(pair[1], f"{name}: y")
    if not isinstance(pair[0], Mapping):
        return _array(pair[0], f"{name}: x"), y
    arrays = {str(key): _array(values, f"{name}: {key}") for key, values in pair[0].items()}
    if not arrays:
        raise DataError(f"{name}: x is an empty dict; {WANTED}.")
    for key, array in arrays.items():
        same_length(len(array), len(y), f"{name}: {key}", "y")
    return several(arrays), y


def _raw_pair(samples: Any, name: str, preparation: Preparation) -> tuple[Array, Array]:
    """Samples as a model with its own preprocessing takes them: columns of a frame or dict by name, else as given."""
    if not isinstance(samples, (tuple, list)) or len(samples) != 2:
        raise DataError(f"{name}: the model prepares its inputs itself; give a pair (x, y) of a table and its labels.")
    x, y = samples
    if preparation.names is not None and (isinstance(x, Mapping) or hasattr(x, "columns")):
        missing = [column for column in preparation.names if column not in x]
        if missing:
            raise DataError(f"{name}: has no column {missing[0]!r}, which the model takes; add it.")
        x = np.stack([np.asarray(x[column], object).reshape(-1) for column in preparation.names], 1)
    return np.asarray(x, object), _array(y, f"{name}: y")


def _array(values: Any, where: str) -> Array:
    if isinstance(values, torch.Tensor):
        return as_array(values)
    if hasattr(values, "toarray"):  # a sparse matrix
        values = values.toarray()
    try:
        array: Array = np.asarray(values)
    except ValueError as error:
        raise DataError(f"{where}: its rows differ in shape; give them all one shape.") from error
    if array.dtype == object and array.size and all(isinstance(value, str) for value in array.flat):
        array = array.astype(str)  # class names out of a data frame
    if array.ndim == 0 or array.dtype == object:
        raise DataError(f"{where}: a {type(values).__name__} is no array of numbers; give NumPy arrays or tensors.")
    return array


def _order_note(loader: DataLoader[Any], name: str) -> list[str]:
    if isinstance(loader.sampler, samplers.SequentialSampler):
        return []
    return [f"The {name} loader was read in the order of its data set, every sample once."]


def _change_note(loader: DataLoader[Any], indices: list[int], x: Array, name: str) -> list[str]:
    """Whether a second look at the first samples finds other numbers, as random augmentation makes them."""
    again = _pair(loader.collate_fn([loader.dataset[index] for index in indices[:AGAIN]]), name)[0]
    if np.array_equal(again, x[:AGAIN], equal_nan=x.dtype.kind == "f"):
        return []
    return [
        f"The {name} samples change from reading to reading, as random augmentation does; the numbers are about one "
        "such reading, so give samples without augmentation for the gap proper."
    ]
