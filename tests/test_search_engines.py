"""Every search engine finds what the plain beam search of forty lines finds."""

import random
from functools import cache, partial

import pytest
import torch

from tests.oracles.plain_beam_search import plain_beam_search
from tformer_cli.fast.native_search import CompiledEngine
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.engine import Sentence
from tformer_cli.search.hypothesis import longest_translation
from tformer_cli.search.torch_engine import TorchEngine
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID

CPU = torch.device("cpu")
VOCABULARY = 14
MODELS = [
    {"seed": 9},
    {"seed": 32, "norm": "pre", "activation": "gelu", "positions": "learned"},
    {"seed": 10, "tied_embeddings": "none", "bias": False, "cross_heads": (2, 0)},
]
"""Their seeds give greedy translations of several lengths."""
SETTINGS = [
    {"beam_size": 1},
    {"beam_size": 1, "max_length": 3},
    {"beam_size": 4, "n_best": 4},
    {"beam_size": 5, "n_best": 2, "length_penalty": 0.0},
    {"beam_size": 3, "n_best": 3, "length_penalty": 1.5, "max_length": 4},
    {"beam_size": 12, "n_best": 12, "length_normalization": "average", "max_length": 6},
]


@pytest.fixture(params=["torch", "compiled"])
def engine(request):
    if request.param == "torch":
        return TorchEngine(CPU)
    request.getfixturevalue("kernels")
    return CompiledEngine()


@cache
def random_model(number):
    """Large weights make translations of all lengths, which end by themselves or at the limit."""
    changes = dict(MODELS[number])
    torch.manual_seed(changes.pop("seed"))
    shape = {"d_model": 16, "n_heads": 2, "d_ff": 24, "n_encoder_layers": 1, "n_decoder_layers": 2}
    model = Transformer(ModelConfig(**{**shape, "max_positions": 20, **changes}), VOCABULARY).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1 and "embedding" not in name:
                weight *= 4.0
    return model


@cache
@torch.inference_mode()
def encode_source(number, source):
    tokens = torch.tensor([[*source, EOS_ID]])
    mask = torch.ones_like(tokens, dtype=torch.bool)
    return random_model(number).encode(tokens, mask), mask


@cache
@torch.inference_mode()
def log_probabilities_of(number, source, prefix):
    """Those of all next tokens, by a pass over the whole prefix."""
    memory, mask = encode_source(number, source)
    logits = random_model(number).decode(torch.tensor([[BOS_ID, *prefix]]), memory, mask)
    return logits[0, -1].double().log_softmax(-1).tolist()


def search_plainly(number, source, config, n_prefix=0, **rules):
    """What the plain search finds."""
    most = random_model(number).max_positions
    limit = longest_translation(len(source), config, most, n_prefix)
    return plain_beam_search(partial(log_probabilities_of, number, source), config, limit, **rules)


@pytest.mark.parametrize("settings", SETTINGS, ids=repr)
@pytest.mark.parametrize("number", range(len(MODELS)))
def test_every_engine_finds_what_the_plain_search_finds(engine, number, settings):
    model, config = random_model(number), DecodingConfig(**settings)
    draw = random.Random(number)
    sources = [
        tuple(draw.randrange(4, VOCABULARY) for _ in range(draw.randrange(1, 12))) for _ in range(6)
    ]
    assert engine.supports(config, model) is None
    sentences = [Sentence(tokens=source) for source in sources]
    results = engine.prepare(model).search(sentences, config, lambda: None)
    lengths = set()
    for source, hypotheses in zip(sources, results, strict=True):
        plain = search_plainly(number, source, config)
        assert [(h.token_ids, h.is_finished) for h in hypotheses] == [h[1:] for h in plain]
        assert [h.score for h in hypotheses] == pytest.approx([h[0] for h in plain], abs=1e-4)
        lengths |= {len(h.token_ids) for h in hypotheses}
    assert len(lengths) > 1 or config.max_length


def rules_of(sentence, config):
    """The rules about a sentence's next token, one after the other."""
    n = config.no_repeat_ngram

    def allow_tokens(tokens, choices):
        if len(tokens) < len(sentence.prefix):
            return [token for token in choices if token == sentence.prefix[len(tokens)]]
        said = {tokens[i : i + n] for i in range(len(tokens) + 1 - n)} if n else set()
        return [
            token
            for token in choices
            if not (token == EOS_ID and len(tokens) < sentence.n_given + config.min_length)
            and not any((*tokens, token)[-len(some) :] == some for some in said)
        ]

    return allow_tokens


RULES = [{}, {"no_repeat_ngram": 1}, {"no_repeat_ngram": 2, "min_length": 3}]
RULED = [
    pytest.param((row + column) % len(MODELS), settings, rules, id=f"{settings}-{rules}")
    for row, settings in enumerate([*SETTINGS[:4], {"beam_size": 3, "max_length": 6}])
    for column, rules in enumerate(RULES)
]
"""All settings with all rules; each model meets each of both."""


@pytest.mark.parametrize(("number", "settings", "rules"), RULED)
def test_prefixes_are_searched_for_as_by_the_plain_search(kernels, number, settings, rules):
    model, config = random_model(number), DecodingConfig(**settings, **rules)
    draw = random.Random(3 + number)

    def some(n, first=EOS_ID + 1):
        return tuple(draw.randrange(first, VOCABULARY) for _ in range(n))

    # prefixes of no token and of some, past the limit, with the end in them, or with one that is
    # never generated, where nothing is left but the end
    prefixes = [(), some(1), some(2), some(8), (7, EOS_ID, 5), (9, 1, 4)]
    sources = [some(n) for n in range(1, 6)]
    # Of some sentences the first token is the model's own, which limits of length count
    sentences = [
        Sentence(tokens=source, prefix=prefix, n_start=min(len(prefix), n % 2))
        for prefix in prefixes
        for n, source in enumerate(sources)
    ]
    plain_results = [
        search_plainly(number, each.tokens, config, each.n_given, allowed=rules_of(each, config))
        for each in sentences
    ]
    for engine in (TorchEngine(CPU), CompiledEngine()):
        assert engine.supports(config, model) is None
        assert {engine.takes(sentence) for sentence in sentences} == {None}
        results = engine.prepare(model).search(sentences, config, lambda: None)
        for plain, hypotheses in zip(plain_results, results, strict=True):
            assert [(h.token_ids, h.is_finished) for h in hypotheses] == [h[1:] for h in plain]
            scores = [h[0] for h in plain]
            assert [h.score for h in hypotheses] == pytest.approx(scores, rel=1e-4, abs=1e-4)
            assert all(
                h.log_probability == pytest.approx(sum(h.token_log_probabilities))
                for h in hypotheses
            )
