"""Vision Transformers, both ways: ViT and DINOv2 of the library; and those of timm, read only.

Pre-norm encoders of patches with a class token and learned positions. DINOv2's layer scale is
multiplied into the products before it, and an export writes ones; its classifier reads the class
token and the mean of the patches. Names are those that the library saves, of its version 4. Source
of timm's: timm 1.0, models/vision_transformer.py.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.foreign.foreign_model import (
    ForeignModel,
    Reader,
    foreign_names,
    model_config,
)
from tformer_cli.foreign.formats.weight_files import read_weights_of
from tformer_cli.foreign.hugging_face.families import DINOV2, TIMM_VIT, VIT
from tformer_cli.foreign.hugging_face.family import (
    Family,
    Parts,
    Source,
    finish,
    label_names,
    named_weights,
    written_labels,
)
from tformer_cli.foreign.image_processor import (
    RESAMPLING,
    TIMM_PREPARATION,
    Preparation,
    of_processor,
    of_timm,
)
from tformer_cli.foreign.keys import (
    USED,
    Keys,
    no_effect,
    only,
    quote,
    rows_of,
    unsupported_error,
)
from tformer_cli.model.methods import POOLINGS
from tformer_cli.text.images.tokenizer import FIRST_PIXEL, N_IDS, ImageTokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.foreign.formats.mapped_file import Array
    from tformer_cli.model.methods import Pooling

PREPARATION = "preprocessor_config.json"
_SHAPES = no_effect("the tensors determine it")
_TRAINING = no_effect("of training")
_TIMM_ACTIVATIONS: Mapping[str | None, str] = {
    None: "gelu",
    "gelu": "gelu",
    "gelu_tanh": "gelu-tanh",
    "relu": "relu",
    "silu": "swish",
    "swish": "swish",
}
_MODEL_ARGS = {
    **rows_of("num_heads img_size global_pool act_layer", USED),
    **rows_of("embed_dim depth patch_size in_chans num_classes", USED),
    **rows_of("mlp_ratio class_token no_embed_class init_values fc_norm", _SHAPES),
    **rows_of("qkv_bias proj_bias final_norm", only(True)),
    **rows_of("qk_norm scale_attn_norm scale_mlp_norm pre_norm dynamic_img_pad", only(False)),
    "pool_include_prefix": only(False),
    "reg_tokens": only(0),
    "pos_embed": only("learn"),
    "norm_layer": only(None, "layernorm"),
    **rows_of("drop_rate pos_drop_rate patch_drop_rate proj_drop_rate", _TRAINING),
    **rows_of("attn_drop_rate drop_path_rate weight_init fix_init", _TRAINING),
    **rows_of("dynamic_img_size strict_img_size", no_effect("images have one size")),
}
_TIMM_ROWS = {
    **rows_of("architecture global_pool", USED),
    **rows_of("num_features labels", no_effect("names and shapes")),
    **rows_of("num_classes label_names label_descriptions", USED),
    "model_args": _MODEL_ARGS,
}
TIMM = Keys("config.json", "timm", {**_TIMM_ROWS, "pretrained_cfg": TIMM_PREPARATION})
# of versions that had no object pretrained_cfg
TIMM_EARLIER = Keys("config.json", "timm", {**TIMM_PREPARATION, **_TIMM_ROWS})
# near relatives that are not imported, and what to do
UNSUPPORTED = {
    "deit": "has a distillation token; import a DeiT that was not distilled, which is a ViT",
    "dinov2_with_registers": "has register tokens; import a DINOv2 without",
    "dinov3_vit": "has register tokens and rotary positions of its own; import a DINOv2",
    "vit_mae": "is trained to fill in pixels; import a ViT",
    "beit": "has positions of its own; import a ViT",
}
# Architectures of timm that are plain where model_args do not say otherwise: the width of their
# heads, and how they pool.
_ARCHITECTURES: Mapping[str, tuple[int, str]] = {
    r"vit_(tiny|small|base|large)_patch\d+(_plus|_36x1)?_\d+": (64, "token"),
    r"vit_(small|base|large)_patch14_dinov2": (64, "token"),
    r"deit_(tiny|small|base)_patch16_\d+": (64, "token"),
    r"deit3_(small|medium|base|large)_patch16_\d+": (64, "token"),
    r"(vit|deit3)_huge_patch14_224": (80, "token"),
    "vit_giant_patch14_224": (88, "token"),
    "vit_gigantic_patch14_224": (104, "token"),
    "vit_base_patch16_gap_224": (48, "avg"),
    r"vit_huge_patch\d+_gap_\d+": (80, "avg"),
    "vit_giant_patch16_gap_224": (88, "avg"),
    r"vit_(base_patch16_siglip_gap_\d+|large_patch16_siglip_gap_(256|384))": (64, "avg"),
    r"vit_so400m_patch14_siglip_gap_\d+": (72, "avg"),
}


def is_timm(architecture: object) -> bool:
    return isinstance(architecture, str) and architecture.startswith(("vit_", "deit"))


def read(source: Source) -> ForeignModel:
    family = source.family
    source.check_architecture(
        ("Model", "ForImageClassification"),
        "import a model without a head, or one for the classification of images",
    )
    # its classifier reads the class token next to the mean of the patches
    is_joined = f"{family.outer['output']}.weight" in source.reader and family is DINOV2
    preparation = of_processor(source.path / PREPARATION, source.settings, family.model_type)
    source.notes += preparation.notes
    pooling: Pooling = "first-and-mean" if is_joined else "first"
    return _assemble_model(source, source.shape(), pooling, preparation)


def read_timm(file: Path, settings: dict[str, Any]) -> ForeignModel:
    arrays, weight_files = read_weights_of(file.parent)
    name = str(settings["architecture"])[:80]
    if "_distilled" in name or "dist_token" in arrays or "head_dist.weight" in arrays:
        raise ArtifactError(f"{file}: {name} has a distillation token; import one without")
    if "reg_token" in arrays:
        raise ArtifactError(f"{file}: {name} has register tokens; import one without")
    if "fc_norm.weight" in arrays:
        raise ArtifactError(
            f"{file}: {name} normalizes its pooled states (fc_norm), which is not supported; "
            "import one that pools normalized states"
        )
    usual = [more for known, more in _ARCHITECTURES.items() if re.fullmatch(known, name)]
    if not usual:
        raise unsupported_error(file, "architecture", name)
    table = TIMM if "pretrained_cfg" in settings else TIMM_EARLIER
    notes = table.read(file, settings)
    kernel = f"{TIMM_VIT.outer['patches']}.weight"
    width = arrays[kernel].shape[0] if kernel in arrays else 0
    arguments = settings.get("model_args") or {}
    (head_width, pools), n_heads = usual[0], arguments.get("num_heads")
    if n_heads is None and width % head_width == 0:
        n_heads = width // head_width
    if type(n_heads) is not int or n_heads < 1:
        raise ArtifactError(
            f"{file}: {name} does not give its number of heads; give model_args.num_heads there"
        )
    pools = arguments.get("global_pool") or pools
    for pool in (settings.get("global_pool") or pools, pools):
        if pool not in ("token", "avg"):
            raise unsupported_error(file, "global_pool", pool)
        if pool != pools:
            raise ArtifactError(
                f"{file}: global_pool = {quote(pool)}, but {name} is built with {quote(pools)}; "
                "give model_args.global_pool there"
            )
    activation = arguments.get("act_layer")
    if activation not in list(_TIMM_ACTIVATIONS):
        raise unsupported_error(file, "act_layer", activation)
    source = Source(
        file=file,
        settings=settings,
        family=TIMM_VIT,
        reader=Reader(arrays, str(file.parent)),
        weight_files=weight_files,
        notes=notes,
    )
    shape = {
        **TIMM_VIT.fixed,
        "n_heads": n_heads,
        "activation": _TIMM_ACTIVATIONS[activation],
    }
    pooling: Pooling = "first" if pools == "token" else "mean"
    return _assemble_model(source, shape, pooling, of_timm(file, settings), kind=TIMM_VIT.title)


def _assemble_model(
    source: Source,
    settings: Mapping[str, Any],
    pooling: Pooling,
    preparation: Preparation,
    kind: str = "",
) -> ForeignModel:
    """Assembles a model; `settings` are those that its tensors do not determine."""
    reader, file, outer = source.reader, source.file, source.family.outer
    kernel = reader.take(f"{outer['patches']}.weight")
    if kernel.ndim != 4 or kernel.shape[2] != kernel.shape[3]:
        raise ArtifactError(f"{file}: its patches are not squares; import another model")
    d_model, channels, patch, _ = kernel.shape
    height, width = preparation.size
    grid = height // patch, width // patch
    if not all(grid):
        raise ArtifactError(
            f"{file}: images of {height}×{width} pixels are smaller than a patch of {patch}×{patch}"
            "; correct image_size, or crop_size of preprocessor_config.json"
        )
    has_class = outer["class_token"] in reader
    labels, weights = _head(source, pooling, d_model)
    weights["encoder_input.patches.weight"] = kernel.reshape(d_model, -1)
    weights["encoder_input.patches.bias"] = reader.take(f"{outer['patches']}.bias")
    weights["encoder_input.positions.table"] = _positions(
        source, preparation, grid, patch, has_class=has_class
    )
    if has_class:
        weights["encoder_input.class_token"] = reader.take(outer["class_token"]).reshape(-1)
    inner, n_layers = _inner(source.family, 0), 0
    while _inner(source.family, n_layers) in reader:
        n_layers += 1
    d_ff = len(reader.arrays[inner]) if n_layers else 1
    _check_shapes(
        source,
        {
            "hidden_size embed_dim": d_model,
            "num_hidden_layers depth": n_layers,
            "intermediate_size": d_ff,
            "num_channels in_chans": channels,
            "patch_size": patch,
            "num_classes": len(labels),
        },
    )
    shape = {
        **settings,
        "d_model": d_model,
        "d_ff": d_ff,
        "n_encoder_layers": n_layers,
        "patch_size": patch,
        "image_size": (height, width, channels),
        "image_mean": preparation.mean,
        "image_std": preparation.std,
        "class_token": has_class,
        "pooling": pooling,
        "head": "labels" if labels else "none",
        "n_labels": len(labels),
    }
    config = model_config(file, **shape)
    source.weight_files = [*preparation.files, *source.weight_files]
    return finish(
        source,
        config,
        weights,
        ids=(*[-1] * FIRST_PIXEL, *range(N_IDS - FIRST_PIXEL)),
        tokenizer=ImageTokenizer(preparation.scaling(channels), patch),
        kind=kind,
        labels=labels,
    )


def _inner(family: Family, layer: int) -> str:
    return foreign_names(f"encoder.layers.{layer}.feed_forward.inner.weight", family.modules)[0]


def _head(source: Source, pooling: Pooling, d_model: int) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The names of labels and the weights of their rows; nothing without a head."""
    output = source.family.outer["output"]
    if f"{output}.weight" not in source.reader:
        if not POOLINGS[pooling].has_first:
            source.notes.append("its vectors are the mean of the patches")
        return (), {}
    rows, bias = (source.reader.take(f"{output}.{part}") for part in ("weight", "bias"))
    if rows.ndim != 2 or rows.shape[1] not in (d_model, 2 * d_model):
        raise ArtifactError(f"{source.file}: its classifier: wrong width")
    names = label_names(source.file, source.settings, len(rows), source.notes)
    return names, {"output_projection.weight": rows, "output_bias": bias}


