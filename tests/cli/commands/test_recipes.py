"""Commands that print what ships: recipes, help and built-in corpora."""

import json
import tomllib
from typing import get_args, get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from tests.commands import refused, run, under
from tformer_cli.cli.app import app
from tformer_cli.guide.recipe_schema import recipe_schema
from tformer_cli.plugins.built_in.commands.make_corpus import Task
from tformer_cli.plugins.built_in.make_corpus import BUILT_IN
from tformer_cli.recipe import Recipe, load_recipe, recipe_names, recipes_directory
from tformer_cli.search.config import DecodingConfig
from tformer_cli.settings import Limits
from tformer_cli.text.config import CorpusConfig, DataConfig
from tformer_cli.trainer.config import TrainingConfig
from tformer_cli.trainer.distillation import DistillationConfig

recipes_refused, recipes = under("recipes", "refused", "run")


def test_every_shipped_recipe_is_listed_with_its_summary():
    result = recipes()
    assert result.exit_code == 0
    # a line each in a pipe, for grep and awk
    names = [line.split(" ", 1)[0] for line in result.stdout.splitlines()]
    assert names == [*recipe_names(), "studies/table-3"]
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


def test_a_study_is_copied_as_one_and_is_no_recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for source, copy in (("studies/table-3", "table-3.toml"), ("table-3.toml", "mine.toml")):
        hint = f"next: `tformer study {copy} --dry-run`"
        assert hint in recipes("copy", source, "-o", copy).stderr
    for command in (("recipes", "check"), ("train",)):
        refused(
            *command,
            "table-3.toml",
            says="table-3.toml: is a study, not a recipe; see `tformer study table-3.toml --dry",
        )


def test_each_unknown_key_and_wrong_type_of_a_recipe_gets_a_line(tmp_path):
    path = tmp_path / "my.toml"
    path.write_text(
        "[data]\ntrain = [{ sauce = 'a.en', target = 3 }]\n"
        "[model]\nd_modell = 8\nn_heads = 'four'\nfrozn = 'x'\n"
        "[training]\nmax_steps = -1\nweight_decay = 0.1\n[validatoin]\nevery = 5\n"
    )
    result = recipes("check", path)
    assert (result.exit_code, result.stdout) == (2, "")
    lines = [
        line.partition(": ")[2].removeprefix(f"{path}: ") for line in result.stderr.splitlines()
    ]
    assert [line.split(":")[0] for line in lines] == [
        "validatoin",
        "data.train.0.sauce",
        "data.train.0.target",
        "model.d_modell",
        "model.frozn",
        "model.n_heads",
        "training.max_steps",
    ]
    assert 'unknown key; did you mean "validation"?' in lines[0]
    assert 'unknown key; did you mean "frozen"?' in lines[4]


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


BROKEN = {
    "training.max_stepps = 1": "unknown key; did you mean",
    "training.learning_rate = 0.0": "must be a number above 0",
    "training.warmup_share = 1.5": "must be above 0 and at most 1",
    "training.max_steps = -1": "must be at least 0",
    'training.optimizer = "sgd"': "must be 'adam'",
    "training.batch_growth = [[0.5]]": "must be a list of 2",
    "model.n_heads = 0": "must be 1 to 1024",
    "model.gated = 1": "must be true or false",
    'model.preset = "huge"': 'must be one of "tiny"',
    'start.model = "runs/a"': "unknown key",
    "data.max_length_ratio = 0.5": "must be 0 (off) or at least 1",
    'data.train = [{ tsv = "a.tsv", weight = 0.0 }]': "must be above 0",
    'data.train = [{ tvs = "a.tsv" }]': "unknown key; did you mean",
    "decoding.beam_size = 1.5": "must be a whole number",
    'tokenizer.new_tokens = "x"': "must be a list",
    "wrong = 1": "unknown key",
}
RIGHT = """data.train = [{ tsv = "a.tsv" }]
training.max_steps = 1
"""


def broken_recipe(line):
    """The right recipe with a line in the place of the one of the same key."""
    key = line.partition(" =")[0]
    return "\n".join([line, *(row for row in RIGHT.splitlines() if not row.startswith(key))])


