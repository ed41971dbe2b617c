"""The whole search in the kernels against torch's, and a sentence alone against among others."""

import ctypes

import numpy as np
import pytest
import torch

from tformer_cli.fast.native.search import Drawing, Rules, Stopped
from tformer_cli.fast.native.torch_weights import native_model, unsupported_reason
from tformer_cli.fast.products import quantized_matrices, use_integers
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.search.beam_search import beam_search
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.engine import Sentence
from tformer_cli.search.hypothesis import (
    length_divisor,
    longest_translation,
    shortest_translation,
)
from tformer_cli.search.scoring import score_pairs
from tformer_cli.search.source_batches import source_batch
from tformer_cli.search.torch_engine import TorchEngine

SHAPES = {
    "post-norm": {}, "pre-norm": {"norm": "pre"}, "gelu": {"activation": "gelu"},
    "swish": {"activation": "swish"},
    "learned positions": {"positions": "learned"},
    "rotary positions": {"positions": "rotary"},
    "rotary positions, odd halves": {"positions": "rotary", "d_model": 30, "n_heads": 3},
    "no biases": {"bias": False},
    "no biases, pre-norm": {"bias": False, "norm": "pre"},
    "untied": {"tied_embeddings": "none"},
    "tied in the decoder": {"tied_embeddings": "decoder"},
    "deep encoder": {"n_encoder_layers": 4, "n_decoder_layers": 1},
    "deep decoder": {"n_encoder_layers": 1, "n_decoder_layers": 3},
    "pruned heads": {"encoder_heads": (1, 4), "decoder_heads": (3, 0), "cross_heads": (0, 2)},
    "odd widths": {"d_model": 30, "n_heads": 3, "d_ff": 50},
    "stored positions": {"positions": "table"},
    "output bias": {"output_bias": True},
    "final norms": {"final_norm": "always"},
    "embedding norms": {"embedding_norm": True, "positions": "rotary"},
    "small embeddings": {"scale_embeddings": False, "embedding_norm": True, "norm": "pre"},
    "two vocabularies": {"source_vocab_size": 50, "tied_embeddings": "decoder"},
    "sources without an end": {"source_eos": False},
    "recurrent": {"decoder_cell": "ssru", "cross_heads": (1, 4)},
    "recurrent, pre-norm, odd widths": {
        "decoder_cell": "ssru", "norm": "pre", "bias": False, "d_model": 30, "n_heads": 3,
    },
    "as a student of Bergamot": {
        "decoder_cell": "ssru", "positions": "table", "output_bias": True, "n_decoder_layers": 1,
    },
    "no positions": {"positions": "none"},
    "gelu by tanh": {"activation": "gelu-tanh"},
    "norms by the root mean square": {"norm_kind": "rms", "embedding_norm": True},
    "gates": {"gated": True, "activation": "swish", "d_ff": 50},
    "gates of relu": {"gated": True},
    "shared keys": {"n_key_heads": 2},
    "one head of keys, odd widths": {"n_key_heads": 1, "d_model": 30, "n_heads": 3},
    "tied inputs": {"tied_embeddings": "inputs"},
    "heads of their own width": {"d_head": 12, "bias": False},
    "wide heads": {"d_model": 160, "n_heads": 2, "d_ff": 40},
}  # fmt: skip


def make_model(vocab_size=40, seed=1, *, is_quantized=False, **shape):
    """A model whose translations differ: fresh weights and a good deal of noise."""
    base = {"d_model": 32, "n_heads": 4, "d_ff": 48, "n_encoder_layers": 2, "n_decoder_layers": 2}
    torch.manual_seed(seed)
    model = Transformer(ModelConfig(**{**base, "max_positions": 48, **shape}), vocab_size).eval()
    with torch.no_grad():
        for weight in (*model.parameters(), *model.buffers()):
            weight += 0.1 * torch.randn_like(weight)
        if model.output_bias is not None:
            model.output_bias[[0, 2, 7, 11]] = -1e9  # as of tokens that are never generated
    model.requires_grad_(requires_grad=False)
    if is_quantized:
        use_integers(model, quantized_matrices(model.state_dict()))
    return model


def make_sources(n, vocab_size=40, longest=12):
    lengths = torch.randint(0, longest, (n,))
    return [torch.randint(4, vocab_size, (length,)).tolist() for length in lengths]


