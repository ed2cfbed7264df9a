"""Parity stops every audit of a network that is not the file's, and behaviour every audit of one that is not steady."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from audit.errors import ModelError
from audit.model.base import HEADS, InputSpec, Model
from audit.model.parity import SAMPLES, TOLERANCES, check_behaviour, check_parity

X = np.random.default_rng(0).standard_normal((10, 4)).astype(np.float32)


def network(dtype: torch.dtype = torch.float32) -> nn.Module:
    """Weights with as many digits as `dtype` has."""
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double().eval().requires_grad_(False)
    for weight in module.parameters():
        weight *= torch.pi
    return module.to(dtype)


class Runtime:
    """A reference that runs a network in its own precision, and notes what it is asked."""

    def __init__(self, module: nn.Module, head: str = "none", error: float = 0.0, sample: int = 0):
        self.module, self.head, self.error, self.sample = module, head, error, sample
        self.sizes: list[int] = []

    def __call__(self, x: np.ndarray) -> np.ndarray:
        self.sizes.append(len(x))
        dtype = next(self.module.parameters()).dtype
        answer = HEADS[self.head](self.module(torch.from_numpy(x).to(dtype))).double().numpy()
        answer[min(self.sample, len(x) - 1)] += self.error
        return answer


def model(module: nn.Module, reference: object = None, **changes: object) -> Model:
    spec = changes.pop("input", InputSpec("x", (4,)))
    base = Model(network=module, path=Path("net.onnx"), format="onnx", sha256="", input=spec, output="y")  # type: ignore[arg-type]
    return dataclasses.replace(base, reference=reference, reference_name="onnxruntime", **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("head", list(HEADS))
def test_a_faithful_network_passes_under_every_head(head: str) -> None:
    runtime = Runtime(network(), head)
    parity = check_parity(model(network(), runtime, head=head), X)
    assert (parity.against, parity.samples, parity.batch_sizes, runtime.sizes) == ("onnxruntime", 10, (10, 1), [10, 1])
    assert 0 < parity.max_abs_diff < 1e-6 < parity.tolerance
    assert parity.max_rel_diff <= parity.max_abs_diff / parity.tolerance * TOLERANCES[torch.float32] * (1 + 1e-9)


@settings(max_examples=30, deadline=None)
@given(size=st.floats(1e-9, 10.0), sample=st.integers(0, 9))
def test_errors_are_found_exactly_beyond_the_tolerance(size: float, sample: int) -> None:
    """With weights of float64 the runtime adds no rounding of its own, so the planted error is all there is."""
    module = network(torch.float64)
    spec = InputSpec("x", (4,), torch.float64)
    exact = Runtime(module)(X.astype(np.float64))
    subject = model(module, Runtime(module, error=size, sample=sample), input=spec)
    planted = exact.copy()
    planted[sample] += size
    allowed = TOLERANCES[torch.float64] * np.abs(planted).max()
    if size > 1.01 * allowed:
        with pytest.raises(ModelError, match=f"disagree by .* at sample {sample} in batches of 10"):
            check_parity(subject, X.astype(np.float64))
    elif size < 0.99 * TOLERANCES[torch.float64] * np.abs(exact[:1]).max():  # the lone sample has the smaller scale
        assert check_parity(subject, X.astype(np.float64)).max_abs_diff == pytest.approx(size, rel=1e-4)


def test_the_sentence_has_the_numbers_and_the_way_out() -> None:
    with pytest.raises(ModelError) as caught:
        check_parity(model(network(), Runtime(network(), error=0.5, sample=7)), X)
    text = str(caught.value)
    assert text.startswith(
        "net.onnx: the converted network and onnxruntime disagree by 0.5 at sample 7 in batches of 10 ("
    )
    assert "export it again with another opset or exporter" in text and text.endswith(".")


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_tolerance_follows_the_precision_of_the_weights(dtype: torch.dtype) -> None:
    """Half precision is stored exactly in the float32 network that computes with it."""
    stored = network(dtype)
    computed = network(dtype).to(torch.float64 if dtype == torch.float64 else torch.float32)
    parity = check_parity(model(computed, Runtime(stored)), X)
    assert parity.tolerance == pytest.approx(TOLERANCES[dtype] * np.abs(Runtime(stored)(X)).max())


def saturated(error: float, head: str = "sigmoid") -> Model:
    """One score far below 0 for every sample, as where a model is fed unscaled features."""
    module = nn.Linear(4, 1).requires_grad_(False)
    module.weight.zero_(), module.bias.fill_(-13.4801 if head == "sigmoid" else 1.4e-6)
    return model(module, Runtime(module, head, error), head=head)


def test_probabilities_next_to_zero_are_held_to_the_rounding_of_a_probability() -> None:
    """1.4e-6 for every sample: a tolerance in shares of that would call the runtime's own rounding a wrong network."""
    parity = check_parity(saturated(2.4e-8), X)
    assert (parity.tolerance, parity.max_abs_diff) == (pytest.approx(9.5e-7, rel=0.01), pytest.approx(2.4e-8, rel=0.01))
    for wrong in (saturated(2e-6), saturated(2.4e-8, "none")):
        with pytest.raises(ModelError, match=r"disagree by .* at sample 0 in batches of 10"):
            check_parity(wrong, X)


