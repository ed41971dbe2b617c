"""The jobs of `inspect-heads`: dumps, roles over time, other weights than those of attention."""

import io
import json
import os
import signal
import struct
import subprocess
import sys
import time
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load

from tests.commands import under
from tests.plugins.instruments.jobs.test_timeline import lines
from tests.screens import draw_text
from tformer_cli.cli.help import format_size, parse_size
from tformer_cli.cli.inspect.inspect_view import with_value
from tformer_cli.errors import UsageError
from tformer_cli.heads.names import HeadId
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.inspect.views.heads import HeadsOptions, HeadsView
from tformer_cli.inspect.views.timeline import HeadCourse, HeadTimeline, TimelineView

LINES = ["A man sleeps.", "Two dogs run in the snow.", "", "A woman and a dog.", "the street"]


@pytest.fixture
def source(tmp_path):
    (tmp_path / "src").write_text("".join(f"{line}\n" for line in LINES))
    return tmp_path / "src"


(run,) = under("inspect-heads", "run")


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


@pytest.mark.long
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
    assert [format_size(n) for n in (5, 1536, 2 << 30, 3 << 50)] == [
        "5 B",
        "1.5 KiB",
        "2.0 GiB",
        "3,072.0 TiB",
    ]


@pytest.fixture
def directory(tmp_path):
    directory = tmp_path / "mine"
    directory.mkdir()
    (directory / "heads.jsonl").write_text("".join(f"{line}\n" for line in lines()))
    return directory


def test_in_a_pipe_there_is_a_line_for_each_head(directory):
    result = run(directory, "--over-time")
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert [head["id"] for head in records] == ["enc.0.0", "enc.1.0", "cross.0.0", "cross.0.1"]
    assert records[0]["roles"] == ["broad", "previous", "previous", "previous"]
    assert records[0]["last_change"] == 10
    assert result.stderr == ""
    chosen = run(directory, "--over-time", "--heads", "cross@role=aligner").stdout.splitlines()
    assert [json.loads(line)["id"] for line in chosen] == ["cross.0.1"]


def test_a_terminal_gets_a_sign_for_each_head_and_step(directory):
    text = run(directory, "--over-time", "--format", "text").stdout
    assert "enc.0.0    ▒◀◀◀  previous since 10" in text
    assert "enc.1.0    ▒·◀·  other since 30" in text
    assert "cross.0.0  ▒▒▒▒  broad throughout" in text
    assert "◀ previous first at 10 (enc.0.0), now 1" in text


def long_timeline(n_steps):
    roles = tuple("broad" if step < n_steps // 2 else "self" for step in range(n_steps))
    course = HeadCourse(head=HeadId("enc", 0, 0), roles=roles, metrics={})
    steps = tuple(100 * step for step in range(n_steps))
    return HeadTimeline(run="long", steps=steps, n_sentences=3, courses=(course,))


@pytest.mark.parametrize("n_steps", [1, 2, 45, 46, 90, 1000])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_many_records_are_thinned_out_and_the_last_is_kept(n_steps, encoding):
    timeline = long_timeline(n_steps)
    text = draw_text(lambda c: TimelineView().text(c, timeline, None), encoding=encoding)
    assert all(len(line) <= 80 for line in text.splitlines())
    (course,) = (line for line in text.splitlines() if line.startswith("enc.0.0"))
    signs = course.split()[1]
    assert len(signs) <= 45
    assert signs[-1] == ("●" if encoding == "utf-8" else "o")
    axis = text.splitlines()[text.splitlines().index(course) - 1]
    assert axis.split()[-1] == str(100 * (n_steps - 1))
    assert ("shown:" in text) == (n_steps > 45)


def test_pictures_and_pages(directory, tmp_path):
    for name, begin in {"x.svg": "<svg", "x.html": "<!DOCTYPE html>", "x.txt": "mine"}.items():
        assert run(directory, "--over-time", "-o", tmp_path / name).exit_code == 0
        assert (tmp_path / name).read_text().startswith(begin)


BEYOND = ("norm", "rollout", "alti")


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        (["--weights"], ["--weights=alpha"]),
        (["--weights", "norm", "a"], ["--weights", "norm", "a"]),
        (["--weights", "a"], ["--weights=alpha", "a"]),
        (["--weights", "nrom"], ["--weights", "nrom"]),
        (["--weights", "The norm."], ["--weights=alpha", "The norm."]),
        (["--weights", "--quiet"], ["--weights=alpha", "--quiet"]),
        (["--weights=alti", "m"], ["--weights=alti", "m"]),
        (["--weights", "--", "norm"], ["--weights=alpha", "--", "norm"]),
        (["m", "--", "--weights"], ["m", "--", "--weights"]),
        ([], []),
    ],
)
def test_the_value_may_be_omitted(arguments, read):
    assert with_value(arguments) == read


