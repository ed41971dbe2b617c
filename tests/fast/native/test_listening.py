"""Weights of heads that a search listens to, against the tap of a forced pass."""

import random

import numpy as np
import pytest
import torch

from tests.fast.native.test_search import SHAPES, make_model, make_sources, search
from tformer_cli.fast.native.search import Drawing, Rules
from tformer_cli.fast.native.torch_weights import native_model
from tformer_cli.fast.native_search import CompiledEngine
from tformer_cli.heads.names import HeadId, head_layout, layout_of
from tformer_cli.inspect.capture.forced import capture_pairs
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.constraints import Constraints
from tformer_cli.search.engine import Sentence
from tformer_cli.search.models import Ensemble
from tformer_cli.search.torch_engine import TorchEngine

BOTH = (CompiledEngine(), TorchEngine(torch.device("cpu")))
INTEGER_TOLERANCE = 0.3
"""Of a weight: where a rounding sends activations of random models to the next integers."""


def some_heads(model, seed=0):
    every = [(head.layer, head.head) for head in head_layout(model) if head.kind == "cross"]
    return tuple(sorted(random.Random(seed).sample(every, 1 + seed % len(every))))


def tap_attention(model, sources, targets, heads):
    """(T + 1, S) of each pair: the mean of heads by the plain formula, computed beside a pass."""
    found = {}
    for index, maps in capture_pairs(model, list(zip(sources, targets, strict=True)), ("cross",)):
        each = [maps.weights(HeadId("cross", *head)) for head in heads]
        found[index] = np.mean(each, axis=0, dtype=np.float64)
    return [found[index] for index in range(len(sources))]


def flat(sources, results):
    """Each source as often as there are hypotheses of it, and these."""
    pairs = [
        (source, hypothesis)
        for source, some in zip(sources, results, strict=True)
        for hypothesis in some
    ]
    return [source for source, _ in pairs], [hypothesis for _, hypothesis in pairs]


@pytest.mark.parametrize(
    ("shape", "beam_size"),
    [(shape, (4, 1)[n % 2]) for n, shape in enumerate(SHAPES.values())],
    ids=SHAPES,
)
def test_rows_are_those_of_a_forced_pass_and_listening_changes_no_bit(kernels, shape, beam_size):
    model, sources = make_model(**shape), make_sources(9)
    assert layout_of(model.config) == head_layout(model)
    config = DecodingConfig(beam_size=beam_size, n_best=beam_size, max_length_ratio=0.4)
    for seed in range(3):
        heads = some_heads(model, seed)
        found = search(kernels, model, sources, config, heads=heads)
        deaf = search(kernels, model, sources, config)
        assert found == deaf
        assert all(hypothesis.attention is None for some in deaf for hypothesis in some)
        repeated, hypotheses = flat(sources, found)
        targets = [hypothesis.token_ids for hypothesis in hypotheses]
        for hypothesis, expected in zip(
            hypotheses, tap_attention(model, repeated, targets, heads), strict=True
        ):
            assert hypothesis.attention.weights.dtype == np.float32
            np.testing.assert_allclose(hypothesis.attention.weights, expected, rtol=0, atol=1e-5)
            np.testing.assert_allclose(
                hypothesis.attention.weights.sum(axis=1), 1, rtol=0, atol=1e-5
            )


@pytest.mark.parametrize("is_quantized", [False, True])
def test_rows_are_to_the_bit_those_of_a_sentence_alone_and_of_a_pass_over_it(kernels, is_quantized):
    model = make_model(is_quantized=is_quantized, vocab_size=300)
    sources, heads = make_sources(60, 300), some_heads(model, 2)
    config = DecodingConfig(beam_size=4, n_best=2, max_length_ratio=0.5)
    found = search(kernels, model, sources, config, heads=heads)
    repeated, hypotheses = flat(sources, found)
    native = native_model(kernels, model)
    _, forced = native.score(repeated, [hypothesis.token_ids for hypothesis in hypotheses], heads)
    for ours, theirs in zip(hypotheses, forced, strict=True):
        np.testing.assert_array_equal(ours.attention.weights, theirs)
    for source, some in zip(sources[:8], found, strict=False):
        (alone,) = search(kernels, model, [source], config, heads=heads)
        for ours, theirs in zip(some, alone, strict=True):
            np.testing.assert_array_equal(ours.attention.weights, theirs.attention.weights)
    assert native.score([], [], heads) == ([], [])


def test_rows_in_integers_are_near_those_of_the_float_twin(kernels):
    whole, rounded = make_model(vocab_size=300), make_model(is_quantized=True, vocab_size=300)
    sources, heads = make_sources(60, 300), ((1, 2),)
    found = search(kernels, rounded, sources, DecodingConfig(max_length_ratio=0.5), heads=heads)
    repeated, hypotheses = flat(sources, found)
    _, twin = native_model(kernels, whole).score(
        repeated, [hypothesis.token_ids for hypothesis in hypotheses], heads
    )
    n_rows = n_equal = 0
    for ours, theirs in zip(hypotheses, twin, strict=True):
        np.testing.assert_allclose(ours.attention.weights, theirs, rtol=0, atol=INTEGER_TOLERANCE)
        n_rows += len(theirs)
        n_equal += int((ours.attention.weights.argmax(axis=1) == theirs.argmax(axis=1)).sum())
    # Links of words change in few rows, those where two sources are nearly as heavy
    assert n_equal / n_rows > 0.9


