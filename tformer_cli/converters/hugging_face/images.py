"""Models of images as directories that Hugging Face's library loads; undoes `converters.vit`.

A model that reads its class token becomes a ViT, or a DINOv2 if it came from there; one that reads
the class token and the mean of the patches becomes a DINOv2. What importing has multiplied into the
products stays there, so a DINOv2's layer scales are ones, and positions have the size of its
images. Names are those that the library saves, of its version 4.
"""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from tformer_cli.allow_list import ANY
from tformer_cli.converters.bert import ACTIVATIONS
from tformer_cli.converters.hugging_face.encoders import ACTIVATION_NAMES, named_weights
from tformer_cli.converters.image_processor import RESAMPLING
from tformer_cli.converters.vit import FAMILIES
from tformer_cli.data.images.tokenizer import ImageTokenizer
from tformer_cli.errors import UsageError
from tformer_cli.model.config import PLAIN_TRANSLATION

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from torch import Tensor

    from tformer_cli.artifacts.model_directory import ModelDirectory

KNOWN: Mapping[str, Container[Any]] = MappingProxyType(
    {
        **PLAIN_TRANSLATION,
        "n_decoder_layers": (0,),
        **dict.fromkeys(
            (
                *("d_model", "n_heads", "d_ff", "max_positions", "norm_epsilon", "n_labels"),
                *("dropout", "attention_dropout", "encoder_heads", "decoder_heads", "cross_heads"),
                *("patch_size", "image_size", "image_mean", "image_std", "rotary_base"),
                *("relative_buckets", "relative_distance", "bias_heads"),
                # of training, and of vocabularies, which images have not
                *("image_shift", "image_flip", "tied_embeddings", "source_eos"),
            ),
            ANY,
        ),
        "activation_dropout": (0.0,),
        "norm": ("pre",),
        "activation": frozenset(ACTIVATIONS.values()),
        "positions": ("learned",),
        "bias": (True,),
        "final_norm": ("pre-norm",),
        "embedding_norm": (False,),
        "scale_embeddings": (False, True),
        "output_bias": (False,),
        "source_vocab_size": (0,),
        "head": ("labels", "none"),
        "pooling": ("first", "first-and-mean"),
        "class_token": (True,),
    }
)
"""Settings of models that the library's classes can hold."""
PREPARATION = "preprocessor_config.json"
_CLASSES = {"vit": "ViT", "dinov2": "Dinov2"}
_HEADS = {"labels": "ForImageClassification", "none": "Model"}
_LAYER = "encoder.layer.{n}."
_TABLES = {
    kind: {
        "self_attention.in_projection": tuple(
            f"{_LAYER}attention.attention.{part}.{{part}}" for part in ("query", "key", "value")
        ),
        "self_attention.out_projection": (f"{_LAYER}attention.output.dense.{{part}}",),
        "self_attention_norm": (f"{_LAYER}{names[0]}.{{part}}",),
        "feed_forward_norm": (f"{_LAYER}{names[1]}.{{part}}",),
        "feed_forward.inner": (f"{_LAYER}{names[2]}.{{part}}",),
        "feed_forward.outer": (f"{_LAYER}{names[3]}.{{part}}",),
        "final_norm": ("layernorm.{part}",),
    }
    for kind, names in {
        "vit": ("layernorm_before", "layernorm_after", "intermediate.dense", "output.dense"),
        "dinov2": ("norm1", "norm2", "mlp.fc1", "mlp.fc2"),
    }.items()
}
"""The library's names of modules by tformer's."""


def class_of(directory: ModelDirectory) -> tuple[str, str]:
    """Returns model_type and class of a model of images."""
    config, origin = directory.config, directory.info.origin
    was_dinov2 = origin is not None and origin.kind.endswith(FAMILIES["dinov2"])
    is_joined = config.pooling == "first-and-mean"
    kind = "dinov2" if is_joined or (config.head == "none" and was_dinov2) else "vit"
    name = f"{_CLASSES[kind]}{_HEADS.get(config.head, '')}"
    height, width, _ = config.image_size
    if kind == "dinov2" and (config.d_ff % config.d_model or height != width):
        raise UsageError(
            f"{directory.path}: {name} of Hugging Face has square images, and a d_ff that is a "
            "multiple of d_model; use it here"
        )
    return kind, name


