"""The compiled kernels against torch's search, and when which of them is used."""

import ctypes
import gc
import itertools
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from weakref import finalize

import pytest
import torch

from tformer_cli.fast import native_search
from tformer_cli.fast.native import torch_weights
from tformer_cli.fast.native.library import KernelsUnavailable
from tformer_cli.fast.native.search import NativeModel
from tformer_cli.fast.native_search import (
    CACHE_BYTES,
    MOST_SHARING,
    TOKENS_BEYOND_CACHE,
    TOKENS_IN_CACHE,
    CompiledEngine,
    ModelSize,
    plan_native_batches,
    plan_searches,
    portions,
    side_by_side,
)
from tformer_cli.fast.products import quantized_matrices, use_integers
from tformer_cli.model.config import PRESETS, ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.constraints import NO_CONSTRAINTS, LineConstraints
from tformer_cli.search.hypothesis import never_interrupt
from tformer_cli.search.models import Ensemble
from tformer_cli.search.torch_engine import TorchEngine
from tformer_cli.search.translator import Translator
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.train_tokenizer import train_tokenizer

WORDS = ["a", "man", "woman", "dog", "street", "snow", "runs", "sleeps", "in", "the", "and"]
LINES = [" ".join(WORDS[i % 5 : i % 5 + 1 + i % 7]) for i in range(20)]
CONFIG = ModelConfig(
    d_model=64, n_heads=2, d_ff=96, n_encoder_layers=2, n_decoder_layers=2, max_positions=40
)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([" ".join(WORDS)] * 3, TokenizerConfig(vocab_size=300))


@pytest.fixture(scope="module")
def translator_of(tokenizer):
    def make(model=CONFIG, seed=2, banned=(), before_batch=None, **settings):
        if isinstance(model, ModelConfig):
            torch.manual_seed(seed)
            model = Transformer(model, tokenizer.vocab_size).eval()
        config = DecodingConfig(**{"beam_size": 3, "max_length": 12, **settings})
        return Translator(
            model,
            tokenizer,
            config,
            engines=[CompiledEngine(), TorchEngine(torch.device("cpu"))],
            banned=banned,
            before_batch=before_batch,
        )

    return make


@pytest.fixture
def by_torch(monkeypatch):
    """Translates without the kernels."""

    def translate(translator, *arguments, **keywords):
        with monkeypatch.context() as patch:
            patch.setattr(CompiledEngine, "supports", lambda *_: "not now")
            return translator.translate(*arguments, **keywords)

    return translate


def unsupported_reason(translator):
    """The reason why the kernels do not search; None if they do."""
    return translator.engine().reasons.get("compiled")


def check_equal(actual, expected):
    """The same texts and tokens; probabilities that differ by rounding alone."""
    for ours, theirs in zip(actual, expected, strict=True):
        assert (ours.index, ours.source, ours.n_parts) == (
            theirs.index,
            theirs.source,
            theirs.n_parts,
        )
        assert len(ours.hypotheses) == len(theirs.hypotheses)
        for hypothesis, other in zip(ours.hypotheses, theirs.hypotheses, strict=True):
            assert hypothesis.token_ids == other.token_ids
            assert (hypothesis.text, hypothesis.is_finished) == (other.text, other.is_finished)
            assert hypothesis.part_lengths == other.part_lengths
            assert hypothesis.log_probability == pytest.approx(other.log_probability, abs=1e-4)
            assert hypothesis.score == pytest.approx(other.score, abs=1e-4)
            assert hypothesis.token_log_probabilities == pytest.approx(
                other.token_log_probabilities, abs=1e-5
            )


