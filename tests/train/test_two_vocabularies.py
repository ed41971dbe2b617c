"""Models that are trained with a vocabulary for each language."""

import shutil

import pytest
import torch
from typer.testing import CliRunner

from tests.watched_training import crash_at, digest
from tformer_cli.artifacts.config_file import read_config
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.cli.app import app
from tformer_cli.errors import RecipeError
from tformer_cli.plugins.instruments.jobs.diff import open_model_or_checkpoint
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, read_tokenizer
from tformer_cli.train.plan import plan_training
from tformer_cli.train.train import train

SETTINGS = {
    "tokenizer__joint": False, "tokenizer__vocab_size": 290, "model__tied_embeddings": "decoder",
    "model__d_model": 16, "model__d_ff": 32, "model__n_heads": 2, "model__n_encoder_layers": 1,
    "model__n_decoder_layers": 1, "model__max_positions": 64, "training__max_steps": 4,
}  # fmt: skip


@pytest.fixture
def own(make, tmp_path):
    """Makes recipes of a model with random weights and two vocabularies."""
    return lambda **changes: make("", tmp_path / "run", **{**SETTINGS, **changes})


@pytest.fixture
def run(own, tmp_path):
    train(own(), tmp_path / "run")
    return tmp_path / "run"


def test_the_model_reads_one_vocabulary_and_predicts_the_other(own, run):
    config, tokenizer = read_config(run), read_tokenizer(run)
    assert not tokenizer.is_joint
    model = load_model_directory(run).model
    assert len(model.source_embedding.weight) == config.model.source_vocab_size
    assert len(model.source_embedding.weight) == tokenizer.source.vocab_size
    assert len(model.output_matrix) == tokenizer.target.vocab_size == config.vocab_size
    assert plan_training(own()).n_parameters == sum(p.numel() for p in model.parameters())
    checkpoint = open_model_or_checkpoint(max((run / "checkpoints").iterdir()))
    assert checkpoint.config.source_vocab_size == config.model.source_vocab_size


def test_a_run_resumes_exactly(own, tmp_path, run):
    shutil.move(run, tmp_path / "whole")
    crash_at(own(), run, 3)
    train(own(), run)
    assert digest(run) == digest(tmp_path / "whole")


def test_another_run_starts_from_the_model(make, tmp_path, run):
    more = tmp_path / "more"
    crash_at(make(run, more, tokenizer__new_tokens=["<law>"]), more, 3)
    shutil.rmtree(more.parent / "cache")
    train(make(run, more, tokenizer__new_tokens=["<law>"]), more)
    assert read_config(more).model.source_vocab_size == read_tokenizer(run).source.vocab_size + 1
    with pytest.raises(RecipeError, match=r"tokenizer\.joint: is true, but false in "):
        make(run, tmp_path / "other", tokenizer__joint=True)


def test_ctranslate2_gives_every_token_the_models_own_probability(tmp_path, run):
    ctranslate2 = pytest.importorskip("ctranslate2")
    from tests.plugins.interchange.ctranslate2.test_exporting import forced_log_probabilities
    from tformer_cli.plugins.interchange.ctranslate2.exporting import export_ctranslate2

    directory = load_model_directory(run)
    export_ctranslate2(directory, tmp_path / "e", "float32")
    engine = ctranslate2.Translator(str(tmp_path / "e"), compute_type="float32")
    sides = directory.tokenizer.source, directory.tokenizer.target
    source, target = sides[0].encode("The cat saw it."), sides[1].encode("Le chat")
    scored = engine.score_batch([sides[0].pieces(source)], [sides[1].pieces(target)])[0]
    expected = forced_log_probabilities(directory.model, source, [BOS_ID, *target, EOS_ID])
    assert torch.allclose(torch.tensor(scored.log_probs), expected, atol=1e-4)


def test_marians_pieces_are_decoded_by_the_target(tmp_path, run):
    export = ["export", str(run), "--format", "marian", "-o", str(tmp_path / "m")]
    done = CliRunner().invoke(app, export)
    assert "tokenizer.json --side target`" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model__tied_embeddings": "all"}, r'model\.tied_embeddings: "all" needs a vocabulary'),
        ({"task__kind": "language-model", "model__n_encoder_layers": 0}, r"tokenizer\.joint: only"),
        (
            {"tokenizer__joint": True, "model__source_vocab_size": 290},
            r"model\.source_vocab_size: both languages share a vocabulary",
        ),
    ],
)
def test_what_two_vocabularies_do_not_go_with_is_refused(own, changes, message):
    with pytest.raises(RecipeError, match=message):
        own(**changes)


def test_a_size_that_is_not_the_sources_is_refused(own, tmp_path):
    with pytest.raises(RecipeError, match=r"model\.source_vocab_size: is 17, but the source's"):
        train(own(model__source_vocab_size=17), tmp_path / "run")


@pytest.mark.parametrize("joint", [False, True])
def test_a_tokenizer_that_is_named_has_as_many_vocabularies_as_the_recipe(
    own, tmp_path, run, joint
):
    path = str(run / "tokenizer.json")
    if joint:
        other = tmp_path / "joint"
        train(own(tokenizer__joint=True, model__tied_embeddings="all"), other)
        path = str(other)
    else:
        train(own(tokenizer__path=path), tmp_path / "again")
        assert read_config(tmp_path / "again").model == read_config(run).model
    found = "one vocabulary" if joint else "two vocabularies"
    ties = "decoder" if joint else "all"
    with pytest.raises(RecipeError, match=rf"tokenizer\.path: .* has {found}; set tokenizer"):
        train(
            own(tokenizer__path=path, tokenizer__joint=not joint, model__tied_embeddings=ties),
            tmp_path / "not",
        )
