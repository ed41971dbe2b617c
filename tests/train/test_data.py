import pytest

from tformer_cli.errors import DataError, RecipeError
from tformer_cli.recipe import make_recipe
from tformer_cli.train.data import notes
from tformer_cli.train.train import train


class Corpus:
    """What `notes` reads of an encoded corpus."""

    def __init__(self):
        self.dropped = {"blank": 2, "too_long": 1200, "ratio": 0}
        self.from_cache = True
        self.not_utf8 = 3

    def __len__(self):
        return 5000


def test_omitted_and_broken_lines_are_reported():
    values = {"data": {"train": [{"tsv": "a.tsv"}], "max_length": 9}, "training": {"max_steps": 1}}
    recipe = make_recipe(values, "here")
    expected = (
        "a.tsv: 5,000 pairs, from the cache; skipped: 2 blank on one side, 1,200 over 9 "
        "tokens; 3 lines not UTF-8, read as U+FFFD"
    )
    assert list(notes(recipe, [Corpus()])) == [expected]


def test_weights_that_leave_nothing_of_an_epoch_are_an_error_before_a_run_begins(tmp_path):
    (tmp_path / "a.tsv").write_text("one\tun\n")
    corpus = {"tsv": str(tmp_path / "a.tsv"), "weight": 0.4}
    values = {
        "data": {"train": [corpus], "cache_directory": str(tmp_path)},
        "tokenizer": {"vocab_size": 300},
        "training": {"max_steps": 1},
    }
    with pytest.raises(DataError, match="weights leave no sentence pair in an epoch; raise data"):
        train(make_recipe(values, "here"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_of_two_vocabularies_is_refused_for_a_model_from_scratch(foreign, tmp_path):
    (tmp_path / "a.tsv").write_text("one\tun\n")
    values = {
        "data": {"train": [{"tsv": str(tmp_path / "a.tsv")}]},
        "tokenizer": {"path": str(foreign)},
        "training": {"max_steps": 1},
    }
    with pytest.raises(RecipeError, match=r"tokenizer.path: .* has two vocabularies, which only"):
        train(make_recipe(values, "here"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