def search(kernels, model, sources, config, **options):
    """What the kernels find with the settings of a config."""
    longest = model.config.max_positions
    prefixes = options.get("rules", Rules()).prefixes
    n_given = (
        [len(prefix) for prefix in prefixes]
        if len(prefixes) == len(sources)
        else [0] * len(sources)
    )
    limits = [
        longest_translation(len(source), config, longest, n)
        for source, n in zip(sources, n_given, strict=True)
    ]
    divisors = np.array([length_divisor(n, config) for n in range(max(limits) + 2)])
    return native_model(kernels, model).search(
        sources,
        limits,
        beam_size=config.n_candidates,
        n_searched=config.n_searched,
        divisors=divisors,
        **options,
    )


def torch_search(model, sources, config):
    longest, eos = model.config.max_positions, model.source_eos
    batch = source_batch(sources, longest, torch.device("cpu"), eos=eos)
    return beam_search(model, *batch, config)


def assert_equal(actual, expected, tolerance=1e-4):
    """The same hypotheses in the same order, and the same numbers but for rounding."""
    assert len(actual) == len(expected)
    for ours, theirs in zip(actual, expected, strict=True):
        assert [hypothesis.token_ids for hypothesis in ours] == [
            hypothesis.token_ids for hypothesis in theirs
        ]
        for hypothesis, other in zip(ours, theirs, strict=True):
            assert hypothesis.is_finished == other.is_finished
            assert hypothesis.log_probability == pytest.approx(other.log_probability, abs=tolerance)
            assert hypothesis.score == pytest.approx(other.score, abs=tolerance)
            assert hypothesis.token_log_probabilities == pytest.approx(
                other.token_log_probabilities, abs=tolerance
            )


FLOATS, INTEGERS = (False, {"max_length_ratio": 0.3}, 1e-4), (True, {"max_length": 9}, 0.1)
"""The last bit of an activation may decide which of two integers it becomes."""


@pytest.mark.parametrize(
    ("shape", "is_quantized", "limit", "tolerance"),
    # Integers are the same products in every shape; below, each shape scores with them
    [(shape, *FLOATS) for shape in SHAPES.values()]
    + [(shape, *INTEGERS) for shape in list(SHAPES.values())[::4]],
    ids=[*SHAPES, *(f"{name}-integers" for name in list(SHAPES)[::4])],
)
def test_every_kind_of_model_is_searched_as_by_torch(
    kernels, shape, is_quantized, limit, tolerance
):
    model = make_model(is_quantized=is_quantized, **shape)
    assert unsupported_reason(model) is None
    sources = make_sources(5)
    for beam_size, n_best in ((1, 1), (4, 2)):
        config = DecodingConfig(beam_size=beam_size, n_best=n_best, **limit)
        found, expected = (
            search(kernels, model, sources, config),
            torch_search(model, sources, config),
        )
        assert_equal(found, expected, tolerance)


def make_candidates():
    """Of five sentences; the second has all tokens, the last none but those that all have."""
    draws = [torch.randperm(86)[:n] + 4 for n in (70, 0, 28, 3, 0)]
    candidates = [(0, 1, 2, 3, *sorted(draw.tolist())) for draw in draws]
    return [candidates[0], (), *candidates[2:]]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_translations_of_candidates_are_searched_as_by_torch(kernels, shape):
    model = make_model(vocab_size=90, **shape)
    sources, candidates = make_sources(5), make_candidates()
    sentences = [
        Sentence(tokens=tuple(source), candidates=some)
        for source, some in zip(sources, candidates, strict=True)
    ]
    for beam_size, n_best in ((1, 1), (4, 2)):
        config = DecodingConfig(beam_size=beam_size, n_best=n_best, max_length=9)
        found = search(kernels, model, sources, config, candidates=candidates)
        by_torch = TorchEngine(torch.device("cpu")).prepare(model)
        assert_equal(found, by_torch.search(sentences, config, lambda: None))


