"""Models of one stack in the kernels: prompts continued, texts scored and encoded as by torch."""

import numpy as np
import pytest
import torch

from tests.fast.native.agreement import randomize
from tests.fast.native.kernels import LOWER_LEVELS
from tests.slowly import slowly
from tformer_cli.fast.native.search import Drawing, Rules, Stopped
from tformer_cli.fast.native.torch_weights import native_model, unsupported_reason
from tformer_cli.fast.products import quantized_matrices, use_integers
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.encoder_only import Classifier
from tformer_cli.model.transformer import Transformer
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.engine import PromptedModel, Sentence
from tformer_cli.search.torch_engine import TorchEngine

VOCABULARY = 60
SHAPES = {
    "the paper's": {},
    "GPT-2": {
        "norm": "pre", "activation": "gelu-tanh", "positions": "learned",
        "scale_embeddings": False,
    },
    "LLaMA": {
        "norm": "pre", "norm_kind": "rms", "activation": "swish", "gated": True,
        "positions": "rotary", "n_key_heads": 2, "bias": False, "scale_embeddings": False,
        "tied_embeddings": "none",
    },
    "one head of keys, odd widths": {
        "n_key_heads": 1, "d_model": 30, "n_heads": 3, "d_ff": 50, "gated": True,
        "positions": "none", "output_bias": True,
    },
    "heads of their own width": {"d_head": 12, "positions": "rotary", "n_key_heads": 2},
    "pruned": {"decoder_heads": (3, 0), "norm": "pre", "positions": "rotary"},
    "recurrent": {"decoder_cell": "ssru", "norm_kind": "rms"},
}  # fmt: skip
PROMPTS = [(2, 7, 8, 9), (2,), (6, 10, 7, 8, 9, 9, 12, 5, 4), tuple(range(4, 44)), (5, 5)]
DIVISORS = np.arange(1.0, 50.0)


def make_model(**shape):
    base = {"d_model": 32, "n_heads": 4, "d_ff": 48, "n_encoder_layers": 0, "n_decoder_layers": 2}
    torch.manual_seed(1)
    config = ModelConfig(**{**base, "max_positions": 48, **shape})
    return randomize(Transformer(config, VOCABULARY), 1)


def make_classifier(**shape):
    base = {"d_model": 32, "n_heads": 4, "d_ff": 48, "n_encoder_layers": 2, "n_decoder_layers": 0}
    torch.manual_seed(1)
    config = ModelConfig(**{**base, "max_positions": 48, "n_labels": 3, **shape})
    return randomize(Classifier(config, VOCABULARY), 1)


@torch.inference_mode()
def log_probabilities(model, tokens):
    """log p of every next token after each position of one text, in one pass."""
    nothing = torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, 1, dtype=torch.bool)
    return model(*nothing, torch.tensor([tokens]))[0].log_softmax(-1)


def by_torch(model, prompts, config, keys):
    sentences = [
        Sentence(tokens=prompt, key=key) for prompt, key in zip(prompts, keys, strict=True)
    ]
    prepared = TorchEngine("cpu").prepare(PromptedModel(model))
    return prepared.search(sentences, config, lambda: None)


def by_kernels(native, prompts, config, keys=(), **options):
    drawing = None
    if config.sampling:
        drawing = Drawing(
            keys=keys, temperature=config.temperature, top_k=config.top_k, top_p=config.top_p
        )
    return native.search(
        prompts,
        [min(config.max_length, 48 - len(prompt)) for prompt in prompts],
        beam_size=config.n_candidates,
        n_searched=config.n_searched,
        divisors=DIVISORS**config.length_penalty,
        drawing=drawing,
        **options,
    )


def check_equal(actual, expected, tolerance):
    for ours, theirs in zip(actual, expected, strict=True):
        assert [hypothesis.token_ids for hypothesis in ours] == [
            hypothesis.token_ids for hypothesis in theirs
        ]
        for hypothesis, other in zip(ours, theirs, strict=True):
            assert hypothesis.is_finished == other.is_finished
            assert hypothesis.token_log_probabilities == pytest.approx(
                other.token_log_probabilities, abs=tolerance
            )


