"""Models of images exported for transformers: logits, tensors, preparation, and back again."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from transformers import (
    AutoImageProcessor,
    Dinov2Config,
    Dinov2ForImageClassification,
    Dinov2Model,
    ViTConfig,
    ViTForImageClassification,
    ViTModel,
)

from tests.foreign.own import own_model
from tests.foreign.test_vit import SHAPE, save_model
from tests.oracles import vit
from tformer_cli.artifacts.config_file import ModelInfo
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.errors import UsageError
from tformer_cli.foreign.hugging_face.families import VIT
from tformer_cli.foreign.import_model import import_model
from tformer_cli.model.config import ModelConfig
from tformer_cli.plugins.interchange.export import EXPORTED, export_hugging_face, export_onnx
from tformer_cli.text.images.decoding import Scaling
from tformer_cli.text.images.tokenizer import ImageTokenizer

LABELS = {0: "cat", 1: "dog", 2: "crane"}
KINDS = {
    ViTForImageClassification: ViTConfig(**SHAPE, intermediate_size=40, id2label=LABELS),
    ViTModel: ViTConfig(**SHAPE, intermediate_size=40, hidden_act="gelu_new"),
    Dinov2ForImageClassification: Dinov2Config(**SHAPE, id2label=LABELS),
    Dinov2Model: Dinov2Config(**SHAPE, layer_norm_eps=1e-3),
}


def check_round_trip(ours, exported, tmp_path):
    """What was exported and imported again is what it was, bit for bit."""
    again = tmp_path / "again"
    assert not import_model(str(exported), again).notes
    original, other = (load_model_directory(path, tasks=EXPORTED) for path in (ours, again))
    assert original.config == other.config
    assert original.info.labels == other.info.labels
    assert original.tokenizer.to_json() == other.tokenizer.to_json()
    weights = other.encoder.state_dict()
    mine = original.encoder.state_dict()
    assert mine.keys() == weights.keys()
    assert all(torch.equal(weight, weights[name]) for name, weight in mine.items())
    return original


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_imported_comes_back(kind, tmp_path):
    theirs = save_model(kind, KINDS[kind], tmp_path / "a")
    import_model(str(tmp_path / "a"), tmp_path / "ours")
    assert export_hugging_face(tmp_path / "ours", tmp_path / "b") == kind.__name__
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    assert config["architectures"] == [kind.__name__]
    back, loading = kind.from_pretrained(tmp_path / "b", output_loading_info=True)
    # what stands on the states of a bare ViT is not read
    assert all(name.startswith("pooler.") for name in loading["missing_keys"])
    assert not loading["unexpected_keys"]
    assert not loading["mismatched_keys"]
    pixels = torch.from_numpy(np.random.default_rng(4).normal(size=(2, 3, 12, 12))).float()
    with torch.inference_mode():
        found, expected = (model.eval()(pixels)[0] for model in (back, theirs))
    assert (found - expected).abs().max() <= 1e-5
    stored, original = (load_file(tmp_path / name / "model.safetensors") for name in "ba")
    same = [name for name in stored if torch.equal(stored[name], original[name])]
    # layer scale is multiplied into the products before it, and what fills gaps is not read
    other = {name for name in stored if name not in same}
    folded = ("output.dense", "fc2", "lambda1", "mask_token")
    assert all("dinov2" in config["model_type"] and any(f in n for f in folded) for n in other)
    assert len(same) >= 25
    check_round_trip(tmp_path / "ours", tmp_path / "b", tmp_path)


def own(path, *, scaling=None, **changes):
    """The directory of a random model as tformer trains it."""
    shape = vars(vit.config(**changes))
    tokenizer = ImageTokenizer(scaling or Scaling(size=shape["image_size"]), shape["patch_size"])
    labels = tuple("abcde"[: shape["n_labels"]])
    own_model(path, tokenizer, shape, info=ModelInfo(labels=labels))
    return path


GRAY = {"image_size": (12, 8, 1), "image_mean": (0.4,), "image_std": (0.2,)}


@pytest.mark.parametrize(
    ("shape", "scaling"),
    [
        (vit.SIZE, {}),
        (vit.SIZE, {"resize": (12, 8)}),
        (vit.SIZE, {"resize": (20, 9), "resample": "bicubic"}),
        (vit.SIZE, {"resize": (15,), "resample": "bicubic"}),
        (GRAY["image_size"], {"resize": (12, 8)}),
    ],
)
def test_an_image_is_prepared_and_labeled_as_here(shape, scaling, tmp_path):
    changes = GRAY if shape == GRAY["image_size"] else {"norm_epsilon": 1e-5}
    given = Scaling(size=shape, **scaling)
    ours = own(tmp_path / "ours", scaling=given, **changes)
    assert export_hugging_face(ours, tmp_path / "b") == "ViTForImageClassification"
    directory = check_round_trip(ours, tmp_path / "b", tmp_path)
    size = (40, 31) if scaling else shape[:2]
    pixels = np.random.default_rng(5).integers(0, 256, (*size, shape[2]), np.uint8)
    photo = tmp_path / "photo.png"
    Image.fromarray(pixels.squeeze()).save(photo)
    ids = torch.tensor([directory.tokenizer.source.encode(str(photo))])
    processor = AutoImageProcessor.from_pretrained(tmp_path / "b")
    prepared = processor(Image.open(photo), return_tensors="pt").pixel_values
    model = directory.classifier
    assert (model.encoder_input.images(ids) - prepared).abs().max() <= 1e-5
    theirs = ViTForImageClassification.from_pretrained(tmp_path / "b").eval()
    with torch.inference_mode():
        logits = model(ids, torch.ones(1, 6, dtype=torch.bool))
        assert (logits - theirs(prepared).logits).abs().max() <= 1e-5
    assert theirs.config.id2label == dict(enumerate("abcde"))
    card = (tmp_path / "b" / "README.md").read_text()
    assert "pipeline_tag: image-classification" in card
    assert "AutoImageProcessor, ViTForImageClassification" in card


def test_a_crop_that_is_rounded_as_timm_does_it_is_refused(tmp_path):
    scaling = Scaling(size=vit.SIZE, resize=(15,), odd_margins="even")
    with pytest.raises(UsageError, match="as timm does, often a pixel off Hugging Face's"):
        export_hugging_face(own(tmp_path / "ours", scaling=scaling), tmp_path / "b")


def test_a_graph_of_an_image_encoder_is_refused(tmp_path):
    ours = own(tmp_path / "ours", head="none", n_labels=0)
    with pytest.raises(UsageError, match="reads images; export with --format huggingface"):
        export_onnx(ours, tmp_path / "b")


def test_every_setting_is_known_or_refused():
    settings = replace(vit.config(), dropout=0.1)
    assert set(VIT.known) == set(vars(settings)) == set(vars(ModelConfig()))
