import gzip
import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tests.foreign.hugging_face.test_importing import marian
from tformer_cli.errors import DataError, UsageError
from tformer_cli.plugins.corpora_tools.commands.tokenize import tokenize_app
from tformer_cli.text.tokenizer import read_tokenizer

LINES = ["The dog sees the man.", "Der Hund sieht den Mann."] * 20


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def tokenizer(text, tmp_path):
    path = tmp_path / "tokenizer.json"
    assert run("train", text, "-o", path, "--vocab-size", 290).exit_code == 0
    return path


def run(*args, stdin=b""):
    return CliRunner().invoke(tokenize_app, [str(arg) for arg in args], input=stdin)


def test_training_answers_on_stderr_only(text, tmp_path):
    result = run("train", text, "-o", tmp_path / "t.json", "--vocab-size", "290")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "bpe: 290 pieces from 40 lines" in result.stderr
    assert (
        run("train", text, "-o", tmp_path / "t.json", "--quiet", "--vocab-size", "290").stderr == ""
    )


@pytest.mark.parametrize("algorithm", ["bpe", "unigram", "word", "char", "byte"])
def test_every_algorithm_is_trained_and_encodes(text, tmp_path, algorithm):
    path = tmp_path / "t.json"
    args = ("train", text, "-o", path, "--algorithm", algorithm, "--vocab-size", "300")
    assert run(*args).exit_code == 0
    encoded = run("encode", path, stdin=LINES[0].encode()).stdout_bytes
    assert run("decode", path, stdin=encoded).stdout == LINES[0] + "\n"


def test_a_vocabulary_without_room_for_the_bytes_is_one_line(text, tmp_path):
    path = tmp_path / "t.json"
    done = run("train", text, "-o", path, "--vocab-size", 100)
    assert isinstance(done.exception, UsageError)
    assert str(done.exception).startswith('--vocab-size: must be 260 to 1000000 for "bpe" (256 ')
    assert not path.exists()


@pytest.mark.parametrize("name", ["--input", "-i"])
def test_a_file_and_stdin_give_the_same(tokenizer, text, tmp_path, name):
    packed = tmp_path / "text.gz"
    packed.write_bytes(gzip.compress(text.read_bytes()))
    expected = run("encode", tokenizer, stdin=text.read_bytes()).stdout_bytes
    assert expected.count(b"\n") == len(LINES)
    assert run("encode", tokenizer, name, text).stdout_bytes == expected
    assert run("encode", tokenizer, name, packed).stdout_bytes == expected
    assert run("encode", tokenizer, name, "-", stdin=text.read_bytes()).stdout_bytes == expected
    (tmp_path / "pieces").write_bytes(expected)
    assert run("decode", tokenizer, name, tmp_path / "pieces").stdout_bytes == text.read_bytes()
    missing = run("decode", tokenizer, name, tmp_path / "none")
    assert isinstance(missing.exception, DataError)
    (tmp_path / "bad").write_text("9\n" * 1500 + "x\n")
    bad = run("decode", tokenizer, "--ids", name, tmp_path / "bad")
    assert "1501" in str(bad.exception)


def test_a_dash_reads_stdin_and_writes_stdout(tokenizer, text):
    result = run("train", "-", "-o", "-", "--vocab-size", 290, stdin=text.read_bytes())
    assert result.stdout == tokenizer.read_text()


@pytest.mark.parametrize("ids", [[], ["--ids"]])
def test_a_line_for_a_line_there_and_back(tokenizer, ids):
    data = "a  b \n\n\x00\u2028</s>\x0c\nlast without end".encode()
    encoded = run("encode", tokenizer, *ids, stdin=data).stdout_bytes
    assert encoded.count(b"\n") == 4
    assert encoded.split(b"\n")[1] == b""
    assert run("decode", tokenizer.parent, *ids, stdin=encoded).stdout_bytes == data + b"\n"