def _check_shapes(source: Source, shapes: Mapping[str, int]) -> None:
    """Refuses settings that say other numbers than the tensors."""
    arguments = source.settings.get("model_args") or {}
    for names, size in shapes.items():
        for name in names.split():
            setting = arguments.get(name, source.settings.get(name))
            if setting is not None and setting not in (size, [size, size]):
                raise ArtifactError(
                    f"{source.file}: {name} = {quote(setting)}, but its tensors say {size}; use "
                    "this model's own files"
                )


def _positions(
    source: Source, preparation: Preparation, grid: tuple[int, int], patch: int, *, has_class: bool
) -> Array:
    """The vectors of positions, the class token's first, interpolated to the grid of patches.

    As transformers and timm do it: bicubic, the square that they were trained for stretched.
    """
    table = source.reader.take(source.family.outer["positions"])
    table = table.reshape(-1, table.shape[-1])
    is_timm = preparation.is_timm
    height, width = (side // patch for side in preparation.own_size)
    if not is_timm and len(table) != height * width + has_class:
        raise ArtifactError(
            f"{source.file}: has {len(table):,} positions, but images of {height}×{width} patches; "
            "correct image_size"
        )
    side = math.isqrt(len(table))
    # timm's no_embed_class: the class token has no position
    if is_timm and has_class and len(table) in (height * width, side * side):
        table = np.concatenate([np.zeros_like(table[:1]), table])
    # the library's DINOv2 takes a table of rectangular images for one of squares, too
    is_stretched = source.family is DINOV2 and grid[0] != grid[1]
    if len(table) == height * width + has_class and grid == (height, width) and not is_stretched:
        return table
    first, patches = table[: int(has_class)], table[int(has_class) :]
    side = math.isqrt(len(patches))
    if side * side != len(patches):
        raise ArtifactError(
            f"{source.file}: its positions are not a square grid; import another model"
        )
    source.notes.append(
        f"positions of {side}×{side} patches are interpolated to {grid[0]}×{grid[1]}"
    )
    import torch
    from torch.nn import functional

    # (h·w, D) -> (1, D, h, w)
    square = torch.from_numpy(np.array(patches)).view(1, side, side, -1)
    stretched = functional.interpolate(
        square.permute(0, 3, 1, 2), size=grid, mode="bicubic", antialias=is_timm
    )
    return np.concatenate([first, stretched[0].flatten(1).T.numpy()])


def family_of(directory: ModelDirectory) -> Family:
    config, origin = directory.config, directory.info.origin
    was_dinov2 = origin is not None and origin.kind.endswith(DINOV2.title)
    is_joined = POOLINGS[config.pooling].is_joined
    if not is_joined and not (config.head == "none" and was_dinov2):
        return VIT
    height, width, _ = config.image_size
    if config.d_ff % config.d_model or height != width:
        raise UsageError(
            f"{directory.path}: {DINOV2.classes.get(config.head)} of Hugging Face has square "
            "images, and a d_ff that is a multiple of d_model; use it here"
        )
    return DINOV2


def write(directory: ModelDirectory, family: Family) -> Parts:
    return Parts(
        settings={**family.write(directory.config), **written_labels(directory.info.labels)},
        weights=_weights(directory, family),
        files={PREPARATION: _preparation_of(directory)},
    )


def _preparation_of(directory: ModelDirectory) -> bytes:
    config, tokenizer = directory.config, directory.tokenizer
    if not isinstance(tokenizer, ImageTokenizer):
        raise UsageError(f"{directory.path}: its tokenizer.json is for texts; restore the file")
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


def _weights(directory: ModelDirectory, family: Family) -> dict[str, Tensor]:
    import torch

    config, outer = directory.config, family.outer
    ours = directory.encoder.state_dict()
    patch, channels = config.patch_size, config.image_size[2]
    kernel = ours["encoder_input.patches.weight"].view(-1, channels, patch, patch)
    weights = {
        outer["class_token"]: ours["encoder_input.class_token"].view(1, 1, -1),
        outer["positions"]: ours["encoder_input.positions.table"][None],
        f"{outer['patches']}.weight": kernel,
        f"{outer['patches']}.bias": ours["encoder_input.patches.bias"],
        **named_weights(family, config, ours, N_IDS, directory.path),
    }
    if family is DINOV2:
        weights["embeddings.mask_token"] = torch.zeros(1, config.d_model)
    if config.head == "labels":
        weights[f"{outer['output']}.weight"] = ours["output_projection.weight"]
        weights[f"{outer['output']}.bias"] = ours["output_bias"]
    return weights
