import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tformer_cli.errors import DataError
from tformer_cli.text.config import CorpusConfig, DataConfig
from tformer_cli.text.loading import encoded
from tformer_cli.text.loading.encoded import cache_directory, encode_corpus


@pytest.fixture
def corpus(tmp_path, pairs):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{s}\t{t}\n" for s, t in pairs), encoding="utf-8")
    return CorpusConfig(tsv=str(path))


@pytest.fixture
def data(tmp_path, corpus):
    return DataConfig(train=(corpus,), cache_directory=str(tmp_path / "cache"))


@pytest.fixture
def bpe(tokenizers):
    return tokenizers["bpe"]


def test_ids_texts_and_lengths_are_those_of_the_pairs(corpus, data, bpe, pairs, monkeypatch):
    monkeypatch.setattr(encoded, "CHUNK_PAIRS", 64)
    built = encode_corpus(corpus, data, bpe)
    assert len(built) == built.n_read == len(pairs)
    rows = np.random.default_rng(0).permutation(len(pairs))
    sources, targets = zip(*(pairs[row] for row in rows), strict=True)
    assert built.texts(rows) == (list(sources), list(targets))
    assert built.token_ids(rows) == (bpe.encode_batch(sources), bpe.encode_batch(targets))
    n_tokens = [[len(bpe.encode(text)) for text in side] for side in (sources, targets)]
    assert built.lengths(rows).tolist() == n_tokens
    assert built.longest == max(map(max, n_tokens))
    assert built.token_ids([]) == ([], [])


def test_the_second_time_it_comes_from_the_cache(corpus, data, bpe):
    seen = []
    first = encode_corpus(corpus, data, bpe, seen.append)
    assert seen == [len(first)]
    second = encode_corpus(corpus, data, bpe, seen.append)
    assert len(seen) == 1
    assert (first.from_cache, second.from_cache) == (False, True)
    assert first.fingerprint == second.fingerprint
    assert first.token_ids([5, 2]) == second.token_ids([5, 2])


def test_the_name_and_place_of_a_file_do_not_matter_but_its_content_does(
    corpus, data, bpe, tmp_path
):
    first = encode_corpus(corpus, data, bpe)
    path = tmp_path / "moved.tsv"
    Path(corpus.tsv).rename(path)
    moved = replace(corpus, tsv="moved.tsv", weight=3.0)
    assert encode_corpus(moved, replace(data, directory=str(tmp_path)), bpe).from_cache
    path.write_bytes(path.read_bytes().replace(b"dog", b"cat", 1))
    changed = encode_corpus(replace(corpus, tsv=str(path)), data, bpe)
    assert not changed.from_cache
    assert changed.fingerprint != first.fingerprint


def test_filters_fields_and_tokenizer_are_part_of_the_content(corpus, data, bpe, tokenizers):
    variants = [
        (corpus, data, bpe),
        (corpus, replace(data, max_length=10), bpe),
        (corpus, replace(data, max_length_ratio=2.0), bpe),
        (replace(corpus, source_field="2", target_field="1"), data, bpe),
        (corpus, data, tokenizers["char"]),
    ]
    assert len({encode_corpus(*variant).fingerprint for variant in variants}) == len(variants)


def test_dropped_pairs_are_counted(tmp_path, data, tokenizers):
    path = tmp_path / "odd.tsv"
    lines = ["a\tb", "\tb", "a\t \u2028", "aaaaaa\tb", "aaa\tb", "b\taaa", "aa\tb", "\tx\ty"]
    path.write_bytes("\n".join(lines).encode() + b"\n\xff\tb\n")
    limits = replace(data, max_length=4, max_length_ratio=2.0)
    built = encode_corpus(CorpusConfig(tsv=str(path)), limits, tokenizers["byte"])
    assert built.dropped == {"blank": 3, "too_long": 1, "ratio": 3}
    assert built.texts(range(len(built))) == (["a", "aa"], ["b", "b"])
    assert built.n_read == len(lines) + 1
    assert built.not_utf8 == 1


