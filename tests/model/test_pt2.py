"""`.pt2`: every network comes back as itself, and no archive can run code."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import re
import time
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tolerances import CANCELS
from torch import Tensor, nn
from torch_networks import CASES, check_same_network, check_second_derivative, mlp, save_pt2, silent

from audit.errors import ModelError
from audit.model import load_model
from audit.model.parity import check_parity
from audit.settings import Settings

SLOW = {"tanh", "bias_free", "log_softmax", "attention_time_first", "cross_attention", "encoder_time_first"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in CASES])
def test_comes_back_as_itself(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    model = load_model(save_pt2(case.network(), case.inputs(), tmp_path / "m.pt2"), Settings())
    check_same_network(model, case)
    assert model.input.batch is None
    assert (model.format, model.reference_name, len(model.sha256)) == ("pt2", "torch.export", 64)
    x = case.inputs()
    if x.is_floating_point():
        check_second_derivative(copy.deepcopy(model.network).double(), x.double())


@pytest.mark.parametrize("name", ["relu", "batch_norm", "softmax", "tokens"])
def test_a_fixed_batch_is_freed_where_the_graph_allows(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    model = load_model(save_pt2(case.network(), case.inputs(), tmp_path / "m.pt2", dynamic=False), Settings())
    assert model.input.batch is None
    assert "The file was exported for batches of 4; its graph takes any batch size, which was checked." in model.notes
    check_same_network(model, case)


@pytest.mark.parametrize("name", ["lenet", "lstm", "attention"])
def test_a_fixed_batch_is_kept_where_the_graph_needs_it(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    model = load_model(save_pt2(case.network(), case.inputs(), tmp_path / "m.pt2", dynamic=False), Settings())
    assert model.input.batch == 4
    assert "The file takes batches of 4 samples only and is fed such batches." in model.notes
    check_same_network(model, case)


@pytest.mark.parametrize("dynamic", [True, False])
def test_the_reference_takes_any_number_of_samples(dynamic: bool, tmp_path: Path) -> None:
    case = CASES["lenet"]
    model = load_model(save_pt2(case.network(), case.inputs(), tmp_path / "m.pt2", dynamic), Settings())
    assert model.reference is not None
    for count in (1, 3, 4, 9):
        x = np.random.default_rng(0).normal(size=(count, 1, 10, 10)).astype(np.float32)
        np.testing.assert_allclose(model.reference(x), case.answers(torch.from_numpy(x)).numpy(), atol=1e-5)


def test_tied_weights_stay_one(tmp_path: Path) -> None:
    case = CASES["tied"]
    network = load_model(save_pt2(case.network(), case.inputs(), tmp_path / "m.pt2"), Settings()).network
    assert network.get_submodule("a").weight is network.get_submodule("b").weight
    assert [node.target for node in network.graph.nodes].count("twice") == 2  # type: ignore[union-attr]
    wide = copy.deepcopy(network).double()
    assert wide.get_submodule("a").weight is wide.get_submodule("b").weight


def test_attention_keeps_samples_apart_in_every_dense_layer(tmp_path: Path) -> None:
    """A sample's vectors are found along one axis, although nn.MultiheadAttention flattens tokens and samples."""
    case, shapes = CASES["attention"], []
    network = load_model(save_pt2(case.network(), case.inputs(), tmp_path / "m.pt2"), Settings()).network
    network.get_submodule("attn.out_proj").register_forward_hook(lambda _module, x, _y: shapes.append(x[0].shape))
    network(case.inputs())
    assert shapes == [(5, 4, 8)]  # tokens, samples, width


def test_a_tied_embedding_and_layer_keep_their_own_names(tmp_path: Path) -> None:
    case = CASES["tokens"]
    network = load_model(save_pt2(case.network(), case.inputs(), tmp_path / "m.pt2"), Settings()).network
    emb, out = network.get_submodule("emb"), network.get_submodule("out")
    assert isinstance(emb, nn.Embedding) and isinstance(out, nn.Linear) and emb.weight is out.weight


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_float_types(dtype: torch.dtype, tmp_path: Path) -> None:
    network, x = CASES["relu"].network().to(dtype), CASES["relu"].inputs().to(dtype)
    model = load_model(save_pt2(network, x, tmp_path / "m.pt2"), Settings())
    expected = copy.deepcopy(network).double()(x.double())
    torch.testing.assert_close(copy.deepcopy(model.network).double()(x.double()), expected, rtol=0, atol=CANCELS)
    assert model.input.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert model.reference is not None
    tolerance = 1e-9 if dtype == torch.float64 else 0.05
    np.testing.assert_allclose(model.reference(x.double().numpy()), expected.detach().numpy(), atol=tolerance)


