"""Models whose sources have no end of sentence: searched and scored as the formulas say."""

import pytest
import torch

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.engine import Searcher, Sentence
from tformer_cli.search.torch_engine import TorchEngine
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID

SOURCES = [(7, 8, 9), (11,) * 16, (12, 13), (5,)]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(3)
    config = ModelConfig(
        d_model=32,
        n_heads=2,
        d_ff=48,
        n_encoder_layers=2,
        n_decoder_layers=2,
        max_positions=40,
        source_eos=False,
    )
    model = Transformer(config, 30).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    return model


def by_hand(model, source, target):
    """Σ log p of a target, the source as it is, without batch, padding and cache."""
    with torch.inference_mode():
        logits = model(
            torch.tensor([source]),
            torch.ones(1, len(source), dtype=torch.bool),
            torch.tensor([[BOS_ID, *target]]),
        )
    steps = logits[0].log_softmax(-1).gather(1, torch.tensor([[*target, EOS_ID]]).T)
    return steps.sum().item()


@pytest.mark.parametrize("config", [{"beam_size": 1}, {"beam_size": 3}, {"sampling": True}])
def test_searched(model, config):
    settings = DecodingConfig(max_length=6, **config)
    sentences = [Sentence(tokens=source) for source in SOURCES]
    found = Searcher(model, [TorchEngine("cpu")]).search(sentences, settings)
    for source, (best, *_) in zip(SOURCES, found, strict=True):
        expected = by_hand(model, source, best.token_ids)
        assert best.log_probability == pytest.approx(expected, abs=1e-4)
        with_end = by_hand(model, (*source, EOS_ID), best.token_ids)
        assert abs(expected - with_end) > 1e-3


def test_scored(model):
    targets = [(5, 6), (), (7,), (8, 9, 10)]
    searcher = Searcher(model, [TorchEngine("cpu")])
    found = searcher.score([*SOURCES, ()], [*targets, (4,)], DecodingConfig())
    expected = [by_hand(model, s, t) for s, t in zip(SOURCES, targets, strict=True)]
    assert [hypothesis.log_probability for hypothesis in found[:-1]] == pytest.approx(
        expected, abs=1e-4
    )
    # attention needs a token
    empty = by_hand(model, (EOS_ID,), (4,))
    assert found[-1].log_probability == pytest.approx(empty, abs=1e-4)