def test_an_empty_corpus_has_no_pairs(tmp_path, data, bpe):
    path = tmp_path / "empty.tsv"
    path.write_bytes(b"")
    for _ in range(2):
        built = encode_corpus(CorpusConfig(tsv=str(path)), data, bpe)
        assert len(built) == built.longest == 0
        assert built.lengths([]).shape == (2, 0)


def damage_by_cutting(path):
    os.truncate(path, path.stat().st_size // 2)


def damage_by_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def damage_by_removing(path):
    path.unlink()


@pytest.mark.parametrize("ending", ["arrow", "json"])
@pytest.mark.parametrize("damage", [damage_by_cutting, damage_by_a_bit, damage_by_removing])
def test_a_damaged_cache_is_built_again(corpus, data, bpe, ending, damage):
    whole = encode_corpus(corpus, data, bpe)
    rows = range(len(whole))
    n_read, ids = whole.n_read, whole.token_ids(rows)
    del whole  # nothing may be mapped while the file is cut
    [path] = cache_directory(data).glob(f"*.{ending}")
    damage(path)
    again = encode_corpus(corpus, data, bpe)
    if ending == "arrow" or damage is not damage_by_a_bit:
        assert not again.from_cache
    assert again.n_read == n_read
    assert again.token_ids(rows) == ids
    assert encode_corpus(corpus, data, bpe).from_cache


def test_a_file_that_changes_while_it_is_read_is_not_kept(corpus, data, bpe, monkeypatch):
    original = encoded.record_batch

    def change(*columns):
        with Path(corpus.tsv).open("a") as file:
            file.write("more\tmehr\n")
        return original(*columns)

    monkeypatch.setattr(encoded, "record_batch", change)
    with pytest.raises(DataError, match=r"pairs\.tsv: changed while being read; start again"):
        encode_corpus(corpus, data, bpe)
    assert list(cache_directory(data).iterdir()) == []


def test_builders_at_the_same_time_do_not_disturb_each_other(corpus, data, bpe):
    with ThreadPoolExecutor(4) as pool:
        built = list(pool.map(lambda _: encode_corpus(corpus, data, bpe), range(4)))
    rows = range(len(built[0]))
    assert all(dataset.token_ids(rows) == built[0].token_ids(rows) for dataset in built)
    assert encode_corpus(corpus, data, bpe).from_cache
    assert len(list(cache_directory(data).iterdir())) == 2


def test_an_error_leaves_nothing_and_old_leftovers_go(corpus, data, bpe, tmp_path):
    cache = cache_directory(data)
    cache.mkdir()
    old, new = cache / "old.partial", cache / "new.partial"
    for path in (old, new):
        path.touch()
    os.utime(old, (time.time() - 90_000,) * 2)
    (tmp_path / "bad.tsv").write_text("one column\n")
    with pytest.raises(DataError, match="columns are split at tabs"):
        encode_corpus(CorpusConfig(tsv=str(tmp_path / "bad.tsv")), data, bpe)
    assert list(cache.iterdir()) == [new]


def test_a_cache_that_cannot_be_written_names_the_setting(corpus, data, bpe, tmp_path):
    (tmp_path / "file").touch()
    blocked = replace(data, cache_directory=str(tmp_path / "file" / "cache"))
    with pytest.raises(
        DataError,
        match=r"the cache of tokenized corpora cannot be written .*set data\.cache_directory",
    ):
        encode_corpus(corpus, blocked, bpe)


def test_without_a_setting_the_cache_is_the_common_one(data, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory(replace(data, cache_directory="")) == tmp_path / "tformer"


def test_the_built_in_corpus_and_local_datasets_are_cached_too(tmp_path, data, bpe):
    (tmp_path / "d.json").write_text('{"source": "The dog", "target": "Der Hund"}\n')
    for corpus in (
        CorpusConfig(built_in="valid", pairs=40),
        CorpusConfig(dataset=str(tmp_path / "d.json")),
    ):
        first = encode_corpus(corpus, data, bpe)
        assert len(first) > 0
        assert encode_corpus(corpus, data, bpe).from_cache
