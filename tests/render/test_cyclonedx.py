"""CycloneDX: valid against the published schema, every number of the gap in full, one serial number for one audit."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from drawn import render_cyclonedx
from hypothesis import given, settings
from places import SCHEMAS
from referencing import Registry, Resource
from reports import both, classification, with_changes
from verdicts import finding, odd_reports, result, verdict

FOLDER = SCHEMAS
FILES = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.SNAPSHOT.schema.json")}
REGISTRY: Registry[Any] = Registry().with_resources(
    (f"http://cyclonedx.org/schema/{name}", Resource.from_contents(schema)) for name, schema in FILES.items()
)
VALIDATOR = jsonschema.Draft7Validator(
    FILES["bom-1.6.SNAPSHOT.schema.json"], registry=REGISTRY, format_checker=jsonschema.FormatChecker()
)


def bill_of(report: dict[str, Any], *results: Any) -> dict[str, Any]:
    bill: dict[str, Any] = json.loads(render_cyclonedx(report, verdict(*results) if results else None))
    VALIDATOR.validate(bill)
    return bill


def model_of(bill: dict[str, Any]) -> dict[str, Any]:
    (model,) = (part for part in bill["components"] if part["type"] == "machine-learning-model")
    return model


@pytest.mark.parametrize("name", both())
def test_every_number_and_interval_of_the_gap_is_there_in_full(name: str) -> None:
    gap = both()[name]["gap"]
    rows = model_of(bill_of(both()[name]))["modelCard"]["quantitativeAnalysis"]["performanceMetrics"]
    values = {float(row["value"]) for row in rows}
    bounds = [
        [float(row["confidenceInterval"][end]) for end in ("lowerBound", "upperBound")]
        for row in rows
        if "confidenceInterval" in row
    ]
    for key, value in gap.items():
        if "_guess" in key:  # of no model
            continue
        if key.startswith(("train_", "test_")) and isinstance(value, float):
            assert value in values, key
        if key.endswith("_ci95") and value is not None:
            assert value in bounds, key
    errors = {row["slice"]: float(row["value"]) for row in rows if row["slice"].startswith("test, class")}
    assert errors == {
        f"test, class {each['name']}": each["test_error"] for each in gap["per_class"] if each["test_error"] is not None
    }


@settings(max_examples=15, deadline=None)
@given(odd_reports())
def test_anything_in_the_report_stays_valid(report: dict[str, Any]) -> None:
    bill_of(report)


def test_references_lead_to_the_parts() -> None:
    bill = bill_of(classification())
    parts = {part["bom-ref"] for part in bill["components"]}
    (dataset,) = model_of(bill)["modelCard"]["modelParameters"]["datasets"]
    assert dataset["ref"] in parts and {each["ref"] for each in bill["dependencies"]} == parts
    hashes = {part["hashes"][0]["content"] for part in bill["components"]}
    assert hashes == {classification()["model"]["sha256"], classification()["data"]["sha256"]}


def test_the_serial_number_depends_on_the_audit_and_not_on_the_hour() -> None:
    first, later = (
        bill_of(with_changes(created=created)) for created in ("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z")
    )
    assert first["serialNumber"] == later["serialNumber"] and first["metadata"] != later["metadata"]
    assert bill_of(with_changes(model={"sha256": "0" * 64}))["serialNumber"] != first["serialNumber"]


def test_concerns_are_limitations_and_the_verdict_a_property() -> None:
    report = with_changes(findings=[finding("concern", title="Leaked"), finding("good", title="Fits")])
    model = model_of(bill_of(report, result("fail")))
    said = model["modelCard"]["considerations"]["technicalLimitations"]
    assert said[0] == "Leaked: It is there." and not any("Fits" in each for each in said)
    assert {"name": "gen-audit:verdict", "value": "failed"} in model["properties"]
