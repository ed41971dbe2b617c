import random

import pytest
import torch

from tformer_cli.decoding.config import DecodingConfig
from tformer_cli.decoding.engine import EngineUnavailableError, Searcher, Sentence
from tformer_cli.decoding.search.beam_search import beam_search
from tformer_cli.decoding.search.torch_engine import TorchEngine
from tformer_cli.decoding.source_batches import source_batch
from tformer_cli.errors import UsageError
from tformer_cli.fast.continuous import continuous_search
from tformer_cli.fast.continuous.continuous_search import ContinuousEngine, ContinuousSearch
from tformer_cli.fast.products import unpack, use_bfloat16
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer

CPU = torch.device("cpu")
LONGEST = 24


def make_model(vocab_size=12, seed=4, **changes):
    """A model whose translations are of all lengths: large weights make it erratic.

    It would make rounding errors large, too; so it computes in float64.
    """
    torch.manual_seed(seed)
    shape = {"d_model": 16, "n_heads": 2, "d_ff": 24, "n_encoder_layers": 1, "n_decoder_layers": 2}
    config = ModelConfig(**{**shape, "max_positions": LONGEST, **changes})
    model = Transformer(config, vocab_size).eval().double()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1 and "embedding" not in name:
                weight *= 5.0
    return model


def make_sources(n=14, vocab_size=12, seed=1):
    draw = random.Random(seed)
    return [
        tuple(draw.randrange(4, vocab_size) for _ in range(draw.randrange(1, LONGEST - 1)))
        for _ in range(n)
    ]


@pytest.fixture
def with_bfloat16_shapes(monkeypatch):
    """A search with the shapes of bfloat16 and the numbers of float32."""
    monkeypatch.setattr(
        continuous_search, "autocast", lambda *_, **__: torch.autocast("cpu", enabled=False)
    )
    return lambda model: ContinuousSearch(model, CPU, "bfloat16")


def exact(model):
    return ContinuousSearch(model, CPU, "float32")


def run(search, sources, config, before_batch=lambda: None):
    return search.search([Sentence(tokens=tuple(one)) for one in sources], config, before_batch)


def check(search, model, sources, config):
    """Compares with beam search of each sentence by itself; returns the lengths found."""
    found = run(search, sources, config)
    for source, hypotheses in zip(sources, found, strict=True):
        (expected,) = beam_search(model, *source_batch([source], LONGEST, CPU), config)
        assert [h.token_ids for h in hypotheses] == [h.token_ids for h in expected]
        assert [h.is_finished for h in hypotheses] == [h.is_finished for h in expected]
        for one, other in zip(hypotheses, expected, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-5)
            assert one.log_probability == pytest.approx(other.log_probability, abs=1e-5)
            assert one.token_log_probabilities == pytest.approx(
                other.token_log_probabilities, abs=1e-5
            )
    return {len(hypotheses[0].token_ids) for hypotheses in found}


@pytest.mark.parametrize(
    "settings",
    [
        {"beam_size": 1},
        {"beam_size": 3},
        {"beam_size": 4, "n_best": 4, "length_penalty": 1.0},
        {"beam_size": 4, "n_best": 2, "length_normalization": "average"},
        {"beam_size": 3, "n_best": 3, "max_length": 5},
        {"beam_size": 2, "length_penalty": 0.0, "max_length_ratio": 0.1},
    ],
)
def test_it_finds_what_beam_search_finds(with_bfloat16_shapes, settings):
    model = make_model()
    config = DecodingConfig(batch_tokens=96, **settings)
    assert len(check(with_bfloat16_shapes(model), model, make_sources(), config)) > 1