@pytest.mark.parametrize(
    "settings",
    [
        {"beam_size": 1},
        {"beam_size": 1, "max_length": 0},
        {"beam_size": 1, "length_normalization": "average"},
        {},
        {"n_best": 3},
        {"beam_size": 5, "n_best": 2, "length_penalty": 0.0},
        {"beam_size": 5, "n_best": 5, "length_penalty": 1.5},
        {"beam_size": 8, "n_best": 8, "length_normalization": "average"},
        {"max_length": 1, "n_best": 3},
        {"max_length": 0, "max_length_ratio": 0.5},
        {"beam_size": 4, "n_best": 2, "risk": "chrf"},
        {"beam_size": 4, "n_best": 3, "distinct_texts": True},
        {"sampling": True, "n_best": 3, "top_p": 0.9},
        {"sampling": True, "risk": "chrf", "candidates": 4, "banned": ["dog"]},
    ],
    ids=repr,
)
def test_the_kernels_find_what_torch_finds(kernels, translator_of, by_torch, settings):
    translator = translator_of(**settings)
    expected = by_torch(translator, LINES)
    assert unsupported_reason(translator) is None
    check_equal(translator.translate(LINES), expected)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_every_bit_is_the_same_whatever_is_beside_a_line(kernels, translator_of, beam_size):
    translator = translator_of(beam_size=beam_size, n_best=beam_size)
    alone = [translator.translate([line], index)[0] for index, line in enumerate(LINES)]
    for n_threads in (1, 2, 3):
        torch.set_num_threads(n_threads)
        for batch_tokens in (1, 17, 4096):
            settings = {"beam_size": beam_size, "n_best": beam_size, "batch_tokens": batch_tokens}
            assert translator_of(translator._model, **settings).translate(LINES) == alone
    first = [
        t.hypotheses[0]
        for t in translator_of(translator._model, beam_size=beam_size).translate(LINES)
    ]
    assert first == [t.hypotheses[0] for t in alone]


def test_blank_long_and_odd_lines(kernels, translator_of, by_torch):
    lines = ["", "dog " * 60, " \t", "\x00", "🙂", "a\u2028b", "the street " * 50]
    translator = translator_of()
    expected = by_torch(translator, lines)
    check_equal(translator.translate(lines), expected)


def test_lines_with_demands_leave_the_bits_of_the_others(kernels, translator_of, by_torch):
    translator = translator_of()
    demands = [NO_CONSTRAINTS] * len(LINES)
    demands[3] = LineConstraints(target_prefix="dog")
    demands[5] = LineConstraints(required=("snow",))
    demands[7] = LineConstraints(banned=("man",))
    mixed = translator.translate(LINES, demands=demands)
    plain = translator.translate(LINES)
    expected = by_torch(translator, LINES, demands=demands)
    for index, (ours, alone, theirs) in enumerate(zip(mixed, plain, expected, strict=True)):
        if index in (3, 5, 7):
            check_equal([ours], [theirs])
        else:
            assert ours == alone


@pytest.mark.parametrize(
    ("beam_size", "settings"),
    [
        (3, {}),
        (1, {"banned": ["dog", "a man", "snow"]}),
        (1, {"min_length": 4, "no_repeat_ngram": 1}),
        (3, {"banned": ["woman"], "min_length_ratio": 0.7, "no_repeat_ngram": 2, "max_length": 0}),
    ],
    ids=repr,
)
def test_rules_and_demands_together_are_met_as_by_torch(
    kernels, translator_of, by_torch, settings, beam_size
):
    before = []
    translator = translator_of(
        beam_size=beam_size, n_best=beam_size, before_batch=lambda: before.append(1), **settings
    )
    demands = [
        LineConstraints(
            target_prefix=("", "snow runs", "a", "dog \ue000")[i % 4],
            required=(WORDS[(i + 4) % 11], WORDS[i * 3 % 11])[: i % 3],
            banned=(WORDS[(i + 5) % 11],) if i % 3 else (),
        )
        for i in range(12)  # each prefix with each of the others
    ]
    # a phrase longer than the longest translation: there is no way
    demands[1] = LineConstraints(required=(" ".join(WORDS * 20),))
    found = translator.translate(LINES[:12], demands=demands)
    assert translator.engine().name == "compiled"
    assert len(before) >= sum(bool(demand.required) for demand in demands)
    assert found[1].unsatisfied == demands[1].required
    check_equal(found, by_torch(translator, LINES[:12], demands=demands))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"sampling": True, "repetition_penalty": 2.0}, "more than plain beam search"),
        ({"repetition_penalty": 1.5}, "more than plain"),
        ({"coverage_penalty": 0.2}, "more than plain"),
        ({"diversity_groups": 3}, "more than plain"),
    ],
    ids=repr,
)
def test_what_the_kernels_do_not_know_is_for_torch(translator_of, by_torch, settings, reason):
    translator = translator_of(**settings)
    assert reason in unsupported_reason(translator)
    assert translator.translate(LINES[:4]) == by_torch(translator, LINES[:4])


