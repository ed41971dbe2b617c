import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.inspect.cases import stored_model
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.errors import DataError, TformerError, UsageError
from tformer_cli.heads.names import HeadId
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.inspect.jobs.views import inspect_view
from tformer_cli.inspect.pages import report_data
from tformer_cli.inspect.view import ReportOptions
from tformer_cli.model.transformer import Transformer
from tformer_cli.plugins.instruments.jobs.decision import inspect_decision
from tformer_cli.plugins.instruments.jobs.report import inspect_report
from tformer_cli.plugins.instruments.walkthrough.step import EXAMPLE_WEIGHT, example_row

LINE = "A man sleeps."
CHOSEN = {"token": "man", "head": "enc.1.0"}


def test_a_report_holds_the_results_of_the_single_inspections(model):
    report = inspect_report(
        model, [LINE], device="cpu", options=ReportOptions(step=("enc.1.0:man",))
    )
    (sentence,) = report.sentences
    (record,) = inspect_heads(model, [LINE], device="cpu")
    assert sentence.heads.heads == record.heads
    # A report is torch's, like all that it compares; a line of heads alone is of the kernels
    for head, metrics in record.metrics.items():
        assert sentence.heads.metrics[head] == pytest.approx(metrics, abs=1e-5)
    assert sentence.heads.target == record.target
    (steps,) = sentence.views["step"]
    alone = next(inspect_view("step", model, [LINE], settings=CHOSEN, device="cpu"))
    assert (steps.row, steps.where) == (alone.row, alone.where)
    assert torch.equal(steps.table("weights").values, alone.table("weights").values)
    weights = (model / "model.safetensors").read_bytes()
    assert report.model_hash == hashlib.sha256(weights).hexdigest()
    assert len(report.views["positions"].tables[0].table) == 32


def test_a_report_has_the_decision_between_two_sentences_or_of_each(model):
    report = inspect_report(model, [LINE, "Two dogs."], device="cpu")
    decision = report.views["decision"]
    expected = inspect_decision(model, [LINE, "Two dogs."], device="cpu")
    assert (decision.names, decision.d) == (expected.names, expected.d)
    causes = {part.id: part.effects["patch"] for part in expected.heads}
    assert {part.id: part.effects["patch"] for part in decision.heads} == pytest.approx(
        causes, abs=1e-5
    )
    for lines in ([LINE], [LINE, LINE], [LINE, "Two dogs.", LINE]):
        report = inspect_report(
            model, lines, device="cpu", options=ReportOptions(heads=("cross@entropy>0",))
        )
        assert "decision" not in report.views
        for sentence in report.sentences:
            assert [*sentence.views["decision"].sentences] == [sentence.heads]
            assert {part.kind for part in sentence.views["decision"].heads} == {"cross"}
    report = inspect_report(model, [LINE], device="cpu", options=ReportOptions(ablation=False))
    assert "decision" not in report.sentences[0].views


def test_a_report_of_a_recurrent_decoder_has_all_but_its_self_attention_and_flow(tmp_path, model):
    opened = load_model_directory(model, "cpu")
    config = replace(opened.config, decoder_cell="ssru")
    torch.manual_seed(2)
    recurrent = Transformer(config, opened.tokenizer.vocab_size)
    stored_model(tmp_path / "recurrent", recurrent, opened.tokenizer, opened.decoding)
    report = inspect_report(tmp_path / "recurrent", [LINE], device="cpu")
    (sentence,) = report.sentences
    assert {head.kind for head in sentence.heads.heads} == {"enc", "cross"}
    assert "flow" not in sentence.views
    assert {"step", "logits"} <= set(sentence.views)
    assert report_data(report)["sentences"][0]["isRecurrent"]


def test_a_walk_through_is_of_the_sentences_that_have_the_token(model):
    options = ReportOptions(step=("enc.0.0:man", "enc.0.1:dogs"))
    report = inspect_report(model, [LINE, "Two dogs."], device="cpu", options=options)
    assert [[str(s.head) for s in sentence.views["step"]] for sentence in report.sentences] == [
        ["enc.0.0"],
        ["enc.0.1"],
    ]


