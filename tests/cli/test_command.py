"""No output destroys an input: tried for every pair of parameters of every command."""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.commands import run
from tformer_cli.artifacts.overwriting import LAYOUT, Writes
from tformer_cli.cli.app import app
from tformer_cli.cli.options import PathRole, path_roles
from tformer_cli.errors import UsageError

RUN_FILES = {
    *("config.json", "tokenizer.json", "model.safetensors", "frequencies.json"),
    *("recipe.toml", "metrics.jsonl", "heads.jsonl", "heads-probe.jsonl"),
    "checkpoints/step-000001/state.json",
    "checkpoints/step-000001/model.safetensors",
    "checkpoints/step-000001/optimizer.safetensors",
}


@cache
def commands():
    found = {}

    def walk(command, words):
        for name, part in getattr(command, "commands", {}).items():
            walk(part, (*words, name))
        if words and not hasattr(command, "commands"):
            found[words] = command

    walk(typer.main.get_command(app), ())
    return found


def with_role(command, is_output):
    roles = path_roles(command.callback)
    return [
        (parameter, roles[parameter.name])
        for parameter in command.params
        if parameter.name in roles and isinstance(roles[parameter.name].value, Writes) is is_output
    ]


DIRECTORIES = (PathRole.reads_directory, PathRole.reads_model)
PAIRS = [
    pytest.param(words, source, output, id=f"{'-'.join(words)}-{source[0].name}-{output[0].name}")
    for words, command in commands().items()
    for source in with_role(command, is_output=False)
    for output in with_role(command, is_output=True)
]
OUTPUTS = [
    pytest.param(words, output, id=f"{'-'.join(words)}-{output[0].name}")
    for words, command in commands().items()
    for output in with_role(command, is_output=True)
]


