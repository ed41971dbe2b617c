"""The contract of lines: what every command that reads lines keeps, whatever kind its model is of.

A command is a row of `COMMANDS` and a promise is a test; a new kind or command is a new row.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.commands import lines_of, output_of, records_of, refused, run
from tests.zoo import MODELS, png
from tformer_cli.cli.app import CLOSED_PIPE_STATUS

NASTY = (
    b"A man <mask> sleeps.", b"", b" \t ", b"Two d\xff\xfegs run.\r", b"a man " * 60,
    "the \u2028 end \x0c".encode(), b"mid\rcr x\0y", b"last without an end",
)  # fmt: skip
TARGETS = ("La", "", "x y", "Un chien", "de", "a\tdog", "z", "")
LABELS = ("good", "", "", " fair", "bad", "good", "fair", "good")
UNDECODABLE = "1 line with bytes that are not UTF-8"


@dataclass(frozen=True)
class Command:
    """A command that reads lines, and a kind of model that it takes."""

    verb: str
    model: str
    """Of the zoo."""
    second: tuple[str, ...] = ()
    """Lines of `--target-file`, if it needs them."""
    blank: tuple[int, ...] = ()
    """The lines of `NASTY` whose output is empty."""
    long: str = "truncated"
    """What is said of a line longer than the model takes; nothing if it takes all."""
    has_too_long: bool = True
    """Whether `--too-long error` refuses such a line."""
    plain: str = "text"
    """The format that has a line for each."""
    text: str = "text"
    """The field of JSON that holds the line read."""
    read: str = "{}"
    """The line that is read, of the one given."""
    of_torch: bool = False
    """The kernels do not know it."""

    def __str__(self):
        return f"{self.verb}-{self.model}"


COMMANDS = [
    Command("translate", "translate", blank=(1, 2), long="read in parts", text="source"),
    Command("translate", "variant", blank=(1, 2), long="read in parts", text="source",
            of_torch=True),
    Command("translate", "opus", blank=(1, 2), long="read in parts", text="source"),
    Command("translate", "int8", blank=(1, 2), long="read in parts", text="source"),
    Command("generate", "language_model", blank=(1,), long="only the end was read",
            has_too_long=False, text="prompt"),
    Command("generate", "llama", blank=(1,), long="only the end was read", has_too_long=False,
            text="prompt"),
    Command("generate", "memory", blank=(1,), long="", has_too_long=False, text="prompt",
            of_torch=True),
    Command("classify", "classifier", blank=(1, 2)),
    Command("classify", "bert_classifier", blank=(1, 2)),
    Command("embed", "sentences", blank=(1, 2), plain="tsv"),
    Command("embed", "classifier", blank=(1, 2), plain="tsv"),
    Command("embed", "masked", blank=(1, 2), plain="tsv"),
    Command("fill", "masked", blank=(1,), long="", has_too_long=False),
    Command("score", "translate", TARGETS, has_too_long=False, text="source"),
    Command("score", "opus", TARGETS, has_too_long=False, text="source"),
    Command("score", "language_model", long="", has_too_long=False),
    Command("score", "masked", has_too_long=False),
    Command("score", "classifier", LABELS, blank=(1, 2), has_too_long=False),
]  # fmt: skip
every_command = pytest.mark.parametrize("command", COMMANDS, ids=str)


@pytest.fixture
def words(zoo, tmp_path, command):
    """The words of a command with its model and its second file."""
    arguments = [command.verb, zoo[command.model], "-q"]
    if command.second:
        (tmp_path / "second").write_text("".join(f"{line}\n" for line in command.second))
        arguments += ["--target-file", tmp_path / "second"]
    return arguments


@pytest.fixture
def source(tmp_path):
    (tmp_path / "lines").write_bytes(b"\n".join(NASTY))
    return tmp_path / "lines"


def read(line):
    return line.removesuffix(b"\r").decode(errors="replace")


@every_command
def test_a_line_for_each_line(command, words, source):
    done = run(*words, "-i", source)
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.removesuffix("\n").split("\n")
    assert len(lines) == len(NASTY)
    assert tuple(n for n, line in enumerate(lines) if not line) == command.blank
    assert UNDECODABLE in done.stderr
    assert ("1 line longer than the model takes" in done.stderr) == bool(command.long)
    assert command.long in done.stderr
    assert all(line.startswith("warning: ") for line in done.stderr.splitlines())
    records = records_of(*words, "-i", source, "--format", "jsonl")
    assert [record["index"] for record in records] == list(range(len(NASTY)))
    assert [record[command.text] for record in records] == [read(line) for line in NASTY]
    if command.long not in ("", "read in parts"):
        assert [n for n, record in enumerate(records) if record.get("truncated")] == [4]


@every_command
def test_a_line_has_the_same_bits_whatever_is_beside_it(command, words, source, tmp_path):
    options = [*words, "--format", "jsonl"]
    if command.verb in ("fill", "classify"):
        options += ["--top", "0"] if command.verb == "classify" else ["--top", "3"]
    whole = output_of(*options, "-i", source)
    for size in (1, 3) if command.verb != "score" else ():
        assert output_of(*options, "-i", source, "--buffer-lines", size) == whole
    if command.verb == "translate":
        for size in (1, 20_000):
            assert output_of(*options, "-i", source, "--batch-tokens", size) == whole
    assert output_of(*options, "-i", "-", stdin=source.read_bytes()) == whole
    if command.verb == "embed":  # JSON rounds vectors, an array does not
        arrays = [tmp_path / f"{size}.npy" for size in (1, 3, 1000)]
        for array in arrays:
            output_of(*words, "-i", source, "-o", array, "--buffer-lines", array.stem)
        assert len({array.read_bytes() for array in arrays}) == 1
    output = tmp_path / "output"
    more = () if command.verb in ("score", "generate") else ("--max-wait", "0.01")
    assert output_of(*options, "-i", source, "-o", output, *more) == ""
    assert output.read_text() == whole


@every_command
def test_the_input_is_a_file_a_stream_or_arguments(command, words, source):
    lines = ["A dog", "", "the street"]
    if command.verb == "generate":  # an argument is a prompt, even an empty one
        lines.remove("")
    source.write_text("\n".join(lines))
    if command.second:
        words[-1].write_text("".join(f"{command.second[n]}\n" for n in (0, 1, 3)))
    words += ["--format", "jsonl"]
    expected = output_of(*words, "-i", source)
    assert output_of(*words, "-i", "-", stdin=source.read_bytes()) == expected
    if command.verb != "score":
        assert output_of(*words, stdin=source.read_bytes()) == expected
        assert output_of(*words, *lines) == expected
        refused(*words, "-i", source, "text", says="--input: ")


@every_command
def test_nothing_in_is_nothing_out(command, words, tmp_path):
    if command.second:
        words[-1].write_bytes(b"")
    assert output_of(*words, "-i", "-", stdin=b"") == ""


@every_command
def test_stderr_says_what_computes_unless_it_is_quiet(command, words, source):
    source.write_text("A <mask>\nA man <mask>\n" if command.verb == "fill" else "A dog\nA man\n")
    if command.second:
        words[-1].write_text("".join(f"{line or 'x'}\n" for line in command.second[:4:3]))
    shown = run(*words, "-i", source)
    told = run(*(word for word in words if word != "-q"), "-i", source)
    assert told.stdout == shown.stdout
    assert shown.stderr == ""
    assert "computing on cpu in " in told.stderr


@pytest.mark.parametrize("command", [row for row in COMMANDS if row.has_too_long], ids=str)
def test_an_output_is_written_whole_or_not_at_all(command, words, source, tmp_path):
    output = tmp_path / "output"
    output.write_text("an earlier result\n")
    arguments = [*words, "-i", source, "-o", output, "--format", command.plain]
    done = run(*arguments, "--too-long", "error")
    assert done.exit_code == 2
    message = r"error: line 5: has \d{3} tokens, but the model takes 39; shorten it, or .*"
    assert re.fullmatch(message, done.stderr.splitlines()[-1])
    assert output.read_text() == "an earlier result\n"
    assert {file.name for file in tmp_path.iterdir()} <= {"lines", "output", "second"}
    output_of(*arguments)
    assert output.read_text().count("\n") == len(NASTY)


@every_command
def test_no_file_of_the_model_or_the_input_is_replaced(command, words, source, zoo):
    config = zoo[command.model] / "config.json"
    before = config.read_bytes(), source.read_bytes()
    for output in (config, source):
        refused(*words, "-i", source, "--format", command.plain, "-o", output, says="--output: ")
    assert (config.read_bytes(), source.read_bytes()) == before
    output_of(*words, "-i", source, "--format", command.plain, "-o", os.devnull)
    assert not Path(os.devnull).is_file()


@every_command
def test_a_missing_file_is_one_line(command, words, tmp_path, source):
    refused(*words, "-i", tmp_path / "nothing", says="nothing: no such file")
    words[1] = tmp_path / "none"
    refused(*words, "-i", source, says=f"{tmp_path / 'none'}: no such ")


@pytest.mark.parametrize("damage", ["config", "weights", "tokenizer", "lost"])
@pytest.mark.parametrize("command", {row.verb: row for row in COMMANDS}.values(), ids=str)
def test_a_damaged_model_is_one_line_that_names_the_file(command, words, damage, tmp_path, source):
    model = shutil.copytree(words[1], tmp_path / "damaged")
    names = {"config": "config.json", "tokenizer": "tokenizer.json"}
    file = model / names.get(damage, "model.safetensors")
    if damage == "lost":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-20])
    words[1] = model
    assert file.name in refused(*words, "-i", source)


TAKES = {
    "translate": {"translate", "variant", "twin", "int8", "opus"},
    "generate": {"language_model", "gpt", "llama", "memory"},
    "classify": {"classifier", "bert_classifier", "images"},
    "embed": {"classifier", "bert_classifier", "tagger", "masked", "sentences", "images"},
    "fill": {"masked"},
    "tag": {"tagger"},
}
KINDS = {
    "translate": "translation models",
    "generate": "language models",
    "classify": "classifiers or classifiers of images",
    "embed": "classifiers, taggers, classifiers of images, masked language models or encoders",
    "fill": "masked language models",
    "tag": "taggers",
}
USE = {
    "translation model; use `tformer translate`": {"translate", "variant", "twin", "int8", "opus"},
    "language model, which continues texts; use `tformer generate`": TAKES["generate"],
    "classifier, which labels texts; use `tformer classify`": {"classifier", "bert_classifier"},
    "masked language model, which fills gaps in texts; use `tformer fill`": {"masked"},
    "tagger, which labels each word of a text; use `tformer tag`": {"tagger"},
    "encoder, which turns texts into vectors; use `tformer embed`": {"sentences"},
    "classifier of images; use `tformer classify`": {"images"},
}


@pytest.mark.parametrize("verb", TAKES)
@pytest.mark.parametrize("model", MODELS)
def test_a_model_of_another_kind_is_refused_by_name(zoo, verb, model):
    if model in TAKES[verb]:
        return
    (use,) = (said for said, models in USE.items() if model in models)
    said = refused(verb, zoo[model], "a", says=use)
    assert f"(this takes {KINDS[verb]})" in said


def test_score_takes_every_kind_but_one(zoo, source):
    line = refused("score", zoo["sentences"], "-i", source, says="encoder, which turns texts into")
    kinds = "translation models, classifiers, language models, classifiers of images or masked "
    assert kinds in line


PROGRAM = """
import json, sys
from typer.testing import CliRunner
from tformer_cli.cli.app import app
said = []
for words in json.load(sys.stdin):
    done = CliRunner().invoke(app, words)
    said.append([done.exit_code, done.stdout, sorted({"torch", "datasets"} & set(sys.modules))])
