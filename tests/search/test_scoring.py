"""Hypotheses and their scores: of given translations, of texts, diverse and drawn ones."""

import itertools
import math
from collections import Counter
from functools import cache

import pytest
import torch

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.search.beam_search import beam_search, diverse_beam_search
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.engine import Sentence
from tformer_cli.search.hypothesis import length_penalty, longest_translation
from tformer_cli.search.sampling import draw, sample, uniforms
from tformer_cli.search.scoring import coverage_penalty, score_pairs, score_texts
from tformer_cli.search.source_batches import source_batch
from tformer_cli.search.text_windows import scored_windows, text_scores
from tformer_cli.search.torch_search import search
from tformer_cli.search.translator import line_key
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID


def test_forced_decoding_reproduces_what_the_search_found(random_model):
    sentences = [[7, 8, 9], [11] * 20, [12, 13], [5]]
    config = DecodingConfig(beam_size=3, n_best=3, max_length=20)
    found = [
        beam_search(random_model, *source_batch([sentence], 80, "cpu"), config)[0]
        for sentence in sentences
    ]
    pairs = [(s, h) for s, hypotheses in zip(sentences, found, strict=True) for h in hypotheses]
    targets = [h.token_ids for _, h in pairs]
    forced = score_pairs(random_model, [s for s, _ in pairs], targets, config, device="cpu")
    for (_, own), given in zip(pairs, forced, strict=True):
        assert given.token_ids == own.token_ids
        assert given.score == pytest.approx(own.score, abs=1e-4)
        assert given.token_log_probabilities == pytest.approx(own.token_log_probabilities, abs=1e-4)


def test_a_pair_does_not_depend_on_the_pairs_beside_it(random_model):
    sources = [[7, 8], [9] * 5, [10] * 30, [11]]
    targets = [[4] * n for n in (3, 9, 20, 0)]
    config = DecodingConfig(batch_tokens=100)
    together = score_pairs(random_model, sources, targets, config, device="cpu")
    for source, target, expected in zip(sources, targets, together, strict=True):
        assert score_pairs(random_model, [source], [target], config, device="cpu") == [expected]


def test_the_coverage_penalty_by_hand():
    # one head, 2 target positions, 2 source words and the end of sentence
    weights = torch.tensor([[[[0.5, 0.25, 0.25], [0.75, 0.125, 0.125], [9.0, 9.0, 9.0]]]])
    mask = torch.tensor([[True, True, True]])
    found = coverage_penalty(weights, mask, torch.tensor([[True, True, False]]))
    assert found.item() == pytest.approx(torch.tensor(0.375).log().item())
    padded = torch.nn.functional.pad(weights, (0, 2))
    mask = torch.tensor([[True, True, True, False, False]])
    again = coverage_penalty(padded, mask, torch.tensor([[True, True, False]]))
    assert again.item() == pytest.approx(found.item())


def test_without_an_end_of_sentence_the_last_source_token_is_covered_too():
    weights = torch.tensor([[[[0.5, 0.25, 0.25], [0.75, 0.125, 0.125]]]])
    mask, target_mask = torch.ones(1, 3).bool(), torch.ones(1, 2).bool()
    found = coverage_penalty(weights, mask, target_mask, eos=False)
    assert found.item() == pytest.approx(2 * torch.tensor(0.375).log().item())


def test_search_with_coverage_equals_exhaustive_search(batch):
    torch.manual_seed(4)
    config = ModelConfig(
        d_model=16, n_heads=2, d_ff=32, n_encoder_layers=1, n_decoder_layers=2, max_positions=20
    )
    model = Transformer(config, EOS_ID + 3).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
    settings = DecodingConfig(beam_size=15, n_best=3, max_length=3, coverage_penalty=2.0)
    tokens = (4, 5, 5, 4)
    (found,) = search(model, [Sentence(tokens=tokens)], *batch(list(tokens)), settings)
    everything = [s for n in range(4) for s in itertools.product((4, 5), repeat=n)]
    weights = []
    handle = model.decoder.layers[-1].cross_attention.tap(
        lambda tap: weights.append((tap.query, tap.key))
    )
    expected = []
    source, mask = batch(list(tokens))
    for target in everything:
        with torch.inference_mode():
            logits = model(source, mask, torch.tensor([[BOS_ID, *target]]))
        query, key = weights.pop()
        attention = (query @ key.transpose(-2, -1) / 8**0.5).softmax(-1)[0].mean(0)
        covered = attention.sum(0)[: len(tokens)].clamp(max=1.0).log().sum().item()
        steps = logits[0].log_softmax(-1).gather(1, torch.tensor([[*target, EOS_ID]]).T)
        value = steps.sum().item() / ((5 + len(target) + 1) / 6) ** 0.6 + 2.0 * covered
        expected.append((value, target))
    handle.remove()
    expected.sort(reverse=True)
    assert [h.token_ids for h in found] == [target for _, target in expected[:3]]
    assert [h.score for h in found] == pytest.approx([v for v, _ in expected[:3]], rel=1e-5)


def test_the_penalty_is_the_one_of_wu_et_al():
    assert length_penalty(1, 0.6) == 1.0
    assert length_penalty(7, 1.0) == 2.0
    assert length_penalty(19, 0.5) == 2.0
    assert length_penalty(40, 0.0) == 1.0


@pytest.mark.parametrize(
    ("n_source", "settings", "expected"),
    [
        (10, {}, 50),
        (10, {"max_length": 30}, 30),
        (10, {"max_length": 300}, 50),
        (10, {"max_length_ratio": 0.5}, 25),
        (1000, {}, 127),
    ],
)
def test_the_smallest_limit_counts(n_source, settings, expected):
    assert longest_translation(n_source, DecodingConfig(**settings), 128) == expected


def first_tokens(batches):
    return [{h.token_ids[:1] for h in hypotheses} for hypotheses in batches]


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