@pytest.mark.parametrize("shape", ["odd widths", "as a student of Bergamot", "wide heads"])
@pytest.mark.parametrize("is_quantized", [False, True])
def test_probabilities_of_candidates_are_those_among_them(kernels, shape, is_quantized):
    model = make_model(is_quantized=is_quantized, vocab_size=90, **SHAPES[shape])
    native = native_model(kernels, model)
    sources, candidates = make_sources(5), make_candidates()
    for beam_size in (1, 4):
        config = DecodingConfig(beam_size=beam_size, n_best=beam_size, max_length_ratio=0.3)
        found = search(kernels, model, sources, config, candidates=candidates)
        for index, (source, some) in enumerate(zip(sources, candidates, strict=True)):
            hypothesis = found[index][0]
            listed = list(some) or list(range(90))
            session = native.start(source, most_rows=1, most_steps=len(hypothesis.token_ids) + 1)
            steps = zip((2, *hypothesis.token_ids), (*hypothesis.token_ids, 3), strict=True)
            for (before, token), step in zip(
                steps, hypothesis.token_log_probabilities, strict=True
            ):
                own = session.step([0], [before])[0, listed]
                own = own - np.log(np.exp(own).sum())
                assert own[listed.index(token)] == pytest.approx(step, abs=1e-5)
                assert beam_size > 1 or token in (3, listed[3:][own[3:].argmax()])
            alone = {"candidates": candidates[index : index + 1]}
            assert search(kernels, model, [source], config, **alone) == found[index : index + 1]


@pytest.mark.parametrize("is_quantized", [False, True])
def test_all_tokens_as_candidates_change_no_bit(kernels, is_quantized):
    model = make_model(is_quantized=is_quantized, vocab_size=1500, output_bias=True)
    sources, config = make_sources(20, 1500), DecodingConfig(beam_size=3, n_best=2)
    everything = [range(1500)] * len(sources)
    found = search(kernels, model, sources, config, candidates=everything)
    assert found == search(kernels, model, sources, config)


PREFIXES = ((7,), (), (11, 5, 5), (4, 9), ())
RULES = Rules(prefixes=PREFIXES, least_lengths=(5, 4, 4, 3, 2), no_repeat_ngram=2)


# Each shape with one of four: floats or integers, with candidates or without
@pytest.mark.parametrize(
    ("shape", "is_quantized", "is_listed"),
    [(shape, n % 2 == 1, n % 4 > 1) for n, shape in enumerate(SHAPES.values())],
    ids=SHAPES,
)
def test_rules_are_obeyed_as_by_torch(kernels, shape, is_quantized, is_listed):
    model = make_model(is_quantized=is_quantized, vocab_size=90, **shape)
    sources = [source or [5] for source in make_sources(5)]
    candidates = make_candidates() if is_listed else [()] * 5
    sentences = [
        Sentence(tokens=tuple(source), prefix=prefix, candidates=some)
        for source, prefix, some in zip(sources, PREFIXES, candidates, strict=True)
    ]
    for beam_size, n_best in ((1, 1), (4, 2)):
        config = DecodingConfig(
            beam_size=beam_size,
            n_best=n_best,
            max_length=4 if is_quantized else 9,  # rounding lets longer ones tie
            min_length=3,
            min_length_ratio=0.4,
            no_repeat_ngram=2,
        )
        rules = RULES._replace(
            least_lengths=[
                shortest_translation(len(source), config, len(prefix))
                for source, prefix in zip(sources, PREFIXES, strict=True)
            ]
        )
        found = search(kernels, model, sources, config, candidates=candidates, rules=rules)
        by_torch = TorchEngine(torch.device("cpu")).prepare(model)
        expected = by_torch.search(sentences, config, lambda: None)
        assert_equal(found, expected, 0.1 if is_quantized else 1e-4)


@pytest.mark.parametrize("shape", ["post-norm", "odd widths", "as a student of Bergamot"])
@pytest.mark.parametrize("is_listed", [False, True])
@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 0.7, "top_k": 5}, {"top_p": 0.8, "min_length": 3}], ids=repr
)
def test_samples_are_those_of_torch_whatever_is_beside_them(kernels, shape, is_listed, settings):
    model = make_model(vocab_size=90, **SHAPES[shape])
    sources, keys = [source or [5] for source in make_sources(5)], [3, -7, 1 << 60, 0, 9]
    candidates = make_candidates() if is_listed else [()] * 5
    config = DecodingConfig(sampling=True, n_best=3, max_length=9, no_repeat_ngram=2, **settings)
    sentences = [
        Sentence(tokens=tuple(source), key=key, prefix=prefix, candidates=some)
        for source, key, prefix, some in zip(sources, keys, PREFIXES, candidates, strict=True)
    ]
    drawing = Drawing(
        keys=keys, temperature=config.temperature, top_k=config.top_k, top_p=config.top_p
    )
    least_lengths = [shortest_translation(1, config, len(prefix)) for prefix in PREFIXES]
    rules = RULES._replace(least_lengths=least_lengths)
    options = {"candidates": candidates, "rules": rules, "drawing": drawing}
    found = search(kernels, model, sources, config, **options)
    by_torch = TorchEngine(torch.device("cpu")).prepare(model)
    assert_equal(found, by_torch.search(sentences, config, lambda: None))
    for index, source in enumerate(sources):
        alone = {
            "candidates": candidates[index : index + 1],
            "rules": rules._replace(
                prefixes=[PREFIXES[index]], least_lengths=[least_lengths[index]]
            ),
            "drawing": drawing._replace(keys=[keys[index]]),
        }
        assert search(kernels, model, [source], config, **alone) == found[index : index + 1]


