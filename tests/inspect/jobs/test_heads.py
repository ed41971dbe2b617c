""""""

import numpy as np
import pytest

from tformer_cli.errors import DataError, UsageError
from tformer_cli.fast import native_search
from tformer_cli.fast.native_search import CompiledEngine
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.inspect.jobs.views import inspect_view
from tformer_cli.kinds.lines.translate import translate_lines
from tformer_cli.search.hypothesis import Hypothesis

LINES = ["A man sleeps.", "Two dogs run in the snow.", "", "A woman and a dog."]


def test_the_translations_are_those_of_translate(model):
    records = list(inspect_heads(model, LINES, device="cpu"))
    translations = list(translate_lines(model, LINES, device="cpu"))
    assert [r.target for r in records] == [t.text for t in translations]
    assert [r.index for r in records] == [0, 1, 2, 3]
    for record, translation in zip(records, translations, strict=True):
        best = translation.hypotheses[0]
        if record.maps is not None:
            assert record.maps.source_ids == (*translation.source_ids, 3)
            assert record.maps.target_input_ids == (2, *best.token_ids)
            assert record.score == best.score
            assert record.maps.residual < 1e-5


def test_a_line_that_is_translated_sentence_by_sentence_is_shown_so(model, several_sentences):
    lines = [f"{LINES[0]}  {LINES[1]}", "", LINES[3]]
    several_sentences(model, 0.0)
    records = list(inspect_heads(model, lines, device="cpu"))
    first, second, *others = [record.target for record in records]
    assert [record.source for record in records] == [LINES[0], LINES[1], "", LINES[3]]
    translations = list(translate_lines(model, lines, device="cpu"))
    assert [f"{first}  {second}", *others] == [t.text for t in translations]
    with_targets = list(inspect_heads(model, lines, targets=["a b", "", "c"], device="cpu"))
    assert [record.source for record in with_targets] == lines


def test_settings_of_the_search_are_passed_on(model):
    greedy = list(inspect_heads(model, LINES, beam_size=1, length_penalty=0.0))
    expected = list(translate_lines(model, LINES, beam_size=1, length_penalty=0.0))
    assert [r.target for r in greedy] == [t.text for t in expected]


@pytest.mark.parametrize("settings", [{"beam_size": 1}, {"beam_size": 4}, {"beam_size": 8}, {}])
def test_live_maps_are_those_of_a_forced_pass(model, settings):
    live = list(inspect_heads(model, LINES, mode="live", **settings))
    forced = list(inspect_heads(model, LINES, **settings))
    for ours, theirs in zip(live, forced, strict=True):
        assert (ours.target, ours.score, ours.rank) == (theirs.target, theirs.score, theirs.rank)
        if ours.maps is not None:
            assert (ours.mode, theirs.mode) == ("live", "forced")
            assert ours.maps.residual < 1e-5
            for head in theirs.heads:
                np.testing.assert_allclose(
                    ours.maps.weights(head), theirs.maps.weights(head), atol=1e-5, rtol=0
                )


def test_a_translation_that_torch_would_not_find_is_shown_all_the_same(model, monkeypatch):
    hypothesis = Hypothesis((10, 11, 12), -3.0, -2.0, (-1.0, -1.0, -0.5, -0.5), is_finished=True)

    class OtherEngine(CompiledEngine):
        """Finds what torch does not; cannot search with a model that is recorded."""

        def supports(self, config, model):
            return (
                None
                if hasattr(model, "forward") or hasattr(model, "existing_model")
                else "not here"
            )

        def prepare(self, model):
            return self

        def search(self, sentences, config, before_batch):
            return [[hypothesis]] * len(sentences)

    monkeypatch.setattr(native_search, "CompiledEngine", OtherEngine)
    text = next(translate_lines(model, LINES[:1], device="cpu")).text
    record = next(inspect_heads(model, LINES[:1], mode="live", device="cpu"))
    assert (record.target, record.score, record.mode) == (text, -2.0, "forced")
    assert record.maps.target_input_ids == (2, 10, 11, 12)


@pytest.mark.parametrize("mode", ["forced", "live"])
def test_any_translation_of_the_search_can_be_looked_at(model, mode):
    expected = next(translate_lines(model, LINES[1:2], n_best=3)).hypotheses
    assert len({hypothesis.text for hypothesis in expected}) == 3
    for rank, hypothesis in enumerate(expected, 1):
        record = next(inspect_heads(model, LINES[1:2], mode=mode, rank=rank))
        assert (record.target, record.score, record.rank) == (
            hypothesis.text,
            hypothesis.score,
            rank,
        )
        assert record.maps.target_input_ids == (2, *hypothesis.token_ids)


def test_a_rank_beyond_the_beam_raises_the_beam(model):
    records = inspect_heads(model, LINES[:1], rank=4)
    assert next(records).maps is not None


def test_given_targets_are_not_captured_live(model):
    with pytest.raises(UsageError, match="not searched for"):
        next(inspect_heads(model, LINES[:1], targets=["dog"], mode="live"))


def test_a_blank_line_has_a_record_without_heads(model):
    blank = list(inspect_heads(model, LINES))[2]
    assert blank.maps is None
    assert blank.heads == blank.source_pieces == ()


