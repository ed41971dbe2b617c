import itertools
import math

import pytest
import torch

from tformer_cli.search.beam_search import LEAST_TOKENS, beam_search, top_tokens
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.sampling import greedy_search
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID


def sequences(n_tokens, longest):
    return sum(n_tokens**length for length in range(longest + 1))


@pytest.mark.parametrize("exponent", [0.0, 0.6, 1.5])
@pytest.mark.parametrize(("n_tokens", "longest"), [(2, 4), (3, 3)])
def test_a_beam_as_wide_as_all_sequences_is_exhaustive_search(
    tabulated, batch, exponent, n_tokens, longest
):
    model = tabulated(vocab_size=EOS_ID + 1 + n_tokens)
    n = sequences(n_tokens, longest)
    config = DecodingConfig(
        beam_size=n, n_best=n, length_penalty=exponent, max_length=longest, batch_tokens=1
    )
    found = beam_search(model, *batch([4], [5, 4], [4, 5, 5]), config)
    for sentence, hypotheses in zip((4, 5, 4), found, strict=True):
        expected = model.exhaustive(sentence, longest, exponent)
        assert [h.token_ids for h in hypotheses] == [tokens for _, tokens in expected]
        assert [h.score for h in hypotheses] == pytest.approx([score for score, _ in expected])


@pytest.mark.parametrize("exponent", [0.0, 0.6, 1.5])
def test_stopping_early_changes_none_of_the_first_n(tabulated, batch, exponent):
    model = tabulated(vocab_size=9, spread=3.0)
    sources = batch(*[[i] for i in range(4, 24)])
    for n_best in (1, 2, 4):
        config = DecodingConfig(beam_size=4, n_best=n_best, length_penalty=exponent, max_length=12)
        early = beam_search(model, *sources, config)
        late = beam_search(model, *sources, config, stops_early=False)
        assert early == late


def test_stopping_early_saves_steps(tabulated, batch):
    config = DecodingConfig(beam_size=4, max_length=30)
    sources = batch(*[[i] for i in range(4, 24)])
    n_rows = []
    for stops_early in (True, False):
        model = tabulated(vocab_size=7, spread=3.0)
        beam_search(model, *sources, config, stops_early=stops_early)
        n_rows.append(sum(model.rows_per_step))
    assert n_rows[0] < n_rows[1]


def test_the_best_does_not_depend_on_how_many_are_wanted(tabulated, batch):
    model = tabulated(vocab_size=12)
    sources = batch(*[[i] for i in range(4, 24)])
    five = beam_search(model, *sources, DecodingConfig(beam_size=5, n_best=5, max_length=9))
    for n_best in (1, 3):
        fewer = beam_search(
            model, *sources, DecodingConfig(beam_size=5, n_best=n_best, max_length=9)
        )
        assert fewer == [hypotheses[:n_best] for hypotheses in five]


def test_one_slot_is_greedy_search(tabulated, batch, random_model):
    config = DecodingConfig(beam_size=1, max_length=14)
    sources = batch(*[[i, *[5] * (i % 7)] for i in range(4, 24)])
    for model in (tabulated(vocab_size=9, spread=3.0), random_model):
        assert beam_search(model, *sources, config) == greedy_search(model, *sources, config)


def test_hypotheses_are_ranked_by_score_and_differ(tabulated, batch):
    config = DecodingConfig(beam_size=6, n_best=6, max_length=8)
    for hypotheses in beam_search(tabulated(vocab_size=10), *batch([4], [5], [6]), config):
        scores = [h.score for h in hypotheses]
        assert len(scores) == 6
        assert scores == sorted(scores, reverse=True)
        assert len({h.token_ids for h in hypotheses}) == 6


def test_padding_unknown_and_beginning_are_never_generated(tabulated, batch):
    class LikesSpecials(tabulated):
        def logits(self, sentence, prefix):
            logits = super().logits(sentence, prefix)
            logits[:EOS_ID] += 20.0
            return logits

    config = DecodingConfig(beam_size=4, n_best=4, max_length=6)
    model = LikesSpecials(vocab_size=8)
    found = beam_search(model, *batch([4], [5]), config) + greedy_search(model, *batch([6]), config)
    for hypothesis in itertools.chain(*found):
        assert all(token > EOS_ID for token in hypothesis.token_ids)
        # probability lost on what is not generated is not handed to the rest
        assert hypothesis.log_probability < -15.0


