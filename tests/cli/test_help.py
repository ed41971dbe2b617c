"""Help, completion, and hints for words of other tools."""

import re
import shlex
from functools import cache
from io import StringIO

import pytest
import typer
from rich.console import Console
from typer.core import TyperArgument, TyperGroup, TyperOption
from typer.testing import CliRunner

from tests.cli.test_command import arguments, commands
from tformer_cli.cli.app import app
from tformer_cli.cli.help import (
    COMMAND_PANELS,
    OPTION_PANELS,
    fold_line,
    options_by_panel,
    parts_of,
    show_help,
    value_of,
)
from tformer_cli.errors import UsageError
from tformer_cli.recipe import recipe_names

ROOT = typer.main.get_command(app)
LONGEST_WORD = 34
"""Of what cannot be broken at 40 columns, such as a name with its choices."""


def every_command(command=ROOT, words=()):
    found = {words: command}
    for name, inner in getattr(command, "commands", {}).items():
        found |= every_command(inner, (*words, name))
    return found


COMMANDS = every_command()
BY_NAME = [pytest.param(words, id=" ".join(words) or "tformer") for words in COMMANDS]


@cache
def screen(words, columns):
    file = StringIO()
    show_help(Console(file=file, width=columns), context_of(words))
    return file.getvalue()


def context_of(words):
    context, command = typer.Context(ROOT, info_name="tformer", **ROOT.context_settings), ROOT
    for word in words:
        command = command.commands[word]
        context = typer.Context(command, info_name=word, parent=context)
    return context


def commands_in(example):
    """The parts of a command line that call tformer, each as its words."""
    parts, words = [], shlex.split(example, comments=True)
    for word in [*words, "|"]:
        if word in ("|", ">"):
            yield from ([parts[1:]] if parts[:1] == ["tformer"] else [])
            parts = []
        else:
            parts.append(word)


@pytest.mark.parametrize("words", BY_NAME)
def test_values_have_plain_names(words):
    shown = screen(words, 80)
    for odd in ("<bool>", " range", "list[", "<int", "<float", "x>=", "<="):
        assert odd not in shown
    for option in COMMANDS[words].params:
        assert re.fullmatch(r"[A-Za-z0-9|,/:=…+-]*", value_of(option)), option.name


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
@pytest.mark.parametrize("words", BY_NAME)
def test_every_screen_fits(words, columns):
    for line in screen(words, columns).splitlines():
        longest = max(map(len, line.split(" ")), default=0)
        assert len(line.rstrip()) <= columns or longest > LONGEST_WORD, line
    if columns == 40:
        for option in COMMANDS[words].params:
            if isinstance(option, TyperOption):
                assert option.opts[-1] in screen(words, 40)  # no name is cut


@pytest.mark.parametrize("words", BY_NAME)
def test_everything_has_a_sentence_and_a_default(words):
    shown = " ".join(screen(words, 100).replace("│", " ").split())
    for parameter in COMMANDS[words].get_params(context_of(words)):
        if parameter.name in ("install_completion", "show_completion"):  # Typer's own
            continue
        assert re.match(r"[A-Za-z].*[.!?]", parameter.help), parameter.name
        assert " ".join(parameter.help.split()) in shown
        if isinstance(parameter, TyperArgument) or parameter.is_flag or parameter.required:
            continue
        start = shown.index(" ".join(parameter.help.split()))
        rest = shown[start + len(" ".join(parameter.help.split())) :]
        assert re.match(r"( One of [^.]*\.)? \[default: ", rest), parameter.name


@pytest.mark.parametrize("words", BY_NAME)
def test_the_words_are_those_of_the_field(words):
    shown = " ".join(screen(words, 120).replace("│", " ").split())
    odd = r"so many|goes on|go on|is no number|who searches|by heart|leaves? out|neighbour|colour"
    assert not re.search(rf"{odd}|as good as|\bshall\b|in a row|most like|a line for a line", shown)