def test_without_a_value_it_is_attention_weights_and_the_text_stays_text(model):
    alone = run(model, "A man", "--weights", "-q").stdout
    assert alone == run(model, "--weights", "A man", "-q").stdout
    assert alone == run(model, "A man", "--weights", "alpha", "-q").stdout
    data = json.loads(alone)
    assert data["weighting"]["name"] == "alpha"
    assert np.allclose(np.sum(data["heads"][0]["weights"], axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("weights", BEYOND)
def test_an_object_names_its_weights(model, weights):
    data = json.loads(run(model, "A man sleeps.", "--weights", weights, "-q").stdout)
    assert data["schema"] == "tformer.heads/1"
    assert data["weighting"]["name"] == weights
    is_of_layers = weights != "norm"
    assert data["weighting"]["of"] == ("layers" if is_of_layers else "heads")
    assert ("One map per layer" in data["conventions"]) == is_of_layers
    assert data["residual"] <= 1e-5
    ids = ["enc.0", "enc.1", "dec.0", "cross.0"]
    if not is_of_layers:
        ids = [f"{layer}.{head}" for layer in ids for head in (0, 1)]
    assert [head["id"] for head in data["heads"]] == ids
    by_id = {head["id"]: head for head in data["heads"]}
    if is_of_layers:
        assert [head["head"] for head in data["heads"]] == [None] * 4
        assert [head["role"] for head in data["heads"]] == [None] * 4
        sums = np.sum(by_id["dec.0"]["weights"], axis=1) + np.sum(
            by_id["cross.0"]["weights"], axis=1
        )
        np.testing.assert_allclose(sums, 1, atol=1e-5)
    for head in data["heads"]:
        rows, columns = (
            len(data[side][key]) for side, key in (a.split(".") for a in data["axes"][head["kind"]])
        )
        assert np.shape(head["weights"]) == (rows, columns)


@pytest.mark.parametrize("weights", BEYOND)
def test_every_format_names_its_weights(model, tmp_path, weights):
    record = next(inspect_heads(model, ["A man"], weights=weights, targets=["dogs"]))
    files = {}
    for suffix in ("text", "html", "svg", "safetensors", "npz"):
        path = tmp_path / f"maps.{suffix}"
        arguments = ("--target", "dogs", "--weights", weights, "-o", path, "--format", suffix)
        assert run(model, "A man", *arguments).exit_code == 0, suffix
        files[suffix] = path.read_bytes()
    meaning = record.weighting.meaning
    assert f"{weights}: " in files["text"].decode()
    drawing = ET.fromstring(files["svg"].decode())  # noqa: S314 - our own
    title = drawing.find("{http://www.w3.org/2000/svg}desc").text
    assert f"{weights}: {meaning}" in title
    assert f'"name":"{weights}"' in files["html"].decode()
    arrays = load(files["safetensors"])
    metadata = safe_open(tmp_path / "maps.safetensors", "numpy").metadata()
    assert json.loads(metadata["weighting"])["name"] == weights
    with np.load(io.BytesIO(files["npz"])) as npz:
        assert json.loads(json.loads(str(npz["metadata"]))["weighting"])["name"] == weights
        for name, array in arrays.items():
            np.testing.assert_array_equal(npz[name], array)
    n_rows, n_columns = len(record.target_pieces), len(record.source_pieces)
    if weights == "norm":
        assert arrays["cross.0"].shape == (2, n_rows, n_columns)
        assert json.loads(metadata["heads"])["cross.0"] == [0, 1]
        np.testing.assert_array_equal(arrays["cross.0"], record.maps.cross[0])
    else:
        assert arrays["cross.0"].shape == (n_rows, n_columns)
        assert "heads" not in metadata


@pytest.mark.needs("png")
@pytest.mark.parametrize("weights", BEYOND)
def test_a_picture_names_its_weights(model, tmp_path, weights):
    path = tmp_path / "maps.png"
    result = run(model, "A man", "--target", "dogs", "--weights", weights, "-o", path)
    assert result.exit_code == 0
    assert f"{weights}: ".encode() in path.read_bytes()
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_terminal_shows_layers_without_a_grid_of_roles(model):
    record = next(inspect_heads(model, ["A man"], weights="alti", targets=["dogs"]))
    text = draw_text(lambda c: HeadsView().text(c, record, HeadsOptions()), width=120)
    assert "roles:" not in text
    assert "alti: ALTI+ contributions" in text
    assert "cross.0  decoder, from source tokens" in text


def test_the_rows_of_a_search_can_be_rolled_out(model):
    forced, live = (
        json.loads(run(model, "A man", "--weights", "rollout", "--mode", mode, "-q").stdout)
        for mode in ("forced", "live")
    )
    assert (forced["mode"], live["mode"]) == ("forced", "live")
    for ours, theirs in zip(live["heads"], forced["heads"], strict=True):
        np.testing.assert_allclose(ours["weights"], theirs["weights"], atol=1e-5)


def test_verify_checks_the_sources_of_these_maps(model):
    assert run(model, "A man", "--weights", "alti", "--verify", "1e-4").exit_code == 0
    result = run(model, "A man", "--weights", "alti", "--verify", "1e-30")
    assert result.exit_code == 1
    assert "error: line 1: residual " in result.stderr
