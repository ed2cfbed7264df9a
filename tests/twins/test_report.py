"""A model beside its twins: from a folder to the block, the page, the gate and the comparison."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from twin_cases import blobs, fitted_network

from audit import audit_model, make_twins
from audit.cli.twins import _print as print_made
from audit.compare import Named
from audit.compare.compare import compare_reports
from audit.errors import UsageError
from audit.findings import not_judged
from audit.findings.beside import usual
from audit.measures import Report
from audit.render import beside_twins
from audit.render.beside_twins import called
from audit.render.page import render_html, render_markdown
from audit.twins import read_twins

TRAIN, TEST = blobs(200), blobs(200, seed=1)
QUICK = {"widths": 0, "subsets": 5, "subset_size": 10, "bootstrap": 20, "adaptive_draws": 2}
RECIPE = {"rate": 0.2, "batch": 10}
KINDS = ["plain", "half", "quarter", "large-start", "small-start"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("twins")
    make_twins(fitted_network(), TRAIN, TEST, folder=path, recipe=RECIPE, kinds=KINDS, count=4, budget="none")
    return path


@pytest.fixture(scope="module")
def report(folder: Path) -> Report:
    return audit_model(fitted_network(), TRAIN, TEST, twins=folder, **QUICK)


def test_the_model_stands_beside_its_twins(report: Report, folder: Path) -> None:
    block, made = report.twins, read_twins(folder)
    assert block is not None and block.made == len(made.twins) == 20 and block.recipe_given
    plain = [twin.test_error for twin in made.of("plain")]
    assert block.test_error is not None and block.test_error.values == plain
    assert block.test_error.value == report.gap.test_error
    (kappa,) = (band for band in block.numbers if band.key == "layers.fc1.flatness.kappa_tau")
    assert kappa.values == [twin.numbers[kappa.key] for twin in made.of("plain")] and kappa.layer == "fc1"
    fc1 = next(layer for layer in report.layers if layer.name == "fc1")
    assert fc1.flatness is not None and kappa.value == pytest.approx(fc1.flatness.kappa_tau, rel=1e-3)
    assert block.likeness is not None and block.likeness.kinds == ["plain", "large-start", "small-start"]
    assert block.curve is not None and [point.train_samples for point in block.curve.points] == [50, 100, 200]
    assert block.held_out is not None and block.held_out.samples == 200
    assert block.errors is not None and block.errors.tests == 200
    assert {remedy.kind for remedy in block.remedies} == {"small-start"}
    assert "beside-twins" in {finding.id for finding in report.findings}


def test_whose_errors_are_counted_on_the_same_samples(report: Report, folder: Path) -> None:
    made = read_twins(folder)
    plain = [one.test for twin, one in zip(made.twins, made.outcomes, strict=True) if twin.kind == "plain"]
    wrong = report.outcomes.test.wrong if report.outcomes is not None else None
    assert report.twins is not None and report.twins.errors is not None and wrong is not None
    hard = sum(mine == 1 and all(one[place] == 0 for one in plain) for place, mine in enumerate(wrong))
    own = sum(mine == 1 and all(one[place] == 1 for one in plain) for place, mine in enumerate(wrong))
    assert (report.twins.errors.hard_count, report.twins.errors.own_count) == (hard, own)


def test_it_is_read_back_and_drawn(report: Report) -> None:
    again = Report.from_json(report.to_json())
    assert again.twins == report.twins
    page = render_html(again)
    assert 'id="twins"' in page and 'id="kinds"' in page and "nan" not in page.split("<style>")[0]
    assert "Trained once more, this architecture errs on" in page and "Learning curve" in page
    assert render_html(again, paper=True) and render_markdown(again)
    assert 'id="twins"' not in render_html(replace(again, twins=None))


def test_a_gate_can_name_their_numbers(report: Report) -> None:
    percentile = report.twins.test_error.percentile if report.twins and report.twins.test_error else 0.0
    above, below = ({"twins.test_error": {"max_percentile": limit}} for limit in (percentile - 0.01, percentile + 0.01))
    assert not report.check(above).passed and report.check(below).passed
    assert report.check(below).results[0].id == "twins.test_error.percentile.max"
    without = replace(report, twins=None)
    assert without.check(below).results[0].status == "not measurable"


def test_a_comparison_says_whether_two_twins_would_differ_as_much(report: Report) -> None:
    other = replace(report, twins=None)
    told = compare_reports(Named("old", other), Named("new", report), "gen-audit compare").headline[-1]
    assert told.startswith("Two networks trained alike differ by up to ") and told.endswith("explains.")
    untold = compare_reports(Named("old", report), Named("new", other), "gen-audit compare").headline
    assert not any("trained alike" in sentence for sentence in untold)


def test_twins_of_something_else_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds twins that were made on other data; make them anew, on these"):
        audit_model(fitted_network(), blobs(120), blobs(120, seed=1), twins=folder, **QUICK)
    with pytest.raises(UsageError, match="holds twins of a model with train loss"):
        audit_model(fitted_network(0.4), TRAIN, TEST, twins=folder, **QUICK)
    with pytest.raises(UsageError, match="'soon' is no folder of twins, nor an amount of time"):
        audit_model(fitted_network(), TRAIN, TEST, twins="soon", **QUICK)
    (tmp_path / "twins.json").write_text(json.dumps({"schema": "gen-audit/twins/1"}))
    with pytest.raises(UsageError, match=r"twins\.json: is no index of twins, or damaged"):
        audit_model(fitted_network(), TRAIN, TEST, twins=tmp_path, **QUICK)


def test_twins_are_shared_by_models_of_one_train_loss(folder: Path) -> None:
    """The inner numbers beside them are those of the model that is audited, not of the one they were made for."""
    network = fitted_network()
    network.fc1.weight.data[[0, 1]] = network.fc1.weight.data[[1, 0]]  # hidden units change places: the same function …
    network.fc1.bias.data[[0, 1]] = network.fc1.bias.data[[1, 0]]
    network.fc2.weight.data[:, [0, 1]] = network.fc2.weight.data[:, [1, 0]]
    network.fc3.weight.data *= 1.0005  # … and then one with a slightly smaller train loss
    found = audit_model(network, TRAIN, TEST, twins=folder, **QUICK).twins
    model = read_twins(folder).model
    assert found is not None
    assert all(band.value != model[band.key] for band in found.numbers if band.key.startswith("layers.fc3"))


def test_a_layer_whose_name_is_a_number_is_called_a_layer(report: Report) -> None:
    """As in every sequence of layers: "κ_τ of 0" reads as its value."""
    assert report.twins is not None
    (band,) = (band for band in report.twins.numbers if band.key == "layers.fc1.flatness.kappa_tau")
    bare = replace(band, layer="0", place="above")
    twins = replace(report.twins, numbers=[bare])
    assert dict(beside_twins.answers(report, twins))["Inside?"].startswith(
        "Outside the band: curvature over all directions, scale-free (κ_τ) of layer 0 (above)."
    )
    assert [row.name for row in beside_twins.band_rows(twins, "flatness")] == [f"{band.name} of layer 0"]
    assert " in layer 0; this model lies above them" in usual(replace(report, twins=twins), ".kappa_tau")
    assert called(band).endswith(" of fc1")


def test_numbers_that_lie_beside_their_twins_have_a_scale(report: Report) -> None:
    assert report.twins is not None
    assert not any("no scale" in each.why for each in report.not_judged)
    (alone,) = (each for each in not_judged(replace(report, twins=None)) if "no scale" in each.why)
    assert alone.what == "Whether curvature, Fisher information and sensitivity are high or low"
    fisher = replace(report.twins, numbers=[band for band in report.twins.numbers if "fisher" not in band.key])
    (rest,) = (each for each in not_judged(replace(report, twins=fisher)) if "no scale" in each.why)
    assert rest.what == "Whether Fisher information is high or low"
    assert rest.why.startswith("It has no scale of its own and follows the train loss: only a second model,")


def test_those_of_the_search_for_the_recipe_are_counted(report: Report) -> None:
    twins = report.twins
    assert twins is not None and "other recipes" not in beside_twins.opening(report, twins)
    other = replace(twins.kinds[0], family="Adam", made=14)
    searched = replace(twins, recipe_given=False, made=twins.made + 14, kinds=[*twins.kinds, other])
    assert beside_twins.opening(report, searched).endswith(
        " Of them 14 are of other recipes, made in the search for the one that the model resembles most."
    )


def test_a_picture_counts_what_it_draws(report: Report) -> None:
    assert report.twins is not None
    first = replace(report.twins.kinds[0], made=4, test=[0.1, 0.2])
    rows = beside_twins.strips(report, replace(report.twins, kinds=[first, *report.twins.kinds[1:]]))
    assert [row[2] for row in rows[:2]] == ["2 of 4", "4"]


def test_the_first_page_names_what_it_speaks_of(report: Report) -> None:
    twins = report.twins
    assert twins is not None and twins.likeness is not None and twins.curve is not None
    far = replace(twins, likeness=replace(twins.likeness, kind=None, far=True))
    told = "From inside it resembles none of the kinds of networks trained here: it lies too far from all."
    assert told in beside_twins.first_page(report, far)
    near = replace(twins, likeness=replace(twins.likeness, kind=None, far=False))
    told = "Which kind of training it resembles cannot be told: several are about as near."
    assert told in beside_twins.first_page(report, near)
    flat = replace(twins, curve=replace(twins.curve, change=-0.01, change_ci95=(-0.03, 0.01), verdict="cannot tell"))
    assert dict(beside_twins.answers(report, flat))["More data?"].endswith(
        " That may be none at all: whether more data would help cannot be told."
    )


def test_the_command_counts_those_of_other_recipes_apart(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = read_twins(folder)
    others = [replace(twin, family="Adam") for twin in made.of("plain")]
    print_made(replace(made, twins=[*made.twins, *others], recipe_given=False), folder)
    told = "4 plain, 4 half, 4 quarter, 4 large-start, 4 small-start; 4 of other recipes, made in the search for it"
    assert capsys.readouterr().out.splitlines()[0].endswith(f": {told}")
