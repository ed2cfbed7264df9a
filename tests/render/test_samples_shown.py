"""Samples on the page: pictures with words, embedded once; features where there are no pictures."""

from __future__ import annotations

import re

import reports
from drawn import render_html
from pages import Page


def test_pairs_and_suspects_have_pictures_that_are_described():
    report = reports.classification()
    page = Page(render_html(report))
    pictures = [attributes for tag, attributes in page.elements if tag == "img"]
    assert len(pictures) == 8 * 2 + 8 * 4
    assert all(picture["alt"] and int(picture["width"]) == 56 for picture in pictures)
    worst = report["network"]["duality"]["samples"][0]
    assert f"Test sample {worst['index']}" in {picture["alt"] for picture in pictures}
    assert f"Test {worst['index']} is {worst['label']}, answered {worst['prediction']}; costs 33.6." in page.text
    suspect = report["hygiene"]["suspected_mislabels"]["suspects"][0]
    assert f"Train {suspect['index']}, labelled {suspect['label']}; 100 % of its neighbours are" in page.text


def test_every_picture_is_embedded_once():
    report = reports.classification()
    stored = [picture["png"] for picture in report["gallery"]["thumbnails"]]
    assert len(set(stored)) == len(stored)
    embedded = re.findall(r"data:image/png;base64,([\w+/=]+)", render_html(report))
    assert sorted(embedded) == sorted(set(embedded)) and set(embedded) <= set(stored)


def test_rows_of_a_table_show_what_differs():
    report = reports.regression()
    words = Page(render_html(report)).text
    first = report["gallery"]["pairs"][0]["features"][0]
    assert f"{first['name']} " in words and " against " in words and " σ)" in words
    assert report["gallery"]["about"] in words


def test_samples_that_cannot_be_shown_say_why():
    report = reports.classification()
    report["gallery"] = {"thumbnails": [], "pairs": [], "about": None, "skipped": "the samples are tokens"}
    words = Page(render_html(report)).text
    assert "They are not shown: the samples are tokens." in words
    report["gallery"] = None
    assert "They are not shown" not in Page(render_html(report)).text


def test_confusions_are_counted_on_the_page():
    report = reports.classification()
    html = render_html(report)
    drawn = html[html.index('aria-label="Confusions on the test split') :].partition("</svg>")[0]
    numbers = [int(word) for word in re.findall(r">(\d+)</text>", drawn)][2 * 10 :]
    assert sorted(numbers) == sorted(count for row in report["gap"]["confusion"]["counts"] for count in row if count)


def test_many_classes_list_the_most_frequent_mistakes():
    report = reports.classification()
    report["gap"]["confusion"]["counts"] = None
    most = report["gap"]["confusion"]["most"][0]
    html = render_html(report)
    assert "The most frequent mistakes on the test split" in html
    assert f"{most['label']} → {most['answer']}" in html
