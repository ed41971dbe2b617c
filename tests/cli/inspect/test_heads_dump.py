import json
import os
import signal
import struct
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from tformer_cli.cli.app import app
from tformer_cli.cli.inspect.inspect_heads import parse_size, size_said
from tformer_cli.errors import UsageError

LINES = ["A man sleeps.", "Two dogs run in the snow.", "", "A woman and a dog.", "the street"]


@pytest.fixture
def source(tmp_path):
    (tmp_path / "src").write_text("".join(f"{line}\n" for line in LINES))
    return tmp_path / "src"


def run(*arguments, stdin=None):
    return CliRunner().invoke(app, ["inspect-heads", *map(str, arguments)], input=stdin)


def files(path):
    return {file.name: file.read_bytes() for file in path.iterdir()}


def read_array(data, name):
    """Reads one array with what the format's description and numpy know, nothing else."""
    (length,) = struct.unpack("<Q", data[:8])
    entry = json.loads(data[8 : 8 + length])[name]
    start, stop = (8 + length + offset for offset in entry["data_offsets"])
    types = {"F16": "<f2", "F32": "<f4", "U16": "<u2", "I32": "<i4", "I64": "<i8"}
    return np.frombuffer(data[start:stop], types[entry["dtype"]]).reshape(entry["shape"])


def test_a_dump_reports_its_size_first_and_is_read_with_numpy_alone(model, source, tmp_path):
    result = run(model, "-i", source, "--dump", tmp_path / "d", "--top-k", 2, "--heads", "cross")
    assert result.exit_code == 0
    assert result.stdout == ""
    first, estimate, last = result.stderr.splitlines()
    assert first == "computing on cpu in float32"
    assert estimate.startswith("4 sentences, 2 heads: about ")
    assert "4 sentences in 1 shard, " in last
    data = (tmp_path / "d" / "part-00000.safetensors").read_bytes()
    assert read_array(data, "index").tolist() == [0, 1, 3, 4]
    top, rest = read_array(data, "cross.0.w"), read_array(data, "cross.0.rest")
    columns, rows = read_array(data, "cross.0.idx"), read_array(data, "cross.off")
    assert top.shape == columns.shape == (2, rows[-1], 2)
    np.testing.assert_allclose(top.astype(np.float32).sum(-1) + rest, 1, atol=2e-3)
    shown = json.loads(run(model, LINES[1], "--heads", "cross.0.1", "--weights").stdout)
    weights = np.array(shown["heads"][0]["weights"])
    np.testing.assert_array_equal(columns[1, rows[1] : rows[2], 0], weights.argmax(axis=1))
    np.testing.assert_allclose(top[1, rows[1] : rows[2], 0], weights.max(axis=1), atol=2**-11)


def test_a_dump_that_is_too_large_is_refused_before_anything_is_written(model, source, tmp_path):
    result = run(model, "-i", source, "--dump", tmp_path / "d", "--max-bytes", "1K", "--quiet")
    assert result.exit_code == 2
    (error,) = result.stderr.splitlines()
    assert error.startswith("error: --max-bytes: the dump would take about ")
    assert "the limit is 1.0 KiB; raise it, keep fewer numbers with --top-k K" in error
    assert not (tmp_path / "d").exists()


def test_the_same_command_again_finds_everything_done(model, source, tmp_path):
    command = (model, "-i", source, "--dump", tmp_path / "d", "--target-file", source)
    assert run(*command).exit_code == 0
    before = files(tmp_path / "d")
    again = run(*command)
    assert again.exit_code == 0
    assert "5 lines were done before" in again.stderr
    assert files(tmp_path / "d") == before
    other = run(*command, "--top-k", "3")
    assert other.exit_code == 2
    assert "was started with a different settings" in other.stderr
    source.write_text("A man\n")
    assert "was started with a different input" in run(*command).stderr


def test_arguments_can_be_dumped(model, tmp_path):
    result = run(model, "A man", "--target", "dog", "--dump", tmp_path / "d", "--verify", "1e-4")
    assert result.exit_code == 0
    manifest = json.loads((tmp_path / "d" / "manifest.json").read_text())
    assert (manifest["items"], manifest["shards"][0]["pairs"]) == (1, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "npz"], "--format: has no effect with --dump"),
        (["--corpus"], "--corpus: has no effect with --dump"),
        (["--mode", "live"], "--mode live: applies to single sentences; omit it with --dump"),
        (["--max-bytes", "lots"], '--max-bytes: "lots" is not a size above 0; write 500M or 20G'),
        (["--heads", "@prev>0.5"], "has conditions on metrics"),
        (["--target-file", "no-such-file"], "no-such-file"),
        (["--target-file", "-"], "so stdin cannot be used"),
        (["--target-file", "/dev/null"], "is not an ordinary file, but --dump reads it twice"),
    ],
)
def test_wrong_usage_is_one_line_and_writes_nothing(model, source, tmp_path, arguments, message):
    result = run(model, "-i", source, "--dump", tmp_path / "d", "--quiet", *arguments)
    assert result.exit_code == 2
    (error,) = result.stderr.splitlines()
    assert message in error
    assert not (tmp_path / "d").exists()


def test_a_text_read_twice_cannot_come_from_stdin(model, tmp_path):
    result = run(model, "--dump", tmp_path / "d", stdin="A man\n")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "reads its sentences twice, so stdin cannot be used" in result.stderr
    assert "--top-k: applies to dumps" in run(model, "a", "--top-k", "2").stderr


@pytest.mark.slow
def test_a_dump_that_is_killed_ends_with_the_same_bytes(model, tmp_path):
    source, dump = tmp_path / "src", tmp_path / "killed"
    source.write_text("".join(f"{line}\n" for line in LINES) * 20)
    command = ["inspect-heads", model, "-i", source, "--shard-pairs", "4", "--quiet", "--dump"]
    program = [sys.executable, "-m", "tformer_cli", *map(str, command), str(dump)]
    with subprocess.Popen(program, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""}) as process:
        began = time.monotonic()
        while not (dump / "part-00002.safetensors").exists():
            assert process.poll() is None
            assert time.monotonic() - began < 60
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    left = json.loads((dump / "manifest.json").read_text())
    assert not left["is_complete"]
    assert 0 < left["items"] < 100
    resumed = run(*command[1:6], "--dump", dump)
    assert resumed.exit_code == 0
    assert f"{left['items']} lines were done before" in resumed.stderr
    assert run(*command[1:], tmp_path / "whole").exit_code == 0
    assert files(dump) == files(tmp_path / "whole")


def test_sizes_are_read_and_written():
    texts = ("1000", "500M", "2.5g", "2GiB", "3 KB", "1T")
    assert [parse_size(text, "-") for text in texts] == [
        1000,
        500 << 20,
        5 << 29,
        2 << 30,
        3 << 10,
        1 << 40,
    ]
    for wrong in ("", "0", "-1", "1e9", "G", "0.0001", "five"):
        with pytest.raises(UsageError, match="is not a size above 0"):
            parse_size(wrong, "--max-bytes")
    assert [size_said(n) for n in (5, 1536, 2 << 30, 3 << 50)] == [
        "5 B",
        "1.5 KiB",
        "2.0 GiB",
        "3,072.0 TiB",
    ]
