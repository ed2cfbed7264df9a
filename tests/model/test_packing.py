"""Several inputs as one row of numbers, and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from masked_networks import FORMS, split, trained, written
from onnx import TensorProto
from onnx_files import graph, loaded, node, value, weights

from audit.errors import ModelError
from audit.model import load_model
from audit.model.base import InputSpec
from audit.model.packing import Slot, continuous_only, decode, encode, pack, packed_input, parts_of
from audit.model.parity import check_behaviour, check_parity
from audit.settings import Settings

DTYPES = {"f": torch.float32, "d": torch.float64, "i": torch.int64, "j": torch.int32, "b": torch.bool}
inputs = st.lists(
    st.tuples(st.sampled_from(list(DTYPES)), st.sampled_from([(), (1,), (3,), (2, 2)]), st.booleans()),
    min_size=1,
    max_size=4,
)


@given(inputs, st.integers(1, 5), st.integers(0, 2**31))
def test_what_is_packed_comes_out_again(kinds: list[tuple[str, tuple[int, ...], bool]], n: int, seed: int) -> None:
    draws = np.random.default_rng(seed)
    specs = [
        InputSpec(f"mask{k}" if mask else f"x{k}", shape, DTYPES[kind]) for k, (kind, shape, mask) in enumerate(kinds)
    ]
    arrays = {}
    for spec in specs:
        values = 1e3 * draws.standard_normal((n, *(spec.shape or ())))
        whole = {torch.bool: values > 0, torch.int64: values.astype(np.int64), torch.int32: values.astype(np.int32)}
        arrays[spec.name] = whole.get(spec.dtype, values.astype(np.float32))
    parts = parts_of(specs, {spec.name: spec.shape for spec in specs})  # type: ignore[misc]
    rows = encode(parts, arrays)
    for spec, back in zip(specs, decode(parts, rows), strict=True):
        np.testing.assert_array_equal(back, arrays[spec.name])
    assert rows.dtype.kind == ("f" if any(part.is_continuous for part in parts) else "i")


def test_only_what_is_continuous_is_differentiated() -> None:
    specs = [InputSpec("ids", (2,), torch.int64), InputSpec("x", (2,)), InputSpec("mask", (1,))]
    parts = parts_of(specs, {spec.name: spec.shape for spec in specs})  # type: ignore[misc]
    rows = torch.tensor([[4.0, 5.0, 0.5, 0.25, 1.0]], dtype=torch.float64, requires_grad=True)
    ids, x, mask = (Slot(part, torch.float64)(rows) for part in parts)
    (x.sum() * mask.sum() * ids.sum()).backward()
    assert rows.grad is not None and rows.grad.tolist() == [[0, 0, 9, 9, 0]]
    spec = packed_input(specs[0], parts)
    assert continuous_only(spec, rows).tolist() == [[0, 0, 0.5, 0.25, 0]] and not spec.has_distances


@pytest.mark.parametrize("form", [*(form for form in FORMS if form not in ("torchscript", "state_dict")), "onnx-free"])
def test_files_are_packed_and_agree_with_their_own_runtime(form: str, tmp_path: Path) -> None:
    model = load_model(written("masked", form, tmp_path), Settings())
    length = None if form == "onnx-free" else 6
    assert [(spec.name, spec.shape) for spec in model.inputs] == [
        ("input_ids", (length,)),
        ("attention_mask", (length,)),
    ]
    packed = pack(model, {"input_ids": (6,), "attention_mask": (6,)})
    data = split("masked", "train")
    rows = encode(packed.input.parts, data)
    check_behaviour(packed, rows)
    assert check_parity(packed, rows).max_abs_diff < 1e-4
    ids, mask = (torch.from_numpy(data[key]) for key in ("input_ids", "attention_mask"))
    assert torch.allclose(packed.network(torch.from_numpy(rows)), trained("masked")(ids, mask), atol=1e-5)


def test_what_samples_do_not_have_one_each_is_to_be_held_and_a_mask_is_not(tmp_path: Path) -> None:
    nodes = [node("Mul", ["x", "mask"], ["m"]), node("Mul", ["m", "rate"], ["a"]), node("MatMul", ["a", "w"], ["y"])]
    declared = [value("x", ("n", 4)), value("mask", ("n", 4)), value("rate", (), TensorProto.FLOAT)]
    model = graph(nodes, {"w": weights(4, 3)}, inputs=declared, outputs=[value("y", ("n", 3))])
    with pytest.raises(ModelError) as caught:
        loaded(model, tmp_path)
    assert str(caught.value).endswith(
        "the model needs 'rate' (float []) beside 'x', not one for each sample; hold it at the value that the model is "
        "used with, by --fix-input rate=VALUE."
    )
    held = loaded(model, tmp_path, Settings(fix_input=("rate=2",)))
    assert [spec.name for spec in held.inputs] == ["x", "mask"]
