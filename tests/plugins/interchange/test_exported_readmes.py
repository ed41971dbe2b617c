"""The example in the README.md of each export runs, and prints what tformer computes."""

import json
import re

import numpy as np
import pytest
import torch
from PIL import Image

from tests.zoo import tformer
from tformer_cli.plugins.interchange.export import export_hugging_face, export_onnx

pytest.importorskip("transformers")

EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)
WRITERS = {"translate": "translate", "opus": "translate", "language_model": "generate",
           "gpt": "generate", "llama": "generate"}  # fmt: skip
LABELERS = ("bert_classifier", "tagger", "masked")
PIPELINES = {"sentences": "embed", "classifier": "classify"}


def run(folder, monkeypatch, capsys):
    """Runs the example where it stands; returns its names and what it prints."""
    (code,) = EXAMPLE.findall((folder / "README.md").read_text())
    monkeypatch.chdir(folder)
    capsys.readouterr()
    names = {}
    torch.manual_seed(1)
    exec(compile(code, "README.md", "exec"), names)  # noqa: S102 - what users copy
    return names, capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
@pytest.mark.parametrize("name", WRITERS)
def test_what_writes(zoo, tmp_path, monkeypatch, capsys, name):
    export_hugging_face(zoo[name], tmp_path / "theirs")
    names, printed = run(tmp_path / "theirs", monkeypatch, capsys)
    torch.manual_seed(1)
    (text,) = names["tokenizer"].batch_decode(
        names["model"].generate(**names["batch"]), skip_special_tokens=True
    )
    assert printed == f"{[text]}\n"
    if name == "translate":
        found = names["model"].generate(**names["batch"], num_beams=1)
        written = tformer("translate", zoo[name], "A sentence.", "--beam-size", 1, "-q").stdout
        decoded = names["tokenizer"].batch_decode(found, skip_special_tokens=True)
        assert decoded == written.splitlines()


@pytest.mark.parametrize("name", LABELERS)
def test_what_labels(zoo, tmp_path, monkeypatch, capsys, name):
    export_hugging_face(zoo[name], tmp_path / "theirs")
    _, printed = run(tmp_path / "theirs", monkeypatch, capsys)
    assert printed.startswith("tensor([[")


@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines_of_sentence_transformers(zoo, tmp_path, monkeypatch, capsys, name):
    pytest.importorskip("sentence_transformers")
    export_hugging_face(zoo[name], tmp_path / "theirs")
    names, printed = run(tmp_path / "theirs", monkeypatch, capsys)
    if name == "classifier":
        done = tformer("classify", zoo[name], "A text", "--format", "jsonl", "-q")
        assert json.loads(done.stdout)["label"] in printed
    else:
        done = tformer("embed", zoo[name], "A text", "--format", "jsonl", "-q")
        vector = names["model"].encode(["A text"])[0]
        assert np.allclose(vector, json.loads(done.stdout)["vector"], atol=1e-5)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P"])
def test_images_of_any_mode(zoo, tmp_path, monkeypatch, capsys, mode):
    export_hugging_face(zoo["images"], tmp_path / "theirs")
    pixels = np.random.default_rng(3).integers(0, 256, (8, 8, 3), np.uint8)
    picture = tmp_path / "theirs" / "photo.png"
    Image.fromarray(pixels).convert(mode).save(picture)
    picture.rename(picture.with_suffix(".jpg"))
    names, printed = run(tmp_path / "theirs", monkeypatch, capsys)
    assert printed.startswith("tensor([[")
    photo = names["processor"](names["photo"], return_tensors="pt")
    with torch.no_grad():
        found = names["model"](**photo)[0].softmax(-1)[0].tolist()
    # it is read by its content there, and by its name here
    (tmp_path / "theirs/photo.jpg").rename(picture)
    done = tformer("classify", zoo["images"], picture, "--format", "jsonl", "-q")
    record = json.loads(done.stdout)
    best = max(range(len(found)), key=found.__getitem__)
    assert names["model"].config.id2label[best] == record["label"]
    assert found[best] == pytest.approx(record["probability"], abs=2e-3)
    card = (tmp_path / "theirs/README.md").read_text()
    assert '`pipeline("image-classification")`' in card


@pytest.mark.parametrize("name", ["bert_classifier", "tagger", "masked", "sentences"])
def test_graphs(zoo, tmp_path, monkeypatch, capsys, name):
    pytest.importorskip("onnxscript", reason="the extra onnx is not installed")
    pytest.importorskip("onnxruntime")
    export_onnx(zoo[name], tmp_path / "theirs")
    _, printed = run(tmp_path / "theirs", monkeypatch, capsys)
    assert printed.startswith("[array([[")