@pytest.mark.parametrize("is_quantized", [False, True])
def test_rules_leave_the_bits_of_probabilities_whatever_is_beside_a_sentence(kernels, is_quantized):
    model = make_model(is_quantized=is_quantized, vocab_size=3000, output_bias=True)
    sources, config = make_sources(20, 3000), DecodingConfig(beam_size=3, n_best=3)
    prefixes = [
        torch.randint(4, 3000, (i % 4,)).tolist() if i % 3 else [] for i in range(len(sources))
    ]
    native = native_model(kernels, model)
    free, _ = native.score(sources, prefixes)
    rules = Rules(prefixes=prefixes, no_repeat_ngram=1)
    found = search(kernels, model, sources, config, rules=rules)
    for index, (source, prefix) in enumerate(zip(sources, prefixes, strict=True)):
        alone = search(kernels, model, [source], config, rules=rules._replace(prefixes=[prefix]))
        assert alone == found[index : index + 1]
        for hypothesis in found[index]:
            n = len(prefix)
            assert list(hypothesis.token_ids[:n]) == prefix
            assert hypothesis.token_log_probabilities[:n] == tuple(free[index][:n])
            assert len(set(hypothesis.token_ids[n:])) == len(hypothesis.token_ids[n:])
            steps, _ = native.score([source], [hypothesis.token_ids])
            assert steps == [list(hypothesis.token_log_probabilities)]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"prefixes": [[40]]}, "token ids of rules must be 0 to 39"),
        ({"prefixes": [[5, -1]]}, "token ids of rules must be 0 to 39"),
        ({"prefixes": [[4], [4]]}, "1 sources, but rules for 2"),
        ({"least_lengths": [1, 1]}, "1 sources, but rules for 2"),
        ({"least_lengths": [-1]}, "lengths must be at least 0"),
        ({"no_repeat_ngram": -1}, "lengths must be at least 0"),
    ],
)
def test_rules_that_would_leave_an_array_are_refused(kernels, wrong, message):
    with pytest.raises(ValueError, match=message):
        search(kernels, make_model(), [[4]], DecodingConfig(), rules=Rules(**wrong))


@pytest.mark.parametrize(
    "wrong", [[0, 1, 2, 4], [0, 1, 2, 3, 5, 5], [0, 1, 2, 3, 9, 8], [0, 1, 2, 3, 40], [0, 1]]
)
def test_candidates_that_would_leave_an_array_are_refused(kernels, wrong):
    with pytest.raises(ValueError, match="ascending ids below 40"):
        search(kernels, make_model(), [[4]], DecodingConfig(), candidates=[wrong])
    with pytest.raises(ValueError, match="1 sources, but 2 candidates"):
        search(kernels, make_model(), [[4]], DecodingConfig(), candidates=[[0, 1, 2, 3]] * 2)


@pytest.mark.parametrize("beam_size", range(1, 9))
def test_every_beam_finds_what_torch_finds(kernels, beam_size):
    for seed in range(2):
        model = make_model(vocab_size=23 + seed, seed=seed)
        sources = make_sources(4, 23)
        for settings in (
            {"n_best": beam_size, "max_length": 5},
            {"length_penalty": 0.0},
            {"length_normalization": "average", "max_length": 7},
        ):
            config = DecodingConfig(beam_size=beam_size, max_length_ratio=0.2, **settings)
            assert_equal(
                search(kernels, model, sources, config), torch_search(model, sources, config)
            )


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("is_quantized", [False, True])
def test_given_translations_are_scored_as_by_torch(kernels, shape, is_quantized):
    model = make_model(is_quantized=is_quantized, **shape)
    sources, targets = make_sources(7), [*make_sources(6), [1, 4, 0, 2, 3]]
    found, _ = native_model(kernels, model).score(sources, targets)
    expected = score_pairs(model, sources, targets, DecodingConfig(), device="cpu")
    for ours, theirs in zip(found, expected, strict=True):
        tolerance = 0.1 if is_quantized else 1e-4
        assert ours == pytest.approx(theirs.token_log_probabilities, abs=tolerance)


