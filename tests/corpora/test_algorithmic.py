"""The built-in algorithmic tasks: rules, splits, gold."""

import itertools
from collections import Counter
from dataclasses import replace

import pytest

from tformer_cli.corpora import algorithmic
from tformer_cli.corpora.algorithmic import TASKS, generate_examples, split_of, write_examples
from tformer_cli.errors import DataError
from tformer_cli.text.config import CorpusConfig
from tformer_cli.text.corpora import corpus_name, read_corpus


@pytest.mark.parametrize(
    ("task", "string", "answer", "gold"),
    [
        ("copy", "b a h", "b a h", "0-0 1-1 2-2"),
        ("reverse", "b a h", "h a b", "2-0 1-1 0-2"),
        ("sort", "3 0 3 1", "0 1 3 3", "1-0 3-1 0-2 2-3"),
        ("parity", "7 0 1", "even", "0 2"),
        ("parity", "4 9 8", "odd", "1"),
        ("parity", "6", "even", ""),
        ("brackets", "( [ ] ) ( )", "balanced", ""),
        ("brackets", "( [ ) ]", "unbalanced", "2"),
        ("brackets", ") (", "unbalanced", "0"),
        ("brackets", "( ( ) [", "unbalanced", "0 3"),
    ],
)
def test_answers_and_gold_follow_from_the_rule(task, string, answer, gold):
    assert TASKS[task].example(string.split()) == (string, answer, gold)


@pytest.mark.parametrize("name", TASKS)
def test_strings_are_distinct_and_in_the_split_of_their_hash(name):
    found = list(generate_examples(name, 600))
    assert Counter(split for split, _ in found) == {"train": 600, "valid": 60, "test": 60}
    strings = [example.source for _, example in found]
    assert len(set(strings)) == len(strings)
    assert all(split == split_of(name, example.source) for split, example in found)
    for _, example in found:
        assert TASKS[name].example(example.source.split()) == example
    labels = Counter(example.target for _, example in found)
    if TASKS[name].has_labels:
        assert len(labels) == 2
        assert min(labels.values()) > 0.3 * len(found)


def test_brackets_are_balanced_if_pairs_can_be_taken_out_until_nothing_is_left():
    for length in range(1, 7):
        for string in itertools.product("([)]", repeat=length):
            left = "".join(string)
            while (shorter := left.replace("()", "").replace("[]", "")) != left:
                left = shorter
            expected = "unbalanced" if left else "balanced"
            assert TASKS["brackets"].example(string).target == expected


def test_the_same_seed_gives_the_same_strings_and_more_of_them_begin_alike():
    one, other = (list(generate_examples("sort", 50)) for _ in range(2))
    assert one == other
    train = [example for split, example in generate_examples("sort", 80) if split == "train"]
    assert train[:50] == [example for split, example in one if split == "train"]
    assert list(generate_examples("sort", 50, seed=2)) != one


def test_there_is_an_end_to_strings(monkeypatch):
    with pytest.raises(DataError, match="pairs: must be 1 to 50,000 for algorithmic tasks"):
        next(iter(generate_examples("copy", 0)))
    few = replace(TASKS["copy"], draw=lambda rng: [rng.pick("abc")])
    monkeypatch.setattr(algorithmic, "TASKS", {"few": few})
    with pytest.raises(DataError, match="pairs: there are no more strings for few; ask for fewer"):
        list(generate_examples("few", 10))


def test_a_recipe_reads_them_as_pairs():
    corpus = CorpusConfig(algorithmic="reverse", split="test", pairs=100)
    pairs = list(read_corpus(corpus))
    assert len(pairs) == 10
    assert all(pair.source.split() == pair.target.split()[::-1] for pair in pairs)
    assert corpus_name(corpus) == "built-in reverse, test"
    texts = read_corpus(CorpusConfig(algorithmic="sort", text_field="target", pairs=5))
    assert all(sorted(text.split()) == text.split() and not blank for blank, text in texts)
    with pytest.raises(ValueError, match='algorithmic: must be one of "copy", "reverse", "sort"'):
        CorpusConfig(algorithmic="shuffle")
    with pytest.raises(ValueError, match='split: must be "train", "valid" or "test"'):
        CorpusConfig(algorithmic="sort", split="all")


def test_files_replace_only_their_own(tmp_path):
    counts = write_examples(tmp_path, "copy", 60)
    assert counts == {"train": 60, "valid": 6, "test": 6}
    write_examples(tmp_path, "reverse", 30)
    (tmp_path / "test.source").write_text("mine\n")
    with pytest.raises(
        DataError, match=r"holds train\.source, .* which this command did not write"
    ):
        write_examples(tmp_path, "reverse", 30)
    assert (tmp_path / "test.source").read_text() == "mine\n"