@pytest.mark.parametrize(
    "changes",
    [
        {"positions": "learned", "tied_embeddings": "none", "norm": "post"},
        {"positions": "rotary"},
        {"positions": "relative", "relative_buckets": 8, "relative_distance": 6},
        {"positions": "alibi", "norm_kind": "rms", "gated": True},
        {"positions": "none", "n_key_heads": 1},
        {"d_head": 5, "positions": "relative", "similarity": "dot", "tied_embeddings": "inputs"},
        {"projections": False},
        {"decoder_heads": (1, 2), "cross_heads": (2, 0), "bias": False},
    ],
)
def test_so_it_does_with_other_models(with_bfloat16_shapes, changes):
    model = make_model(seed=5, **changes)
    config = DecodingConfig(beam_size=3, n_best=2, batch_tokens=64)
    check(with_bfloat16_shapes(model), model, make_sources(8), config)


def test_a_beam_wider_than_the_vocabulary(with_bfloat16_shapes):
    model = make_model(vocab_size=6, seed=2)
    config = DecodingConfig(beam_size=5, n_best=5, batch_tokens=64, max_length=6)
    check(with_bfloat16_shapes(model), model, make_sources(10, vocab_size=6), config)


def test_in_float32_a_sentence_has_the_same_bits_whatever_is_beside_it(monkeypatch):
    monkeypatch.setattr(continuous_search, "EXACT_TOKENS", 128)
    model = make_model().float()
    sources = make_sources(9)
    config = DecodingConfig(beam_size=3, n_best=3)
    together = run(exact(model), sources, config)
    assert [run(exact(model), [source], config)[0] for source in sources] == together
    search = exact(model)
    assert run(search, sources[::-1], config) == together[::-1]
    assert run(search, sources[:4], config) == together[:4]


def test_float32_finds_what_beam_search_finds(monkeypatch):
    monkeypatch.setattr(continuous_search, "EXACT_TOKENS", 128)
    model = make_model(seed=6)
    check(exact(model), model, make_sources(9), DecodingConfig(beam_size=3))


def test_places_are_filled_again_while_others_are_searched(with_bfloat16_shapes, monkeypatch):
    """Fewer steps than batches of as many sentences would take, each as long as its longest."""
    model = make_model()
    sources = [source[:14] for source in make_sources(48)]
    config = DecodingConfig(beam_size=1, batch_tokens=16 * 8)
    n_steps = []
    step = continuous_search.search_step
    monkeypatch.setattr(
        continuous_search, "search_step", lambda *given: (n_steps.append(1), step(*given))
    )
    found = run(with_bfloat16_shapes(model), sources, config)
    in_order = [one[0].n_tokens for one in found]
    in_batches = sum(max(in_order[i : i + 8]) for i in range(0, 48, 8))
    assert len(n_steps) < in_batches


def test_a_search_that_was_ended_leaves_nothing_to_the_next_one(with_bfloat16_shapes):
    model = make_model()
    config = DecodingConfig(beam_size=3, batch_tokens=96)
    search = with_bfloat16_shapes(model)
    n_calls = []

    def end():
        n_calls.append(1)
        if len(n_calls) > 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(search, make_sources(), config, end)
    check(search, model, make_sources(9, seed=3), config)


def test_other_settings_and_other_weights_are_seen(with_bfloat16_shapes):
    model = make_model()
    search = with_bfloat16_shapes(model)
    sources = make_sources(6)
    for config in (DecodingConfig(beam_size=2), DecodingConfig(beam_size=2, max_length=3)):
        check(search, model, sources, config)
    other = make_model(seed=9)
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        mine.data = theirs.data
    check(search, model, sources, DecodingConfig(beam_size=2))


@pytest.mark.parametrize(
    "settings",
    [
        {"sampling": True},
        {"no_repeat_ngram": 2},
        {"beam_size": 4, "diversity_groups": 2},
        {"coverage_penalty": 0.1},
    ],
)
def test_what_it_does_not_know_it_refuses(settings):
    assert ContinuousEngine(CPU).supports(DecodingConfig(**settings), make_model()) is not None


