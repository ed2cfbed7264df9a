"""The scores beneath a final layer are the same from every format, however the layer is written."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import head_networks
import pytest
import torch
from formats import Writer, audited, data_of, differences, example_of, write_onnx, write_pt2, write_script, write_state
from head_networks import AT_POSITIONS, ENDINGS, UNEXPLAINED, Branching, Network
from tolerances import EXACT
from torch import Tensor

from audit.errors import ModelError
from audit.model import canonical_form, load_model
from audit.model.base import Model
from audit.model.parity import check_behaviour, check_parity
from audit.model.torch.given import given_network
from audit.settings import Settings

ARCH = str(Path(head_networks.__file__)) + ":FACTORIES."
FILES: dict[str, tuple[str, Writer]] = {
    "onnx": ("m.onnx", write_onnx),
    "onnx-13": ("m13.onnx", lambda network, x, path: write_onnx(network, x, path, opset=13)),
    "pt2": ("m.pt2", write_pt2),
    "torchscript": ("m.pt", write_script),
    "state_dict": ("m.pth", write_state),
}
FORMS = (*FILES, "module", "branching module")


def network(name: str, kind: Callable[[str], Network] = Network) -> Network:
    torch.manual_seed(0)
    return kind(name).eval()


def model_of(form: str, name: str, folder: Path) -> Model:
    """The network with one ending as a format gives it, in canonical form."""
    x, settings = example_of("relu"), Settings(arch=ARCH + name if form == "state_dict" else None)
    if "module" in form:
        loaded = given_network(network(name, Branching if "branching" in form else Network), settings)
    else:
        file, write = FILES[form]
        loaded = load_model(write(network(name), x, folder / file), settings)
    return canonical_form(loaded, x, settings=settings)


def scores_of(model: Model, x: Tensor) -> Tensor:
    return copy.deepcopy(model.network).double()(x.double()).detach()


def truth(name: str, form: str, x: Tensor) -> Tensor:
    """The scores by torch alone; a module that runs as it is has lost the constant per sample that a softmax drops."""
    own = copy.deepcopy(network(name)).double()
    ending = ENDINGS[name]
    if name in UNEXPLAINED or ending.head == "none" or ("branching" in form and "softmax" in ending.head):
        answer = own(x.double()).detach()
        return answer.log() if ending.head == "softmax" else answer
    return own.scores(x.double()).detach()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [name for name in ENDINGS if name not in (*AT_POSITIONS, "pixels")])
def test_the_scores_beneath_a_final_layer(name: str, form: str, tmp_path: Path) -> None:
    model, x = model_of(form, name, tmp_path), torch.from_numpy(data_of("relu").x_train[:6])
    assert model.head == ENDINGS[name].head
    torch.testing.assert_close(scores_of(model, x), truth(name, form, x), rtol=EXACT, atol=EXACT)
    check_behaviour(model, x.numpy())
    check_parity(model, x.numpy())
    told = [note for note in model.notes if note.startswith("The output")]
    assert told == ([sentence(name, model.output)] if model.head != "none" else [])


def sentence(name: str, output: str) -> str:
    """The same words in every format."""
    word = {"sigmoid_pair": "sigmoid (written as two columns, 1 - p and p)", "log_softmax": "log-softmax"}
    head = ENDINGS[name].head
    if name not in UNEXPLAINED:
        return f"The output {output!r} ends in a {word.get(head, head)}; the audit is of the scores beneath it."
    if head == "softmax":
        what, then = "probabilities", "the audit is of their logarithm, whose softmax they are."
    else:
        what, then = "logarithms of probabilities", "they are audited as the scores, whose log-softmax they are."
    return f"The output {output!r} holds {what} that no known final layer explains; {then}"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", AT_POSITIONS)
def test_scores_at_positions_are_put_in_a_row(name: str, form: str, tmp_path: Path) -> None:
    model, x = model_of(form, name, tmp_path), torch.from_numpy(data_of("relu").x_train[:6])
    assert (model.head, model.per_position) == (ENDINGS[name].head, 3)
    found, answer = scores_of(model, x), copy.deepcopy(network(name)).double()(x.double()).detach()
    torch.testing.assert_close(model.answer(found), answer.flatten(1), rtol=EXACT, atol=EXACT)
    check_behaviour(model, x.numpy())
    check_parity(model, x.numpy())


@pytest.mark.parametrize("form", FORMS)
def test_one_row_per_sample_or_position_is_asked_for_in_every_format(form: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has shape \[.+, 2, 2, 3\], not one row of scores per sample"):
        model_of(form, "pixels", tmp_path)


def test_one_network_gives_one_audit(tmp_path: Path) -> None:
    """Every number of the report, for an ending that only some exporters write as one operator."""
    name, data = "exp_of_log_softmax", data_of("relu").save(tmp_path / "data")
    reports = {}
    for form, (file, write) in FILES.items():
        arch = {"arch": ARCH + name} if form == "state_dict" else {}
        reports[form] = audited(write(network(name), example_of("relu"), tmp_path / file), data, **arch)
    own = reports.pop("state_dict")
    assert own["model"]["head"] == "softmax"
    assert {form: differences(own, report) for form, report in reports.items()} == {form: [] for form in reports}
