"""The nearest same-label partner: exact, whatever the data's offset, the block size and the order of chunks."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from references.duality import partners
from tolerances import CANCELS, SOLVED
from zoo import build

from audit.measures.duality import pairs
from audit.measures.duality.layer_pairs import Duals
from audit.measures.duality.measure import Duality
from audit.measures.duality.pairs import Nearest, asked_for, nearest_partners
from audit.network.record import Products


def sides(x: np.ndarray, y: np.ndarray | None) -> tuple[torch.Tensor, torch.Tensor | None]:
    return torch.from_numpy(x), None if y is None else torch.from_numpy(y)


@given(st.integers(0, 10_000), st.integers(1, 30), st.integers(1, 12), st.integers(1, 5), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_agrees_with_the_search_one_by_one(seed: int, n: int, k: int, D: int, labels: int) -> None:
    rng = np.random.default_rng(seed)
    x, x_test = rng.integers(-2, 3, (n, D)).astype(np.float64), rng.integers(-2, 3, (k, D)).astype(np.float64)
    y, y_test = rng.integers(labels, size=n), rng.integers(labels, size=k)
    found = nearest_partners(sides(x_test, y_test), sides(x, y))
    assert found.tolist() == partners(x, y, x_test, y_test, labelled=True)
    without = nearest_partners(sides(x_test, None), sides(x, None))
    assert without.tolist() == partners(x, y, x_test, y_test, labelled=False)


def test_far_from_the_origin_where_the_matrix_product_has_no_digits_left() -> None:
    rng = np.random.default_rng(0)
    x, x_test = rng.normal(size=(200, 20)), rng.normal(size=(50, 20))
    y, y_test = np.zeros(200, np.int64), np.zeros(50, np.int64)
    near = nearest_partners(sides(x_test, y_test), sides(x, y))
    far = nearest_partners(sides(x_test + 1e7, y_test), sides(x + 1e7, y))
    assert far.tolist() == near.tolist()
    naive = ((x_test + 1e7) ** 2).sum(1)[:, None] + ((x + 1e7) ** 2).sum(1) - 2 * (x_test + 1e7) @ (x + 1e7).T
    assert naive.argmin(1).tolist() != near.tolist(), "the case is too easy to tell"


def test_ties_go_to_the_lowest_index() -> None:
    x = np.array([[9.0, 9.0], [0.0, 1.0], [1.0, 0.0], [0.0, -1.0]])
    found = nearest_partners(sides(np.zeros((1, 2)), np.array([7])), sides(x, np.array([7, 7, 7, 7])))
    assert found.tolist() == [1]


def test_a_label_without_train_samples_has_no_partner() -> None:
    x = np.zeros((3, 2))
    found = nearest_partners(sides(x[:2], np.array([0, 5])), sides(x, np.array([0, 0, 1])))
    assert found.tolist() == [0, -1]


@pytest.mark.parametrize("numbers", [1, 64, 1 << 22])
def test_the_block_size_does_not_matter(monkeypatch: pytest.MonkeyPatch, numbers: int) -> None:
    rng = np.random.default_rng(1)
    x, x_test = rng.integers(0, 255, (40, 3, 2), dtype=np.uint8), rng.integers(0, 255, (15, 3, 2), dtype=np.uint8)
    y, y_test = rng.integers(3, size=40), rng.integers(3, size=15)
    monkeypatch.setattr(pairs, "HELD", numbers)
    found = nearest_partners(sides(x_test, y_test), sides(x, y))
    assert found.tolist() == partners(x.reshape(40, -1), y, x_test.reshape(15, -1), y_test, labelled=True)


def test_chunks_offered_one_after_the_other_give_the_same() -> None:
    rng = np.random.default_rng(2)
    x, x_test = rng.integers(0, 3, (30, 4)).astype(np.float32), rng.integers(0, 3, (9, 4)).astype(np.float32)
    y, y_test = rng.integers(2, size=30), rng.integers(2, size=9)
    found = Nearest(9)
    for start in range(0, 30, 7):
        for first in range(0, 9, 4):
            test = sides(x_test[first : first + 4], y_test[first : first + 4])
            found.offer(first, test, start, sides(x[start : start + 7], y[start : start + 7]))
    assert found.index.tolist() == partners(x, y, x_test, y_test, labelled=True)


def test_one_dimensional_samples() -> None:
    found = nearest_partners(sides(np.array([1.0]), None), sides(np.array([5.0, 1.5]), None))
    assert found.tolist() == [1]


@pytest.mark.parametrize("space", ["input", "features"])
def test_of_many_test_samples_some_are_paired(make_audit, monkeypatch: pytest.MonkeyPatch, space: str) -> None:
    """As if the others were not there; their losses stay in the gap of the first page."""
    rng = np.random.default_rng(0)
    x, x_test = rng.normal(size=(60, 4)), rng.normal(size=(40, 4))
    y, y_test = rng.integers(3, size=60), rng.integers(4, size=40)  # class 3 has no partner
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 4))
    monkeypatch.setattr(pairs, "PAIRED", 15)
    asked = asked_for(40, 0).numpy()
    assert len(set(asked.tolist())) == 15 and asked_for(15, 0).tolist() == list(range(15))
    found = []
    for rows in (np.arange(40), asked):
        audit = make_audit(network, x, y, x_test[rows], y_test[rows], partner_space=space)
        fold = Duality().start(audit)
        for record in audit.train:
            fold.see(record, Products(record))
        found.append(fold.finish())
        assert len(audit.test_outcome.loss) == len(rows)
    some, alone = found
    for name, block in some.layers.items():
        assert block.asked == 15 and block.pairs + block.dropped + block.unpaired == 15
        assert block.sigma_w == pytest.approx(alone.layers[name].sigma_w, rel=SOLVED, abs=CANCELS)
    carriers, carriers_alone = (each.network or next(iter(each.layers.values())).carriers for each in (some, alone))
    assert [asked[one.index] for one in carriers_alone.samples] == [one.index for one in carriers.samples]
    assert [row.unpaired for row in carriers.classes] == [row.unpaired for row in carriers_alone.classes]
    assert sum(row.pairs + row.unpaired for row in carriers.classes) == 15


def test_pairs_and_dual_weights_are_the_same_whether_they_are_held_or_not(make_audit) -> None:
    network, x, y = build("tokens", n=20)
    audit = make_audit(network, x.numpy(), y.numpy(), x[:9].numpy() + 0.1, y[:9].numpy(), memory="1GB")
    audit = replace(audit, capture=replace(audit.capture, chunk=1))
    held, anew = (pairs.Pairs(audit, torch.arange(9)) for _ in range(2))
    anew.room = 0
    assert [chunk.positions for chunk in held] == [chunk.positions for chunk in anew] and len(list(anew)) == 3
    for layer in audit.layers:
        kept, formed = Duals(held, layer), Duals(anew, layer)
        for (one, dual), (other, again), alone in zip(kept.beside_pairs(), formed.beside_pairs(), kept, strict=True):
            assert torch.equal(one.test.loss, other.test.loss) and torch.equal(dual.u, again.u)
            assert torch.equal(alone.p, again.p)
        assert (next(iter(kept)) is next(iter(kept))) == (layer.tokens > 1)
        assert next(iter(formed)) is not next(iter(formed))
    assert next(iter(held)) is next(iter(held)) and next(iter(anew)) is not next(iter(anew))
    assert [len(part) for part in (held, held.first(5))] == [9, 5]