def settings_of(directory: ModelDirectory, kind: str) -> dict[str, Any]:
    """Returns what config.json says of a model."""
    config, labels = directory.config, directory.info.labels
    *size, channels = config.image_size
    width = {"mlp_ratio": config.d_ff // config.d_model}
    return {
        "hidden_size": config.d_model,
        "num_hidden_layers": config.n_encoder_layers,
        "num_attention_heads": config.n_heads,
        **(width if kind == "dinov2" else {"intermediate_size": config.d_ff}),
        "hidden_act": ACTIVATION_NAMES[config.activation],
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "layer_norm_eps": config.norm_epsilon,
        "image_size": size[0] if size[0] == size[1] else size,
        "patch_size": config.patch_size,
        "num_channels": channels,
        "qkv_bias": True,
        **({"layerscale_value": 1.0} if kind == "dinov2" else {}),
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
        "dtype": "float32",
    }


def preparation_of(directory: ModelDirectory) -> bytes:
    """Returns the file that says how images are scaled and normalized."""
    config, tokenizer = directory.config, directory.tokenizer
    if not isinstance(tokenizer, ImageTokenizer):
        raise UsageError(f"{directory.path}: its tokenizer.json is of texts; restore the file")
    scaling = tokenizer.scaling
    if scaling.odd_margins != "down":
        raise UsageError(
            f"{directory.path}: cuts the middle out of images as timm does, often a pixel off "
            "Hugging Face's; use it here"
        )
    size = dict(zip(("height", "width"), config.image_size[:2], strict=True))
    resize = scaling.resize or tuple(size.values())
    is_whole = len(resize) == 2
    is_cropped = not is_whole or resize != tuple(size.values())
    values = {
        "image_processor_type": "BitImageProcessor" if is_cropped else "ViTImageProcessor",
        "do_resize": bool(scaling.resize),
        "size": dict(zip(size, resize, strict=True)) if is_whole else {"shortest_edge": resize[0]},
        "resample": {name: number for number, name in RESAMPLING.items()}[scaling.resample],
        "do_center_crop": is_cropped,
        **({"crop_size": size} if is_cropped else {}),
        "do_convert_rgb": config.image_size[2] == len("RGB"),
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(config.image_mean),
        "image_std": list(config.image_std),
    }
    return (json.dumps(values, indent=2) + "\n").encode()


def weights_of(directory: ModelDirectory, kind: str) -> dict[str, Tensor]:
    """Returns the weights under the library's names, in its shapes."""
    config = directory.config
    ours = directory.encoder.state_dict()
    patch, channels = config.patch_size, config.image_size[2]
    kernel = ours["encoder_input.patches.weight"].view(-1, channels, patch, patch)
    found = {
        "embeddings.cls_token": ours["encoder_input.class_token"].view(1, 1, -1),
        "embeddings.position_embeddings": ours["encoder_input.positions.table"][None],
        "embeddings.patch_embeddings.projection.weight": kernel,
        "embeddings.patch_embeddings.projection.bias": ours["encoder_input.patches.bias"],
        **named_weights(ours, _TABLES[kind]),
    }
    if kind == "dinov2":
        found["embeddings.mask_token"] = torch.zeros(1, config.d_model)
        for n in range(config.n_encoder_layers):
            for number in (1, 2):
                name = f"encoder.layer.{n}.layer_scale{number}.lambda1"
                found[name] = torch.ones(config.d_model)
    if config.head == "labels":
        found = {f"{kind}.{name}": weight for name, weight in found.items()}
        found["classifier.weight"] = ours["output_projection.weight"]
        found["classifier.bias"] = ours["output_bias"]
    return {name: weight.detach().clone().contiguous() for name, weight in found.items()}
