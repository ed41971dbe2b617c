import io
import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from rich.console import Console
from safetensors import safe_open
from safetensors.numpy import load
from typer.testing import CliRunner

from tformer_cli.cli.app import app
from tformer_cli.cli.inspect.inspect_view import with_value
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.inspect.views.heads import HeadsOptions, HeadsView

BEYOND = ("norm", "rollout", "alti")


def run(*arguments, stdin=None):
    return CliRunner().invoke(app, ["inspect-heads", *map(str, arguments)], input=stdin)


@pytest.mark.parametrize(
    ("given", "read"),
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
def test_the_value_may_be_omitted(given, read):
    assert with_value(given) == read


def test_without_a_value_it_is_attention_weights_and_the_text_stays_text(model):
    alone = run(model, "A man", "--weights", "-q").stdout
    assert alone == run(model, "--weights", "A man", "-q").stdout
    assert alone == run(model, "A man", "--weights", "alpha", "-q").stdout
    data = json.loads(alone)
    assert data["weighting"]["name"] == "alpha"
    assert np.allclose(np.sum(data["heads"][0]["weights"], axis=1), 1, atol=1e-5)


def test_a_misspelt_value_is_refused_and_not_translated(model):
    done = run(model, "A man", "--weights", "rollot", "-q")
    assert done.exit_code == 2
    assert "'rollot' is not one of 'alpha', 'norm', 'rollout', 'alti'" in done.stderr


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
        np.testing.assert_array_equal(arrays["cross.0"], record.maps.cross[0].numpy())
    else:
        assert arrays["cross.0"].shape == (n_rows, n_columns)
        assert "heads" not in metadata


@pytest.mark.parametrize("weights", BEYOND)
def test_a_picture_names_its_weights(model, tmp_path, weights):
    pytest.importorskip("resvg_py")
    path = tmp_path / "maps.png"
    result = run(model, "A man", "--target", "dogs", "--weights", weights, "-o", path)
    assert result.exit_code == 0
    assert f"{weights}: ".encode() in path.read_bytes()
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_terminal_shows_layers_without_a_grid_of_roles(model):
    record = next(inspect_heads(model, ["A man"], weights="alti", targets=["dogs"]))
    file = io.StringIO()
    HeadsView().text(Console(file=file, width=120), record, HeadsOptions())
    text = file.getvalue()
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--weights", "alti", "--heads", "cross.0.1"], '--heads: "cross.0.1" names heads'),
        (["--weights", "norm", "--corpus"], "--weights: applies to single sentences"),
        (["--weights", "norm", "--mode", "live"], "--weights norm: is measured in one pass"),
        (["--weights=lrp"], "'lrp' is not one of 'alpha', 'norm', 'rollout', 'alti'"),
    ],
)
def test_contradicting_options_are_one_line_and_status_2(model, arguments, message):
    result = run(model, "A man", *arguments, "-q")
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert message in line
