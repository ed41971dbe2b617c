"""Texts in windows: every token once, with the context that the stride promises."""

import math
from functools import cache

import pytest
import torch

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.search.scoring import score_texts
from tformer_cli.search.text_windows import scored_windows, text_scores
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID

TEXT = [4 + (7 * place * place + place // 3) % 20 for place in range(50)]
TEXTS = [TEXT, TEXT[:7], [], TEXT[:20], [5]]


@cache
def make(target_bos, target_eos):
    torch.manual_seed(1)
    config = ModelConfig(
        d_model=32, n_heads=2, d_ff=48, n_encoder_layers=0, n_decoder_layers=2, max_positions=60,
        target_bos=target_bos, target_eos=target_eos,
    )  # fmt: skip
    return Transformer(config, 24).eval()


@cache
def next_token(model, context):
    """log p of each token behind a context, computed by itself, once for all windows."""
    nothing = torch.tensor([[EOS_ID]])
    with torch.inference_mode():
        logits = model(nothing, nothing == EOS_ID, torch.tensor([context]))
    return logits[0, -1].log_softmax(-1).tolist()


def by_hand(model, ids, window, stride):
    """log p of each token, its context found by looking for the window that has it first."""
    config = model.config
    tokens = [*ids, EOS_ID] if config.target_eos else list(ids)
    found = []
    for place in range(0 if config.target_bos else 1, len(tokens)):
        start = 0
        while place >= start + window + (not config.target_bos):
            start += stride
        begin = [BOS_ID] if config.target_bos else []
        context = (*begin, *tokens[start:place])
        assert len(context) <= window
        found.append(next_token(model, context)[tokens[place]])
    return found


@pytest.mark.parametrize("target_bos", [True, False])
@pytest.mark.parametrize("target_eos", [True, False])
@pytest.mark.parametrize(("window", "stride"), [(60, 60), (16, 16), (16, 5), (7, 1), (20, 19)])
def test_log_probabilities_of_every_token(target_bos, target_eos, window, stride):
    model = make(target_bos, target_eos)
    found = score_texts(model, TEXTS, window=window, stride=stride, batch_tokens=64, device="cpu")
    for ids, values in zip(TEXTS, found, strict=True):
        assert values == pytest.approx(by_hand(model, ids, window, stride), abs=1e-5)
        assert len(values) == max(0, len(ids) + target_eos - (not target_bos))


def test_scores_are_means_of_all_tokens():
    scores = text_scores([[math.log(0.5), math.log(0.25)], [math.log(0.125)]], 4)
    assert scores.n_tokens == 3
    assert scores.loss == pytest.approx(2 * math.log(2))
    assert scores.perplexity == pytest.approx(4.0)
    assert scores.bits_per_byte == pytest.approx(1.5)
    assert text_scores([], 0).loss == 0.0


def test_a_longer_window_knows_more_before_a_token():
    told = []
    model = make(target_bos=True, target_eos=True)
    options = {"batch_tokens": 64, "device": "cpu", "before_batch": lambda: told.append(1)}
    short = score_texts(model, [TEXT], window=10, stride=10, **options)[0]
    overlapping = score_texts(model, [TEXT], window=10, stride=2, **options)[0]
    assert short[:10] == pytest.approx(overlapping[:10], abs=1e-5)
    assert short[10] != pytest.approx(overlapping[10], abs=1e-3)
    assert len(told) > 2


@pytest.mark.parametrize("target_bos", [True, False])
@pytest.mark.parametrize("target_eos", [True, False])
@pytest.mark.parametrize(("window", "stride"), [(60, 60), (16, 16), (16, 5), (7, 1)])
def test_windows_scored_one_by_one_have_the_same_contexts(target_bos, target_eos, window, stride):
    model = make(target_bos, target_eos)

    def scorer(contexts, targets):
        rows = []
        for context, target in zip(contexts, targets, strict=True):
            behind = range(len(target))
            rows.append([next_token(model, (*context, *target[:n]))[target[n]] for n in behind])
        return rows

    told = []
    settings = {"window": window, "stride": stride, "before_batch": lambda: told.append(1)}
    found = scored_windows(scorer, TEXTS, model.config, **settings)
    for ids, row in zip(TEXTS, found, strict=True):
        assert row == pytest.approx(by_hand(model, ids, window, stride), abs=1e-5)
    assert told
