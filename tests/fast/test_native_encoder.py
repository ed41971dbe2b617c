"""Encoders by the kernels against torch, and a text alone against among others."""

import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from tformer_cli.artifacts.model_directory import read_model_directory
from tformer_cli.fast import native_encoder, native_search
from tformer_cli.fast.native.library import KernelsUnavailable
from tformer_cli.fast.native_encoder import CompiledEncoder, compiled_encoder
from tformer_cli.foreign.import_model import import_model
from tformer_cli.kinds.lines.embed import embed_texts
from tformer_cli.kinds.lines.fill import GapFiller
from tformer_cli.kinds.lines.score import score_masked
from tformer_cli.kinds.opening import open_model
from tformer_cli.kinds.stored_model import DirectoryModel
from tformer_cli.search.encoding import label_probabilities
from tformer_cli.search.pooled import LabelHead

TEXTS = ["A man", "the street", "Two dogs run in the snow", "a", "dog " * 30, "A man"]


@pytest.fixture(scope="module")
def opened(classifier):
    return read_model_directory(classifier, tasks=("classify",))


@pytest.fixture(scope="module")
def ids(opened):
    return [tokens[:39] for tokens in opened[0].tokenizer.source.encode_batch(TEXTS)]


def test_labels_are_as_probable_as_by_torch(kernels, opened, ids):
    directory, weights = opened
    encoder = compiled_encoder(DirectoryModel(directory, weights, in_integers=False))
    assert isinstance(encoder, CompiledEncoder)
    head = LabelHead(directory.config, weights)
    found = encoder.each(ids, lambda _, hidden: head.probabilities(hidden))
    expected = label_probabilities(directory.classifier, ids)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_every_bit_is_the_same_whatever_is_beside_a_text(kernels, opened, ids, monkeypatch):
    model = DirectoryModel(*opened, in_integers=False)
    encoder = compiled_encoder(model)
    alone = [encoder.each([text], lambda _, hidden: hidden.copy())[0] for text in ids]
    assert [len(hidden) for hidden in alone] == [len(text) + 1 for text in ids]
    for n_threads in (1, 2, 3):
        for tokens in (1, 20, 4096):
            monkeypatch.setattr(native_search, "TOKENS_IN_CACHE", tokens)
            other = CompiledEncoder(encoder._native, encoder._size, n_threads)
            together = other.each(ids, lambda number, hidden: (number, hidden.copy()))
            assert [number for number, _ in together] == list(range(len(ids)))
            for expected, (_, hidden) in zip(alone, together, strict=True):
                np.testing.assert_array_equal(expected, hidden)


def test_a_short_text_is_computed_without_another_thread(kernels, opened, ids):
    encoder = compiled_encoder(DirectoryModel(*opened, in_integers=False), n_threads=2)

    def threads_of(texts):
        return set(encoder.each(texts, lambda _, hidden: threading.current_thread()))

    assert threads_of(ids[:1]) == {threading.current_thread()}
    assert threading.current_thread() not in threads_of(ids * 50)  # it waits for signals


def test_what_is_raised_ends_the_work(kernels, opened, ids):
    encoder = compiled_encoder(DirectoryModel(*opened, in_integers=False), n_threads=2)

    def refuse():
        raise KeyboardInterrupt

    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        encoder.each(ids * 50, lambda _, hidden: None, before_batch=refuse)
    assert set(threading.enumerate()) <= before  # no worker goes on
    assert encoder.each([], lambda _, hidden: None) == []


def test_what_cannot_be_is_a_reason(kernels, opened, monkeypatch):
    directory, weights = opened
    alibi = replace(directory, config=replace(directory.config, positions="alibi"))
    reason = compiled_encoder(DirectoryModel(alibi, weights, in_integers=False))
    assert reason == 'they do not know positions = "alibi"'

    def refuse(tell):
        raise KernelsUnavailable("they are not built")

    monkeypatch.setattr(native_encoder, "load_library", refuse)
    assert compiled_encoder(DirectoryModel(*opened, in_integers=False)) == "they are not built"