@pytest.mark.parametrize("level", ["highest", *slowly(*LOWER_LEVELS)])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_texts_are_scored_as_by_torch(kernels, library_of, shape, level):
    library = kernels if level == "highest" else library_of(level)
    model = make_model(**shape)
    assert unsupported_reason(model) is None
    native = native_model(library, model)
    targets = [(11, 3), (4,), (9, 9, 9, 2, 0, 1, 3), tuple(range(4, 13)), (3,)]
    found, _ = native.score(PROMPTS, targets)
    for number, (prompt, target) in enumerate(zip(PROMPTS, targets, strict=True)):
        own = log_probabilities(model, [*prompt, *target][:-1])[len(prompt) - 1 :]
        expected = own.gather(1, torch.tensor(target).unsqueeze(1))[:, 0].tolist()
        assert found[number] == pytest.approx(expected, abs=1e-5)
        assert native.score([prompt], [target])[0] == [found[number]]


SEARCHES = [{"beam_size": 1}, {"beam_size": 4, "n_best": 3, "length_penalty": 0.7}]
DRAWINGS = [
    {"sampling": True, "n_best": 3},
    {"sampling": True, "n_best": 2, "temperature": 0.6, "top_k": 5},
    {"sampling": True, "n_best": 2, "temperature": 1.5, "top_p": 0.8},
    {"sampling": True, "n_best": 2, "top_k": 30, "top_p": 0.5},
]
CONTINUATIONS = [
    pytest.param(SHAPES[name], is_quantized, settings, id=f"{name}-{is_quantized}-{settings}")
    for number, name in enumerate(SHAPES)
    for is_quantized in (False, True)
    # What is drawn depends on probabilities alone: one way for each model, all for each number
    for settings in (*SEARCHES[is_quantized:], DRAWINGS[(number + 2 * is_quantized) % 4])
]


@pytest.mark.parametrize(("shape", "is_quantized", "settings"), CONTINUATIONS)
def test_prompts_are_continued_as_by_torch(kernels, shape, settings, is_quantized):
    model = make_model(**shape)
    if is_quantized:
        use_integers(model, quantized_matrices(model.state_dict()))
    assert unsupported_reason(model) is None
    length = 4 if is_quantized else 12  # rounding lets longer ones differ
    config = DecodingConfig(max_length=length, max_length_ratio=1e9, **settings)
    keys = [5, -7, 2**62, -(2**63), 0]
    native = native_model(kernels, model)
    found = by_kernels(native, PROMPTS, config, keys)
    tolerance = 0.1 if is_quantized else 1e-5
    check_equal(found, by_torch(model, PROMPTS, config, keys), tolerance)
    for number, prompt in enumerate(PROMPTS):
        alone = by_kernels(native, [prompt], config, keys[number : number + 1], most_rows=1)
        assert alone == found[number : number + 1]
    for prompt, hypotheses in zip(PROMPTS, found, strict=True):
        for hypothesis in hypotheses:
            steps = native.score([prompt], [(*hypothesis.token_ids, 3)])[0][0]
            assert tuple(steps) == pytest.approx(hypothesis.token_log_probabilities, abs=1e-5)
            if not config.sampling:
                assert tuple(steps) == hypothesis.token_log_probabilities


def test_what_is_drawn_follows_the_rules(kernels):
    model = make_model(output_bias=True)
    native = native_model(kernels, model)
    rules = Rules(
        prefixes=[(8,), (), (), (9, 9), ()],
        least_lengths=[6] * 5,
        no_repeat_ngram=1,
    )
    config = DecodingConfig(max_length=8, sampling=True, n_best=20)
    for prefix, hypotheses in zip(
        rules.prefixes, by_kernels(native, PROMPTS, config, range(5), rules=rules), strict=True
    ):
        assert len(hypotheses) == 20
        for hypothesis in hypotheses:
            assert 6 <= len(hypothesis.token_ids) <= 8
            assert hypothesis.token_ids[: len(prefix)] == prefix
            drawn = hypothesis.token_ids[len(prefix) :]
            assert len(set(drawn)) == len(drawn)
            assert not {0, 1, 2, 3} & set(drawn)


def test_frequencies_are_the_probabilities(kernels):
    model = make_model()
    native = native_model(kernels, model)
    config = DecodingConfig(max_length=1, sampling=True, n_best=1000, temperature=0.8)
    expected = log_probabilities(model, PROMPTS[0])[-1].clone()
    expected[:3] = -torch.inf
    expected = (expected / 0.8).softmax(-1).numpy()
    counts = np.zeros(VOCABULARY)
    for key in range(20):
        (found,) = by_kernels(native, PROMPTS[:1], config, [key])
        for hypothesis in found:
            counts[hypothesis.token_ids[0] if hypothesis.token_ids else 3] += 1
    is_common = expected > 1e-3
    error = (counts / counts.sum() - expected)[is_common] / np.sqrt(expected[is_common] / 20_000)
    assert np.abs(error).max() < 4.0