@pytest.mark.parametrize("words", BY_NAME)
def test_every_command_has_examples_that_it_understands(words):
    examples = [line for line in parts_of(COMMANDS[words])[1] if not line.startswith("#")]
    assert len(examples) >= 2
    calls = [call for example in examples for call in commands_in(example)]
    assert len(calls) >= len(examples)
    assert any(tuple(call[: len(words)]) == words for call in calls)
    for call in calls:
        name, command, given, context = "tformer", ROOT, call, None
        while isinstance(command, TyperGroup) and given:
            settings = command.context_settings
            context = typer.Context(command, info_name="tformer", parent=context, **settings)
            name, command, given = command.resolve_command(context, given)
        if "--help" not in given:
            command.make_context(name, list(given), parent=context)


def test_commands_stand_in_panels():
    shown = screen((), 80)
    assert [title for title in COMMAND_PANELS if f"─ {title} ─" in shown] == list(COMMAND_PANELS)
    places = [shown.index(f"─ {title} ─") for title in (*COMMAND_PANELS, "Options")]
    assert places == sorted(places)
    names = re.findall(r"│ ([a-z-]+)  ", shown)
    assert names[:6] == ["quickstart", "guide", "recipes", "models", "make-corpus", "help"]
    assert names[6:12] == ["train", "study", "distill", "plot", "data", "tokenize"]
    assert names[12:17] == ["translate", "translate-corpus", "evaluate", "compare", "score"]
    assert names[17] == "calibrate"
    assert names[18:23] == ["classify", "tag", "generate", "fill", "embed"]
    assert names[23:29] == ["info", "import", "export", "shortlist", "serve", "benchmark"]
    assert names[29] == "inspect-heads"


def test_common_options_come_first():
    (common, options), *others = options_by_panel(COMMANDS["translate",].params)
    names = ["--input", "--output", "--beam-size", "--n-best", "--format"]
    names += ["--adapter", "--source-language", "--target-language", "--force"]
    assert (common, [option.opts[0] for option in options]) == ("Common", names)
    assert [title for title, _ in others] == [
        title for title in OPTION_PANELS[1:] if title in dict(others)
    ]
    for command in COMMANDS.values():
        titles = [title for title, _ in options_by_panel(command.params)]
        assert not titles or "Common" in titles[:1] or titles == ["Messages"]


def test_the_usage_names_required_parameters():
    shown = screen(("benchmark",), 200).splitlines()[0]
    assert shown == "Usage: tformer benchmark [OPTIONS] --source FILE MODEL"
    shown = screen(("tokenize", "train"), 200).splitlines()[0]
    assert shown == "Usage: tformer tokenize train [OPTIONS] --output FILE FILE…"


def test_folded_lines_can_be_copied():
    line = """tformer translate runs/a "The old house is green." --ban '!x y' -o a.fr | head -1"""
    for width in (20, 36, 60, 200):
        pieces = fold_line(line, width)
        assert all(piece.endswith(" \\") for piece in pieces[:-1])
        assert shlex.split("\n".join(pieces).replace("\\\n", "")) == shlex.split(line)
    assert len(fold_line(line, 200)) == 1
    assert max(map(len, fold_line(line, 36))) <= 36


def test_the_input_is_i_everywhere():
    for words, command in COMMANDS.items():
        for option in getattr(command, "params", []):
            if {"--input", "--source"} & set(option.opts):
                assert "-i" in option.opts, words
                lines = ("translate", "generate", "classify", "tag", "fill", "embed", "tokenize")
                is_input = words[0] in lines
                assert option.opts[0] == ("--input" if is_input else "--source")


def complete(line, cwd=None):
    """Returns what bash is offered behind a line."""
    env = {
        "_TFORMER_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split()) - (not line.endswith(" "))),
    }
    return CliRunner().invoke(app, [], env=env, prog_name="tformer").stdout.split()


