"""Heads of classifiers and language models: those that the model itself used on the text alone."""

import json

import pytest
import torch
from typer.testing import CliRunner

from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.cli.app import app
from tformer_cli.heads.names import head_layout
from tformer_cli.inspect.capture.forced import capture_maps
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.kinds.lines.classify import label_texts
from tformer_cli.kinds.opening import open_model
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID

TEXT = "Two dogs run in the street"


def run(*arguments):
    return CliRunner().invoke(app, [str(part) for part in arguments])


@pytest.fixture(params=["classifier", "language_model"])
def model(request):
    """A model directory."""
    return request.getfixturevalue(request.param)


def kind_of(model):
    """Of its heads."""
    return "dec" if model.parent.name.startswith("language") else "enc"


def test_weights_are_the_classifiers_own(classifier):
    model = load_model_directory(classifier, tasks=("classify",)).classifier
    maps = capture_maps(model, (10, 11, 12), ())
    assert str(head_layout(model)) == "enc.0-1.0-1"
    assert (maps.dec, maps.cross, maps.target_ids, len(maps.enc)) == ((), (), (), 2)
    assert maps.residual < 1e-5
    layer = model.encoder.layers[0].self_attention
    tokens = torch.tensor([[10, 11, 12, EOS_ID]])
    with torch.inference_mode():  # post-norm: the first layer reads the embedded tokens
        hidden = model.encoder_input(tokens, model.source_embedding.weight)
        query, key, _ = layer.in_projection(hidden).view(4, 3, 2, 16).permute(1, 2, 0, 3)
        expected = (query @ key.transpose(1, 2) / 4.0).softmax(-1)
    assert torch.allclose(maps.enc[0], expected, atol=1e-5)


def test_weights_are_the_language_models_own(language_model):
    model = load_model_directory(language_model, tasks=("language-model",)).model
    maps = capture_maps(model, (), (10, 11, 12))
    assert str(head_layout(model)) == "dec.0-1.0-1"
    assert (maps.enc, maps.cross, len(maps.dec)) == ((), (), 2)
    assert maps.residual < 1e-5
    layer = model.decoder.layers[0].self_attention
    tokens = torch.tensor([[BOS_ID, 10, 11, 12]])
    with torch.inference_mode():
        hidden = model.decoder_input(tokens, model.target_matrix)
        query, key, _ = layer.in_projection(hidden).view(4, 3, 2, 16).permute(1, 2, 0, 3)
        scores = query @ key.transpose(1, 2) / 4.0
        expected = scores.masked_fill(torch.ones(4, 4).triu(1) > 0, -torch.inf).softmax(-1)
    assert torch.allclose(maps.dec[0], expected, atol=1e-5)


def test_records_are_of_the_text(model):
    kind = kind_of(model)
    first, blank = inspect_heads(model, [TEXT, " "])
    assert [str(head) for head in first.heads] == [
        f"{kind}.{place}" for place in ("0.0", "0.1", "1.0", "1.1")
    ]
    assert first.texts[0] == ("text", TEXT)
    assert (blank.maps, blank.texts) == (None, [("text", " ")])
    (chosen,) = inspect_heads(model, [TEXT], heads=[f"{kind}.1.0"])
    assert [str(head) for head in chosen.heads] == [f"{kind}.1.0"]


def test_a_record_of_a_language_model_has_no_other_text(language_model):
    (record,) = inspect_heads(language_model, [TEXT])
    assert record.texts == [("text", TEXT)]
    assert record.input_pieces[0] == "<s>"


def test_a_record_of_a_classifier_has_the_label_that_classify_gives(classifier):
    first, blank = inspect_heads(classifier, [TEXT, " "])
    (labeled,) = label_texts(open_model(classifier, "classify", device="cpu"), [TEXT])
    assert (first.target, first.probability) == (
        labeled.label,
        pytest.approx(labeled.labels[0][1], abs=1e-6),
    )
    assert [name for name, _ in first.texts] == ["text", "label"]
    assert (first.target_pieces, first.is_forced) == ((), False)
    assert blank.probability is None


@pytest.mark.parametrize("form", ["text", "jsonl", "html", "svg", "png", "npz", "safetensors"])
def test_every_format_is_written(model, tmp_path, form):
    kind = kind_of(model)
    file = tmp_path / f"heads.{'txt' if form == 'text' else form}"
    done = run("inspect-heads", model, TEXT, "--format", form, "-o", file, "-q")
    assert done.exit_code == 0, done.stderr
    assert file.stat().st_size > 500
    if form == "text" and kind == "enc":
        assert "label" in file.read_text()
        assert "recurrent" not in file.read_text()
    if form == "jsonl":
        record = json.loads(file.read_text())
        side = record["source" if kind == "enc" else "target"]
        assert side["text"] == TEXT
        assert side["ids"][-1] == EOS_ID
        assert {head["kind"] for head in record["heads"]} == {kind}
        if kind == "enc":
            (labeled,) = label_texts(open_model(model, "classify", device="cpu"), [TEXT])
            assert record["label"] == labeled.label
            assert record["probability"] == pytest.approx(labeled.labels[0][1], rel=1e-5)


@pytest.mark.parametrize("weights", ["norm", "rollout", "alti"])
def test_other_weights_of_a_classifier_add_up(classifier, weights):
    (record,) = inspect_heads(classifier, [TEXT], weights=weights)
    assert record.captured.residual < 1e-4
    assert len(record.captured.enc) == 2
    if weights != "norm":
        sums = record.captured.enc[-1].sum(dim=-1)
        assert torch.allclose(sums, torch.ones_like(sums), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mode", "live"], "--mode live: is of translation models"),
        (["--rank", "2"], "--rank: is of translation models"),
        (["--target", "x"], "reads one text"),
        (["--heads", "cross.0"], "--heads"),
    ],
)
def test_what_is_of_translations_is_one_line(model, options, message):
    done = run("inspect-heads", model, TEXT, *options, "-q")
    assert done.exit_code == 2
    assert message in done.stderr
    named = {"enc": "a classifier", "dec": "a language model"}[kind_of(model)]
    assert named in done.stderr or options[0] == "--heads"
    assert done.stderr.count("\n") == 1


def test_other_views_name_the_right_command(language_model):
    done = run("inspect-align", language_model, TEXT)
    assert done.exit_code == 2
    assert "is a language model, which continues texts; use `tformer generate`" in done.stderr