def test_models_that_the_kernels_do_not_know_are_for_torch(translator_of):
    translator = translator_of()
    model = translator._model
    joined = Ensemble([model, model], None, "probability")
    assert unsupported_reason(translator_of(joined)) is not None
    integers = translator_of(seed=3)._model
    use_integers(integers, quantized_matrices(integers.state_dict()))
    assert unsupported_reason(translator_of(integers)) is None, "integers they know"
    many_positions = translator_of(replace(CONFIG, max_positions=1 << 20))
    assert "positions would be too large" in unsupported_reason(many_positions)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert "precision" in unsupported_reason(translator)


def test_a_head_switched_off_or_listened_to_is_for_torch(kernels, translator_of, by_torch):
    translator = translator_of()
    attention = translator._model.decoder.layers[1].cross_attention
    before = translator.translate(LINES)
    assert unsupported_reason(translator) is None
    attention.gate = torch.tensor([0.0, 1.0]).view(2, 1, 1)
    assert unsupported_reason(translator) is not None
    gated = translator.translate(LINES)
    assert gated == by_torch(translator, LINES) != before
    attention.gate = None
    heard = []
    handle = attention.tap(heard.append)
    translator.translate(LINES[:2])
    assert heard
    handle.remove()
    assert translator.translate(LINES) == before


@pytest.mark.parametrize("assign", [False, True])
def test_weights_that_change_are_packed_again(kernels, translator_of, by_torch, assign):
    translator = translator_of()
    before = translator.translate(LINES)
    other = translator_of(seed=5)._model
    translator._model.load_state_dict(other.state_dict(), assign=assign)
    after = translator.translate(LINES)
    assert after == translator_of(other).translate(LINES) != before
    check_equal(after, by_torch(translator, LINES))


def test_packed_weights_are_given_back_with_their_model(kernels, translator_of, monkeypatch):
    freed = []
    monkeypatch.setattr(
        "tformer_cli.fast.native.weights.weakref.finalize",
        lambda owner, free, pointer: finalize(
            owner, lambda: (freed.append(pointer), free(pointer))
        ),
    )
    translator = translator_of()
    translator.translate(LINES[:1])
    pointer = translator._searcher._prepared["compiled"]._native._model.pointer
    with torch.no_grad():
        translator._model.target_matrix.add_(1.0)
    translator.translate(LINES[:1])
    assert freed == [pointer]
    del translator
    gc.collect()
    assert len(freed) == 2


def test_without_a_library_torch_translates(translator_of, by_torch, monkeypatch):
    translator = translator_of()

    def refuse(tell):
        raise KernelsUnavailable("they are not built")

    monkeypatch.setattr(native_search, "load_library", refuse)
    assert "not built" in unsupported_reason(translator)
    assert translator.translate(LINES) == by_torch(translator, LINES)


def test_without_memory_for_packed_weights_torch_translates(
    kernels, translator_of, by_torch, monkeypatch
):
    def refuse(library, model):
        raise MemoryError("there is not enough memory for the packed weights")

    monkeypatch.setattr(torch_weights, "native_model", refuse)
    translator = translator_of()
    assert "not enough memory" in unsupported_reason(translator)
    assert translator.translate(LINES[:4]) == by_torch(translator, LINES[:4])