@pytest.mark.parametrize("is_quantized", [False, True])
def test_what_was_found_is_scored_with_the_same_bits(kernels, is_quantized):
    model = make_model(is_quantized=is_quantized, vocab_size=1500)
    sources = make_sources(150, 1500)
    found = search(kernels, model, sources, DecodingConfig(beam_size=3, n_best=2))
    pairs = [
        (s, hypothesis) for s, several in zip(sources, found, strict=True) for hypothesis in several
    ]
    native = native_model(kernels, model)
    steps, _ = native.score(
        [s for s, _ in pairs], [hypothesis.token_ids for _, hypothesis in pairs]
    )
    assert steps == [list(hypothesis.token_log_probabilities) for _, hypothesis in pairs]
    alone, _ = native.score([pairs[9][0]], [pairs[9][1].token_ids])
    assert alone == [steps[9]]
    assert native.score([], []) == ([], [])


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("is_quantized", [False, True])
def test_steps_have_the_bits_of_scores_whatever_hypotheses_branch_and_die(
    kernels, shape, is_quantized
):
    model = make_model(is_quantized=is_quantized, **shape)
    native, source = native_model(kernels, model), [4, 9, 30, 5]
    # The targets of which the rows are the beginnings: 6 7 8 9, 6 7 5 5, 10 3 4 2
    session = native.start(source, most_rows=3, most_steps=4)
    steps = [
        session.step([0], [2])[[0, 0, 0]],
        session.step([0, 0], [10, 6])[[1, 1, 0]],
        session.step([1, 0], [7, 3])[[0, 0, 1]],
        session.step([1, 0, 0], [4, 5, 8])[[2, 1, 0]],
    ]
    targets = [[6, 7, 8, 9], [6, 7, 5, 5], [10, 3, 4, 2]]
    scores, _ = native.score([source] * 3, targets)
    for row, target in enumerate(targets):
        found = [step[row, token].item() for step, token in zip(steps, target, strict=True)]
        assert found == scores[row][:4]
    np.testing.assert_allclose(np.exp(steps[3]).sum(axis=1), 1.0, rtol=1e-4)
    with pytest.raises(ValueError, match="too many steps"):
        session.step([0], [4])


def test_steps_refuse_what_would_leave_an_array(kernels):
    native = native_model(kernels, make_model())
    for wrong in ({"most_rows": 0}, {"most_steps": 0}, {"most_steps": 49}):
        with pytest.raises(ValueError, match="out of range"):
            native.start([4], **{"most_rows": 2, "most_steps": 2, **wrong})
    session = native.start([4], most_rows=2, most_steps=3)
    session.step([0, 0], [2, 2])
    for parents, tokens, message in (
        ([0, 0, 1], [4, 4, 4], "3 and 3 rows"),
        ([0], [4, 4], "1 and 2 rows"),
        ([2], [4], "parents must be 0 to 1"),
        ([0], [40], "token ids must be 0 to 39"),
    ):
        with pytest.raises(ValueError, match=message):
            session.step(parents, tokens)


def test_scoring_can_be_stopped_and_refuses_what_would_leave_an_array(kernels):
    native = native_model(kernels, make_model())
    with pytest.raises(Stopped):
        native.score([[4]], [[5]], stop=ctypes.c_int(1))
    for sources, targets, message in (
        ([[4]], [], "1 sources, but 0 targets"),
        ([[4]], [[40]], "token ids must be 0 to 39"),
        ([[-1]], [[4]], "token ids must be 0 to 39"),
        ([[4]], [[4] * 48], "at most 48 tokens, but has 49"),
    ):
        with pytest.raises(ValueError, match=message):
            native.score(sources, targets)


def test_a_beam_wider_than_the_vocabulary(kernels):
    model = make_model(vocab_size=6)
    sources = make_sources(3, 6, 5)
    config = DecodingConfig(beam_size=9, n_best=9, max_length=3)
    assert_equal(search(kernels, model, sources, config), torch_search(model, sources, config))


def test_nothing_may_be_said_but_the_end(kernels):
    model = make_model()
    found = native_model(kernels, model).search(
        [[5, 6]], [0], beam_size=3, n_searched=2, divisors=np.ones(2)
    )
    assert [hypothesis.token_ids for hypothesis in found[0]] == [()]
    assert len(found[0][0].token_log_probabilities) == 1