def test_temperatures_without_bounds_draw_the_best_or_any(kernels):
    native = native_model(kernels, make_model())
    best = by_kernels(native, PROMPTS, DecodingConfig(max_length=9, beam_size=1))
    config = DecodingConfig(max_length=9, sampling=True, temperature=1e-300)
    drawn = by_kernels(native, PROMPTS, config, range(5))
    assert [hypotheses[0].token_ids for hypotheses in drawn] == [
        hypotheses[0].token_ids for hypotheses in best
    ]
    config = DecodingConfig(max_length=1, sampling=True, temperature=1e300, n_best=500)
    (drawn,) = by_kernels(native, PROMPTS[:1], config, [1])
    assert {token for hypothesis in drawn for token in hypothesis.token_ids} == set(
        range(4, VOCABULARY)
    )


def test_tokens_are_told_and_what_that_raises_ends_the_search(kernels):
    native = native_model(kernels, make_model())
    config, rules = DecodingConfig(max_length=9, beam_size=1), Rules(least_lengths=[9])
    told = []
    ((found,),) = by_kernels(native, PROMPTS[:1], config, rules=rules, tell=told.append)
    assert tuple(told) == found.token_ids

    def refuse(token):
        told.append(token)
        if len(told) == 3:
            raise KeyboardInterrupt

    told.clear()
    with pytest.raises(KeyboardInterrupt):
        by_kernels(native, PROMPTS[:1], config, rules=rules, tell=refuse)
    assert tuple(told) == found.token_ids[:3]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("is_quantized", [False, True])
def test_texts_are_encoded_as_by_torch(kernels, shape, pooling, is_quantized):
    of_decoders = ("output_bias", "decoder_heads", "decoder_cell", "tied_embeddings")
    shape = {name: value for name, value in shape.items() if name not in of_decoders}
    model = make_classifier(pooling=pooling, embedding_norm=True, **shape)
    if is_quantized:
        use_integers(model, quantized_matrices(model.state_dict()))
    assert unsupported_reason(model) is None
    native = native_model(kernels, model)
    texts = [prompt[:47] for prompt in PROMPTS]
    found = native.encode([*texts, ()])
    for text, hidden in zip([*texts, ()], found, strict=True):
        source = torch.tensor([[*text, 3]])
        with torch.inference_mode():
            expected = model.encode(source, torch.ones_like(source, dtype=torch.bool))[0]
        np.testing.assert_allclose(hidden, expected, atol=0.2 if is_quantized else 1e-5)
        np.testing.assert_array_equal(native.encode([text])[0], hidden)


def test_what_would_leave_an_array_is_refused(kernels):
    native, encoder = (native_model(kernels, make()) for make in (make_model, make_classifier))
    config = DecodingConfig(max_length=4)
    for prompts in ([()], [(VOCABULARY,)], [(-1,)], [(4,) * 49]):
        with pytest.raises(ValueError, match=r"must (be|have)"):
            by_kernels(native, prompts, config)
    with pytest.raises(ValueError, match="limits must be 0 to 44, but one is 45"):
        native.search([(4,) * 4], [45], beam_size=1, n_searched=1, divisors=DIVISORS)
    for texts in (([()], [(3,)]), ([(4,)], [(60,)]), ([(4,) * 40], [(4,) * 10])):
        with pytest.raises(ValueError, match=r"must (be|have)"):
            native.score(*texts)
    wrong = {"keys": [1], "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    for change in ({"keys": []}, {"temperature": 0.0}, {"top_k": -1}, {"top_p": 0.0}):
        with pytest.raises(ValueError, match=r"keys|out of range"):
            native.search(
                [(4,)],
                [4],
                beam_size=1,
                n_searched=1,
                divisors=DIVISORS,
                drawing=Drawing(**{**wrong, **change}),
            )
    with pytest.raises(ValueError, match="encoder and decoder"):
        native.start((4,), most_rows=1, most_steps=1)
    with pytest.raises(ValueError, match="has no encoder"):
        native.encode([(4,)])
    with pytest.raises(ValueError, match="writes nothing"):
        encoder.search([(4,)], [4], beam_size=1, n_searched=1, divisors=DIVISORS)


def test_encoding_and_continuing_stop_when_they_are_told(kernels):
    import ctypes

    stop = ctypes.c_int(1)
    native, encoder = (native_model(kernels, make()) for make in (make_model, make_classifier))
    with pytest.raises(Stopped):
        by_kernels(native, PROMPTS, DecodingConfig(max_length=4), stop=stop)
    with pytest.raises(Stopped):
        encoder.encode(PROMPTS, stop=stop)
