"""Small real networks of every kind, each with an input and the names its dense layers must be found under."""

from __future__ import annotations

import copy
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from tolerances import ROUNDING, SINGLE_PASS
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F

from audit.model.base import HEADS, Model


def stack(*modules: tuple[str, nn.Module]) -> nn.Sequential:
    return nn.Sequential(OrderedDict(modules))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.fc1(x))
        return self.fc3(h + torch.relu(self.fc2(h)))


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 6, 3)
        self.norm, self.fc1, self.fc2 = nn.BatchNorm2d(4), nn.Linear(6 * 9, 12), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.conv1(x)), inplace=True), 2)
        x = torch.relu_(self.conv2(x))
        return self.fc2(torch.tanh(self.fc1(x.flatten(1))))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.fc = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(x)
        return self.fc(states[:, -1])


class SelfAttention(nn.Module):
    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.attn, self.fc = nn.MultiheadAttention(8, 2, batch_first=batch_first), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.batch_first else x.transpose(0, 1)
        h, _ = self.attn(x, x, x, need_weights=False)
        return self.fc(h.mean(1 if self.batch_first else 0))


class CrossAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn, self.fc = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        h, _ = self.attn(x, x.flip(1), x * 0.5)
        return self.fc(h.mean(1))


class Encoder(nn.Module):
    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.batch_first = batch_first
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=batch_first, activation="gelu")
        self.encoder, self.fc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.batch_first else x.transpose(0, 1)
        return self.fc(self.encoder(x).mean(1 if self.batch_first else 0))


class Tied(nn.Module):
    """One layer called twice, and one weight shared by two layers with biases of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.fc0, self.twice, self.a, self.b = nn.Linear(6, 5), nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 5)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.twice(torch.tanh(self.twice(self.fc0(x)))))
        return self.b(torch.tanh(self.a(h)))


class Tokens(nn.Module):
    """Integer tokens; the embedding's table is the last layer's weight too."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.fc, self.out = nn.Embedding(11, 8), nn.Linear(8, 8), nn.Linear(8, 11, bias=False)
        self.out.weight = self.emb.weight

    def forward(self, x: Tensor) -> Tensor:
        positions = torch.arange(x.shape[1], dtype=self.emb.weight.dtype) / 7
        h = self.emb(x) + positions[:, None]
        return self.out(torch.tanh(self.fc(h)).mean(1))


class LooseWeights(nn.Module):
    """The same product written with every operator there is."""

    def __init__(self) -> None:
        super().__init__()
        self.w1, self.b1 = nn.Parameter(torch.randn(6, 7)), nn.Parameter(torch.randn(7))
        self.w2, self.w3 = nn.Parameter(torch.randn(5, 7)), nn.Parameter(torch.randn(5, 4))
        self.w4, self.b4 = nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(x @ self.w1 + self.b1)
        h = torch.tanh(torch.einsum("bi,oi->bo", h, self.w2))
        h = torch.tanh(torch.mm(h, self.w3))
        return torch.addmm(self.b4, h, self.w4)


