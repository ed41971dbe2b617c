from typing import get_args

import pytest

from tests.commands import run
from tformer_cli.cli.commands.make_corpus import Task
from tformer_cli.corpora.make_corpus import BUILT_IN


def test_writes_every_file_and_prints_the_directory(tmp_path):
    directory = tmp_path / "corpus"
    result = run("make-corpus", directory, "--pairs", "50")
    assert result.exit_code == 0
    assert result.stdout == f"{directory}\n"
    assert "50 train" in result.stderr
    endings = ("en", "fr", "tok.en", "tok.fr", "align")
    names = {f"{split}.{ending}" for split in ("train", "valid", "test") for ending in endings}
    assert {entry.name for entry in directory.iterdir()} == names
    counts = {name: (directory / name).read_bytes().count(b"\n") for name in names}
    assert all(counts[f"train.{ending}"] == 50 for ending in endings)


def test_ratings_are_sentences_stars_and_gold_words(tmp_path):
    directory = tmp_path / "ratings"
    arguments = ["make-corpus", str(directory), "--task", "rating", "--pairs", "50"]
    result = run(*arguments)
    assert result.exit_code == 0
    assert result.stdout == f"{directory}\n"
    assert "50 train, 10 valid, 10 test sentences" in result.stderr
    assert (directory / "test.txt").read_text().startswith("This restaurant was not too terrible.")
    assert (directory / "test.gold").read_text().startswith("3 5\n")


@pytest.mark.parametrize(
    ("task", "first", "answer", "gold"),
    [("sort", "source", "target", "align"), ("parity", "txt", "label", "gold")],
)
def test_strings_have_answers_and_gold(tmp_path, task, first, answer, gold):
    directory = tmp_path / task
    arguments = ["make-corpus", str(directory), "--task", task, "--pairs", "30", "--seed", "4"]
    result = run(*arguments)
    assert result.exit_code == 0
    assert "30 train, 3 valid, 3 test strings" in result.stderr
    rows = [(directory / f"train.{end}").read_text().splitlines() for end in (first, answer, gold)]
    for string, target, places in zip(*rows, strict=True):
        if task == "sort":
            assert target.split() == sorted(string.split())
        else:
            assert target == ("odd" if sum(map(int, string.split())) % 2 else "even")
            assert len(places.split()) == sum(int(one) % 2 for one in string.split())


def test_every_built_in_corpus_can_be_asked_for():
    assert get_args(Task) == tuple(BUILT_IN)
