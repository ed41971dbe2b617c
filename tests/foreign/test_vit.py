"""ViT, DINOv2 and timm's Vision Transformers: equal to transformers with all parameters random."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import (
    BitImageProcessorPil,
    Dinov2Config,
    Dinov2ForImageClassification,
    Dinov2Model,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessorPil,
    ViTModel,
)

from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.import_model import import_model

SHAPE = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "image_size": 12,
    "patch_size": 4, "attn_implementation": "eager",
}  # fmt: skip
ALL = ("image", "embed")


def save_model(kind, config, path, processor=None):
    """A model of transformers with every parameter random, and its directory."""
    torch.manual_seed(7)
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    model.save_pretrained(path)
    if processor is not None:
        processor.save_pretrained(path)
    return model


@pytest.fixture
def photo():
    rng = np.random.default_rng(3)
    return rng.integers(0, 256, (40, 60, 3), np.uint8)


def import_both(path, tmp_path):
    model = import_model(str(path), tmp_path / "ours")
    return model, load_model_directory(tmp_path / "ours", tasks=ALL)


def ids_of(directory, photo, tmp_path):
    Image.fromarray(photo).save(tmp_path / "photo.png")
    ids = torch.tensor([directory.tokenizer.source.encode(str(tmp_path / "photo.png"))])
    grid = directory.config.grid
    return ids, torch.ones(1, grid[0] * grid[1], dtype=torch.bool)


def check_gradients(directory, theirs, ids, mask, pixels, links):
    """Compares gradients of the logit sum, of some weights on both sides."""
    ours = directory.encoder.requires_grad_(True)
    ours(ids, mask).square().sum().backward()
    theirs(pixels).logits.square().sum().backward()
    parameters = dict(ours.named_parameters())
    for name, parts in links.items():
        found = parameters[name].grad.flatten()
        wanted = torch.cat([part.grad.flatten() for part in parts])
        assert (found - wanted).abs().max() <= 1e-4 * wanted.abs().max(), name


def test_vit_with_its_processor(tmp_path, photo):
    processor = ViTImageProcessorPil(
        size={"height": 12, "width": 12}, image_mean=[0.4, 0.5, 0.6], image_std=[0.2, 0.3, 0.4]
    )
    labels = {0: "cat", 1: "dog", 2: "crane", 3: "crane"}
    config = ViTConfig(**SHAPE, intermediate_size=40, id2label=labels)
    theirs = save_model(ViTForImageClassification, config, tmp_path / "vit", processor)
    model, directory = import_both(tmp_path / "vit", tmp_path)
    assert (model.kind, model.notes) == ("Hugging Face ViT", ())
    assert model.labels == ("cat", "dog", "crane", "crane (3)")
    assert directory.config.norm_epsilon == 1e-12
    ids, mask = ids_of(directory, photo, tmp_path)
    pixels = processor(Image.fromarray(photo), return_tensors="pt").pixel_values
    ours = directory.classifier
    assert torch.allclose(ours.encoder_input.images(ids), pixels, atol=1e-6)
    assert (ours(ids, mask) - theirs(pixels).logits).abs().max() <= 1e-5
    layer = theirs.vit.layers[1]
    check_gradients(directory, theirs, ids, mask, pixels, {
        "encoder_input.patches.weight": [theirs.vit.embeddings.patch_embeddings.projection.weight],
        "encoder_input.class_token": [theirs.vit.embeddings.cls_token],
        "encoder.layers.1.self_attention.in_projection.weight": [
            layer.attention.q_proj.weight, layer.attention.k_proj.weight,
            layer.attention.v_proj.weight,
        ],
        "encoder.layers.1.feed_forward.inner.weight": [layer.mlp.fc1.weight],
    })  # fmt: skip


def test_dinov2_with_labels_reads_the_class_token_and_the_mean(tmp_path, photo):
    processor = BitImageProcessorPil(
        size={"shortest_edge": 16}, crop_size={"height": 12, "width": 12}, resample=3
    )
    theirs = save_model(
        Dinov2ForImageClassification, Dinov2Config(**SHAPE, num_labels=3), tmp_path / "d", processor
    )
    model, directory = import_both(tmp_path / "d", tmp_path)
    assert model.kind == "Hugging Face DINOv2"
    assert model.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert directory.config.pooling == "first-and-mean"
    ids, mask = ids_of(directory, photo, tmp_path)
    pixels = processor(Image.fromarray(photo), return_tensors="pt").pixel_values
    ours = directory.classifier
    assert torch.allclose(ours.encoder_input.images(ids), pixels, atol=1e-6)
    assert (ours(ids, mask) - theirs(pixels).logits).abs().max() <= 1e-5
    layer = theirs.dinov2.encoder.layer[0]
    check_gradients(directory, theirs, ids, mask, pixels, {
        "output_projection.weight": [theirs.classifier.weight],
        "encoder.layers.0.feed_forward.inner.weight": [layer.mlp.fc1.weight],
        "encoder_input.positions.table": [theirs.dinov2.embeddings.position_embeddings],
    })  # fmt: skip


@pytest.mark.parametrize(("kind", "config"), [(ViTModel, ViTConfig), (Dinov2Model, Dinov2Config)])
def test_a_backbone_is_an_encoder_of_images(kind, config, tmp_path, photo):
    theirs = save_model(kind, config(**SHAPE), tmp_path / "b")
    model, directory = import_both(tmp_path / "b", tmp_path)
    assert "there is no preprocessor_config.json: images are scaled to 12×12" in " ".join(
        model.notes
    )
    assert ("the pooler" in " ".join(model.notes)) == (kind is ViTModel)
    ids, mask = ids_of(directory, photo, tmp_path)
    ours = directory.encoder
    expected = theirs(ours.encoder_input.images(ids)).last_hidden_state
    assert (ours.encode(ids, mask) - expected).abs().max() <= 1e-5
    assert (ours(ids, mask) - expected[:, 0]).abs().max() <= 1e-5


def test_positions_are_interpolated_as_dinov2_does(tmp_path, photo):
    processor = BitImageProcessorPil(
        size={"shortest_edge": 26}, crop_size={"height": 20, "width": 24}, resample=3
    )
    theirs = save_model(Dinov2Model, Dinov2Config(**SHAPE), tmp_path / "b", processor)
    model, directory = import_both(tmp_path / "b", tmp_path)
    assert "positions of 3×3 patches are interpolated to 5×6" in model.notes
    ids, mask = ids_of(directory, photo, tmp_path)
    pixels = processor(Image.fromarray(photo), return_tensors="pt").pixel_values
    states = directory.encoder.encode(ids, mask)
    assert (states - theirs(pixels).last_hidden_state).abs().max() <= 1e-5


def square(**change):
    return ViTConfig(**{**SHAPE, "intermediate_size": 40, **change})


ODD = {
    # 48 patches and the class token are 7²
    "rectangles": (ViTModel, square(image_size=[24, 32]), ViTImageProcessorPil(
        size={"height": 24, "width": 32})),
    # numbers of patches agree, but not their rows
    "same count": (Dinov2Model, Dinov2Config(**{**SHAPE, "image_size": 16}), BitImageProcessorPil(
        size={"shortest_edge": 35}, crop_size={"height": 8, "width": 32})),
    "own rectangles": (
        Dinov2Model, Dinov2Config(**{**SHAPE, "image_size": [8, 32]}), BitImageProcessorPil(
            size={"height": 9, "width": 33}, crop_size={"height": 8, "width": 32})),
    "cropped squares": (ViTModel, square(), ViTImageProcessorPil(
        size={"height": 17, "width": 17}, do_center_crop=True,
        crop_size={"height": 12, "width": 12})),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("size", [(12, 12), (40, 60), (24, 32), (8, 32), (4, 3000)])
def test_odd_sizes_of_images_and_models(name, size, tmp_path):
    kind, config, processor = ODD[name]
    theirs = save_model(kind, config, tmp_path / "b", processor)
    _, directory = import_both(tmp_path / "b", tmp_path)
    photo = np.random.default_rng(4).integers(0, 256, (*size, 3), np.uint8)
    ids, mask = ids_of(directory, photo, tmp_path)
    pixels = processor(Image.fromarray(photo), return_tensors="pt").pixel_values
    states = directory.encoder.encode(ids, mask)
    assert (states - theirs(pixels).last_hidden_state).abs().max() <= 1e-5


PROCESSORS = {
    "ViTFeatureExtractor": {"size": 12},  # a number is the side of a square
    "ViTImageProcessor": {"size": {"height": 12, "width": 12}, "resample": 3},
    "DeiTFeatureExtractor": {"size": 16, "crop_size": 12},
    "BitImageProcessor": {"size": 14, "crop_size": 12},
    "CLIPImageProcessor": {"size": 14, "crop_size": 12, "resample": 2},
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_processors_have_defaults_of_their_own(name, tmp_path, photo):
    save_model(ViTModel, square(), tmp_path / "vit")
    values = {**PROCESSORS[name], "feature_extractor_type": name}
    (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(values))
    _, directory = import_both(tmp_path / "vit", tmp_path)
    ids, _ = ids_of(directory, photo, tmp_path)
    kind = name.replace("FeatureExtractor", "ImageProcessor")
    processor = getattr(transformers, f"{kind}Pil").from_pretrained(tmp_path / "vit")
    pixels = processor(Image.fromarray(photo), return_tensors="pt").pixel_values
    assert torch.allclose(directory.encoder.encoder_input.images(ids), pixels, atol=1e-6)


def test_images_that_are_smaller_than_a_patch_are_refused(tmp_path):
    processor = BitImageProcessorPil(
        size={"shortest_edge": 12}, crop_size={"height": 3, "width": 3}
    )
    save_model(Dinov2Model, Dinov2Config(**SHAPE), tmp_path / "b", processor)
    with pytest.raises(ArtifactError, match="images of 3×3 pixels are smaller than a patch of 4×4"):
        import_both(tmp_path / "b", tmp_path)


def as_timm(path, theirs, **settings):
    """The weights of a ViT of transformers under timm's names."""
    vit = theirs.vit
    arrays = {
        "cls_token": vit.embeddings.cls_token,
        "pos_embed": vit.embeddings.position_embeddings,
        "patch_embed.proj.weight": vit.embeddings.patch_embeddings.projection.weight,
        "patch_embed.proj.bias": vit.embeddings.patch_embeddings.projection.bias,
    }
    modules = {"norm": [vit.layernorm], "head": [theirs.classifier]}
    for n, layer in enumerate(vit.layers):
        attention = layer.attention
        modules |= {
            f"blocks.{n}.norm1": [layer.layernorm_before],
            f"blocks.{n}.norm2": [layer.layernorm_after],
            f"blocks.{n}.attn.qkv": [attention.q_proj, attention.k_proj, attention.v_proj],
            f"blocks.{n}.attn.proj": [attention.o_proj],
            f"blocks.{n}.mlp.fc1": [layer.mlp.fc1],
            f"blocks.{n}.mlp.fc2": [layer.mlp.fc2],
        }
    for name, parts in modules.items():
        for kind in ("weight", "bias"):
            arrays[f"{name}.{kind}"] = torch.cat([getattr(part, kind) for part in parts])
    path.mkdir()
    save_file(
        {n: a.detach().contiguous().clone() for n, a in arrays.items()}, path / "model.safetensors"
    )
    config = {
        "architecture": "vit_tiny_patch4_12",
        "model_args": {"num_heads": 3},
        "pretrained_cfg": {
            "input_size": [3, 12, 12], "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5],
            "crop_pct": 0.9, "interpolation": "bicubic",
        },
        **settings,
    }  # fmt: skip
    (path / "config.json").write_text(json.dumps(config))
    return path


