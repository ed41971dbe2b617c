"""Every rule about the next token against a search that looks at all sequences."""

import itertools
import math

import pytest
import torch

from tformer_cli.search.beam_search import beam_search
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.hypothesis import length_divisor
from tformer_cli.search.processors import StepRows, make_processors
from tformer_cli.text.tokenizer import EOS_ID

LONGEST = 4
N_TOKENS = 2


def ngrams(tokens, n):
    return list(zip(*(tokens[i:] for i in range(n)), strict=False))


def exhaustive(model, sentence, config, is_allowed, total=math.fsum):
    ranked = []
    for n in range(LONGEST + 1):
        for tokens in itertools.product(range(EOS_ID + 1, EOS_ID + 1 + N_TOKENS), repeat=n):
            if is_allowed(tokens):
                steps = model.log_probabilities(sentence, tokens)
                value = total(steps) if total is math.fsum else total(steps, tokens)
                ranked.append((value / length_divisor(n + 1, config), tokens))
    return sorted(ranked, reverse=True)


def penalised(steps, tokens):
    said = [token in tokens[:i] for i, token in enumerate([*tokens, EOS_ID])]
    return math.fsum(
        step * (1.5 if again else 1.0) for step, again in zip(steps, said, strict=True)
    )


CASES = {
    "average": ({"length_normalization": "average"}, lambda tokens: True, math.fsum),
    "shortest": ({"min_length": 2}, lambda tokens: len(tokens) >= 2, math.fsum),
    "by ratio": ({"min_length_ratio": 1.5}, lambda tokens: len(tokens) >= 3, math.fsum),
    "no bigram twice": (
        {"no_repeat_ngram": 2},
        lambda tokens: len(set(ngrams(tokens, 2))) == max(0, len(tokens) - 1),
        math.fsum,
    ),
    "no token twice": (
        {"no_repeat_ngram": 1},
        lambda tokens: len(set(tokens)) == len(tokens),
        math.fsum,
    ),
    "repetition": ({"repetition_penalty": 1.5}, lambda tokens: True, penalised),
    "prefix": ({"prefixes": [(5, 4)] * 2}, lambda tokens: tokens[:2] == (5, 4), math.fsum),
}


@pytest.mark.parametrize("name", CASES)
def test_search_equals_exhaustive_search_under_every_rule(name, tabulated, batch):
    settings, is_allowed, total = CASES[name]
    settings = dict(settings)
    rules = {key: settings.pop(key) for key in ("prefixes",) if key in settings}
    model = tabulated(vocab_size=EOS_ID + 1 + N_TOKENS)
    config = DecodingConfig(beam_size=31, n_best=31, max_length=LONGEST, **settings)
    processors = make_processors(config, [2, 2], 64, torch.device("cpu"), **rules)
    found = beam_search(model, *batch([4, 4], [5, 5]), config, processors=processors)
    for sentence, hypotheses in zip((4, 5), found, strict=True):
        expected = exhaustive(model, sentence, config, is_allowed, total)
        assert [h.token_ids for h in hypotheses] == [tokens for _, tokens in expected]
        assert [h.score for h in hypotheses] == pytest.approx([score for score, _ in expected])
        for hypothesis in hypotheses:  # what is reported stays the model's own
            assert hypothesis.token_log_probabilities == pytest.approx(
                model.log_probabilities(sentence, hypothesis.token_ids), abs=1e-5
            )


@pytest.mark.parametrize("name", CASES)
def test_stopping_early_changes_nothing_under_any_rule(name, tabulated, batch):
    settings = dict(CASES[name][0])
    rules = {key: settings.pop(key) for key in ("prefixes",) if key in settings}
    if "prefixes" in rules:
        rules["prefixes"] = [(5, 4)] * 12
    model = tabulated(vocab_size=8, spread=3.0)
    config = DecodingConfig(beam_size=4, n_best=2, max_length=9, **settings)
    processors = make_processors(config, [2] * 12, 64, torch.device("cpu"), **rules)
    sources = batch(*[[i, i] for i in range(4, 16)])
    late = beam_search(model, *sources, config, processors=processors, stops_early=False)
    assert beam_search(model, *sources, config, processors=processors) == late


def test_a_sentence_that_may_say_nothing_more_ends(tabulated, batch):
    config = DecodingConfig(beam_size=2, n_best=2, max_length=6, min_length=4, no_repeat_ngram=1)
    processors = make_processors(config, [1], 64, torch.device("cpu"))
    (found,) = beam_search(tabulated(vocab_size=6), *batch([4]), config, processors=processors)
    assert sorted(h.token_ids for h in found) == [(4, 5), (5, 4)]


def test_a_prefix_comes_before_other_rules():
    config = DecodingConfig(no_repeat_ngram=1)
    rules = make_processors(config, [1], 64, torch.device("cpu"), prefixes=[(4, 4)])
    own = torch.full((1, 6), -2.0)
    scores = own.clone()
    rows = StepRows(torch.tensor([[4]]), torch.tensor([0]), own)
    for rule in rules:
        scores = rule(scores, rows)
    assert scores.isfinite().nonzero().tolist() == [[0, 4]]