@pytest.mark.parametrize("search", [beam_search, greedy_search])
def test_the_limit_ends_a_hypothesis_with_a_scored_end_of_sentence(tabulated, batch, search):
    class NeverEnds(tabulated):
        def logits(self, sentence, prefix):
            logits = super().logits(sentence, prefix)
            logits[EOS_ID] = -30.0
            return logits

    model = NeverEnds(vocab_size=8)
    config = DecodingConfig(beam_size=3, n_best=3, max_length=5)
    for hypothesis in search(model, *batch([4]), config)[0]:
        assert len(hypothesis.token_ids) == 5
        assert not hypothesis.is_finished
        assert hypothesis.token_log_probabilities == pytest.approx(
            model.log_probabilities(4, hypothesis.token_ids), abs=1e-5
        )


def test_each_sentence_has_its_own_limit(tabulated, batch):
    class NeverEnds(tabulated):
        def logits(self, sentence, prefix):
            logits = super().logits(sentence, prefix)
            logits[EOS_ID] = -30.0
            return logits

    config = DecodingConfig(beam_size=2, max_length_ratio=2.0)
    model = NeverEnds(vocab_size=7, max_positions=26)
    found = beam_search(model, *batch([4], [5, 5], [6] * 9), config)
    assert [len(hypotheses[0].token_ids) for hypotheses in found] == [22, 24, 25]


def test_a_vocabulary_smaller_than_the_beam_is_searched_whole(tabulated, batch):
    config = DecodingConfig(beam_size=9, n_best=9, max_length=2)
    hypotheses = beam_search(tabulated(vocab_size=EOS_ID + 2), *batch([4]), config)[0]
    assert {h.token_ids for h in hypotheses} == {(), (4,), (4, 4)}


@pytest.mark.parametrize("beam_size", [1, 4])
def test_feeding_a_hypothesis_through_the_decoder_gives_its_log_probabilities(
    random_model, batch, beam_size
):
    config = DecodingConfig(beam_size=beam_size, n_best=beam_size, max_length=20)
    source, mask = batch([7, 8, 9, 10], [11], [12, 13])
    found = beam_search(random_model, source, mask, config)
    for row, hypotheses in enumerate(found):
        for hypothesis in hypotheses:
            target = torch.tensor([[BOS_ID, *hypothesis.token_ids]])
            with torch.inference_mode():
                logits = random_model(source[row : row + 1], mask[row : row + 1], target)
            forced = logits.log_softmax(-1)[0].gather(
                1, torch.tensor([*hypothesis.token_ids, EOS_ID]).unsqueeze(1)
            )[:, 0]
            assert torch.allclose(
                torch.tensor(hypothesis.token_log_probabilities), forced, atol=1e-4
            )
            assert hypothesis.log_probability == pytest.approx(
                math.fsum(hypothesis.token_log_probabilities)
            )


def test_finished_sentences_leave_the_batch(tabulated, batch):
    class EndsAfterItsName(tabulated):
        def logits(self, sentence, prefix):
            logits = torch.zeros(self.vocab_size)
            logits[EOS_ID] = 50.0 if len(prefix) >= sentence else -50.0
            return logits

    model = EndsAfterItsName(vocab_size=30)
    config = DecodingConfig(beam_size=2, max_length=20)
    found = beam_search(model, *batch([4], [9], [6]), config)
    assert [len(h[0].token_ids) for h in found] == [4, 9, 6]
    assert model.rows_per_step[0] == 3
    assert model.rows_per_step[1:5] == [6] * 4
    assert model.rows_per_step[-3:] == [2] * 3


@pytest.mark.parametrize("n_tokens", [10, LEAST_TOKENS, LEAST_TOKENS + 1, 5003])
@pytest.mark.parametrize("k", [1, 5, 10])
def test_two_stages_find_what_topk_finds(n_tokens, k):
    generator = torch.Generator().manual_seed(n_tokens + k)
    scores = torch.stack([torch.randperm(n_tokens, generator=generator) for _ in range(30)]).float()
    scores[:, :3] = -torch.inf
    for found, expected in zip(top_tokens(scores, k), scores.topk(k), strict=True):
        assert torch.equal(found, expected)


def test_a_beam_wider_than_the_blocks_is_found_too():
    scores = torch.randperm(LEAST_TOKENS).float().unsqueeze(0)
    for found, expected in zip(top_tokens(scores, 50), scores.topk(50), strict=True):
        assert torch.equal(found, expected)
