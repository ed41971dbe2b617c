import pytest

from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.data.grammar.generate import generate_corpus
from tformer_cli.data.pharaoh import parse_links
from tformer_cli.recipe import load_recipe
from tformer_cli.workflows.aligner import Aligner
from tformer_cli.workflows.inspect_align import AlignmentReport, PairTexts
from tformer_cli.workflows.score_alignment import score_model
from tformer_cli.workflows.train import train

PAIRS = 3000
OVERRIDES = [
    "training.max_steps=500",
    "training.max_epochs=0",
    "training.tokens_per_batch=1000",
    "training.learning_rate=5e-3",
    "training.warmup_steps=50",
    "training.checkpoint_every=250",
    "training.precision=float32",
    "validation.every=100000",
    "model.d_model=64",
    "model.n_heads=2",
    "model.d_ff=128",
    "model.n_encoder_layers=2",
    "model.n_decoder_layers=2",
    "model.dropout=0.0",
    "tokenizer.vocab_size=1000",
    f"data.train.0.pairs={PAIRS}",
    f"data.valid.0.pairs={PAIRS}",
]


@pytest.mark.slow
def test_a_trained_models_best_head_beats_the_diagonal_by_far(tmp_path):
    recipe = load_recipe("quickstart", [*OVERRIDES, f"data.cache_directory={tmp_path / 'cache'}"])
    train(recipe, tmp_path / "run", device="cpu", threads=1)
    held_out = [pair for split, pair in generate_corpus(PAIRS, seed=1) if split == "test"][:300]
    pairs = [
        PairTexts(index, pair.source, pair.target, pair.source_words, pair.target_words)
        for index, pair in enumerate(held_out)
    ]
    gold = [parse_links(pair.pharaoh(), "gold") for pair in held_out]
    aligner = Aligner(load_model_directory(tmp_path / "run"))
    (scores,) = score_model(aligner, pairs, gold, AlignmentReport())
    assert len(scores.scores) == 12  # two layers of two heads and a mean, read in two ways
    floor, best = scores.floor.error_rate, scores.best.counts.error_rate
    assert scores.ceiling.error_rate < best < 0.6 * floor, scores