json.dump(said, sys.stdout)
"""


NO_TORCH = (
    "translate translate --beam-size 1",
    "translate translate --ban dog",
    "translate translate --n-best 3 --format jsonl --token-scores --flags",
    "translate translate --precision int8 --n-best 2 --format jsonl",
    "translate int8 --n-best 2 --format jsonl",
    "translate translate --risk chrf --distinct-texts --device cpu --threads 2",
    "translate translate --glossary glossary --format jsonl --n-best 2",
    "translate translate --glossary glossary --precision int8",
    "score translate --target-file score-translate --format jsonl --precision int8",
    "evaluate translate --reference score-translate --format json",
    "evaluate translate --reference score-translate --format json --precision int8",
)
"""Lines with options that the kernels know, too."""


def test_a_cpu_needs_no_torch(zoo, kernels, tmp_path, source, monkeypatch):
    """One process for all: what an earlier command imports is seen in all that follow."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "glossary").write_text("man\tdog\nend\tthe street\nA\tman\tban\n")
    lines = []
    for command in COMMANDS:
        if not command.of_torch:
            lines.append([command.verb, command.model])
            if command.second:
                second = tmp_path / str(command)
                second.write_text("".join(f"{line}\n" for line in command.second))
                lines[-1] += ["--target-file", str(second)]
    lines += [line.split() for line in NO_TORCH]
    lines = [
        [verb, str(zoo[model]), *words, "-q", "-i", str(source)] for verb, model, *words in lines
    ]
    expected = []
    for words in lines:
        # heads are selected in a model of torch's, which the kernels then search with
        heads = ["--heads", "*"] * (words[:2] == ["translate", str(zoo["translate"])])
        expected.append([0, output_of(*words, *heads), []])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=json.dumps(lines), capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    outcomes = json.loads(done.stdout)
    for line, outcome, wanted in zip(lines, outcomes, expected, strict=True):
        assert outcome == wanted, line
    by_line = dict(zip(NO_TORCH, outcomes[-len(NO_TORCH) :], strict=True))
    assert by_line[NO_TORCH[3]] == by_line[NO_TORCH[4]], "stored integers are those that are made"