def test_samples_are_listened_to_and_stay_the_same(kernels):
    model, sources = make_model(), make_sources(7)
    config = DecodingConfig(beam_size=3, n_best=3, max_length=6)
    drawing = Drawing(keys=list(range(7)), temperature=0.9, top_k=0, top_p=1.0)
    heads = some_heads(model, 3)
    found = search(kernels, model, sources, config, drawing=drawing, heads=heads)
    deaf = search(kernels, model, sources, config, drawing=drawing)
    repeated, hypotheses = flat(sources, found)
    assert found == deaf
    targets = [hypothesis.token_ids for hypothesis in hypotheses]
    for hypothesis, expected in zip(
        hypotheses, tap_attention(model, repeated, targets, heads), strict=True
    ):
        np.testing.assert_allclose(hypothesis.attention.weights, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("heads", [((2, 0),), ((0, 4),)])
def test_a_head_that_there_is_not_never_reaches_the_kernels(kernels, heads):
    with pytest.raises(IndexError):
        search(kernels, make_model(), [[4]], DecodingConfig(), heads=heads)


def sentences_of(heads):
    """Sentences of every demand, some of which ask for heads."""
    pieces = tuple(f" {number}".encode() for number in range(40))
    constraints = Constraints(required=((9, 12),), banned=(), token_bytes=pieces)
    candidates = (0, 1, 2, 3, *range(5, 33))
    return [
        Sentence(tokens=(4, 9, 7), heads=heads),
        Sentence(tokens=(5, 6)),
        Sentence(tokens=(8, 8, 5, 11, 30), prefix=(6, 7), heads=heads),
        Sentence(tokens=(20, 9, 7), constraints=constraints, heads=heads),
        Sentence(tokens=(9, 7), candidates=candidates, heads=heads),
        Sentence(tokens=(30, 31, 4), heads=((1, 1),)),
        Sentence(tokens=(), heads=heads),
    ]


@pytest.mark.parametrize("engine", BOTH, ids=lambda engine: engine.name)
@pytest.mark.parametrize("rules", [{}, {"no_repeat_ngram": 2, "min_length": 3}])
def test_engines_give_rows_whatever_is_asked_of_a_sentence(kernels, engine, rules):
    model, heads = make_model(), ((0, 1), (1, 0), (1, 3))
    config = DecodingConfig(beam_size=3, n_best=2, max_length=8, **rules)
    prepared = engine.prepare(model)
    asked, unasked = sentences_of(heads), sentences_of(())
    unasked[5] = Sentence(tokens=unasked[5].tokens)
    found = prepared.search(asked, config, lambda: None)
    assert found == prepared.search(unasked, config, lambda: None)
    for sentence, hypotheses in zip(asked, found, strict=True):
        assert engine.takes(sentence) is None
        for hypothesis in hypotheses:
            if not sentence.heads:
                assert hypothesis.attention is None
                continue
            assert hypothesis.attention.heads == sentence.heads
            (expected,) = tap_attention(
                model, [sentence.tokens], [hypothesis.token_ids], sentence.heads
            )
            np.testing.assert_allclose(hypothesis.attention.weights, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"coverage_penalty": 0.4, "beam_size": 3},
        {"diversity_groups": 2, "beam_size": 4, "n_best": 4},
        {"repetition_penalty": 1.3, "beam_size": 2},
        {"beam_size": 1},
    ],
)
def test_searches_that_only_torch_knows_give_rows_too(settings):
    model, heads = make_model(), ((1, 0),)
    prepared = TorchEngine(torch.device("cpu")).prepare(model)
    sentences = [Sentence(tokens=tuple(source), heads=heads) for source in make_sources(5)]
    deaf = [Sentence(tokens=sentence.tokens) for sentence in sentences]
    config = DecodingConfig(max_length=7, **settings)
    found = prepared.search(sentences, config, lambda: None)
    assert found == prepared.search(deaf, config, lambda: None)
    for sentence, hypotheses in zip(sentences, found, strict=True):
        for hypothesis in hypotheses:
            (expected,) = tap_attention(model, [sentence.tokens], [hypothesis.token_ids], heads)
            np.testing.assert_allclose(hypothesis.attention.weights, expected, rtol=0, atol=1e-5)


def test_an_ensemble_has_no_heads_of_its_own():
    models = [make_model(seed=1), make_model(seed=2)]
    prepared = TorchEngine(torch.device("cpu")).prepare(Ensemble(models))
    config = DecodingConfig(beam_size=2, max_length=5)
    ((hypothesis,),) = prepared.search(
        [Sentence(tokens=(4, 5), heads=((0, 0),))], config, lambda: None
    )
    assert hypothesis.attention is None


def test_rules_and_prefixes_leave_the_rows_as_they_are(kernels):
    model, sources, heads = make_model(), make_sources(6), ((0, 0),)
    rules = Rules(prefixes=[[5, 6]] * 6, no_repeat_ngram=1)
    found = search(kernels, model, sources, DecodingConfig(max_length=9), rules=rules, heads=heads)
    repeated, hypotheses = flat(sources, found)
    targets = [hypothesis.token_ids for hypothesis in hypotheses]
    assert all(target[:2] == (5, 6) for target in targets)
    for hypothesis, expected in zip(
        hypotheses, tap_attention(model, repeated, targets, heads), strict=True
    ):
        np.testing.assert_allclose(hypothesis.attention.weights, expected, rtol=0, atol=1e-5)