def test_classifying_does_not_import_torch(kernels, classifier):
    code = (
        "import sys; from tformer_cli.kinds.opening import open_model;"
        "from tformer_cli.kinds.lines.classify import classify_lines;"
        f"opened = open_model({str(classifier)!r}, 'classify', device='cpu');"
        "result, blank = classify_lines(opened, ['A man', '']);"
        "assert len(result.labels) == 3 and not blank.labels;"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_in_integers_it_is_nearly_the_same(kernels, opened, ids):
    exact, rounded = (
        compiled_encoder(DirectoryModel(*opened, in_integers=in_integers)).each(
            ids, lambda _, hidden: torch.from_numpy(hidden.copy())
        )
        for in_integers in (False, True)
    )
    for state, other in zip(exact, rounded, strict=True):
        assert 0.0 < (state - other).norm() < 0.2 * state.norm()


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_texts_are_embedded_as_by_torch(kernels, classifier, pooling):
    opened = open_model(classifier, "embed", device="cpu")
    assert opened.compiled is not None
    settings = {"pooling": pooling, "unit_length": True}
    found = embed_texts(opened, [*TEXTS, ""], **settings)
    by_torch = embed_texts(replace(opened, compiled=None), [*TEXTS, ""], **settings)
    assert found[-1].vector is None
    for ours, theirs in zip(found[:-1], by_torch[:-1], strict=True):
        np.testing.assert_allclose(ours.vector, theirs.vector, atol=1e-5)
        assert (ours.index, ours.is_truncated) == (theirs.index, theirs.is_truncated)
    assert (embed_texts(opened, TEXTS[2:3], **settings)[0].vector == found[2].vector).all()


MASKED = [
    ("roberta", {}),
    ("bert", {"hidden_act": "gelu_new"}),
    ("bert", {"hidden_act": "silu", "tie_word_embeddings": False}),
    ("distilbert", {"activation": "relu"}),
]


@pytest.fixture(scope="module", params=MASKED, ids=lambda param: param[0])
def filler(request, kernels, tmp_path_factory):
    """A masked language model with all parameters random, opened for `fill`."""
    pytest.importorskip("transformers")
    from tests.foreign import encoders

    kind, changes = request.param
    path = tmp_path_factory.mktemp("masked")
    encoders.write_directory(path / "a", kind, "ForMaskedLM", **changes)
    import_model(str(path / "a"), path / "ours")
    return GapFiller(open_model(path / "ours", "fill", device="cpu"))


def test_gaps_are_filled_as_by_torch(filler):
    assert filler._opened.head is not None
    by_torch = GapFiller(replace(filler._opened, compiled=None))
    texts = ["the soup was [MASK].", "[MASK] [MASK]", "no gap", "", "un[MASK] caf\u00e9 <mask>"]
    for top in (1, 4, 0):
        pairs = zip(filler.fill(texts, top), by_torch.fill(texts, top), strict=True)
        for ours, theirs in pairs:
            assert (ours.filled, len(ours.gaps)) == (theirs.filled, len(theirs.gaps))
            for gap, expected in zip(ours.gaps, theirs.gaps, strict=True):
                assert len(gap) == len(expected) > 0
                shares = [candidate.probability for candidate in gap]
                assert shares == pytest.approx([c.probability for c in expected], rel=1e-4)
                assert shares == sorted(shares, reverse=True)
                if top == 4:
                    assert [c.piece for c in gap] == [c.piece for c in expected]


def test_filling_gives_the_same_bits_whatever_is_beside_a_text_and_imports_no_torch(filler):
    texts = ["the soup was [MASK].", "[MASK] [MASK] terrible", "a [MASK]"] * 3
    together = filler.fill(texts, 5)
    for text, filled in zip(texts, together, strict=True):
        assert filler.fill([text], 5)[0].gaps == filled.gaps
    code = (
        "import sys; from tformer_cli.kinds.lines.fill import GapFiller;"
        "from tformer_cli.kinds.opening import open_model;"
        f"opened = open_model({str(filler._opened.directory.path)!r}, 'fill', device='cpu');"
        "(filled,) = GapFiller(opened).fill(['the [MASK]']);"
        "assert filled.gaps and 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_texts_are_scored_as_by_torch(filler):
    texts = ["the soup was good", "", "un[MASK] caf\u00e9", "a"]
    opened = filler._opened
    by_torch = score_masked(replace(opened, compiled=None), texts)
    for ours, theirs in zip(score_masked(opened, texts), by_torch, strict=True):
        assert ours.token_ids == theirs.token_ids
        steps, expected = ours.token_log_probabilities, theirs.token_log_probabilities
        assert steps == pytest.approx(expected, abs=1e-4)
