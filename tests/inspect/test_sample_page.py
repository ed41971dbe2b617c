"""The sample report: its data fit the page of now, and its numbers are those of a model."""

import base64
import json
import re
from importlib.resources import files

import numpy as np
import pytest

from tests.oracles.unpacked import unpacked
from tformer_cli.inspect.jobs.report import inspect_report
from tformer_cli.inspect.page.report_page import (
    SAMPLE,
    report_data,
    report_texts,
    sample_page,
)
from tformer_cli.inspect.view import ReportOptions

LARGEST = 150_000


@pytest.fixture(scope="module")
def stored():
    return files("tformer_cli").joinpath("guide", SAMPLE).read_bytes()


def shape_of(data):
    """The names that data have, however many items their lists have."""
    if isinstance(data, dict):
        return {name: shape_of(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        shapes = [shape_of(one) for one in data if isinstance(one, dict)]
        # a list that is empty in one item may hold something in another
        return [
            {name: next(filter(None, (one.get(name) for one in shapes)), None) for name in one}
            for one in shapes[:1]
            if isinstance(one, dict)
        ]
    return None


def test_the_sample_is_small_and_has_all_that_a_report_has_now(stored, model):
    assert len(stored) <= LARGEST
    sample = unpacked(json.loads(stored))
    report = inspect_report(
        model, ["A man sleeps."], options=ReportOptions(mode="live"), device="cpu"
    )
    fresh = unpacked(json.loads(json.dumps(report_data(report))))
    for data in (sample, fresh):  # these are named by heads
        for sentence in data["sentences"]:
            assert sentence.pop("vectors")
            assert sentence["views"]["ablation"].pop("effects")
    assert not set(sample) & set(report_texts())
    fitting = shape_of(sample | report_texts()) == shape_of(fresh)
    assert fitting, "run tests/inspect/write_sample_report.py"


def test_the_sample_is_a_translation_that_was_searched(stored):
    (sentence,) = json.loads(stored)["sentences"]
    assert sentence["source"].startswith("The animal didn't cross the street")
    assert sentence["isLive"]
    path = [sentence["search"]["nodes"][number]["piece"] for number in sentence["search"]["path"]]
    assert path[1:] == sentence["targetPieces"]
    head = next(one for one in sentence["heads"] if one["id"].startswith("cross"))
    weights = np.frombuffer(base64.b64decode(head["weights"]), "<u2") / 65535
    rows = weights.reshape(len(sentence["targetPieces"]), len(sentence["sourcePieces"]))
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, atol=1e-3)


def test_the_page_is_filled_with_it(stored):
    page = sample_page()
    assert page == sample_page()
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)[1]
    assert json.loads(data) == json.loads(stored) | json.loads(json.dumps(report_texts()))