class Several(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.aux = nn.Linear(6, 3), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = self.fc(x)
        return {"logits": h, "aux": self.aux(x), "label": h.argmax(-1)}


def test_several_outputs_are_listed_and_picked_by_name_or_number(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network, x = Several().eval(), torch.randn(4, 6)
    path = save_pt2(network, x, tmp_path / "m.pt2")
    with pytest.raises(
        ModelError, match=r"several outputs that could be scores \(logits .*aux .*label .*\); name one with --output"
    ):
        load_model(path, Settings())
    with pytest.raises(ModelError, match=r"has no output 'scores'; its outputs are logits"):
        load_model(path, Settings(output="scores"))
    for wish, name in (("aux", "aux"), ("1", "aux"), ("logits", "logits")):
        model = load_model(path, Settings(output=wish))
        torch.testing.assert_close(model.network(x), network(x)[name])
        assert model.output == name and model.reference is not None
        np.testing.assert_allclose(model.reference(x.numpy()), network(x)[name].detach(), atol=1e-6)


def test_the_only_matrix_of_floats_is_picked(tmp_path: Path) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = self.fc(x)
            return h.argmax(-1), h.softmax(-1)

    model = load_model(save_pt2(Two().eval(), torch.randn(4, 6), tmp_path / "m.pt2"), Settings())
    assert (model.output, model.head) == ("1", "softmax")


def test_training_mode_is_refused(tmp_path: Path) -> None:
    for name, why in (("gelu_dropout", "dropout is on"), ("batch_norm", "BatchNorm uses the statistics of the batch")):
        path = save_pt2(CASES[name].network().train(), CASES[name].inputs(), tmp_path / f"{name}.pt2")
        with pytest.raises(ModelError, match=rf"was exported in training mode \({why}\); call model.eval\(\)"):
            load_model(path, Settings())


def test_an_input_that_the_scores_do_not_read_is_known_but_not_asked_for(tmp_path: Path) -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(6, 3)

        def forward(self, x: Tensor, extra: Tensor) -> Tensor:
            return self.fc(x)

    with silent():
        torch.export.save(torch.export.export(Sum(), (torch.randn(4, 6), torch.ones(4, 6))), tmp_path / "m.pt2")
    model = load_model(tmp_path / "m.pt2", Settings())
    assert ([spec.name for spec in model.inputs], model.unused) == (["x"], ("extra",))
    assert check_parity(model, np.ones((8, 6), np.float32)).max_abs_diff < 1e-5


def test_nan_and_missing_weights(tmp_path: Path) -> None:
    network = CASES["relu"].network()
    network.fc2.weight.data[0, :2] = float("nan")
    with pytest.raises(ModelError, match=r"fc2.weight holds 2 NaN or infinite values; train or export"):
        load_model(save_pt2(network, CASES["relu"].inputs(), tmp_path / "m.pt2"), Settings())
    with pytest.raises(ModelError, match="has no parameters, so there is nothing to audit"):
        load_model(save_pt2(nn.ReLU(), torch.randn(4, 6), tmp_path / "r.pt2"), Settings())


def test_a_damaged_archive_is_a_sentence(tmp_path: Path) -> None:
    good = save_pt2(mlp(nn.ReLU).eval(), torch.randn(4, 6), tmp_path / "m.pt2").read_bytes()
    (tmp_path / "short.pt2").write_bytes(good[: len(good) // 2])
    with pytest.raises(ModelError, match=r"short.pt2: is truncated or corrupt"):
        load_model(tmp_path / "short.pt2", Settings())
    path = rewritten(tmp_path, {"models/model.json": lambda _: b'{"graph_module": 1}'})
    with pytest.raises(ModelError, match=r"is damaged, or was saved by a version of torch"):
        load_model(path, Settings())


# --- nothing in an archive may run ---


class Bomb:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.trace),)


def rewritten(
    folder: Path, changes: dict[str, Callable[[bytes], bytes]], added: dict[str, bytes] | None = None
) -> Path:
    """A sound archive with some of its members changed."""
    source, target = folder / "m.pt2", folder / "changed.pt2"
    if not source.exists():
        save_pt2(mlp(nn.ReLU).eval(), torch.randn(4, 6), source)
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            inner = name.partition("/")[2]
            new.writestr(name, changes.get(inner, lambda content: content)(old.read(name)))
        for name, content in (added or {}).items():
            new.writestr(f"m/{name}", content)
    return target


def pickled(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def in_json(change: Callable[[dict[str, Any]], None]) -> Callable[[bytes], bytes]:
    def changed(content: bytes) -> bytes:
        document = json.loads(content)
        change(document)
        return json.dumps(document).encode()

    return changed


def call(target: str, argument: str) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        node = document["graph_module"]["graph"]["nodes"][1]
        node["target"] = target
        node["inputs"].append({"name": "command", "arg": {"as_string": argument}, "kind": 1})

    return change


def operator_argument(target: str) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        node = document["graph_module"]["graph"]["nodes"][1]
        node["inputs"].append({"name": "command", "arg": {"as_operator": target}, "kind": 1})

    return change


def shape(expression: str) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        values = document["graph_module"]["graph"]["tensor_values"]
        size = next(s for v in values.values() for s in v["sizes"] if "as_expr" in s)
        size["as_expr"]["expr_str"] = expression

    return change


def tree(text: str) -> Callable[[dict[str, Any]], None]:
    """Another description of how the inputs nest, which torch reads as JSON by itself."""

    def change(document: dict[str, Any]) -> None:
        document["graph_module"]["module_call_graph"][0]["signature"]["in_spec"] = text

    return change


def enum(module: str, name: str, blank: str) -> str:
    """A tree whose context asks for a member of any class of any module."""
    context = blank + json.dumps([{"__enum__": True, "fqn": module, "name": name}])
    inner = {"type": "builtins.dict", "context": context, "children_spec": []}
    return blank + json.dumps([1, inner])


def factory(module: str, blank: str) -> str:
    context = blank + json.dumps({"default_factory_module": module, "default_factory_name": "x", "dict_context": []})
    return blank + json.dumps([1, {"type": "collections.defaultdict", "context": context, "children_spec": []}])


def weight(**fields: object) -> Callable[[dict[str, Any]], None]:
    return lambda document: next(iter(document["config"].values())).update(fields)


def attacks(trace: Path) -> dict[str, tuple[dict[str, Callable[[bytes], bytes]], dict[str, bytes]]]:
    command = f"mkdir {trace}"
    model, weights = "models/model.json", "data/weights/model_weights_config.json"
    constants = "data/constants/model_constants_config.json"
    evil = f"__import__('os').mkdir('{trace}')"
    bomb, custom = (
        pickled(Bomb(trace)),
        {"config": {"c": {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}}},
    )
    return {
        "sample inputs": ({"data/sample_inputs/model.pt": lambda _: bomb}, {}),
        "a pickled weight": ({weights: in_json(weight(use_pickle=True)), "data/weights/weight_0": lambda _: bomb}, {}),
        "an old weight file": ({}, {"data/weights/model.pt": bomb}),
        "an opaque object": (
            {constants: lambda _: json.dumps(custom).encode()},
            {"data/constants/opaque_obj_0": pickle.dumps(Bomb(trace))},
        ),
        "a shape": ({model: in_json(shape(evil))}, {}),
        "an operator": ({model: in_json(call("torch.serialization.os.system", command))}, {}),
        "a private operator": ({model: in_json(call("torch.ops.os.system", command))}, {}),
        "an operator as argument": ({model: in_json(operator_argument("torch.ops.aten.from_file.default"))}, {}),
        "a file": ({model: in_json(call("torch.ops.aten.from_file.default", str(trace)))}, {}),
        **{
            f"{what} after {blank!r}": ({model: in_json(tree(text(blank)))}, {})
            for blank in ("", " ", "\n\t ", "\r")
            for what, text in (
                ("a module", partial(enum, "evil_module:Class", "X")),
                ("the environment", partial(enum, "os:environ", "HOME")),
                ("a factory", partial(factory, "evil_module")),
            )
        },
        "a compiled library": ({}, {"data/aotinductor/model/evil.so": b"\x7fELF"}),
    }


@pytest.mark.parametrize("way", list(attacks(Path("x"))))
def test_no_member_of_the_archive_runs(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = tmp_path / "it_ran"
    path = rewritten(tmp_path, *attacks(trace)[way])
    (tmp_path / "evil_module.py").write_text(f"import os\nos.mkdir({str(trace)!r})\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ModelError,
        match=r"changed.pt2: holds .*, which can run code when it is opened; export it again .* --trust-pickle",
    ):
        load_model(path, Settings())
    assert not trace.exists()


ENDLESS = [
    "1" * 5000 + "!",
    "9**9**9**9**9",
    "((((9**8)**8)**8)**8)**8",
    "Pow(Integer(9), Pow(Integer(9), Integer(99)))",
    "Pow(Integer(2), Integer(99999999999999))",
    "PowByNatural(Integer(2), Integer(99999999999999))",
    "s0" + "*s0" * 100_000,
    "(" * 3000 + "s0" + ")" * 3000,
    "-" * 9000 + "1",
    "Product(s0, (s0, 1, 99999999999))",
    "s0.__class__",
    "Symbol('s0', positive=True, integer=True, x=Integer(2)**Integer(10**9))",
    "factorial(99999999)",
    "99999999!",
    f"Max({', '.join(f's{k}' for k in range(700))})",
]


@pytest.mark.parametrize("expression", ENDLESS, ids=[text[:24] for text in ENDLESS])
def test_a_size_is_plain_arithmetic_of_bounded_length(expression: str, tmp_path: Path) -> None:
    begin = time.process_time()
    with pytest.raises(ModelError, match="holds a shape that is not plain arithmetic"):
        load_model(rewritten(tmp_path, {"models/model.json": in_json(shape(expression))}), Settings())
    assert time.process_time() - begin < 20


def broken_zip(path: Path, way: str) -> bytes:
    """The archive with a member that its reader cannot read."""
    content = bytearray(path.read_bytes())
    if way == "encrypted":
        for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            for found in re.finditer(re.escape(mark), bytes(content)):
                content[found.start() + place] |= 1
    else:
        method = {"lzma": 14, "unknown": 77}[way]
        for mark, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
            for found in re.finditer(re.escape(mark), bytes(content)):
                content[found.start() + place] = method
    return bytes(content)


@pytest.mark.parametrize("way", ["encrypted", "lzma", "unknown"])
def test_members_that_cannot_be_read_are_a_sentence(way: str, tmp_path: Path) -> None:
    path = rewritten(tmp_path, {})
    path.write_bytes(broken_zip(path, way))
    with pytest.raises(ModelError, match=r"changed.pt2: is (truncated or corrupt|damaged)"):
        load_model(path, Settings())


def test_nested_documents_and_zip_bombs_are_sentences(tmp_path: Path) -> None:
    deep = rewritten(tmp_path, {"models/model.json": lambda _: b"[" * 10**6})
    with pytest.raises(ModelError, match=r"changed.pt2: is truncated or corrupt"):
        load_model(deep, Settings())
    with zipfile.ZipFile(tmp_path / "m.pt2") as old, zipfile.ZipFile(deep, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            bomb = name.endswith("weight_0")
            new.writestr(name, bytes(2**28) if bomb else old.read(name))
    with pytest.raises(ModelError, match=r"changed.pt2: unpacks to \d+ MB from \d+ MB"):
        load_model(deep, Settings())


def test_members_under_other_names_never_reach_torch(tmp_path: Path) -> None:
    """torch's reader finds MODEL.PT when asked for model.pt, and takes models/model_evil for a model."""
    it_ran = tmp_path / "it_ran"
    source = save_pt2(mlp(nn.ReLU).eval(), torch.randn(4, 6), tmp_path / "m.pt2")
    evil = in_json(shape(f"__import__('os').mkdir('{it_ran}')"))
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(tmp_path / "renamed.pt2", "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("sample_inputs/model.pt"):
                name, content = name.replace("model.pt", "MODEL.PT"), pickled(Bomb(it_ran))
            elif name.endswith("models/model.json"):
                name, content = name.replace("model.json", "model_evil"), evil(content)
            new.writestr(name, content)
    with pytest.raises(ModelError, match="is damaged"):
        load_model(tmp_path / "renamed.pt2", Settings())
    assert not it_ran.exists()


def test_the_bombs_are_real(tmp_path: Path) -> None:
    """With trust the same file does run its code, so the tests above would notice."""
    trace = tmp_path / "it_ran"
    path = rewritten(tmp_path, *attacks(trace)["sample inputs"])
    with pytest.raises(ModelError, match="is damaged"):
        load_model(path, Settings(trust_pickle=True))
    assert trace.exists()


def test_trust_opens_a_sound_archive_too(tmp_path: Path) -> None:
    path = save_pt2(CASES["relu"].network(), CASES["relu"].inputs(), tmp_path / "m.pt2")
    check_same_network(load_model(path, Settings(trust_pickle=True)), CASES["relu"])


class Reads(nn.Module):
    """Adds what lies in memory, or (`written`) what it has put there."""

    def __init__(self, written: bool) -> None:
        super().__init__()
        self.fc, self.written = nn.Linear(6, 3), written

    def forward(self, x: Tensor) -> Tensor:
        found = torch.empty(3)
        if self.written:
            found[:2].fill_(1.0)
            found[2:].copy_(torch.ones(1))
        return self.fc(x) + found


@pytest.mark.parametrize("written", [True, False])
def test_memory_that_was_never_filled_is_no_number(written: bool, tmp_path: Path) -> None:
    with silent():
        torch.export.save(torch.export.export(Reads(written), (torch.ones(4, 6),), strict=False), tmp_path / "m.pt2")
    answer = load_model(tmp_path / "m.pt2", Settings()).network(torch.ones(4, 6))
    assert bool(torch.isfinite(answer).all()) is written
