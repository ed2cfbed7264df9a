"""One temperature on the scores brings a model to a wanted train loss and changes none of its answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tolerances import EXACT
from torch import nn

from audit.errors import ModelError
from audit.measures.suite import run_suite
from audit.run.compare_models import sample_terms
from audit.run.progress import Progress
from audit.run.setup import at_train_loss, set_up_audit


def table(make_audit, binary=False):
    """A curved network that gets most of its labels right, so that its loss is below that of guessing."""
    torch.manual_seed(0)
    outputs, classes = (1, 2) if binary else (3, 3)
    network = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, outputs)).double()
    x = np.random.default_rng(0).normal(size=(60, 5))
    scores = 4 * network(torch.from_numpy(x)).detach().numpy()
    y = (scores[:, 0] >= 0).astype(int) if binary else scores.argmax(1)
    y[:3] = (y[:3] + 1) % classes
    task = "binary" if binary else "classification"
    return make_audit(network, x, y, x[:20], y[:20], task, bootstrap=20), task


@pytest.mark.parametrize("part", [0.001, 0.5, 0.999])
@pytest.mark.parametrize("binary", [False, True])
def test_the_softened_model_has_the_wanted_loss_the_same_answers_and_the_same_names(make_audit, binary, part):
    audit, task = table(make_audit, binary)
    own, guessing = float(audit.train_outcome.loss.mean()), np.log(2 if binary else 3)
    wanted = own + part * (guessing - own)
    softened = set_up_audit(at_train_loss(audit, wanted), audit.data, task, audit.settings)
    assert softened.train_outcome.loss.mean() == pytest.approx(wanted, rel=EXACT)
    assert (softened.train_outcome.wrong == audit.train_outcome.wrong).all()
    assert [layer.name for layer in softened.layers] == [layer.name for layer in audit.layers]
    factor = softened.model.factor
    assert 0 < factor < 1
    np.testing.assert_allclose(softened.test_outcome.scores, factor * audit.test_outcome.scores, rtol=EXACT)


def test_beyond_guessing_there_is_none(make_audit):
    audit, _ = table(make_audit)
    with pytest.raises(ModelError, match=r"no softening of its scores brings its train loss of .* to 5; that"):
        at_train_loss(audit, 5.0)


@pytest.mark.parametrize("binary", [False, True])
def test_contributions_are_the_addends_of_the_reports_numbers(make_audit, binary):
    audit, _ = table(make_audit, binary)
    results = run_suite(audit, Progress())
    measured, found = results.measurements, sample_terms(audit, results)
    assert len(found) == 8
    for key, column in found.items():
        _, section, name = key.split(".")
        assert column.shape == (60,)
        assert column.mean() == pytest.approx(getattr(measured[section].network, name), rel=1e-6), key
