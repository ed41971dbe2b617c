"""Commands that print what ships: recipes, help and built-in corpora."""

from typing import get_args

import pytest
import typer
from typer.testing import CliRunner

from tests.commands import run, under
from tformer_cli.cli.app import app
from tformer_cli.plugins.built_in.commands.make_corpus import Task
from tformer_cli.plugins.built_in.make_corpus import BUILT_IN
from tformer_cli.recipe import load_recipe, recipe_names, recipes_directory

recipes_refused, recipes = under("recipes", "refused", "run")


def test_every_shipped_recipe_is_listed_with_its_summary():
    result = recipes()
    assert result.exit_code == 0
    # a line each in a pipe, for grep and awk
    assert [line.split(" ", 1)[0] for line in result.stdout.splitlines()] == recipe_names()
    output = " ".join(result.stdout.split())
    assert "multi30k-en-de Multi30k (Elliott et al. 2016), English to German: 29,000" in output
    assert "Data: Multi30k, from https://github.com/multi30k/dataset" in output


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_is_shown_as_it_is(name):
    assert recipes("show", name).stdout_bytes == (recipes_directory() / f"{name}.toml").read_bytes()


def test_a_copy_is_the_same_and_trains(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = recipes("copy", "quickstart")
    assert (result.exit_code, result.stdout) == (0, "quickstart.toml\n")
    assert "tformer train quickstart.toml" in result.stderr
    assert load_recipe("quickstart.toml") == load_recipe("quickstart")
    assert recipes("copy", "template", "-o", tmp_path / "my.toml", "-q").stderr == ""
    shipped = (recipes_directory() / "template.toml").read_bytes()
    assert (tmp_path / "my.toml").read_bytes() == shipped


def test_nothing_is_overwritten(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.toml").write_text("mine")
    (tmp_path / "link.toml").symlink_to("nowhere")
    for name in ("my.toml", "link.toml"):
        result = recipes("copy", "template", "-o", name)
        assert result.exit_code == 2
        assert result.stderr == f"error: --output: {name} exists already; name another file\n"
    assert (tmp_path / "my.toml").read_text() == "mine"
    recipes_refused("show", "quikstart")
    assert "quickstart" in recipes("copy", "quikstart").stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["link.toml", "my.toml"]


ENV = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}


def shown_by(*args):
    return CliRunner().invoke(app, args, env=ENV, prog_name="tformer")


@pytest.mark.parametrize(
    "words", [[], ["translate"], ["tokenize"], ["tokenize", "train"], ["inspect", "heads"]]
)
def test_help_shows_the_screen_of_the_option(words):
    result = shown_by("help", *words)
    assert result.exit_code == 0
    assert result.stdout == shown_by(*words, "--help").stdout
    assert result.stdout.startswith(" ".join(["Usage: tformer", *words]))


def test_every_inspection_is_found_behind_inspect():
    root = typer.main.get_command(app)
    group = root.get_command(typer.Context(root, **root.context_settings), "inspect")
    names = [name for name in root.commands if name.startswith("inspect-")]
    assert len(names) == 14
    assert [f"inspect-{name}" for name in group.commands] == names
    assert all(group.commands[name[8:]] is root.commands[name] for name in names)


def test_inspect_alone_lists_its_commands():
    result = shown_by("inspect")
    assert (result.exit_code, result.stdout) == (2, "")
    for name in ("heads", "report", "step", "logits", "flow", "align", "ablate", "diff"):
        assert f"│ {name} " in result.stderr
    assert "│ inspect " not in shown_by("--help").stdout


def test_an_inspection_runs_behind_inspect():
    for words in (["inspect", "heads"], ["inspect-heads"]):
        explained = shown_by(*words, "--explain", "no-model")
        assert explained.exit_code == 0
        assert "role" in explained.stdout


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
            assert len(places.split()) == sum(int(number) % 2 for number in string.split())


def test_every_built_in_corpus_can_be_asked_for():
    assert get_args(Task) == tuple(BUILT_IN)
