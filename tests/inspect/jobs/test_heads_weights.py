import pytest
import torch

from tformer_cli.errors import UsageError
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.inspect.jobs.views import inspect_view

LINES = ["A man sleeps.", "", "Two dogs run in the snow."]


@pytest.mark.parametrize("weighting", ["alpha", "norm", "rollout", "alti"])
def test_the_translations_are_those_of_inspect_heads(model, weighting):
    weighed = list(inspect_heads(model, LINES, weights=weighting))
    inspected = list(inspect_heads(model, LINES))
    assert [r.target for r in weighed] == [r.target for r in inspected]
    assert [r.weighting.name for r in weighed] == [weighting] * 3
    assert weighed[1].maps is None
    for ours, theirs in zip(weighed[::2], inspected[::2], strict=True):
        assert ours.maps.source_ids == theirs.maps.source_ids
        assert ours.maps.target_input_ids == theirs.maps.target_input_ids
        assert ours.captured.residual <= 1e-5


def test_alpha_equals_the_weights_of_inspect_heads(model):
    ours, theirs = (
        next(inspect_heads(model, LINES, weights="alpha")),
        next(inspect_heads(model, LINES)),
    )
    assert ours.metrics == theirs.metrics
    assert ours.heads == theirs.heads
    assert torch.equal(ours.maps.cross[0], theirs.maps.cross[0])


def test_conditions_are_on_the_metrics_of_these_maps(model):
    for weighting in ("norm", "alti"):
        everything = next(inspect_heads(model, LINES, weights=weighting))
        best = max(everything.metrics, key=lambda head: everything.metrics[head]["confidence"])
        selected = next(inspect_heads(model, LINES, weights=weighting, heads=["top:1@confidence"]))
        assert selected.heads == (best,)


def test_metrics_of_norms_are_of_rows_that_sum_to_one(model):
    record = next(inspect_heads(model, LINES, weights="norm"))
    head = record.heads[0]
    norms = record.captured.weights(head).double()
    shares = norms / norms.sum(dim=-1, keepdim=True)
    expected = -(shares * shares.log()).sum(dim=-1).mean().item()
    assert record.metrics[head]["entropy"] == pytest.approx(expected, rel=1e-5)
    assert record.largest == max(record.captured.weights(h).max().item() for h in record.heads)
    assert max(record.shades(h).max().item() for h in record.heads) == 1.0


def test_layers_are_selected_and_have_no_roles(model):
    record = next(
        inspect_heads(model, LINES, weights="rollout", heads=["cross.last", "enc.0.*", "!dec"])
    )
    assert [str(layer) for layer in record.heads] == ["enc.0", "cross.0"]
    assert [record.role(layer) for layer in record.heads] == [None, None]
    assert str(record.first_head()) == "cross.0"


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        (["cross.0.1"], '"cross.0.1" names heads, but --weights alti has one map per layer'),
        (["enc,!dec.0.{0,1}"], '"!dec.0.{0,1}" names heads'),
        (["enc.0.1@prev>0.1"], "names heads"),
        (["@role=sink"], '"@role=sink" asks for a role of heads'),
        (["enc.7"], '"enc.7" matches no head; the heads are enc.0-1, dec.0-0, cross.0-0'),
    ],
)
def test_options_of_heads_are_refused_elsewhere_before_anything_is_read(model, heads, message):
    with pytest.raises(UsageError) as refused:
        inspect_heads(model, iter(()), weights="alti", heads=heads)
    assert message in str(refused.value)


def test_a_record_of_flow_for_each_line(model):
    records = list(inspect_view("flow", model, LINES, targets=["dogs run", "", "the street"]))
    assert [bool(record.flows) for record in records] == [True, False, True]
    assert records[0].sentence.is_forced
    weighed = next(inspect_heads(model, LINES, weights="alti", targets=["dogs run"] * 3))
    assert torch.equal(records[0].flows["alti"].source, weighed.maps.cross[-1][0])
    assert torch.equal(records[0].flows["alti"].prefix, weighed.maps.dec[-1][0])
