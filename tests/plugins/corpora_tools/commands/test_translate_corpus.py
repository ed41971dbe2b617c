"""The command with processes of its own, some of which are killed."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.commands import record_of, under
from tformer_cli.cli.app import app
from tformer_cli.kinds.lines.translate import translate_file

LINES = ["A man sleeps.", "Two dogs run in the snow.", "", "the street", "A woman and a dog."]


output_of, refused, run = under("translate-corpus", "output_of", "refused", "run")


def join_parts(directory):
    return b"".join(file.read_bytes() for file in sorted(directory.glob("part-*")))


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("".join(line + "\n" for line in LINES * 20))
    return path


@pytest.fixture
def expected(model, text, tmp_path):
    translate_file(model, text, tmp_path / "expected.txt", device="cpu", precision="float32")
    return (tmp_path / "expected.txt").read_bytes()


def test_two_processes_write_what_translate_writes(model, text, expected, tmp_path):
    output = tmp_path / "out"
    done = run(model, text, "-o", output, "--workers", 2, "--lines-per-shard", 30)
    assert done.exit_code == 0, done.stderr
    assert done.stdout == f"{output}\n"
    assert done.stderr.startswith("computing on cpu in float32\n")
    assert "100 lines in " in done.stderr
    assert join_parts(output) == expected
    check_times(done.stderr, output, 100)
    again = run(model, text, "-o", output, "--lines-per-shard", 30, "--quiet", "--workers", 1)
    assert (again.exit_code, again.stdout, again.stderr) == (0, f"{output}\n", "")


def check_times(stderr, output, n_lines):
    """The record says where the time of both processes went, and a table shows it."""
    (job,) = record_of("info", output, "--format", "json")["jobs"]
    assert (job["command"], job["state"], job["done"]) == ("translate-corpus", "finished", n_lines)
    parts = {row["part"]: row["seconds"] for row in job["times"]}
    assert {*parts} == {"opening", "reading", "waiting", "tokenizing", "search", "writing"}
    # The model is opened before the job begins
    of_workers = sum(parts.values()) - parts["opening"] - parts["reading"]
    assert 0 < of_workers <= 2 * job["seconds"] + 0.1
    table = stderr[stderr.index("Where the time went") :].splitlines()
    assert table[1].split() == ["Part", "Time", "Share"]
    assert ["opening", f"{parts['opening']:.1f}", "s"] in [row.split()[:3] for row in table]


def test_parts_are_those_of_translate(model, text, expected, tmp_path):
    for index in range(2):
        output = tmp_path / f"out.{index}"
        options = ("--shard", f"{index}/2", "--workers", 1, "--quiet", "--device", "cpu")
        output_of(model, text, "-o", output, "--lines-per-shard", 30, *options)
    parts = [join_parts(tmp_path / f"out.{index}") for index in range(2)]
    assert [part.count(b"\n") for part in parts] == [50, 50]
    assert b"".join(parts) == expected


def children(process):
    return [
        int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()
    ]


def is_alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it ended before or while it was read
        return False


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


HELD = """
def held(self, waiting, tasks, employ=processes._Processes._employ):
    time.sleep(600 if len(waiting) <= 20 else 0)
    employ(self, waiting, tasks)
processes._Processes._employ = held
"""
"""Hands out four of 24 shards, or a test that stalls would find that nothing is left to stop."""
KILLING = """
def killing(self, record, tell=processes._Worker.tell, tasks=iter([False, False, True])):
    tell(self, record)
    if "task" in record and next(tasks, False):
        self.process.kill()
processes._Worker.tell = killing
"""
"""Kills the process that has just got the third shard."""
CHANGED = """
import signal, time
from tformer_cli.__main__ import main
from tformer_cli.plugins.corpora_tools.bulk import processes
# A background job ignores SIGINT, and so would its child
signal.signal(signal.SIGINT, signal.default_int_handler)
"""


def start_command(model, text, output, change):
    """Starts the command with a change of how it hands out shards."""
    options = ["--lines-per-shard", "64", "--workers", "2", "--device", "cpu"]
    words = ["translate-corpus", str(model), str(text), "-o", str(output), *options]
    command = [sys.executable, "-c", f"{CHANGED}{change}main()", *words]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE)


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc for processes")
def test_whoever_is_killed_each_line_is_there_once_and_in_order(model, tmp_path):
    text, output = tmp_path / "in.txt", tmp_path / "out"
    text.write_text("".join(line + "\n" for line in LINES * 300))
    translate_file(model, text, tmp_path / "expected.txt", device="cpu", precision="float32")

    def shards():
        return len(list(output.glob("part-*.txt")))

    # The program is killed: its workers end, too, and what is done stays
    with start_command(model, text, output, HELD) as client:
        wait_for(lambda: shards() >= 2)
        workers = children(client.pid)
        client.send_signal(signal.SIGKILL)
    wait_for(lambda: not any(map(is_alive, workers)))
    assert 2 <= shards() <= 4
    # A worker is killed: another takes its place
    with start_command(model, text, output, KILLING) as client:
        stdout, stderr = client.communicate()
    assert client.returncode == 0, stderr
    assert stdout.decode() == f"{output}\n"
    assert b"1,500 lines done; resuming after them" in stderr
    assert b"ended (killed" in stderr
    assert join_parts(output) == (tmp_path / "expected.txt").read_bytes()
    manifest = json.loads((output / "manifest.json").read_text())
    assert (
        len(list(output.iterdir())) == len(manifest["shards"]) + 2
    )  # the manifest and the record of the job


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_all_and_leaves_nothing_half_written(model, tmp_path, number, status):
    text, output = tmp_path / "in.txt", tmp_path / "out"
    text.write_text("".join(line + "\n" for line in LINES * 300))
    with start_command(model, text, output, HELD) as client:
        wait_for(lambda: list(output.glob("part-*.txt")))
        client.send_signal(number)
        stdout, stderr = client.communicate()
    assert (client.returncode, stdout) == (status, b"")
    assert b"Traceback" not in stderr
    assert b"stopped; run the same command again to resume" in stderr
    assert not list(output.glob("*.partial"))
    assert (output / "shards.jsonl").exists()


def test_a_dry_run_says_what_would_be_done(model, text, tmp_path):
    done = run(model, text, "-o", tmp_path / "out", "--dry-run", "--workers", 1, "--quiet")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == (
        f"{text}: text, 100 lines\n{tmp_path / 'out'}: 0 of 100 lines done; 1 shard\n"
    )
    assert not (tmp_path / "out").exists()


def test_shards_are_not_overwritten_by_other_commands(model, text, tmp_path):
    output = tmp_path / "out"
    output_of(model, text, "-o", output, "--workers", 1, "--quiet")
    target = output / "part-00000.txt"
    arguments = ["translate", str(model), "-i", str(text), "-o", str(target)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert "belongs to the translated corpus" in done.stderr