def test_the_pairs_are_those_of_all_commands():
    assert len(PAIRS) > 45
    assert len({pair.values[0] for pair in PAIRS}) > 14
    assert len(OUTPUTS) > 16


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working directory with what commands read: a run directory and some files."""
    monkeypatch.chdir(tmp_path)
    for name in RUN_FILES:
        file = tmp_path / "run" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    (tmp_path / "other").mkdir()
    (tmp_path / "text").write_text("A man.\n")
    return tmp_path


def content(place):
    return {path: path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


def arguments(command, *named):
    """A command line that names some files and gives what else is required."""
    options, positional = [], []
    values = {parameter.name: value for parameter, value in named}
    roles = path_roles(command.callback)
    for parameter in command.params:
        if parameter.name in values:
            value = values[parameter.name]
        elif parameter.required:
            is_directory = roles.get(parameter.name) in DIRECTORIES
            value = "other" if is_directory else "new"
        else:
            continue
        if any(name.startswith("-") for name in parameter.opts):
            options += [parameter.opts[0], str(value)]
        else:
            positional.append(str(value))
    return [*options, "--", *positional]


def refusal_of(place, words, command, *named):
    """What is said against a command, whose own code is not even begun."""
    before = content(place)
    with pytest.raises(UsageError) as refusal:
        command.invoke(command.make_context(" ".join(words), arguments(command, *named)))
    assert content(place) == before
    return str(refusal.value)


@pytest.mark.parametrize(("words", "source_role", "output"), PAIRS)
def test_an_output_that_is_an_input_is_refused(place, words, source_role, output):
    command = commands()[words]
    source = "run" if source_role[1] in DIRECTORIES else "text"
    (place / "link").symlink_to(source)
    places = [source, str(place / source), "link", f"other/../{source}"]
    if source == "text":
        os.link("text", "hard")
        places.append("hard")
    elif output[1].names == "file":
        os.link("run/model.safetensors", "hard")
        places += ["hard", "run/model.safetensors", "link/checkpoints/step-000001/state.json"]
    for name in places:
        message = refusal_of(place, words, command, (source_role[0], source), (output[0], name))
        assert "the input (" in message, message


@pytest.mark.parametrize(("words", "output"), OUTPUTS)
def test_a_file_of_a_run_is_never_replaced(place, words, output):
    command = commands()[words]
    is_file = output[1].names == "file"
    names = {*RUN_FILES, *LAYOUT} if is_file else {"checkpoints", "checkpoints/step-000009"}
    (place / "run" / "heads.jsonl").unlink()  # nor one that is missing now
    for name in names:
        message = refusal_of(place, words, command, (output[0], f"run/{name}"))
        assert "belongs to the " in message, message


def given_twice(words, command, parameter):
    options = [parameter.opts[0], "a", parameter.opts[0], "b"]
    with pytest.raises(UsageError) as refusal:
        command.make_context(" ".join(words), [*options, *arguments(command)])
    return str(refusal.value)


def test_an_option_of_which_only_the_last_file_would_count_is_refused():
    """In every command; what is repeatable is not."""
    n_refused = 0
    for words, command in commands().items():
        for parameter in command.params:
            if parameter.param_type_name != "option" or parameter.multiple:
                continue
            if parameter.name not in path_roles(command.callback):
                continue
            message = given_twice(words, command, parameter)
            name = next(
                (option for option in parameter.opts if option.startswith("--")), parameter.opts[0]
            )
            assert message == f"{name}: is given twice, but takes one file; omit one", words
            n_refused += 1
    assert n_refused > 100


def test_files_are_given_once_and_other_options_may_be_overridden(place):
    twice = run_twice("evaluate", "--baseline", "text", "--baseline", "other")
    assert twice == "error: --baseline: is given twice, but takes one file; omit one\n"
    repeatable = ["--reference", "text", "--reference", "text"]
    for fine in (repeatable, ["-q", "--quiet"], ["--threads", "2", "--threads", "1"]):
        assert "twice" not in run_twice("evaluate", *fine)


def run_twice(*words):
    return CliRunner().invoke(app, words).stderr


def test_two_outputs_are_two_files(place):
    for name in ("sheet.txt", "./sheet.txt", str(place / "sheet.txt")):
        options = ["--output", "sheet.txt", "--answers", name, "--quiz"]
        rest = ["--token", "1", "--head", "1", "run", "A man"]
        result = CliRunner().invoke(app, ["inspect-step", *options, *rest])
        assert result.exit_code == 2
        assert "--answers: " in result.stderr
        assert "sheet.txt is also the output (--output); name another file\n" in result.stderr


def run_redirected(place, *words, stdin=None, stdout=subprocess.PIPE):
    return subprocess.run(
        [sys.executable, "-m", "tformer_cli", *words],
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        check=False,
        text=True,
        cwd=place,
    )


def test_redirected_streams_are_inputs_and_outputs_too(place):
    before = content(place)
    with (place / "text").open("rb") as stdin:
        result = run_redirected(place, "translate", "run", "-o", "text", stdin=stdin)
    assert (result.returncode, result.stderr) == (
        2,
        "error: --output: text is also the input (stdin); name another file\n",
    )
    with (place / "text").open("rb") as stdin:
        result = run_redirected(
            place, "translate", "run", "-i", "/dev/stdin", "-o", "text", stdin=stdin
        )
    assert result.returncode == 2
    with (place / "text").open("ab") as stdout:
        result = run_redirected(place, "translate", "run", "-i", "text", stdout=stdout)
    assert (result.returncode, result.stderr) == (
        2,
        "error: stdout: text is also the input (--input); redirect it to another file\n",
    )
    with (place / "run" / "metrics.jsonl").open("ab") as stdout:
        result = run_redirected(place, "translate", "other", "-i", "text", stdout=stdout)
    assert result.returncode == 2
    assert f"belongs to the run {place / 'run'}" in result.stderr
    assert content(place) == before


@pytest.mark.parametrize(
    "name", ["run/heads.html", "run/plot.svg", "tokenizer.json", "other/heads.jsonl"]
)
def test_other_files_may_be_replaced(place, name):
    """Such as those that commands have made before."""
    train = ["tokenize", "train", "text", "-o", name, "--algorithm", "char", "--quiet"]
    for more in ("", "Two men.\n"):
        with (place / "text").open("a") as text:
            text.write(more)
        result = CliRunner().invoke(app, train)
        assert (result.exit_code, result.stderr) == (0, "")
    assert "T" in (place / name).read_text()


def test_devices_and_pipes_stay_outputs(place):
    shared = ["tokenize", "train", "--algorithm", "char", "--quiet", "text", "-o"]
    assert run_redirected(place, *shared, "/dev/null").returncode == 0
    with (place / "log").open("ab") as stdout:
        stdout.write(b"before\n")
        stdout.flush()
        assert run_redirected(place, *shared, "/dev/stdout", stdout=stdout).returncode == 0
    text = (place / "log").read_text()
    assert text.startswith("before\n{")


def test_a_recipe_that_stands_where_the_run_will_is_kept(place):
    new = place / "new"
    new.mkdir()
    (new / "recipe.toml").write_text('# mine\n[data]\ntrain = [{ built_in = "train" }]\n')
    result = CliRunner().invoke(app, ["train", "new/recipe.toml", "-o", "new"])
    assert result.exit_code == 2
    assert (
        "new/recipe.toml would be replaced: it is the input (RECIPE|SOURCE); name another "
        "directory" in result.stderr
    )
    assert [path.name for path in new.iterdir()] == ["recipe.toml"]


def test_a_corpus_that_the_run_would_replace_is_kept(place):
    recipe = '[data]\ntrain = [{ jsonl = "runs/a/heads.jsonl" }]\n[training]\nmax_steps = 1\n'
    (place / "r.toml").write_text(recipe)
    (place / "runs" / "a").mkdir(parents=True)
    (place / "runs" / "a" / "heads.jsonl").write_text('{"source": "a", "target": "b"}\n')
    before = content(place)
    result = CliRunner().invoke(app, ["train", "r.toml", "-o", "runs/a"])
    assert result.exit_code == 2
    assert (
        "runs/a/heads.jsonl would be replaced: it is the input (data.train.0.jsonl); name another"
        in result.stderr
    )
    assert content(place) == before


def test_a_directory_with_the_name_of_a_shipped_recipe_can_be_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(Path(__file__).parents[2] / "recipes", "quickstart")
    result = CliRunner().invoke(app, ["train", "quickstart", "-o", "quickstart", "--dry-run"])
    assert "quickstart is also" not in result.stderr


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["train", "quickstart", "--dry-run"], "quickstart"),
        (["recipes", "copy", "template"], "template"),
        (["study", "table-3", "--dry-run"], "table-3"),
        (["import", "opus-en-de"], "opus-en-de"),
    ],
)
@pytest.mark.parametrize("folder", ["", "{}/", "./"])
def test_a_name_that_is_no_path_can_be_the_name_of_an_output(
    words, name, folder, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    output = f"{folder.format(tmp_path)}{name}"
    stderr = CliRunner().invoke(app, [*words, "-o", output]).stderr
    assert "is also" not in stderr
    # As soon as a file has that name, it is what is read
    Path(name).write_text("a = 1")
    if words[0] != "import":
        stderr = CliRunner().invoke(app, [*words, "-o", output]).stderr
        assert f"error: --output: {Path(output)} is also the input (" in stderr


@pytest.mark.parametrize("output", ["./s.toml", "{}/s.toml", "link", "sub/../s.toml"])
def test_other_spellings_of_an_input_are_refused(output, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    Path("link").symlink_to("s.toml")
    Path("s.toml").write_text('recipe = "quickstart"\nseeds = [1]\n[variants.a]\n')
    before = content(tmp_path)
    result = CliRunner().invoke(app, ["study", "s.toml", "-o", output.format(tmp_path)])
    assert result.exit_code == 2
    assert "is also the input (STUDY); name another directory" in result.stderr
    assert content(tmp_path) == before


@pytest.mark.parametrize("ending", [".part", ".part.json"])
def test_the_partial_file_of_a_resumed_output_cannot_be_an_input(place, ending):
    (place / "text").rename(place / f"new{ending}")
    before = content(place)
    options = ["-i", f"new{ending}", "-o", "new", "--resume"]
    result = CliRunner().invoke(app, ["translate", "run", *options])
    assert result.exit_code == 2
    assert f"error: --resume: new{ending} is also the input (--input)" in result.stderr
    assert content(place) == before


@pytest.mark.parametrize(
    "text",
    ["See example.com", "Node.js", "e.g.", "The file is README.md", "It ends.", "3.14", "a.b.c",
     "directory", "../nothing", "x" * 5000, "a\nb.csv", ".txt", "-", "No blanks.But a dot."],
)  # fmt: skip
def test_words_are_not_taken_for_files(model, monkeypatch, tmp_path, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "directory").mkdir()
    for words in ([], ["-o", "new"]):
        done = run("translate", model, *words, "--quiet", "--", text, stdin="A man\n")
        assert done.exit_code == 0, done.stderr
    assert run("translate", model, "--", "README.md").exit_code == 0, "without -o it is a word"


def test_what_says_how_it_is_read_is_no_error(model, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("x.csv", "x.jsonl"):
        (tmp_path / name).write_text('{"source": "A man"}\n')
    for words in (
        ["-i", "x.csv", "--document", "lines"],
        ["x.csv", "--document", "lines"],
        ["-i", "x.jsonl", "--input-format", "jsonl"],
        ["-i", "x.jsonl", "--input-format", "text"],
    ):
        done = run("translate", model, *words, "--quiet")
        assert (done.exit_code, done.stdout.count("\n")) == (0, 1), done.stderr


@pytest.mark.parametrize(
    "words",
    ["translate M a -o LOOP", "translate M a.html -o LOOP", "translate M -i a.html -o LOOP/x",
     "translate M -i in.txt -o LOOP --resume", "translate M -i LOOP", "translate M LOOP",
     "translate M a --glossary LOOP", "translate LOOP a", "serve M LOOP", "serve x=LOOP",
     "inspect-heads M a -o LOOP", "guide translating -o LOOP", "export M -o LOOP",
     "translate-corpus M in.txt -o LOOP", "data clean in.txt in.txt -o LOOP", "make-corpus LOOP",
     "shortlist M -i in.txt --target-file in.txt -o LOOP", "plot LOOP", "compare a=LOOP b=in.txt"],
)  # fmt: skip
def test_links_in_a_circle_are_one_line(model, monkeypatch, tmp_path, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("back")
    (tmp_path / "back").symlink_to("loop")
    (tmp_path / "in.txt").write_text("A man.\n")
    (tmp_path / "a.html").write_text("<p>A man.</p>")
    before = sorted(tmp_path.iterdir())
    line = [word.replace("LOOP", "loop").replace("M", str(model)) for word in words.split()]
    done = run(*line)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert "is a loop of links; name another path" in done.stderr
    assert sorted(tmp_path.iterdir()) == before