def test_recipes_and_files_are_completed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").touch()
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "x.toml").touch()
    assert complete("tformer train ") == [*recipe_names(), "mine.toml"]
    assert complete("tformer train m") == [
        *(name for name in recipe_names() if name.startswith("m")),
        *("mine.toml", "more"),
    ]
    assert complete("tformer train more/") == ["more/x.toml"]
    assert "template" in complete("tformer recipes copy t")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("tformer train x --set model.d_m", ["model.d_model="]),
        ("tformer train x --set model.pre", ["model.preset="]),
        ("tformer inspect-heads m --heads cross.l", ["cross.last"]),
        ("tformer inspect-heads m --heads enc.0,!dec.*", ["enc.0,!dec.*.*"]),
        ("tformer inspect-step m --head d", ["dec.", "dec.last", "dec.*.*"]),
        ("tformer inspect-heads m --format sa", ["safetensors"]),
        ("tformer help tokenize s", ["stats"]),
        ("tformer help trans", ["translate", "translate-corpus"]),
        ("tformer inspect he", ["heads"]),
        ("tformer recipes c", ["copy", "check"]),
    ],
)
def test_values_are_completed(line, offered):
    assert complete(line) == offered


def test_topics_are_completed():
    from tformer_cli.guide import guides

    topics = [guide.topic for guide in guides()]
    topics += ["classifying.ipynb", "training.ipynb", "translating.ipynb", "sample-report"]
    assert complete("tformer guide ") == topics


DEVICES = [
    words
    for words, command in commands().items()
    if any(parameter.name == "device" for parameter in command.params)
]


def test_every_command_checks_its_device_first():
    assert len(DEVICES) > 20
    for words in DEVICES:
        command = commands()[words]
        (device,) = (parameter for parameter in command.params if parameter.name == "device")
        given = arguments(command, (device, "gpu"))
        with pytest.raises(UsageError, match=r'^--device: must be auto, .* but is "gpu"$'):
            command.invoke(command.make_context("tformer", given))


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("translate M a --gpu", "did you mean --device cuda?"),
        ("translate M a --batch-size 8", "did you mean --batch-tokens?"),
        ("train r.toml --batch-size 8", "did you mean --set training.tokens_per_batch=N?"),
        ("train r.toml --lr 1", "did you mean --set training.learning_rate=X?"),
        ("train --config r.toml", "did you mean RECIPE without an option?"),
        ("translate --model M a", "did you mean MODEL without an option?"),
        ("translate M a --lang de", "did you mean --source-language or --target-language?"),
        ("inspect-heads M a --layer 2", "did you mean --heads?"),
        ("evaluate M --src a --reference b", "did you mean --source?"),
        ("inspect-heads M a --tgt b", "did you mean --target or --target-file?"),
        ("translate M --source a", "did you mean --input?"),
        ("evaluate M --input a --reference b", "did you mean --source?"),
        ("score M -i a --nbest b", "did you mean --n-best-file?"),
        ("score M -i a --target b", "did you mean --target-file?"),
        ("inspect-heads M a --head cross", "did you mean --heads?"),
        ("inspect-align M --symmetrise union", "did you mean --symmetrize?"),
        ("generate M a --topk 3", "did you mean --top-k?"),
        ("generate M a --top 3", "did you mean --top-k?"),
        ("translate M a --verbose", "did you mean to omit --quiet?"),
        ("recipes list", "did you mean `tformer recipes`?"),
    ],
)
def test_words_of_other_tools_and_earlier_versions_are_known(line, hint):
    result = CliRunner().invoke(app, line.split(), prog_name="tformer")
    assert result.exit_code == 2
    assert result.stderr.endswith(f"; {hint}\n"), result.stderr


def test_inspect_image_has_only_options_that_apply():
    options = {name for parameter in commands()["inspect-image",].params for name in parameter.opts}
    kept = {"--heads", "--source", "--format", "--output", "--device", "--threads", "--adapter"}
    gone = {"--target", "--target-file", "--beam-size", "--length-penalty", "--seed"}
    assert kept <= options
    assert not options & (gone | {"--source-language", "--target-language"})