def test_wrong_by_one_activation_is_found() -> None:
    wrong = nn.Sequential(network()[0], nn.Hardtanh(), network()[2])
    with pytest.raises(ModelError, match="disagree"):
        check_parity(model(wrong, Runtime(network())), X)


def test_the_inputs_are_rounded_as_the_file_takes_them() -> None:
    x = X.astype(np.float64) + 1e-9
    assert check_parity(model(network(), Runtime(network())), x).max_rel_diff < 1e-6


def test_a_fixed_batch_is_fed_and_filled_up() -> None:
    seen: list[int] = []

    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, x: Tensor) -> Tensor:
            seen.append(len(x))
            result: Tensor = self.inner(x)
            return result

    parity = check_parity(model(Fixed(), Runtime(network()), input=InputSpec("x", (4,), batch=4)), X)
    assert parity.batch_sizes == (4,) and parity.samples == 10 and set(seen) == {4}


def test_large_inputs_are_tried_with_fewer_samples() -> None:
    wide = nn.Linear(2**19, 2).eval().requires_grad_(False)
    x = np.zeros((8, 2**19), np.float32)
    assert check_parity(model(wide, Runtime(wide), input=InputSpec("x", (2**19,))), x).samples == 4
    assert check_parity(model(network(), Runtime(network())), np.tile(X, (10, 1))).samples == SAMPLES


def test_one_sample_is_enough() -> None:
    assert check_parity(model(network(), Runtime(network())), X[:1]).batch_sizes == (1,)


def test_a_failing_runtime_is_a_sentence() -> None:
    def broken(x: np.ndarray) -> np.ndarray:
        raise RuntimeError("no kernel for Foo(3).\nmore lines")

    with pytest.raises(ModelError) as caught:
        check_parity(model(network(), broken), X)
    assert str(caught.value).startswith(
        "net.onnx: onnxruntime cannot run the model (no kernel for Foo(3)), so nothing can vouch"
    )


def test_answers_that_are_no_numbers() -> None:
    with pytest.raises(ModelError, match="answers with NaN or infinity, first for sample 3; check the preprocessing"):
        check_parity(model(network(), Runtime(network(), error=np.nan, sample=3)), X)


def test_a_network_that_gives_nan_disagrees() -> None:
    broken = network()
    broken[2].bias[0] = np.nan
    with pytest.raises(ModelError, match="disagree by nan at sample 0"):
        check_parity(model(broken, Runtime(network())), X)


