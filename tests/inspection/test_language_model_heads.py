"""The heads of a language model: those that the model itself used, on the text alone."""

import json

import pytest
import torch
from typer.testing import CliRunner

from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.cli.app import app
from tformer_cli.data.tokenizer import BOS_ID, EOS_ID
from tformer_cli.inspection.capture.forced import capture_maps
from tformer_cli.inspection.capture.heads import head_layout
from tformer_cli.workflows.inspection.heads import inspect_heads

TEXT = "Two dogs run in the street"


def run(*arguments):
    return CliRunner().invoke(app, [str(part) for part in arguments])


def test_weights_are_the_models_own(language_model):
    model = load_model_directory(language_model, tasks=("language-model",)).model
    maps = capture_maps(model, (), (10, 11, 12))
    assert str(head_layout(model)) == "dec.0-1.0-1"
    assert (maps.enc, maps.cross, len(maps.dec)) == ((), (), 2)
    assert maps.residual < 1e-5
    layer = model.decoder.layers[0].self_attention
    tokens = torch.tensor([[BOS_ID, 10, 11, 12]])
    with torch.inference_mode():  # post-norm: the first layer reads the embedded tokens
        hidden = model.decoder_input(tokens, model.target_matrix)
        query, key, _ = layer.in_projection(hidden).view(4, 3, 2, 16).permute(1, 2, 0, 3)
        scores = query @ key.transpose(1, 2) / 4.0
        expected = scores.masked_fill(torch.ones(4, 4).triu(1) > 0, -torch.inf).softmax(-1)
    assert torch.allclose(maps.dec[0], expected, atol=1e-5)


def test_records_are_of_the_text(language_model):
    first, blank = inspect_heads(language_model, [TEXT, " "])
    assert first.texts == [("text", TEXT)]
    assert {head.kind for head in first.heads} == {"dec"}
    assert len(first.heads) == 4
    assert first.input_pieces[0] == "<s>"
    assert blank.maps is None
    (chosen,) = inspect_heads(language_model, [TEXT], heads=["dec.1.0"])
    assert [str(head) for head in chosen.heads] == ["dec.1.0"]


@pytest.mark.parametrize("form", ["text", "jsonl", "html", "svg", "png", "npz", "safetensors"])
def test_every_format_is_written(language_model, tmp_path, form):
    file = tmp_path / f"heads.{'txt' if form == 'text' else form}"
    done = run("inspect-heads", language_model, TEXT, "--format", form, "-o", file, "-q")
    assert done.exit_code == 0, done.stderr
    assert file.stat().st_size > 500
    if form == "jsonl":
        record = json.loads(file.read_text())
        assert record["target"]["text"] == TEXT
        assert record["target"]["ids"][-1] == EOS_ID
        assert {head["kind"] for head in record["heads"]} == {"dec"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mode", "live"], "--mode live: is of translation models"),
        (["--rank", "2"], "--rank: is of translation models"),
        (["--target", "x"], "--target: a language model reads one text"),
        (["--heads", "cross.0"], "--heads"),
    ],
)
def test_what_is_of_translations_is_one_line(language_model, options, message):
    done = run("inspect-heads", language_model, TEXT, *options, "-q")
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_other_views_name_the_right_command(language_model):
    done = run("inspect-align", language_model, TEXT)
    assert done.exit_code == 2
    assert "is a language model, which continues texts; use `tformer generate`" in done.stderr
