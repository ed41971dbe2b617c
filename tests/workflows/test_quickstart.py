import pytest

from tformer_cli.recipe import load_recipe
from tformer_cli.workflows.quickstart import FAMOUS, held_out_pairs, quickstart

OVERRIDES = [
    "training.max_steps=4",
    "training.checkpoint_every=2",
    "training.precision=float32",
    "validation.every=4",
    "validation.max_sentences=3",
    "model.d_model=16",
    "model.n_heads=2",
    "model.d_ff=16",
    "model.n_encoder_layers=1",
    "model.n_decoder_layers=1",
    "tokenizer.vocab_size=300",
    "decoding.beam_size=1",
    "decoding.max_length=5",
    "data.train.0.pairs=200",
    "data.valid.0.pairs=200",
]


@pytest.fixture
def recipe(tmp_path):
    return load_recipe("quickstart", [*OVERRIDES, f"data.cache_directory={tmp_path / 'cache'}"])


def test_trains_scores_and_writes_the_page_and_does_nothing_twice(recipe, tmp_path):
    run = tmp_path / "run"
    result = quickstart(run, recipe=recipe, device="cpu")
    assert not result.training.was_finished
    assert [sample.source for sample in result.samples[:2]] == list(FAMOUS)
    assert len(result.samples) == 5
    assert len(result.evaluation.hypotheses) == result.n_test
    assert {score.name for score in result.evaluation.scores} == {"BLEU", "chrF2", "TER"}
    page = result.page.read_text(encoding="utf-8")
    assert "animal" in page
    weights = (run / "model.safetensors").read_bytes()

    again = quickstart(run, recipe=recipe, device="cpu")
    assert again.training.was_finished
    assert again.evaluation.hypotheses == result.evaluation.hypotheses
    assert (run / "model.safetensors").read_bytes() == weights
    assert again.page.read_text(encoding="utf-8") == page


@pytest.mark.slow
def test_the_famous_sentences_are_in_the_test_set_of_the_shipped_recipe():
    pairs = {pair.source: pair.target for pair in held_out_pairs(load_recipe("quickstart"))[:10]}
    assert pairs[FAMOUS[0]].endswith("qu'il était trop fatigué.")
    assert pairs[FAMOUS[1]].endswith("qu'elle était trop large.")


@pytest.mark.slow
def test_the_shipped_recipe_keeps_its_promise(tmp_path):
    """Some minutes on two cores."""
    result = quickstart(tmp_path / "run", recipe=load_recipe("quickstart"), device="cpu")
    (bleu,) = (score.value for score in result.evaluation.scores if score.name == "BLEU")
    assert bleu >= 95.0
    for sample, text in zip(result.samples[:2], FAMOUS, strict=True):
        assert (sample.source, sample.translation) == (text, sample.reference)