class HardActivations(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc3(F.hardsigmoid(self.fc2(F.hardswish(self.fc1(x)))))


def encoder_names(count: int) -> tuple[str, ...]:
    parts = ("self_attn.in_proj", "self_attn.out_proj", "linear1", "linear2")
    return tuple(f"encoder.layers.{i}.{part}" for i in range(count) for part in parts)


def floats(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(4, *shape)


@dataclass(frozen=True)
class Case:
    build: Callable[[], nn.Module]
    sample: Callable[[], Tensor]
    dense: tuple[str, ...]
    head: str = "none"

    def network(self) -> nn.Module:
        """The network, its BatchNorm statistics and biases away from their trivial start."""
        torch.manual_seed(0)
        network = self.build()
        for name, tensor in network.state_dict().items():
            if name.endswith("running_mean"):
                tensor.normal_()
            elif name.endswith("running_var"):
                tensor.uniform_(0.5, 2)
        return network.eval()

    def inputs(self) -> Tensor:
        torch.manual_seed(1)
        return self.sample()

    def answers(self, x: Tensor) -> Tensor:
        """The network's own answers in float64, without the fused kernels of no_grad."""
        return copy.deepcopy(self.network()).double()(x.double() if x.is_floating_point() else x).detach()


def mlp(activation: Callable[[], nn.Module], *after: tuple[str, nn.Module], bias: bool = True) -> nn.Sequential:
    return stack(
        ("fc1", nn.Linear(6, 8, bias=bias)), ("act", activation()), ("fc2", nn.Linear(8, 3, bias=bias)), *after
    )


TWO = ("fc1", "fc2")
THREE = ("fc1", "fc2", "fc3")
CASES: dict[str, Case] = {
    "relu": Case(lambda: mlp(nn.ReLU), floats(6), TWO),
    "tanh": Case(lambda: mlp(nn.Tanh), floats(6), TWO),
    "gelu_dropout": Case(lambda: mlp(lambda: nn.Sequential(nn.GELU(), nn.Dropout(0.5))), floats(6), TWO),
    "batch_norm": Case(lambda: mlp(lambda: nn.Sequential(nn.BatchNorm1d(8), nn.ReLU(inplace=True))), floats(6), TWO),
    "layer_norm": Case(lambda: mlp(lambda: nn.Sequential(nn.LayerNorm(8), nn.SiLU())), floats(6), TWO),
    "residual": Case(Residual, floats(6), THREE),
    "bias_free": Case(lambda: mlp(nn.ReLU, bias=False), floats(6), TWO),
    "linear": Case(lambda: nn.Linear(6, 3), floats(6), ("linear",)),
    "lenet": Case(LeNet, floats(1, 10, 10), TWO),
    "lstm": Case(Recurrent, floats(7, 4), ("fc",)),
    "attention": Case(lambda: SelfAttention(True), floats(5, 8), ("attn.in_proj", "attn.out_proj", "fc")),
    "attention_time_first": Case(lambda: SelfAttention(False), floats(5, 8), ("attn.in_proj", "attn.out_proj", "fc")),
    "cross_attention": Case(
        CrossAttention,
        floats(5, 8),
        ("attn.in_proj (q)", "attn.in_proj (k)", "attn.in_proj (v)", "attn.out_proj", "fc"),
    ),
    "encoder": Case(lambda: Encoder(True), floats(5, 8), (*encoder_names(2), "fc")),
    "encoder_time_first": Case(lambda: Encoder(False), floats(5, 8), (*encoder_names(2), "fc")),
    "tied": Case(Tied, floats(6), ("fc0", "twice", "a", "b")),
    "tokens": Case(Tokens, lambda: torch.randint(0, 11, (4, 5)), ("fc", "out")),
    "loose_weights": Case(LooseWeights, floats(6), ("w1", "w2", "w3", "w4")),
    "hard_activations": Case(HardActivations, floats(6), THREE),
    "softmax": Case(lambda: mlp(nn.ReLU, ("head", nn.Softmax(-1))), floats(6), TWO, "softmax"),
    "log_softmax": Case(lambda: mlp(nn.ReLU, ("head", nn.LogSoftmax(1))), floats(6), TWO, "log_softmax"),
    "sigmoid": Case(lambda: mlp(nn.ReLU, ("head", nn.Sigmoid())), floats(6), TWO, "sigmoid"),
}


@contextmanager
def silent() -> Iterator[None]:
    """torch.jit and torch.export warn about themselves while a test saves a file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def save_pt2(network: nn.Module, x: Tensor, path: Path, dynamic: bool = True) -> Path:
    with silent():
        program = torch.export.export(network, (x,), dynamic_shapes=({0: Dim.AUTO},) if dynamic else None, strict=False)
        torch.export.save(program, path)
    return path


def save_script(network: nn.Module, x: Tensor, path: Path, kind: str) -> Path:
    with silent(), torch.set_grad_enabled(kind != "traced under no_grad"):
        script = torch.jit.script(network) if kind == "scripted" else torch.jit.trace(network, x, check_trace=False)
        script.save(path)
    return path


def dense_names(model: Model) -> tuple[str, ...]:
    return tuple(model.names.get(path, path) for path in model.ops)


def check_same_network(model: Model, case: Case) -> None:
    """The loaded model is the case's network: same answers in float64 and in its own runtime, layers and head."""
    x = case.inputs() if model.input.batch else torch.cat([case.inputs(), case.inputs()[:3]])
    network = copy.deepcopy(model.network).to(torch.float64)
    scores = network(x.double() if x.is_floating_point() else x)
    assert scores.dtype == torch.float64
    torch.testing.assert_close(HEADS[model.head](scores), case.answers(x), rtol=0, atol=ROUNDING)
    assert model.reference is not None
    torch.testing.assert_close(
        torch.from_numpy(model.reference(x.numpy())).double(), case.answers(x), rtol=0, atol=SINGLE_PASS
    )
    assert dense_names(model) == case.dense
    assert model.head == case.head
    assert model.input.shape == tuple(x.shape[1:])
    assert model.input.dtype == x.dtype
    assert not model.network.training and not any(weight.requires_grad for weight in model.network.parameters())
    assert all(isinstance(network.get_submodule(path), nn.Linear) for path in model.ops)


def check_second_derivative(network: nn.Module, x: Tensor) -> None:
    """A Hessian-vector product of the scores agrees with a finite difference of their gradient."""

    def gradient(at: Tensor) -> Tensor:
        at = at.detach().requires_grad_()
        (g,) = torch.autograd.grad(network(at).tanh().sum(), at, create_graph=True)
        return g

    torch.manual_seed(2)
    direction, step = torch.randn_like(x), 1e-5
    at = x.detach().requires_grad_()
    (g,) = torch.autograd.grad(network(at).tanh().sum(), at, create_graph=True)
    (product,) = torch.autograd.grad((g * direction).sum(), at)
    difference = (gradient(x + step * direction) - gradient(x - step * direction)).detach() / (2 * step)
    torch.testing.assert_close(product, difference, rtol=1e-5, atol=1e-6)