def test_what_before_batch_raises_ends_the_search_soon(kernels, translator_of, monkeypatch):
    class StopError(Exception):
        pass

    begun, ended = threading.Event(), threading.Event()

    def find(self, sources, limits, *, stop, run, **settings):
        def search():
            begun.set()
            while not stop.value:  # a kernel that would never end by itself
                time.sleep(0.001)
            ended.set()

        run(search)

    def look():
        if begun.is_set():
            raise StopError

    monkeypatch.setattr(NativeModel, "search", find)
    translator = translator_of(before_batch=look)
    with pytest.raises(StopError):
        translator.translate(LINES)
    assert ended.is_set()


@pytest.mark.parametrize("n_lines", [1, 200])
@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="POSIX alone")
def test_ctrl_c_ends_kernels_that_compute(kernels, translator_of, n_lines):
    config = ModelConfig(
        d_model=256, n_heads=4, d_ff=1024, n_encoder_layers=2, n_decoder_layers=2, max_positions=512
    )
    beam_size = 8 if n_lines > 1 else 300
    translator = translator_of(config, beam_size=beam_size, max_length=500, max_length_ratio=100.0)
    # as long as it takes to find that nothing stops it: minutes
    lines = [" ".join(WORDS * 4)] * n_lines
    assert unsupported_reason(translator) is None
    main = threading.main_thread().ident
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.5, signal.pthread_kill, (main, signal.SIGINT))
    threads = set(threading.enumerate())

    def translate():
        timer.start()
        translator.translate(lines)

    begun = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            translate()
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - begun < 10
    timer.join()
    assert set(threading.enumerate()) <= threads  # no worker goes on


def test_a_worker_that_fails_ends_the_others(kernels, translator_of, monkeypatch):
    def find(self, sources, limits, *, stop, run, **settings):
        def search():
            if next(numbers) == 0:
                raise MemoryError
            while not stop.value:
                time.sleep(0.001)

        run(search)

    numbers = itertools.count()
    monkeypatch.setattr(NativeModel, "search", find)
    torch.set_num_threads(2)
    with pytest.raises(MemoryError):
        translator_of().translate(LINES)


def test_larger_matrices_need_larger_batches():
    sizes = [
        ModelSize.of(
            SimpleNamespace(config=ModelConfig(**PRESETS[preset]), in_integers=in_integers)
        ).fitting_tokens
        for preset, in_integers in (("tiny", False), ("base", False), ("base", True))
    ]
    assert sizes == [TOKENS_IN_CACHE, TOKENS_BEYOND_CACHE, TOKENS_BEYOND_CACHE]


def test_more_sentences_of_few_hypotheses_are_decoded_at_a_time():
    def tokens_of(n_weights, *, in_integers):
        size = ModelSize(n_weights, in_integers)
        return [size.searched_tokens(n_rows) for n_rows in (1, 2, 4, 5, 300)]

    assert tokens_of(1000, in_integers=False) == [1024, 512, 256, 256, 256]
    assert tokens_of(CACHE_BYTES + 1, in_integers=True) == [4096, 2048, 1024, 1024, 1024]
    # what sentences attend to is the first that leaves the cache, where weights are small
    assert tokens_of(1000, in_integers=True) == [256, 128, 64, 64, 64]


@pytest.mark.parametrize("n_workers", [1, 2, 3])
def test_searches_share_sentences_and_change_no_bit(kernels, translator_of, monkeypatch, n_workers):
    expected = translator_of(batch_tokens=1, n_best=2).translate(LINES * 6)
    monkeypatch.setattr(native_search, "MOST_SENTENCES", 20)
    torch.set_num_threads(n_workers)
    for batch_tokens in (0, 30):
        translator = translator_of(batch_tokens=batch_tokens, n_best=2)
        assert translator.translate(LINES * 6) == expected


