"""Banned phrases of a model that cuts words otherwise than its tokenizer, in both engines."""

import pytest
import torch

from tformer_cli.fast.native_search import CompiledEngine
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.constraints import LineConstraints, holds
from tformer_cli.search.torch_engine import TorchEngine
from tformer_cli.search.translator import Translator
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.tokenizer import EOS_ID
from tformer_cli.text.train_tokenizer import train_tokenizer

WRITTEN, OTHER = "A man sleeps", "A dog sleeps"
ENGINES = {"torch": TorchEngine(torch.device("cpu")), "compiled": CompiledEngine()}


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([WRITTEN, OTHER] * 9, TokenizerConfig(vocab_size=290))


@pytest.fixture(scope="module")
def model(tokenizer):
    """Writes one sentence, letter by letter, or the other, whatever it reads."""
    letters = tokenizer.target.with_dropout([WRITTEN, OTHER], [1, 2], dropout=1.0, seed=1)
    config = ModelConfig(
        d_model=16, n_heads=2, d_ff=8, n_encoder_layers=1, n_decoder_layers=1, norm="pre",
        positions="learned", max_positions=16, tied_embeddings="none",
    )  # fmt: skip
    made = Transformer(config, tokenizer.vocab_size).eval()
    state = {
        name: torch.ones_like(array) if "norm.weight" in name else torch.zeros_like(array)
        for name, array in made.state_dict().items()
    }
    (table,) = (name for name in state if name.startswith("decoder_input") and "position" in name)
    state[table] = torch.eye(16)  # a dimension a position
    for weight, ids in ((1.8, letters[1]), (2.4, letters[0])):
        for place, token in enumerate([*ids, EOS_ID]):
            state["output_projection.weight"][token, place] = weight
    made.load_state_dict(state)
    return made


@pytest.fixture(params=ENGINES)
def translate(request, model, tokenizer):
    def translate(demands=(), banned=(), **settings):
        config = DecodingConfig(**{"beam_size": 4, "max_length": 14} | settings)
        engine = ENGINES["torch" if config.sampling else request.param]
        translator = Translator(model, tokenizer, config, engines=[engine], banned=banned)
        return translator.translate(["x"] * max(1, len(demands)), demands=list(demands))

    return translate


def test_a_phrase_is_banned_however_it_is_cut(translate, tokenizer):
    (free,) = translate()
    assert free.text == WRITTEN
    assert len(free.hypotheses[0].token_ids) > len(tokenizer.target.encode(WRITTEN))
    for beam_size in (1, 4):
        (found,) = translate(banned=["man"], beam_size=beam_size)
        assert not holds(found.text, "man")
        assert not found.unsatisfied
        assert found.text.startswith("A ")
        assert found.text.endswith(" sleeps")


def test_a_phrase_that_is_not_written_costs_and_changes_nothing(translate):
    assert translate(banned=["ma", "an", "sleep", "Man"], n_best=3) == translate(n_best=3)


def test_the_best_hypothesis_is_the_best_of_many(translate):
    for banned in (["man"], ["dog"], ["man", "dog"]):
        (best,), (many,) = (translate(banned=banned, n_best=n) for n in (1, 4))
        assert many.hypotheses[0] == best.hypotheses[0]
        texts = [hypothesis.text for hypothesis in many.hypotheses]
        assert len(texts) > 1
        assert not any(holds(text, phrase) for text in texts for phrase in banned)
        scores = [hypothesis.score for hypothesis in many.hypotheses]
        assert scores == sorted(scores, reverse=True)


def test_bans_of_a_line_and_of_all_lines_are_alike(translate):
    found = translate(
        [LineConstraints(banned=("man",)), LineConstraints(banned=("sleeps",))], banned=["A man"]
    )
    for translation, banned in zip(found, (["man"], ["sleeps", "A man"]), strict=True):
        assert not any(holds(translation.text, phrase) for phrase in banned)


def test_samples_are_drawn_until_they_hold_nothing_banned(translate):
    settings = {"sampling": True, "n_best": 8, "temperature": 0.4}
    ((free,), (found,)) = (translate(banned=banned, **settings) for banned in ([], ["man"]))
    pairs = zip(free.hypotheses, found.hypotheses, strict=True)
    assert any(holds(old.text, "man") for old, _ in pairs)
    assert not any(holds(new.text, "man") for new in found.hypotheses)
    assert all(new == old for old, new in pairs if not holds(old.text, "man"))


def test_what_cannot_be_avoided_is_said(translate):
    (found,) = translate([LineConstraints(target_prefix="A man ")], banned=["man"])
    assert found.text.startswith("A man ")
    assert found.unsatisfied == ("man",)
