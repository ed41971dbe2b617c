"""`tformer evaluate --baseline-model`: two language models or classifiers on the same examples."""

import shutil

import numpy as np
import pytest

from tests.commands import output_of, record_of
from tformer_cli.artifacts.tensors import load_tensors, save_tensors

LINES = [f"Two dogs run in the street {number}" for number in range(40)]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{line}\n" for line in LINES))
    return path


@pytest.fixture
def changed(tmp_path):
    """Copies a model with other weights."""

    def changed(model, factor):
        path = shutil.copytree(model, tmp_path / f"changed-{factor}")
        weights = load_tensors(path / "model.safetensors")
        save_tensors(path / "model.safetensors", {n: factor * w for n, w in weights.items()})
        return path

    return changed


@pytest.mark.parametrize("kind", ["lines", "stream"])
def test_language_models_are_compared_in_lines_or_blocks(language_model, changed, file, kind):
    other = changed(language_model, 0.5)
    options = ["--text", file, "--text-kind", kind, "-q", "--format", "json"]
    record = record_of("evaluate", language_model, *options, "--baseline-model", other)
    for model, found in ((language_model, record), (other, record["baseline"])):
        alone = record_of("evaluate", model, *options)
        assert {name: found[name] for name in alone} == alone
    (change,) = record["changes"]
    measure = "bits_per_byte" if kind == "lines" else "loss"
    assert change["measure"] == measure
    assert change["value"] == pytest.approx(record[measure])
    assert change["baseline"] == pytest.approx(record["baseline"][measure])
    assert change["difference"] == pytest.approx(record[measure] - record["baseline"][measure])
    assert change["ci95"][0] < change["difference"] < change["ci95"][1]
    assert change["p_value"] < 0.05
    assert record["test"].startswith(
        f"paired-bootstrap|units:{'lines' if kind == 'lines' else 'blocks of 128 tokens'}|"
    )
    same = record_of("evaluate", language_model, *options, "--baseline-model", language_model)
    assert same["changes"][0]["p_value"] == 1.0
    table = output_of("evaluate", language_model, *options[:-2], "--baseline-model", other)
    assert f"{measure.replace('_', ' ')} change  " in table


def test_classifiers_are_compared_with_labels_or_another(classifier, changed, file, tmp_path):
    from tformer_cli.artifacts.config_file import read_config

    labels = read_config(classifier).labels
    other = changed(classifier, -1.0)
    right = tmp_path / "right.txt"
    right.write_text("".join(f"{labels[n % 3]}\n" for n in range(40)))
    given = tmp_path / "given.txt"
    options = ["-i", file, "--reference", right, "-q", "--format", "json"]
    alone = record_of("evaluate", other, *options, "-o", given)
    records = [
        record_of("evaluate", classifier, *options, *baseline)
        for baseline in (["--baseline", given], ["--baseline-model", other])
    ]
    assert records[0] == records[1]
    accuracy, macro = records[0]["changes"]
    assert (accuracy["measure"], macro["measure"]) == ("accuracy", "macro_f1")
    assert accuracy["baseline"] == pytest.approx(alone["accuracy"])
    assert accuracy["value"] == pytest.approx(records[0]["accuracy"])
    assert macro["value"] == pytest.approx(records[0]["macro_f1"])
    assert np.diff(macro["ci95"]) >= 0
    table = output_of("evaluate", classifier, *options[:-2], "--baseline", given)
    assert "accuracy change  " in table