def test_results_of_a_search_have_room_that_is_bounded(monkeypatch):
    monkeypatch.setattr(native_search, "MOST_ROOM", 100)
    assert list(portions([2, 0, 1, 3], [30, 200, 50, 20])) == [[2, 0], [1], [3]]
    monkeypatch.setattr(native_search, "MOST_SENTENCES", 2)
    assert list(portions(range(5), [1] * 5)) == [[0, 1], [2, 3], [4]]
    assert list(portions([], [])) == []


@pytest.mark.parametrize("n_workers", [1, 2, 3, 8])
@pytest.mark.parametrize("n_sentences", [0, 1, 2, 5, 64, 500])
@pytest.mark.parametrize("batch_tokens", [1, 100, 4096])
def test_batches_of_equal_work(n_workers, n_sentences, batch_tokens):
    lengths = [1 + 7 * i % 31 for i in range(n_sentences)]
    batches = plan_native_batches(lengths, batch_tokens, n_workers)
    assert sorted(index for batch in batches for index in batch) == list(range(n_sentences))
    for batch in batches:
        assert len(batch) == 1 or sum(lengths[i] for i in batch) <= batch_tokens
    longest = [max(lengths[i] for i in batch) for batch in batches]
    assert longest == sorted(longest, reverse=True)


@pytest.mark.parametrize("n_workers", [1, 2, 3, 8])
@pytest.mark.parametrize("n_sentences", [40, 500])
def test_workers_have_equal_work(n_workers, n_sentences):
    lengths = [20 + 7 * i % 31 for i in range(n_sentences)]
    batches = plan_native_batches(lengths, 1000, n_workers)
    assert len(batches) % n_workers == 0
    work = [sum(lengths[i] for i in batch) for batch in batches]
    assert max(work) - min(work) <= 2 * max(lengths)


@pytest.mark.parametrize("budget", [240, 256, 300, 512])
def test_what_a_full_batch_leaves_over_makes_no_tiny_one(budget):
    lengths = [9 + 7 * i % 17 for i in range(256)]
    work = [sum(lengths[i] for i in batch) for batch in plan_native_batches(lengths, budget, 1)]
    # All weights are read for a batch, however few sentences it has
    assert min(work) > budget / 2


def test_the_stop_flag_is_a_number_in_memory():
    assert ctypes.sizeof(ctypes.c_int) == 4  # as the kernels read it


def test_a_thread_that_gets_no_signal_computes_by_itself():
    def compute_in(n_workers=1, before_batch=never_interrupt):
        def find(batch):
            return [threading.current_thread()] * len(batch)

        found = side_by_side(find, [[0, 1], [2]], n_workers, ctypes.c_int(0), before_batch)
        assert list(found) == [0, 1, 2]
        return set(found.values())

    with ThreadPoolExecutor(1) as pool:
        thread = pool.submit(threading.current_thread).result()
        assert pool.submit(compute_in).result() == {thread}
        # Whoever wants to be called, or has several workers, still is or has
        assert thread not in pool.submit(compute_in, 1, lambda: None).result()
        assert thread not in pool.submit(compute_in, 2).result()
    assert threading.main_thread() not in compute_in()


def test_few_rows_of_a_large_model_share_its_weights():
    large, small = ModelSize(CACHE_BYTES, in_integers=False), ModelSize(1000, in_integers=False)
    assert [large.most_batches(n_rows) for n_rows in (1, 8, 15, 64)] == [1, 1, 1, 8]
    assert ModelSize(CACHE_BYTES + 1, in_integers=True).most_batches(8) == 4
    assert small.most_batches(8) == 8
    assert plan_searches([5] * 4, 100, 4, large.most_batches(4)) == 1
    # what does not fit in a search at a time needs several, whatever they cost
    assert plan_searches([60] * 4, 100, 4, large.most_batches(4)) == 3
    assert [large.threads_of_each(n, 8) for n in (1, 3, 8, 9)] == [8, 2, 1, 1]
    assert large.threads_of_each(1, 64) == MOST_SHARING
    assert small.threads_of_each(1, 8) == 1
