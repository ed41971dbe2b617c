import pytest

from tformer_cli.search.beam_search import beam_search, diverse_beam_search
from tformer_cli.search.config import DecodingConfig


def first_tokens(found):
    return [{h.token_ids[:1] for h in hypotheses} for hypotheses in found]


def test_a_large_penalty_makes_every_group_begin_differently(tabulated, batch):
    model = tabulated(vocab_size=9)
    config = DecodingConfig(
        beam_size=4, n_best=4, diversity_groups=4, diversity_penalty=50.0, max_length=5
    )
    found = diverse_beam_search(model, *batch([4], [5], [6]), config)
    assert [len(tokens) for tokens in first_tokens(found)] == [4, 4, 4]
    for sentence, hypotheses in zip((4, 5, 6), found, strict=True):
        scores = [h.score for h in hypotheses]
        assert scores == sorted(scores, reverse=True)
        for hypothesis in hypotheses:
            assert hypothesis.token_log_probabilities == pytest.approx(
                model.log_probabilities(sentence, hypothesis.token_ids), abs=1e-5
            )


def test_without_a_penalty_every_group_is_a_small_beam(tabulated, batch):
    model = tabulated(vocab_size=9)
    sources = batch(*[[i] for i in range(4, 14)])
    config = DecodingConfig(
        beam_size=6, n_best=2, diversity_groups=3, diversity_penalty=0.0, max_length=6
    )
    small = DecodingConfig(beam_size=2, n_best=2, max_length=6)
    found = diverse_beam_search(model, *sources, config)
    expected = beam_search(model, *sources, small)
    assert [[h.token_ids for h in hypotheses] for hypotheses in found] == [
        [h.token_ids for h in hypotheses] for hypotheses in expected
    ]


def test_the_first_group_is_a_small_beam_whatever_the_penalty(tabulated, batch):
    model = tabulated(vocab_size=12)
    sources = batch(*[[i] for i in range(4, 14)])
    config = DecodingConfig(beam_size=6, n_best=6, diversity_groups=3, max_length=6)
    small = DecodingConfig(beam_size=2, n_best=2, max_length=6)
    pairs = zip(
        diverse_beam_search(model, *sources, config),
        beam_search(model, *sources, small),
        strict=True,
    )
    for diverse, plain in pairs:
        assert {h.token_ids for h in plain} <= {h.token_ids for h in diverse}
