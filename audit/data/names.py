"""What a file or an array is called, and what that says about it: which split, samples or labels."""

from __future__ import annotations

import re
from typing import NamedTuple

SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("test", "testing", "t10k"), "test"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
}
ROLES = {
    **dict.fromkeys(("x", "data", "image", "images", "feature", "features", "input", "inputs"), "x"),
    **dict.fromkeys(("y", "label", "labels", "target", "targets"), "y"),
}
POSITIONAL = {"arr_0": "x", "arr_1": "y"}  # what numpy.savez(file, x, y) calls its arguments


class Name(NamedTuple):
    """A name taken apart; `rest` holds the words that say nothing, such as the data set's own name."""

    split: str | None
    role: str | None
    rest: tuple[str, ...]


def parse(name: str) -> Name:
    """The split and the role that a name states, in any order and case.

    >>> parse("X_train")
    Name(split='train', role='x', rest=())
    >>> parse("mnist-test")
    Name(split='test', role=None, rest=('mnist',))
    """
    if name in POSITIONAL:
        return Name(None, POSITIONAL[name], ())
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]
    splits = [SPLITS[word] for word in words if word in SPLITS]
    roles = [ROLES[word] for word in words if word in ROLES]
    if len(splits) > 1 or len(roles) > 1:  # "train_test_split" names neither
        return Name(None, None, tuple(words))
    rest = tuple(word for word in words if word not in SPLITS and word not in ROLES)
    return Name(splits[0] if splits else None, roles[0] if roles else None, rest)