def test_a_given_target_is_looked_at_instead(model):
    record = next(inspect_heads(model, ["A man"], targets=["dogs run"]))
    assert record.is_forced
    assert record.score is None
    assert record.input_pieces[0] == "<s>"
    assert record.target_pieces[-1] == "</s>"
    assert record.input_pieces[1:] == record.target_pieces[:-1]
    assert "".join(record.target_pieces[:-1]).replace("▁", " ").strip() == "dogs run"
    assert record.maps.cross[0].shape[1:] == (len(record.target_pieces), len(record.source_pieces))


def test_a_translation_given_back_as_target_has_the_same_maps(model):
    record = next(inspect_heads(model, LINES[:1]))
    ids = record.maps.target_input_ids
    forced = next(inspect_heads(model, LINES[:1], targets=[record.target]))
    if forced.maps.target_input_ids == ids:  # other pieces may spell the same text
        assert np.array_equal(record.maps.cross[0], forced.maps.cross[0])
    assert np.array_equal(record.maps.enc[1], forced.maps.enc[1])


def test_a_sentence_has_the_same_maps_whatever_is_beside_it(model):
    alone = next(inspect_heads(model, LINES[1:2]))
    among = list(inspect_heads(model, LINES))[1]
    assert alone.maps.target_input_ids == among.maps.target_input_ids
    assert np.array_equal(alone.maps.cross[0], among.maps.cross[0])


def test_heads_are_selected(model):
    record = next(inspect_heads(model, LINES, heads=["cross.last.1", "enc.0.0"]))
    assert [str(head) for head in record.heads] == ["enc.0.0", "cross.0.1"]
    with pytest.raises(UsageError, match=r"the heads are enc\.0-1\.0-1, dec\.0-0\.0-1"):
        inspect_heads(model, LINES, heads=["enc.2"])


@pytest.mark.parametrize(
    ("targets", "message"),
    [(["x"], "more lines than targets"), (["x"] * 5, "more targets than lines")],
)
def test_as_many_targets_as_lines(model, targets, message):
    with pytest.raises(DataError, match=message):
        list(inspect_heads(model, LINES, targets=targets))


@pytest.mark.parametrize("targets", [None, ["x", "y"]])
def test_a_line_that_is_too_long_is_named(model, targets):
    records = inspect_heads(model, ["short", "long line " * 50], targets=targets)
    next(records)
    with pytest.raises(DataError, match=r"line 2: has .* tokens, but the model takes 39"):
        next(records)


LINES_HEADS_WEIGHTS = ["A man sleeps.", "", "Two dogs run in the snow."]


@pytest.mark.parametrize("weighting", ["alpha", "norm", "rollout", "alti"])
def test_the_translations_are_those_of_inspect_heads(model, weighting):
    weighed = list(inspect_heads(model, LINES_HEADS_WEIGHTS, weights=weighting))
    inspected = list(inspect_heads(model, LINES_HEADS_WEIGHTS))
    assert [r.target for r in weighed] == [r.target for r in inspected]
    assert [r.weighting.name for r in weighed] == [weighting] * 3
    assert weighed[1].maps is None
    for ours, theirs in zip(weighed[::2], inspected[::2], strict=True):
        assert ours.maps.source_ids == theirs.maps.source_ids
        assert ours.maps.target_input_ids == theirs.maps.target_input_ids
        assert ours.captured.residual <= 1e-5


def test_alpha_equals_the_weights_of_inspect_heads(model):
    ours, theirs = (
        next(inspect_heads(model, LINES_HEADS_WEIGHTS, weights="alpha")),
        next(inspect_heads(model, LINES_HEADS_WEIGHTS)),
    )
    assert ours.metrics == theirs.metrics
    assert ours.heads == theirs.heads
    assert np.array_equal(ours.maps.cross[0], theirs.maps.cross[0])


def test_conditions_are_on_the_metrics_of_these_maps(model):
    for weighting in ("norm", "alti"):
        everything = next(inspect_heads(model, LINES_HEADS_WEIGHTS, weights=weighting))
        best = max(everything.metrics, key=lambda head: everything.metrics[head]["confidence"])
        selected = next(
            inspect_heads(model, LINES_HEADS_WEIGHTS, weights=weighting, heads=["top:1@confidence"])
        )
        assert selected.heads == (best,)


def test_metrics_of_norms_are_of_rows_that_sum_to_one(model):
    record = next(inspect_heads(model, LINES_HEADS_WEIGHTS, weights="norm"))
    head = record.heads[0]
    norms = record.captured.weights(head).astype(np.float64)
    shares = norms / norms.sum(axis=-1, keepdims=True)
    expected = -(shares * np.log(shares)).sum(axis=-1).mean()
    assert record.metrics[head]["entropy"] == pytest.approx(expected, rel=1e-5)
    assert record.largest == max(record.captured.weights(h).max().item() for h in record.heads)
    assert max(record.shades(h).max().item() for h in record.heads) == 1.0


def test_layers_are_selected_and_have_no_roles(model):
    record = next(
        inspect_heads(
            model, LINES_HEADS_WEIGHTS, weights="rollout", heads=["cross.last", "enc.0.*", "!dec"]
        )
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
    records = list(
        inspect_view("flow", model, LINES_HEADS_WEIGHTS, targets=["dogs run", "", "the street"])
    )
    assert [bool(record.flows) for record in records] == [True, False, True]
    assert records[0].sentence.is_forced
    weighed = next(
        inspect_heads(model, LINES_HEADS_WEIGHTS, weights="alti", targets=["dogs run"] * 3)
    )
    assert np.array_equal(records[0].flows["alti"].source, weighed.maps.cross[-1][0])
    assert np.array_equal(records[0].flows["alti"].prefix, weighed.maps.dec[-1][0])