def test_given_targets_are_looked_at(model):
    (sentence,) = inspect_report(model, [LINE], targets=["Two dogs."], device="cpu").sentences
    assert sentence.heads.is_forced
    assert sentence.heads.target == "Two dogs."


@pytest.mark.parametrize("mode", ["forced", "live"])
@pytest.mark.parametrize("rank", [1, 2])
def test_any_translation_is_shown_with_maps_of_either_kind(model, mode, rank):
    chosen = {"mode": mode, "rank": rank}
    options = ReportOptions(**chosen)
    (sentence,) = inspect_report(model, [LINE], options=options, device="cpu").sentences
    (record,) = inspect_heads(model, [LINE], device="cpu", **chosen)
    assert (sentence.heads.rank, sentence.heads.mode) == (rank, mode)
    assert (sentence.heads.target, sentence.heads.score) == (record.target, record.score)
    for kind in ("enc", "dec", "cross"):
        for ours, theirs in zip(
            sentence.heads.maps.layers(kind), record.maps.layers(kind), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6 if mode == "forced" else 0)
    assert tuple(p.chosen.piece for p in sentence.views["logits"].positions) == record.target_pieces
    # the page alone has more: the words, the vectors, and of a search that was recorded its tree
    assert record.extras is None
    extras = sentence.heads.extras
    assert " ".join(extras.source_words.texts) == LINE
    assert len(extras.vectors.queries) == 4
    assert (extras.search is not None) == (mode == "live")
    if mode == "live":
        path = [extras.search.nodes[number].token for number in extras.search.path]
        assert path[1:] == list(sentence.heads.maps.target_ids)
        assert extras.search.nodes[extras.search.path[-1]].score == pytest.approx(
            record.score, abs=1e-5
        )


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"lines": ["", " "]}, DataError, "has no sentence to show"),
        ({"step": ["enc.0.0"]}, UsageError, '--step: "enc.0.0" is not HEAD:TOKEN'),
        ({"step": ["enc.0:man"]}, UsageError, '--step: "enc.0" names 2 heads, from enc.0.0'),
        ({"step": ["enc.9.9:man"]}, UsageError, '--step: "enc.9.9" matches no head'),
        (
            {"step": ["enc.0.0:wolf"]},
            UsageError,
            '--step: "wolf" matches no token; the tokens are',
        ),
        ({"heads": ["@entropy>99"]}, UsageError, "no head of line 1 meets the conditions"),
        ({"tolerance": 0.0}, TformerError, "(is above 0|from the model's own)"),
        ({"targets": ["a"], "mode": "live"}, UsageError, "--mode live: shows the search"),
        ({"rank": 0}, UsageError, "--rank"),
        ({"targets": []}, DataError, "there are more lines than targets"),
    ],
)
def test_omitted_parts_are_reported(model, options, error, message):
    texts = {name: options[name] for name in ("lines", "targets") if name in options}
    settings = ReportOptions(**{name: options[name] for name in options.keys() - texts.keys()})
    with pytest.raises(error, match=message):
        inspect_report(model, **{"lines": [LINE], "device": "cpu", "options": settings} | texts)


def test_a_telling_row_has_one_clear_key_that_is_a_word(model):
    (record,) = inspect_heads(model, ["A man and a dog sleep."], device="cpu")
    head = HeadId("enc", 0, 1)
    weights = record.captured.weights(head)
    row = example_row(record, head)
    largest = weights[:-1, :-1].max(axis=1)
    long = [
        place
        for place, label in enumerate(record.source_pieces[:-1])
        if sum(map(str.isalpha, label)) >= 3
    ]
    assert row in long
    assert 0 < len(long) < len(largest)
    distances = abs(largest - EXAMPLE_WEIGHT)
    assert distances[row] == distances[long].min()
    short = replace(record, source_pieces=("a",) * len(record.source_pieces))
    assert distances[example_row(short, head)] == distances.min()
