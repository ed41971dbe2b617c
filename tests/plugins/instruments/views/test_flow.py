import re

import pytest
import torch

from tests.oracles.unpacked import page_data, unpack_json
from tformer_cli.inspect.pages import render_view
from tformer_cli.plugins.instruments.views.flow import (
    VIEW,
    Flow,
    FlowOptions,
    FlowRecord,
    read_flow,
)


@pytest.fixture
def flows(make_record):
    """A record with shares made by hand: the source has .75, .5 and .25."""
    prefix = torch.tensor([[0.25, 0.0, 0.0], [0.1, 0.4, 0.0], [0.25, 0.3, 0.2]])
    source = torch.zeros(3, 5)
    source[:, 1], source[:, 4] = torch.tensor([0.5, 0.4, 0.05]), torch.tensor([0.25, 0.1, 0.2])
    flow = Flow(source=source, prefix=prefix, residual=2e-7)
    even = Flow(source=torch.full((3, 5), 0.1), prefix=torch.eye(3) / 2, residual=1e-7)
    return FlowRecord(sentence=make_record(), flows={"alti": flow, "rollout": even})


def test_the_share_of_the_source_is_the_sum_of_its_tokens(flows):
    flow = flows.flows["alti"]
    assert flow.source_shares == pytest.approx([0.75, 0.5, 0.25])
    assert flow.source_share == pytest.approx(0.5)


def test_the_largest_shares_are_of_both_sides_and_of_what_was_read(flows):
    assert [(side, label) for side, label, _ in flows.largest("alti", 1, 3)] == [
        ("source", "b"),
        ("prefix", "x"),
        ("source", "</s>"),
    ]
    assert len(flows.largest("alti", 0, 99)) == 6  # five source tokens, the begin of sentence


def test_an_object_holds_both_methods_and_rows_that_sum_to_one(flows):
    data = VIEW.line(flows)
    assert data["schema"] == "tformer.flow/1"
    assert data["methods"]["alti"]["source_share"] == 0.5
    assert data["methods"]["alti"]["residual"] == 2e-7
    assert [p["piece"] for p in data["positions"]] == ["x", "y", "</s>"]
    assert [p["read"] for p in data["positions"]] == ["<s>", "x", "y"]
    for i, position in enumerate(data["positions"]):
        for method in ("alti", "rollout"):
            shares = position[method]
            assert len(shares["source"]) == len(data["source"]["pieces"]) == 5
            assert len(shares["prefix"]) == i + 1
            assert sum(shares["source"]) + sum(shares["prefix"]) == pytest.approx(1.0)
            assert sum(shares["source"]) == pytest.approx(shares["source_share"])


def test_a_blank_line_has_no_positions(make_blank_record):
    blank = FlowRecord(sentence=make_blank_record(2), flows={})
    data = VIEW.line(blank)
    assert data["index"] == 2
    assert data["positions"] == []
    assert data["methods"] == {}
    assert page_data(render_view(VIEW, [blank], FlowOptions()))["sentences"] == []


def test_the_page_holds_both_methods_and_shows_the_one_asked_for(flows):
    page = render_view(VIEW, [flows], FlowOptions(method="rollout"))
    (sentence,) = unpack_json(page_data(page))["sentences"]
    assert sentence["heads"] == []
    assert list(sentence["views"]) == ["flow"]
    shown = sentence["views"]["flow"]
    assert shown["first"] == "rollout"
    assert [p["alti"]["source_share"] for p in shown["positions"]] == [0.75, 0.5, 0.25]
    assert list(shown["names"]) == list(shown["methods"]) == ["alti", "rollout"]
    assert not re.search(r"https?:", page.replace("http://www.w3.org/2000/svg", ""))
    assert page == render_view(VIEW, [flows], FlowOptions(method="rollout"))


def test_no_token_becomes_markup(flows, make_record):
    hostile = ("</td><script>alert(1)</script>", "<img src=x>", "&", "שלום")
    record = make_record(source=hostile, target=hostile[:2])
    page = render_view(VIEW, [FlowRecord(sentence=record, flows=flows.flows)], FlowOptions())
    assert page.count("<script") == 2
    assert "<img" not in page


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_model_that_ignores_its_source_takes_all_from_the_prefix(make_model, make_record, norm):
    """And one whose decoder does not look at its prefix has it only from each token itself."""
    model = make_model(norm=norm)
    with torch.no_grad():
        for layer in model.decoder.layers:
            layer.cross_attention.out_projection.weight.zero_()
    record = read_flow(model, make_record(heads=()))
    assert record.flows["alti"].source.abs().max() == 0.0
    with torch.no_grad():
        for layer in model.decoder.layers:
            layer.self_attention.out_projection.weight.zero_()
    record = read_flow(model, make_record(heads=()))
    assert torch.equal(record.flows["alti"].prefix, torch.eye(3))
