"""Every reader: a sound file for it, how to damage that, and what is then done with it."""

from __future__ import annotations

import io
import random
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
import typer
from places import EXAMPLE, REGRESSION, ROOT
from torch import nn

from audit.measures import Report
from audit.settings import Settings
from fuzz import mutate, twins

SETTINGS = Settings(memory="1GB")
X, Y = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32), np.arange(12) % 3


@dataclass(frozen=True)
class Target:
    """One reader."""

    sound: Callable[[], bytes]
    damage: Callable[[bytes, random.Random], bytes]
    use: Callable[[bytes], None]

    def run(self, seed: int) -> None:
        """Reads the input of this number; raises what the reader raises."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.use(self.damage(_sound(self.sound), random.Random(seed)))


@cache
def _sound(make: Callable[[], bytes]) -> bytes:
    return make()


def _network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).eval()


def _pt2() -> bytes:
    stream = io.BytesIO()
    torch.export.save(torch.export.export(_network(), (torch.randn(4, 4),)), stream)
    return stream.getvalue()


def _script() -> bytes:
    stream = io.BytesIO()
    torch.jit.save(torch.jit.script(_network()), stream)
    return stream.getvalue()


def _torch_file(value: object) -> Callable[[], bytes]:
    def make() -> bytes:
        stream = io.BytesIO()
        torch.save(value, stream)
        return stream.getvalue()

    return make


def _safetensors() -> bytes:
    from safetensors.torch import save

    return save({"x": torch.from_numpy(X), "y": torch.from_numpy(Y)})


def _model(suffix: str) -> Callable[[bytes], None]:
    def use(content: bytes) -> None:
        from audit.model import canonical_form, load_model

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"m{suffix}")
            path.write_bytes(content)
            shape = (4, 1, 28, 28) if suffix == ".onnx" else (4, 4)
            canonical_form(load_model(path, SETTINGS), torch.zeros(shape), settings=SETTINGS)

    return use


def _data(*names: str) -> Callable[[bytes], None]:
    """The same damaged file as train and as test split."""

    def use(content: bytes) -> None:
        from audit.data import read_data

        with tempfile.TemporaryDirectory() as folder:
            for name in names:
                file = Path(folder, name)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            read_data(Path(folder), SETTINGS)

    return use


def _npz() -> bytes:
    stream = io.BytesIO()
    np.savez(stream, x=X, y=Y)
    return stream.getvalue()


def _npy() -> bytes:
    stream = io.BytesIO()
    np.save(stream, X)
    return stream.getvalue()


def _csv() -> bytes:
    return b"a,b,label\n" + b"".join(b"%f,%f,%d\n" % (row[0], row[1], y) for row, y in zip(X, Y, strict=True))


def _parquet() -> bytes:
    import pyarrow
    import pyarrow.parquet

    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"a": X[:, 0], "b": X[:, 1], "label": Y}), stream)
    return stream.getvalue()


def _image_parquet() -> bytes:
    import pyarrow
    import pyarrow.parquet

    stream = io.BytesIO()
    images = [{"bytes": _png(), "path": f"{place}.png"} for place in range(12)]
    pyarrow.parquet.write_table(pyarrow.table({"image": images, "label": Y}), stream)
    return stream.getvalue()


def _png() -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(stream, format="PNG")
    return stream.getvalue()


def _settings(content: bytes) -> None:
    from audit.policy.parse import policy_in_force
    from audit.settings.config import ConfigFile, resolve

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "gen-audit.toml")
        path.write_bytes(content)
        resolve({}, [ConfigFile(path)], {})
        policy_in_force(None, [ConfigFile(path)])


def _report(content: bytes) -> None:
    from audit.cli.app import drawing, read_report
    from audit.compare import Named
    from audit.compare.compare import compare_reports
    from audit.policy.judge import judge
    from audit.policy.parse import default_policy
    from audit.render.write import write_report

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "report.json")
        path.write_bytes(content)
        report = read_report(path)
        with drawing(path):  # as every command does that reads one
            write_report(report, Path(folder), ("html", "md", "junit", "sarif", "cyclonedx", "hf", "json"))
            sound = _read_once(EXAMPLE)
            judge(default_policy(), report, sound)
            compare_reports(Named("old", sound), Named("new", report), "compare")


@cache
def _read_once(path: Path) -> Report:
    from audit.cli.app import read_report

    return read_report(path)


def _command(*arguments: str) -> Callable[[bytes], None]:
    """The command line on a damaged report.json beside a sound one, in a folder of both."""

    def use(content: bytes) -> None:
        import audit.cli  # every command is known from here on

        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "sound.json").write_bytes(EXAMPLE.read_bytes())
            Path(folder, "damaged.json").write_bytes(content)
            named = [argument.format(folder=folder) for argument in arguments]
            _click(audit.cli.app).main(named, standalone_mode=False)

    return use


_click = cache(typer.main.get_command)  # which takes longer than most commands
OLD, NEW = "{folder}/sound.json", "{folder}/damaged.json"
IDX = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (12, 2, 2)) + bytes(48)
SPLITS = ("train", "test")
TARGETS: dict[str, Target] = {
    "onnx": Target((ROOT / "samples" / "healthy.onnx").read_bytes, mutate.bytes_of, _model(".onnx")),
    "onnx-graph": Target((ROOT / "samples" / "healthy.onnx").read_bytes, mutate.graph, _model(".onnx")),
    "pt2": Target(_pt2, mutate.archive, _model(".pt2")),
    "torchscript": Target(_script, mutate.archive, _model(".pt")),
    "checkpoint": Target(_torch_file(_network().state_dict()), mutate.archive, _model(".pt")),
    "safetensors": Target(_safetensors, mutate.headed, _data(*(f"{s}.safetensors" for s in SPLITS))),
    "tensors": Target(
        _torch_file({"x": torch.ones(12, 4), "y": torch.arange(12)}), mutate.archive, _data("train.pt", "test.pt")
    ),
    "npz": Target(_npz, mutate.archive, _data("train.npz", "test.npz")),
    "npy": Target(_npy, mutate.bytes_of, _data(*(f"{s}_{role}.npy" for s in SPLITS for role in "xy"))),
    "csv": Target(_csv, mutate.text, _data("train.csv", "test.csv")),
    "parquet": Target(_parquet, mutate.bytes_of, _data("train.parquet", "test.parquet")),
    "image-parquet": Target(
        _image_parquet, mutate.bytes_of, _data("data/train-00000-of-00001.parquet", "data/test.parquet")
    ),
    "images": Target(
        _png, mutate.bytes_of, _data(*(f"{s}/{c}/{i}.png" for s in SPLITS for c in "ab" for i in range(2)))
    ),
    "idx": Target(
        lambda: IDX,
        mutate.bytes_of,
        _data(*(f"{s}-{kind}-idx3-ubyte" for s in ("train", "t10k") for kind in ("images", "labels"))),
    ),
    "cifar": Target(lambda: bytes(3073 * 3), mutate.bytes_of, _data("data_batch_1.bin", "test_batch.bin")),
    "settings": Target((ROOT / "audit" / "policy" / "default.toml").read_bytes, mutate.text, _settings),
    "report": Target(EXAMPLE.read_bytes, mutate.document, _report),
    "regression-report": Target(REGRESSION.read_bytes, mutate.document, _report),
    "check": Target(EXAMPLE.read_bytes, mutate.document, _command("check", NEW, "--baseline", OLD)),
    "compare": Target(EXAMPLE.read_bytes, mutate.document, _command("compare", OLD, NEW, "-o", "{folder}/out")),
    "history": Target(EXAMPLE.read_bytes, mutate.document, _command("history", "{folder}", "-o", "{folder}/out")),
    "overview": Target(EXAMPLE.read_bytes, mutate.document, _command("overview", "{folder}", "-o", "{folder}/out")),
    "twins-index": Target(twins.index, mutate.document, twins.gone_on_with),
    "twins-bytes": Target(twins.index, mutate.bytes_of, twins.gone_on_with),
    "twins-arrays": Target(twins.arrays, mutate.archive, lambda content: twins.gone_on_with(twins.index(), content)),
    "twins-weights": Target(_safetensors, mutate.headed, twins.weights),
    "recipe": Target(lambda: twins.RECIPE, mutate.text, twins.recipe),
}
