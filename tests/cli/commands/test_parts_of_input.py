import os
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from tformer_cli.cli.app import app
from tformer_cli.cli.commands.translate import parse_shard
from tformer_cli.errors import UsageError

LINES = [f"A dog and {'a man ' * (i % 4)}sleeps." for i in range(10)]


def run(*arguments, **options):
    return CliRunner().invoke(app, ["translate", *map(str, arguments)], **options)


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "in.txt"
    file.write_text("\n".join(LINES) + "\n")
    return file


@pytest.mark.parametrize("text", ["", "3", "3/3", "-1/2", "1/0", "a/b"])
def test_other_texts_than_shards_are_refused(text):
    with pytest.raises(UsageError, match="is not I/N"):
        parse_shard(text)


def test_joined_shards_are_the_whole(model, source):
    whole = run(model, "-i", source, "--format", "tsv").stdout
    options = ("-i", source, "--format", "tsv", "--buffer-lines", 2)
    parts = [run(model, *options, "--shard", f"{index}/3").stdout for index in range(3)]
    assert "".join(parts) == whole


def test_a_stopped_translation_resumes(model, source, tmp_path, monkeypatch):
    options = ("-i", source, "--format", "jsonl", "--n-best", 2, "--buffer-lines", 3)
    whole = run(model, *options).stdout
    output = tmp_path / "out.jsonl"
    from tformer_cli.search.translator import Translator

    translate = Translator.translate

    def failing(self, lines, first_index=0, *rest, **more):
        if first_index >= 6:
            raise KeyboardInterrupt
        return translate(self, lines, first_index, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Translator, "translate", failing)
        assert run(model, *options, "--resume", "-o", output).exit_code != 0
    assert not output.exists()
    other = run(model, *options, "--beam-size", 2, "--resume", "-o", output)
    assert other.exit_code == 2
    assert "started with a different settings" in other.stderr
    again = run(model, *options, "--resume", "-o", output)
    assert again.exit_code == 0
    assert "lines done" in again.stderr
    assert output.read_text() == whole
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in.txt", "out.jsonl"]


def test_a_bad_line_of_a_shard_has_its_number_in_the_file(model, tmp_path):
    file = tmp_path / "in.jsonl"
    file.write_text('{"source": "A dog"}\n' * 3 + "no JSON\n")
    result = run(model, "-i", file, "--input-format", "jsonl", "--shard", "1/2")
    assert result.exit_code == 2
    assert "in.jsonl, line 4: " in result.stderr


def test_resuming_needs_files(model):
    result = run(model, "--resume", input="a\n")
    assert result.exit_code == 2
    assert "give --input and --output" in result.stderr


def test_a_slow_pipe_is_answered_in_time(model):
    command = [sys.executable, "-m", "tformer_cli", "translate", str(model), "--max-wait", "0.05"]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    began = time.monotonic()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        process.stdin.write(b"A dog\n")
        process.stdin.flush()
        assert process.stdout.readline().endswith(b"\n")  # without --max-wait this would not return
        process.stdin.close()
        assert process.stdout.read() == b""
        assert process.wait(60) == 0
    assert time.monotonic() - began < 120