def vit_for_timm(tmp_path):
    config = square(num_labels=3, layer_norm_eps=1e-6)
    return save_model(ViTForImageClassification, config, tmp_path / "vit")


def test_timms_names_and_preparation(tmp_path, photo):
    theirs = vit_for_timm(tmp_path)
    path = as_timm(tmp_path / "timm", theirs, label_names=["a", "b", "c"])
    model, directory = import_both(path, tmp_path)
    assert (model.kind, model.labels) == ("timm Vision Transformer", ("a", "b", "c"))
    ids, mask = ids_of(directory, photo, tmp_path)
    # torchvision's Resize and CenterCrop: the shorter side to ⌊12 / 0.9⌋ = 13, half of an odd
    # margin to the even number
    image = Image.fromarray(photo).resize((19, 13), Image.Resampling.BICUBIC)
    top, left = int(round((13 - 12) / 2.0)), int(round((19 - 12) / 2.0))  # noqa: RUF046
    assert (top, left) == (0, 4)
    expected = np.array(image.crop((left, top, left + 12, top + 12)))
    pixels = (torch.from_numpy(expected).permute(2, 0, 1)[None] / 255 - 0.5) / 0.5
    ours = directory.classifier
    assert torch.allclose(ours.encoder_input.images(ids), pixels, atol=1e-6)
    assert (ours(ids, mask) - theirs(pixels).logits).abs().max() <= 1e-5