def test_results_go_into_a_file_that_is_no_input(tokenizer, text, tmp_path):
    for verb, given, file in (("encode", text, "pieces"), ("decode", tmp_path / "pieces", "back")):
        assert run(verb, tokenizer, "-i", given, "-o", tmp_path / file).stdout == ""
    assert (tmp_path / "back").read_bytes() == text.read_bytes()
    refused = run("encode", tokenizer, "-i", text, "-o", text).exception
    assert "is also the input" in str(refused)


def test_wrong_bytes_are_replaced_and_counted_once(tokenizer):
    result = run("encode", tokenizer, stdin=b"a\xff\nb\n\xfe\n")
    assert result.stdout.count("\n") == 3
    assert "2 lines with bytes that are not UTF-8" in result.stderr


def test_wrong_input_is_an_error_that_names_the_line(tokenizer):
    result = run("decode", tokenizer, "--ids", stdin=b"5\nx\n")
    assert isinstance(result.exception, DataError)
    assert 'line 2: "x" is not an id' in str(result.exception)


def test_statistics_are_a_table_or_json(tokenizer, text):
    table = run("stats", tokenizer, text).stdout
    assert "pieces per word" in table
    assert "lines not restored" in table
    record = json.loads(run("stats", tokenizer, text, "--format", "json").stdout)
    assert record["algorithm"] == "bpe"
    assert record["files"][0]["lines"] == 40
    assert record["files"][0]["lines_not_restored"] == 0


def test_quiet_silences_progress(tokenizer, text):
    assert "measuring" not in run("stats", tokenizer, text, "--quiet").stderr
    assert run("encode", tokenizer, "--quiet", stdin=b"a\n").stderr == ""


def test_answers_come_while_stdin_is_still_open(tokenizer):
    place = "tformer_cli.plugins.corpora_tools.commands.tokenize"
    code = f"from {place} import tokenize_app; tokenize_app()"
    command = [sys.executable, "-c", code, "encode", str(tokenizer)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        for word in (b"The", b"Der"):
            process.stdin.write(word + b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == "▁".encode() + word + b"\n"
        process.stdin.close()
        assert process.wait(timeout=60) == 0


def test_each_side_of_a_tokenizer_is_used_by_its_name(foreign, text):
    sides = read_tokenizer(foreign)
    line = "A man sees the house."
    for side, encoder in (("source", sides.source), ("target", sides.target)):
        pieces = encoder.pieces(encoder.encode(line))
        encoded = run("encode", foreign, "--side", side, stdin=line.encode())
        assert encoded.stdout.split() == pieces
        ids = run("encode", foreign, "--side", side, "--ids", stdin=line.encode())
        assert ids.stdout.split() == [str(token) for token in encoder.encode(line)]
        decoded = run("decode", foreign, "--side", side, stdin=encoded.stdout.encode())
        assert decoded.stdout == f"{encoder.decode(encoder.encode(line))}\n"
        measured = run("stats", foreign, text, "--side", side, "--format", "json")
        assert json.loads(measured.stdout)["vocab_size"] == encoder.vocab_size
    assert sides.source.vocab_size != sides.target.vocab_size
    assert run("encode", foreign, stdin=line.encode()).stdout != encoded.stdout


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_the_tokenizer_of_a_foreign_model_is_imported_once(tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / "opus"
    marian(source)
    line = "a dog in the street"
    expected = transformers.AutoTokenizer.from_pretrained(source).tokenize(line)
    for place, count in ((source, 1), (source, 0)):
        result = run("encode", place, stdin=line.encode())
        assert result.stdout.split() == expected
        assert result.stderr.count("imported a model of Hugging Face Marian") == count
    assert run("encode", source / "source.spm", stdin=line.encode()).stdout.split() == expected
    assert run("decode", source, stdin=" ".join(expected).encode()).stdout == f"{line}\n"
    for missing in (tmp_path / "none.json", tmp_path / "none"):
        done = run("encode", missing)
        assert isinstance(done.exception, DataError)
        assert "no such tokenizer" in str(done.exception)