def test_it_refuses_a_model_that_is_listened_to():
    model = make_model()
    assert ContinuousEngine(CPU).supports(DecodingConfig(), model) is None
    handle = model.decoder.layers[0].self_attention.tap(lambda _: None)
    assert ContinuousEngine(CPU).supports(DecodingConfig(), model) is not None
    handle.remove()
    assert ContinuousEngine(CPU).supports(DecodingConfig(), model) is None


def test_demands_on_a_sentence_are_for_another_engine():
    model = make_model()
    config = DecodingConfig(beam_size=2)
    searcher = Searcher(model, [ContinuousEngine(CPU), TorchEngine(CPU)])
    first, second = Sentence(tokens=(5, 6)), Sentence(tokens=(5, 6), prefix=(7,))
    found = searcher.search([first, second, first], config)
    assert found[0] == found[2] == run(exact(model), [(5, 6)], config)[0]
    assert found[1][0].token_ids[:1] == (7,)


def test_without_memory_for_a_width_the_others_are_given_up(with_bfloat16_shapes, monkeypatch):
    model = make_model()
    config = DecodingConfig(beam_size=2, batch_tokens=64)
    search = with_bfloat16_shapes(model)
    short, long = (5, 6), tuple(range(4, 12)) * 2
    check(search, model, [short], config)
    made = continuous_search._RunningBatch
    n_tries = []

    def make(*given, **options):
        n_tries.append(len(search._batches))
        if search._batches:
            raise torch.OutOfMemoryError
        return made(*given, **options)

    monkeypatch.setattr(continuous_search, "_RunningBatch", make)
    check(search, model, [long], config)
    assert n_tries == [1, 0]
    monkeypatch.setattr(continuous_search, "MOST_BATCHES", 1)
    check(search, model, [short], config)
    assert n_tries == [1, 0, 0]
    assert len(search._batches) == 1


def test_without_memory_for_one_it_fails(with_bfloat16_shapes, monkeypatch):
    def make(*_, **__):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(continuous_search, "_RunningBatch", make)
    with pytest.raises(EngineUnavailableError):
        run(with_bfloat16_shapes(make_model()), [(5,)], DecodingConfig())


def test_other_products_are_seen(with_bfloat16_shapes):
    model = make_model()
    config = DecodingConfig(beam_size=2)
    search = with_bfloat16_shapes(model)
    run(search, [(5, 6)], config)
    (before,) = search._batches.values()
    run(search, [(5, 6)], config)
    assert list(search._batches.values()) == [before]
    for change in (use_bfloat16, use_bfloat16, unpack):
        change(model)
        run(search, [(5, 6)], config)
        (after,) = search._batches.values()
        assert after is not before
        before = after


def test_without_memory_it_is_left_aside(monkeypatch):
    n_tries = []

    def fail(*_):
        n_tries.append(1)
        raise torch.OutOfMemoryError

    monkeypatch.setattr(ContinuousSearch, "_search", fail)
    model, config, sentence = make_model(), DecodingConfig(), Sentence(tokens=(5,))
    searcher = Searcher(model, [ContinuousEngine(CPU), TorchEngine(CPU)])
    (expected,) = beam_search(model, *source_batch([(5,)], LONGEST, CPU), config)
    for _ in range(2):
        assert searcher.search([sentence] * 2, config)[0] == expected
    assert len(n_tries) == 1
    with pytest.raises(UsageError, match="--engine: continuous cannot search here: there is too"):
        Searcher(model, [ContinuousEngine(CPU)]).search([sentence], config)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_finds_what_the_cpu_finds(monkeypatch):
    device, model = torch.device("cuda"), make_model()
    monkeypatch.setattr(continuous_search, "EXACT_TOKENS", 128)
    config = DecodingConfig(beam_size=3, n_best=2, batch_tokens=96)
    sources = make_sources(40)
    expected = run(exact(model), sources, config)
    found = run(ContinuousSearch(model.to(device), device), sources, config)
    assert [[h.token_ids for h in one] for one in found] == [
        [h.token_ids for h in one] for one in expected
    ]