@pytest.mark.parametrize("act", ["relu", "gelu_tanh", "silu"])
def test_timms_activation_is_read(act, tmp_path, photo):
    named = {"gelu_tanh": "gelu_pytorch_tanh"}.get(act, act)
    config = square(num_labels=3, layer_norm_eps=1e-6, hidden_act=named)
    theirs = save_model(ViTForImageClassification, config, tmp_path / "vit")
    arguments = {"num_heads": 3, "act_layer": act}
    _, directory = import_both(as_timm(tmp_path / "timm", theirs, model_args=arguments), tmp_path)
    ids, mask = ids_of(directory, photo, tmp_path)
    ours = directory.classifier
    pixels = ours.encoder_input.images(ids)
    assert (ours(ids, mask) - theirs(pixels).logits).abs().max() <= 1e-5


def test_timms_positions_are_interpolated_with_antialiasing(tmp_path, photo):
    """As resample_abs_pos_embed does it, here where images are larger than those of training."""
    theirs = vit_for_timm(tmp_path)
    size = {"input_size": [3, 20, 20], "mean": [0.5] * 3, "std": [0.5] * 3}
    model, directory = import_both(
        as_timm(tmp_path / "timm", theirs, pretrained_cfg=size), tmp_path
    )
    assert "positions of 3×3 patches are interpolated to 5×5" in model.notes
    table = theirs.vit.embeddings.position_embeddings[0]
    resized = directory.encoder.state_dict()["encoder_input.positions.table"][1:]
    # (h·w, D) -> (1, D, h, w)
    trained = table[1:].view(1, 3, 3, -1).permute(0, 3, 1, 2)
    stretched = torch.nn.functional.interpolate(
        trained, size=(5, 5), mode="bicubic", antialias=True
    )
    assert torch.allclose(resized, stretched[0].flatten(1).T, atol=1e-6)


def test_layer_scale_is_part_of_what_is_compared(tmp_path, photo):
    """Without it the same comparison fails: the test would see a fold that is missing."""
    theirs = save_model(Dinov2Model, Dinov2Config(**SHAPE), tmp_path / "b")
    path = Path(tmp_path / "b" / "model.safetensors")
    arrays = load_file(path)
    arrays = {n: torch.ones_like(a) if "layer_scale" in n else a for n, a in arrays.items()}
    save_file(arrays, path)
    _, directory = import_both(tmp_path / "b", tmp_path)
    ids, mask = ids_of(directory, photo, tmp_path)
    expected = theirs(directory.encoder.encoder_input.images(ids)).last_hidden_state
    assert (directory.encoder.encode(ids, mask) - expected).abs().max() > 1e-2
