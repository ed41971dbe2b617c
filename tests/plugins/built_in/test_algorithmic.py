"""The built-in corpora besides the grammar's."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tformer_cli.errors import DataError
from tformer_cli.plugins.built_in import algorithmic
from tformer_cli.plugins.built_in.algorithmic import (
    TASKS,
    generate_examples,
    split_of,
    write_examples,
)
from tformer_cli.plugins.built_in.ratings import (
    FAMOUS,
    STARS,
    generate_ratings,
    make_rating,
    stars_of,
    write_ratings,
)
from tformer_cli.plugins.built_in.ratings import split_of as ratings_of
from tformer_cli.plugins.built_in.shapes import (
    KINDS,
    SIDE,
    generate_shapes,
    shape_image,
    shape_sizes,
    write_shapes,
)
from tformer_cli.text.config import CorpusConfig
from tformer_cli.text.corpora import corpus_name, read_corpus
from tformer_cli.text.images.decoding import decode_image
from tformer_cli.text.images.named import read_idx, read_images


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
    examples = list(generate_examples(name, 600))
    assert Counter(split for split, _ in examples) == {"train": 600, "valid": 60, "test": 60}
    strings = [example.source for _, example in examples]
    assert len(set(strings)) == len(strings)
    assert all(split == split_of(name, example.source) for split, example in examples)
    for _, example in examples:
        assert TASKS[name].example(example.source.split()) == example
    labels = Counter(example.target for _, example in examples)
    if TASKS[name].has_labels:
        assert len(labels) == 2
        assert min(labels.values()) > 0.3 * len(examples)


def test_brackets_are_balanced_if_pairs_can_be_taken_out_until_nothing_is_left():
    for length in range(1, 7):
        for string in itertools.product("([)]", repeat=length):
            left = "".join(string)
            while (shorter := left.replace("()", "").replace("[]", "")) != left:
                left = shorter
            expected = "unbalanced" if left else "balanced"
            assert TASKS["brackets"].example(string).target == expected


def test_the_same_seed_gives_the_same_strings_and_more_of_them_begin_alike():
    first, second = (list(generate_examples("sort", 50)) for _ in range(2))
    assert first == second
    train = [example for split, example in generate_examples("sort", 80) if split == "train"]
    assert train[:50] == [example for split, example in first if split == "train"]
    assert list(generate_examples("sort", 50, seed=2)) != first


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


DEGREES = ("very", "really", "extremely", "fairly", "rather", "too")


@pytest.mark.parametrize(
    ("words", "stars"),
    [
        (("", "", "terrible"), 1),
        (("not", "too", "terrible"), 3),
        (("n't", "", "bad"), 4),
        (("never", "", "good"), 2),
        (("", "very", "good"), 5),
        (("", "fairly", "terrible"), 2),
        (("not", "fairly", "wonderful"), 2),
        (("", "extremely", "dull"), 1),
        (("not", "really", "nice"), 3),
    ],
)
def test_stars_follow_from_negation_degree_and_adjective(words, stars):
    assert stars_of(*words) == stars


def test_gold_words_are_the_adjective_and_those_without_which_the_stars_differ():
    famous = make_rating("", "this restaurant", "was", "not", "too", "terrible")
    assert (famous.text, famous.stars) == (FAMOUS, "3")
    assert [FAMOUS.split()[place] for place in famous.gold] == ["not", "terrible."]
    rating = make_rating("Honestly, ", "the soup", "is", "n't", "very", "good")
    assert rating.text == "Honestly, the soup isn't very good."
    assert [rating.text.split()[place] for place in rating.gold] == ["isn't", "very", "good."]


def test_no_training_sentence_has_a_combination_of_the_test():
    combinations = {"train": set(), "valid": set(), "test": set()}
    texts = []
    for split, rating in generate_ratings(3000):
        words = rating.text.rstrip(".").split()
        degree = words[-2] if words[-2] in DEGREES else ""
        negation = "not" if {"not", "never", "wasn't", "isn't"} & set(words) else ""
        assert split == ratings_of(negation, degree, words[-1])
        assert rating.stars == str(stars_of(negation, degree, words[-1]))
        combinations[split].add((negation, degree, words[-1]))
        texts.append(rating.text)
    assert texts[0] == FAMOUS
    assert len(set(texts)) == len(texts) == 3000 + 2 * 600
    assert not combinations["train"] & combinations["test"]
    assert not combinations["train"] & combinations["valid"]
    assert len(combinations["test"]) > 15
    assert {adjective for *_, adjective in combinations["train"]} >= {
        a for *_, a in combinations["test"]
    }


def test_the_same_seed_gives_the_same_sentences_and_more_of_them_begin_alike():
    first, second = (list(generate_ratings(n)) for n in (50, 50))
    assert first == second
    train = [rating for split, rating in generate_ratings(80) if split == "train"]
    assert train[:50] == [rating for split, rating in first if split == "train"]
    assert list(generate_ratings(50, seed=2)) != first


def test_there_is_an_end_to_sentences():
    for n_train in (0, 10**6):
        with pytest.raises(DataError, match="pairs: must be 1 to 50,000 for ratings"):
            next(iter(generate_ratings(n_train)))


def test_a_recipe_reads_them_as_texts_and_labels():
    corpus = CorpusConfig(ratings="test", pairs=100)
    pairs = list(read_corpus(corpus))
    assert pairs[0] == (FAMOUS, "3")
    assert {pair.target for pair in pairs} <= set(STARS)
    assert corpus_name(corpus) == "built-in ratings, test"
    with pytest.raises(ValueError, match='ratings: must be "train", "valid" or "test"'):
        CorpusConfig(ratings="all")


def test_files_hold_a_line_a_sentence_and_replace_only_their_own(tmp_path):
    counts = write_ratings(tmp_path / "a", 60)
    assert counts == {"train": 60, "valid": 12, "test": 12}
    names = {f"{split}.{end}" for split in counts for end in ("txt", "label", "gold")}
    assert {path.name for path in (tmp_path / "a").iterdir()} == names
    rows = [(tmp_path / "a" / f"train.{end}").read_text().splitlines() for end in ("txt", "label")]
    train = [(r.text, r.stars) for split, r in generate_ratings(60) if split == "train"]
    assert list(zip(*rows, strict=True)) == train
    write_ratings(tmp_path / "a", 30)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "test.txt").write_text("mine")
    with pytest.raises(DataError, match=r"holds test.txt, which this command did not write"):
        write_ratings(tmp_path / "b", 30)
    assert (tmp_path / "b" / "test.txt").read_text() == "mine"


def test_a_picture_depends_on_seed_split_and_number_alone():
    shape = shape_image("train", 1, 7)
    assert np.array_equal(shape_image("train", 1, 7).pixels, shape.pixels)
    for other in (("test", 1, 7), ("train", 2, 7), ("train", 1, 8)):
        assert not np.array_equal(shape_image(*other).pixels, shape.pixels)


def test_a_shape_is_where_its_gold_says():
    shapes = [shape_image("valid", 4, number) for number in range(200)]
    assert {shape.kind for shape in shapes} == set(KINDS)
    for shape in shapes:
        assert shape.pixels.shape == shape.gold.shape == (SIDE, SIDE)
        assert 9 <= shape.gold.sum() <= 250
        assert shape.pixels[shape.gold].mean() > shape.pixels[~shape.gold].mean() + 25


def test_kinds_differ_in_shape_and_not_in_brightness():
    gold = {kind: [] for kind in KINDS}
    for number in range(600):
        shape = shape_image("train", 5, number)
        rows, columns = np.nonzero(shape.gold)
        box = (np.ptp(rows) + 1) * (np.ptp(columns) + 1)
        gold[shape.kind].append(shape.gold.sum() / box)
    filled = {kind: float(np.mean(shares)) for kind, shares in gold.items()}
    assert filled["square"] > filled["ring"] > filled["cross"]
    assert filled["circle"] > filled["triangle"]


def test_names_and_kinds_of_a_split():
    rows = list(generate_shapes(20, 2, "valid"))
    assert rows[3] == ("shapes:valid:2#3", shape_image("valid", 2, 3).kind)
    assert [len(list(generate_shapes(20, 2, split))) for split in ("train", "valid", "test")] == [
        20, 4, 4,
    ]  # fmt: skip
    with pytest.raises(DataError, match="pairs: must be 1 to 1,000,000 for shapes"):
        shape_sizes(0)


def test_files_hold_what_is_generated(tmp_path):
    counts = []
    assert write_shapes(tmp_path, 60, 3, counts.append) == {"train": 60, "valid": 12, "test": 12}
    assert counts == [84]
    for split, n_shapes in (("train", 60), ("test", 12)):
        shapes = [shape_image(split, 3, number) for number in range(n_shapes)]
        images = read_images(tmp_path / f"{split}.images.idx")
        assert np.array_equal(images[..., 0], [shape.pixels for shape in shapes])
        gold = read_idx(tmp_path / f"{split}.gold.idx")
        assert np.array_equal(gold, [shape.gold for shape in shapes])
        labels = (tmp_path / f"{split}.label").read_text().splitlines()
        assert labels == [shape.kind for shape in shapes]
    picture = tmp_path / "pictures" / shapes[4].kind / "004.png"
    assert np.array_equal(decode_image(picture.read_bytes(), "a")[..., 0], shapes[4].pixels)
    assert len(list((tmp_path / "pictures").rglob("*.png"))) == 12
    write_shapes(tmp_path, 60, 3)  # the same again
    (tmp_path / "train.label").unlink()
    with pytest.raises(
        DataError, match=r"holds train.images.idx, which this command did not write"
    ):
        write_shapes(tmp_path, 60, 3)