@pytest.mark.parametrize("command", COMMANDS[:1] + COMMANDS[7:8], ids=str)
def test_a_closed_pipe_ends_it_without_a_word(command, words):
    program = [sys.executable, "-m", "tformer_cli", *map(str, words), "--buffer-lines", "1"]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdin.write(b"A dog\n")
        process.stdin.flush()
        assert process.stdout.readline()
        process.stdout.close()
        process.stdin.write(b"A man\n" * 3)
        process.stdin.close()
        assert process.wait(60) == CLOSED_PIPE_STATUS
        assert process.stderr.read() == b""


@pytest.mark.parametrize("verb", ["classify", "embed", "score"])
def test_images_keep_the_contract_too(zoo, verb, tmp_path):
    """A line is the name of a picture, and one that cannot be read ends the work."""
    names = [zoo.inputs / "photos" / "ant" / f"{n}.png" for n in (0, 2, 4)]
    listed = [*map(str, names), "", str(names[0])]
    (tmp_path / "names").write_text("".join(f"{name}\n" for name in listed))
    (tmp_path / "labels").write_text("ant\nbee\nant\nant\nant\n")
    words = [verb, zoo["images"], "-q", "-i", tmp_path / "names"]
    words += ["--target-file", tmp_path / "labels"] * (verb == "score")
    whole = records_of(*words, "--format", "jsonl")
    assert [record["text"] for record in whole] == listed
    assert {key: value for key, value in whole[4].items() if key != "index"} == {
        key: value for key, value in whole[0].items() if key != "index"
    }
    if verb != "score":
        assert records_of(*words, "--format", "jsonl", "--buffer-lines", 1) == whole
    plain = lines_of(*words, *(["--format", "tsv"] if verb == "embed" else []))
    assert [bool(line) for line in plain] == [True, True, True, False, True]
    (tmp_path / "bad.png").write_bytes(png(np.zeros((8, 8, 1), np.uint8))[:45])
    (tmp_path / "names").write_text(f"{names[0]}\n{tmp_path / 'bad.png'}\n")
    (tmp_path / "labels").write_text("ant\nbee\n")
    refused(*words, "-o", tmp_path / "out.tsv" if verb != "classify" else tmp_path / "out.txt",
            says="line 2: ")  # fmt: skip
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("out")]
