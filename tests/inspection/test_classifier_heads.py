"""The heads of a classifier: those that the model itself used on a text, and what it says of it."""

import json

import pytest
import torch
from typer.testing import CliRunner

from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.cli.app import app
from tformer_cli.data.tokenizer import EOS_ID
from tformer_cli.inspection.capture.forced import capture_maps
from tformer_cli.inspection.capture.heads import head_layout
from tformer_cli.workflows.classify import open_classifier
from tformer_cli.workflows.inspection.heads import inspect_heads

TEXT = "Two dogs run in the street"


def run(*arguments):
    return CliRunner().invoke(app, [str(part) for part in arguments])


def test_weights_are_the_models_own(classifier):
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


def test_records_have_the_label_that_classify_gives(classifier):
    first, blank = inspect_heads(classifier, [TEXT, " "])
    (labelled,) = open_classifier(classifier, device="cpu").label([TEXT])
    assert (first.target, first.probability) == (
        labelled.label,
        pytest.approx(labelled.labels[0][1], abs=1e-6),
    )
    assert [name for name, _ in first.texts] == ["text", "label"]
    assert [str(h) for h in first.heads] == ["enc.0.0", "enc.0.1", "enc.1.0", "enc.1.1"]
    assert (first.target_pieces, first.is_forced) == ((), False)
    assert (blank.maps, blank.probability, blank.texts) == (None, None, [("text", " ")])
    (chosen,) = inspect_heads(classifier, [TEXT], heads=["enc.1.0"])
    assert [str(head) for head in chosen.heads] == ["enc.1.0"]


@pytest.mark.parametrize("form", ["text", "jsonl", "html", "svg", "png", "npz", "safetensors"])
def test_every_format_is_written(classifier, tmp_path, form):
    file = tmp_path / f"heads.{'txt' if form == 'text' else form}"
    done = run("inspect-heads", classifier, TEXT, "--format", form, "-o", file, "-q")
    assert done.exit_code == 0, done.stderr
    assert file.stat().st_size > 500
    if form == "text":
        assert "label" in file.read_text()
        assert "recurrent" not in file.read_text()
    if form == "jsonl":
        record = json.loads(file.read_text())
        (labelled,) = open_classifier(classifier, device="cpu").label([TEXT])
        assert record["source"]["text"] == TEXT
        assert record["source"]["ids"][-1] == EOS_ID
        assert record["label"] == labelled.label
        assert record["probability"] == pytest.approx(labelled.labels[0][1], rel=1e-5)
        assert {head["kind"] for head in record["heads"]} == {"enc"}


@pytest.mark.parametrize("weights", ["norm", "rollout", "alti"])
def test_other_weights_add_up(classifier, weights):
    (record,) = inspect_heads(classifier, [TEXT], weights=weights)
    assert record.captured.residual < 1e-4
    assert len(record.captured.enc) == 2
    if weights != "norm":
        sums = record.captured.enc[-1].sum(dim=-1)
        assert torch.allclose(sums, torch.ones_like(sums), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mode", "live"], "--mode live: is of translation models; of a classifier omit it"),
        (["--rank", "2"], "--rank: is of translation models; of a classifier omit it"),
        (["--target", "x"], "--target: a classifier reads one text"),
        (["--heads", "cross.0"], "--heads"),
    ],
)
def test_what_is_of_translations_is_one_line(classifier, options, message):
    done = run("inspect-heads", classifier, TEXT, *options, "-q")
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