def test_log_probability_that_underflows_is_compared_as_probability() -> None:
    def underflowing(x: np.ndarray) -> np.ndarray:
        answer = torch.from_numpy(x) @ torch.full((4, 3), 1.0) * torch.tensor([0.0, 400.0, -400.0])
        return np.log(answer.softmax(-1).numpy())

    linear = nn.Linear(4, 3, bias=False).requires_grad_(False)
    linear.weight[:] = torch.tensor([0.0, 400.0, -400.0])[:, None]
    with np.errstate(divide="ignore"):
        assert check_parity(model(linear, underflowing, head="log_softmax"), X).max_abs_diff < 1e-4


def test_different_widths_are_named() -> None:
    with pytest.raises(
        ModelError, match="onnxruntime gives 2 numbers per sample and the converted network 3; choose the output"
    ):
        check_parity(model(network(), lambda x: np.zeros((len(x), 2))), X)


def test_answers_in_another_shape_than_rows() -> None:
    class Flat(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sum(1)

    with pytest.raises(ModelError, match=r"10 samples give an answer of shape \[10\], not one row of scores each"):
        check_parity(model(Flat(), lambda x: x), X)


def test_network_that_cannot_take_a_batch() -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.reshape(2, 2, 2).sum(1)

    with pytest.raises(ModelError, match="the network cannot take 10 samples at once"):
        check_parity(model(Two(), lambda x: x), X)


def test_without_a_reference_there_is_nothing_to_check() -> None:
    with pytest.raises(ValueError, match="no reference"):
        check_parity(model(network()), X)


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1e-6 * torch.randn_like(x)


class Coupled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - 1e-6 * x.mean(0)


def test_steady_networks_pass() -> None:
    check_behaviour(model(network()), X)
    check_behaviour(model(network()), X[:1])
    check_behaviour(model(nn.BatchNorm1d(4).eval()), X)


def test_chance_is_found() -> None:
    with pytest.raises(ModelError, match=r"net\.onnx: the model answers differently when asked twice.*without dropout"):
        check_behaviour(model(Noisy()), X)
    with pytest.raises(ModelError, match="asked twice"):
        check_behaviour(model(nn.Dropout(0.5).train()), X)


def test_company_is_found() -> None:
    with pytest.raises(
        ModelError, match=r"net\.onnx: the answer for one sample depends on the other samples of its batch"
    ):
        check_behaviour(model(Coupled()), X)
    with pytest.raises(ModelError, match="other samples"):
        check_behaviour(model(nn.BatchNorm1d(4).train()), X)
    with pytest.raises(ModelError, match="other samples"):
        check_behaviour(model(Coupled(), input=InputSpec("x", (4,), batch=5)), X)


def test_equal_samples_do_not_hide_coupling() -> None:
    with pytest.raises(ModelError, match="other samples"):
        check_behaviour(model(Coupled()), np.tile(X[:1], (6, 1)))


def test_the_model_itself_is_left_alone() -> None:
    module = network()
    check_behaviour(model(module), X)
    check_parity(model(module, Runtime(module)), X)
    assert next(module.parameters()).dtype == torch.float32


class Cancelling(nn.Module):
    """Adds and takes off a large number, which single precision rounds and double precision does not."""

    def __init__(self, large: float) -> None:
        super().__init__()
        self.inner, self.large = network(), large

    def forward(self, x: Tensor) -> Tensor:
        return self.inner((x + self.large) - self.large)


def test_rounding_that_the_network_itself_magnifies_is_rounding() -> None:
    module = Cancelling(1e4)
    parity = check_parity(model(module, Runtime(module)), X)
    assert 1e-4 < parity.max_rel_diff < 1e-2
    assert parity.max_abs_diff < parity.tolerance and parity.widened
    plain = Cancelling(0.0)
    assert not check_parity(model(plain, Runtime(plain)), X).widened


def test_an_error_beyond_what_rounding_does_to_the_network_is_an_error() -> None:
    for module, error in ((Cancelling(1e4), 1.0), (Cancelling(0.0), 0.01), (Cancelling(1e7), 0.0)):
        with pytest.raises(ModelError, match="the converted network and onnxruntime disagree by"):
            check_parity(model(module, Runtime(module, error=error)), X)
