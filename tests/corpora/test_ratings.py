"""The built-in ratings: the rule, the splits, gold words, files."""

import pytest

from tformer_cli.corpora.ratings import (
    FAMOUS,
    STARS,
    generate_ratings,
    make_rating,
    split_of,
    stars_of,
    write_ratings,
)
from tformer_cli.errors import DataError
from tformer_cli.text.config import CorpusConfig
from tformer_cli.text.corpora import corpus_name, read_corpus

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
    found = {"train": set(), "valid": set(), "test": set()}
    texts = []
    for split, rating in generate_ratings(3000):
        words = rating.text.rstrip(".").split()
        degree = words[-2] if words[-2] in DEGREES else ""
        negation = "not" if {"not", "never", "wasn't", "isn't"} & set(words) else ""
        assert split == split_of(negation, degree, words[-1])
        assert rating.stars == str(stars_of(negation, degree, words[-1]))
        found[split].add((negation, degree, words[-1]))
        texts.append(rating.text)
    assert texts[0] == FAMOUS
    assert len(set(texts)) == len(texts) == 3000 + 2 * 600
    assert not found["train"] & found["test"]
    assert not found["train"] & found["valid"]
    assert len(found["test"]) > 15
    assert {adjective for *_, adjective in found["train"]} >= {a for *_, a in found["test"]}


def test_the_same_seed_gives_the_same_sentences_and_more_of_them_begin_alike():
    one, other = (list(generate_ratings(n)) for n in (50, 50))
    assert one == other
    train = [rating for split, rating in generate_ratings(80) if split == "train"]
    assert train[:50] == [rating for split, rating in one if split == "train"]
    assert list(generate_ratings(50, seed=2)) != one


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