@pytest.mark.parametrize("shape", ["post-norm", "as a student of Bergamot"])
@pytest.mark.parametrize("is_quantized", [False, True])
def test_a_sentence_alone_and_among_others_has_the_same_bits(kernels, shape, is_quantized):
    model = make_model(is_quantized=is_quantized, **SHAPES[shape])
    sources = make_sources(23)
    for beam_size in (1, 5):
        config = DecodingConfig(beam_size=beam_size, n_best=beam_size, max_length_ratio=0.3)
        alone = [search(kernels, model, [source], config)[0] for source in sources]
        # rows for all sentences, for some, which others follow, and for one at a time
        for most_rows in (400, 7 * beam_size, 1):
            assert search(kernels, model, sources, config, most_rows=most_rows) == alone
        assert search(kernels, model, sources[::-1], config) == alone[::-1]


def test_stopping_early_changes_none_of_the_first(kernels):
    model = make_model()
    sources = make_sources(12)
    config = DecodingConfig(beam_size=4, n_best=2, max_length_ratio=0.3)
    early = search(kernels, model, sources, config)
    assert search(kernels, model, sources, config, stops_early=False) == early


def test_no_sentences_have_no_translations(kernels):
    native = native_model(kernels, make_model())
    assert native.search([], [], beam_size=2, n_searched=1, divisors=np.ones(1)) == []


def test_a_search_can_be_stopped(kernels):
    model = make_model()
    with pytest.raises(Stopped):
        search(kernels, model, [[4, 5]], DecodingConfig(), stop=ctypes.c_int(1))


def test_weights_that_are_no_numbers_find_nothing(kernels):
    model = make_model()
    model.decoder.final_norm = torch.nn.Identity()
    model.source_embedding.weight.fill_(torch.nan)
    assert search(kernels, model, [[4, 5], []], DecodingConfig(beam_size=2)) == [[], []]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sources": [[40]]}, "token ids must be 0 to 39"),
        ({"sources": [[-1]]}, "token ids must be 0 to 39"),
        ({"sources": [[4] * 48]}, "at most 48 tokens, but has 49"),
        ({"limits": [48]}, "limits must be 0 to 47, but one is 48"),
        ({"limits": [-1]}, "limits must be 0 to 47, but one is -1"),
        ({"limits": [3, 3]}, "1 sources, but 2 limits"),
        ({"divisors": np.ones(4)}, "4 divisors for a limit of 3"),
        ({"n_searched": 3}, "1 ≤ n_searched ≤ beam_size"),
        ({"beam_size": 0, "n_searched": 0}, "1 ≤ n_searched ≤ beam_size"),
    ],
)
def test_what_would_leave_an_array_is_refused(kernels, wrong, message):
    asked = {
        "sources": [[4, 5]],
        "limits": [3],
        "beam_size": 2,
        "n_searched": 1,
        "divisors": np.ones(5),
        **wrong,
    }
    native = native_model(kernels, make_model())
    with pytest.raises(ValueError, match=message):
        native.search(asked.pop("sources"), asked.pop("limits"), **asked)


def test_each_side_has_the_ids_of_its_own_vocabulary(kernels):
    native = native_model(
        kernels, make_model(source_vocab_size=50, tied_embeddings="none", output_bias=True)
    )
    assert native.score([[49]], [[39]])
    with pytest.raises(ValueError, match="token ids must be 0 to 49"):
        native.score([[50]], [[4]])
    with pytest.raises(ValueError, match="token ids must be 0 to 39"):
        native.score([[4]], [[40]])
    with pytest.raises(ValueError, match="token ids must be 0 to 49"):
        native.start([50], most_rows=1, most_steps=1)


def test_models_that_the_kernels_do_not_know_are_named():
    assert unsupported_reason(torch.nn.Linear(2, 2)) == "it is not a single Transformer"
    assert unsupported_reason(make_model().train()) == "the model is in training mode"
    assert unsupported_reason(make_model().double()) == "the weights are neither float32 nor int8"
    gated = make_model()
    gated.encoder.layers[0].self_attention.gate = torch.ones(4, 1, 1)
    assert unsupported_reason(gated) == "attention is tapped or gated"
    watched = make_model()
    handle = watched.decoder.layers[0].cross_attention.tap(print)
    assert unsupported_reason(watched) == "attention is tapped or gated"
    handle.remove()
    assert unsupported_reason(watched) is None
