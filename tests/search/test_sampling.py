import math
from collections import Counter

import pytest
import torch

from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.sampling import draw, sample, uniforms
from tformer_cli.search.translator import line_key
from tformer_cli.text.tokenizer import EOS_ID

LOGITS = torch.tensor([-math.inf] * 3 + [1.0, 0.0, 2.0, -1.0])


def shares(n=20_000, **settings):
    uniform = torch.rand(n, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    scores = LOGITS.log_softmax(0).expand(n, -1)
    drawn = draw(scores, DecodingConfig(**settings), uniform)
    counts = Counter(drawn.tolist())
    return [counts[i] / n for i in range(len(LOGITS))]


@pytest.mark.parametrize(
    ("settings", "logits"),
    [
        ({}, [1.0, 0.0, 2.0, -1.0]),
        ({"temperature": 0.5}, [2.0, 0.0, 4.0, -2.0]),
        ({"top_k": 2}, [1.0, -math.inf, 2.0, -math.inf]),
        ({"top_k": 1}, [-math.inf, -math.inf, 2.0, -math.inf]),
        ({"top_k": 99}, [1.0, 0.0, 2.0, -1.0]),
        # 0.644, then 0.237: the first does not reach 0.7
        ({"top_p": 0.7}, [1.0, -math.inf, 2.0, -math.inf]),
        ({"top_p": 0.6}, [-math.inf, -math.inf, 2.0, -math.inf]),
        ({"top_p": 0.7, "top_k": 1}, [-math.inf, -math.inf, 2.0, -math.inf]),
    ],
)
def test_tokens_are_drawn_with_their_probabilities(settings, logits):
    expected = [0.0] * 3 + torch.tensor(logits).softmax(0).tolist()
    assert shares(**settings) == pytest.approx(expected, abs=0.012)


def test_the_largest_number_draws_no_impossible_token():
    almost_one = torch.tensor([1.0 - 2.0**-53], dtype=torch.float64)
    scores = torch.tensor([[-math.inf, -0.1, -3.0, -math.inf]])
    assert draw(scores, DecodingConfig(), almost_one).item() == 2


def test_numbers_of_a_stream_are_uniform_and_differ():
    keys = torch.tensor([line_key(1, line, 0) for line in range(500)])
    numbers = torch.cat([uniforms(keys, step) for step in range(20)])
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    assert len(set(numbers.tolist())) == len(numbers)
    counts = torch.histc(numbers.float(), 10, 0, 1)
    assert ((counts - 1000).abs() < 120).all()


def test_a_sample_does_not_depend_on_its_neighbors_nor_on_how_many_are_drawn(random_model, batch):
    sentences = [[4, 5, 6], [7], [8, 9], [4, 5, 6]]
    keys = [line_key(1, line, 0) for line in range(4)]
    config = DecodingConfig(sampling=True, n_best=1, max_length=12)
    together = sample(random_model, *batch(*sentences), config, keys)
    for i, sentence in enumerate(sentences):
        source, mask = batch(*sentences)
        alone = sample(random_model, source[i : i + 1], mask[i : i + 1], config, keys[i : i + 1])
        assert alone[0][0].token_ids == together[i][0].token_ids, sentence
    more = sample(
        random_model,
        *batch(*sentences),
        DecodingConfig(sampling=True, risk="chrf", candidates=3, max_length=12),
        keys,
    )
    assert [found[0].token_ids for found in more] == [found[0].token_ids for found in together]
    assert together[0][0].token_ids != together[3][0].token_ids
    assert len({h.token_ids for h in more[0]}) == 3


def test_samples_report_the_models_own_log_probabilities(tabulated, batch):
    model = tabulated(vocab_size=7)
    config = DecodingConfig(sampling=True, n_best=5, max_length=4, temperature=2.0, candidates=5)
    (found,) = sample(model, *batch([4]), config, [17])
    for hypothesis in found:
        assert hypothesis.token_log_probabilities == pytest.approx(
            model.log_probabilities(4, hypothesis.token_ids), abs=1e-5
        )
        assert all(token > EOS_ID for token in hypothesis.token_ids)
        assert len(hypothesis.token_ids) <= 4