@pytest.mark.parametrize("line", BROKEN)
def test_a_broken_recipe_fails_its_check(tmp_path, line):
    file = tmp_path / "my.toml"
    file.write_text(RIGHT)
    assert recipes("check", file, "--without-files").stdout == f"{file}: correct\n"
    file.write_text(broken_recipe(line))
    error = recipes_refused("check", file, "--without-files", says=BROKEN[line])
    # Word for word as the training would say it
    assert run("train", file, "-o", tmp_path / "run").stderr == error


def test_the_schema_takes_shipped_recipes_and_refuses_broken_ones():
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(recipes("schema").stdout)
    jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema)
    for name in recipe_names():
        file = recipes_directory() / f"{name}.toml"
        assert [*validator.iter_errors(tomllib.loads(file.read_text("utf-8")))] == [], name
        assert validator.is_valid(json.loads(json.dumps(load_recipe(name).to_mapping()))), name
    assert validator.is_valid(tomllib.loads(RIGHT))
    assert [line for line in BROKEN if validator.is_valid(tomllib.loads(broken_recipe(line)))] == []


def test_the_bounds_of_the_schema_are_the_limits_of_the_settings():
    steps = (-1, 0, 1e-9, 0.5, 0.999999, 1, 1.5, 2, 100, 101, 1e3, 1e4, 1e6, 1e7, 1e12, 2**63)
    tried = 0
    for settings in (TrainingConfig, DataConfig, CorpusConfig, DistillationConfig, DecodingConfig):
        properties = recipe_schema.__globals__["_table"](settings)["properties"]
        for name, hint in get_type_hints(settings, include_extras=True).items():
            for limits in getattr(hint, "__metadata__", ()):
                if isinstance(limits, Limits):
                    tried += 1
                    assert [limits.hold(step) for step in steps] == [
                        holds_bounds(properties[name], step) for step in steps
                    ], (settings, name)
    assert tried > 30


def holds_bounds(schema, value):
    choices = schema.get("anyOf", [{}])
    return (
        schema.get("minimum", -2) <= value <= schema.get("maximum", 2e63)
        and schema.get("exclusiveMinimum", -2) < value < schema.get("exclusiveMaximum", 2e63)
        and any(c.get("const", value) == value >= c.get("minimum", -2) for c in choices)
    )


def test_every_key_of_the_schema_has_its_sentence_and_its_default():
    schema = recipe_schema()
    tables = schema["properties"]
    assert [*tables] == [name for name in Recipe.__dataclass_fields__ if name != "start"]
    assert {*tables["model"]["properties"]} >= {"preset", "from", "frozen", "d_model"}
    assert tables["data"]["required"] == ["train"]
    for table in (*tables.values(), tables["data"]["properties"]["train"]["items"]):
        for name, key in table["properties"].items():
            assert key["description"], name
            assert "default" in key or name in ("train", "preset"), name
    training = TrainingConfig()
    for name, key in tables["training"]["properties"].items():
        assert key["default"] == json.loads(json.dumps(getattr(training, name)))


def test_all_wrong_recipes_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.tsv").write_text("a\tb\n")
    files = {
        "right.toml": RIGHT,
        "wrong.toml": broken_recipe("wrong = 1"),
        "no-file.toml": broken_recipe('data.train = [{ tsv = "b.tsv" }]'),
        "no-model.toml": RIGHT + 'model.from = "runs/none"\n',
        "frozen.toml": RIGHT + 'model.from = "runs/none"\nmodel.frozen = ["nothing"]\n',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    done = recipes("check", *files, "nosuch.toml")
    assert (done.exit_code, done.stdout) == (2, "right.toml: correct\n")
    errors = done.stderr.splitlines()
    assert [line.split(": ")[:2] for line in errors] == [
        ["error", name] for name in [*files, "nosuch.toml"][1:]
    ]
    assert "data.train: no such file b.tsv" in errors[1]
    assert "runs/none" in errors[2]
    assert recipes("check", "no-file.toml", "no-model.toml", "--without-files").exit_code == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([*files, "a.tsv"])
