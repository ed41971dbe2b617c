"""ViT and DINOv2 in Hugging Face directories, and the Vision Transformers of timm.

Pre-norm encoders of patches with a class token and learned positions. DINOv2's layer scale is
multiplied into the products before it; its classifier reads the class token and the mean of the
patches. Sources: transformers 5.23, models/vit/modeling_vit.py and models/dinov2/
modeling_dinov2.py, which save under the names of version 4; timm 1.0, models/vision_transformer.py.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tformer_cli.converters.assembly import Reader, assembled
from tformer_cli.converters.bert import ACTIVATIONS
from tformer_cli.converters.foreign_model import (
    ForeignModel,
    model_config,
    number,
    read_json_file,
    shown,
)
from tformer_cli.converters.formats.lazy_arrays import LazyArrays
from tformer_cli.converters.formats.weight_files import read_weights_of
from tformer_cli.converters.hugging_face.keys import CONFIG_ROWS, LABELS, rows_of
from tformer_cli.converters.image_processor import (
    TIMM_PREPARATION,
    Preparation,
    of_processor,
    of_timm,
)
from tformer_cli.converters.keys import USED, Keys, no_effect, only
from tformer_cli.converters.label_names import label_names
from tformer_cli.data.images.tokenizer import FIRST_PIXEL, N_IDS, ImageTokenizer
from tformer_cli.decoding.config import DecodingConfig
from tformer_cli.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tformer_cli.converters.formats.lazy_arrays import Array
    from tformer_cli.model.config import Pooling

TABLE = {
    "self_attention.in_projection": ("layer.{n}.qkv.{part}",),
    "self_attention.out_projection": ("layer.{n}.out.{part}",),
    "self_attention_norm": ("layer.{n}.norm1.{part}",),
    "feed_forward.inner": ("layer.{n}.fc1.{part}",),
    "feed_forward.outer": ("layer.{n}.fc2.{part}",),
    "feed_forward_norm": ("layer.{n}.norm2.{part}",),
    "final_norm": ("norm.{part}",),
}
"""Names of the modules of all families here, by tformer's."""
_LAYER = r"encoder\.layer\.(\d+)\."
_HUGGING_FACE = (
    (rf"{_LAYER}attention\.attention\.(query|key|value)\.", r"layer.\1.\2."),
    (rf"{_LAYER}attention\.output\.dense\.", r"layer.\1.out."),
    (rf"{_LAYER}(layernorm_before|norm1)\.", r"layer.\1.norm1."),
    (rf"{_LAYER}(layernorm_after|norm2)\.", r"layer.\1.norm2."),
    (rf"{_LAYER}(intermediate\.dense|mlp\.fc1)\.", r"layer.\1.fc1."),
    (rf"{_LAYER}(output\.dense|mlp\.fc2)\.", r"layer.\1.fc2."),
    (rf"{_LAYER}layer_scale(\d)\.lambda1", r"layer.\1.scale\2"),
    (r"layernorm\.", "norm."),
    (r"embeddings\.patch_embeddings\.projection\.", "patches."),
    (r"embeddings\.cls_token", "class_token"),
    (r"embeddings\.position_embeddings", "positions"),
    (r"classifier\.", "labels."),
)
_TIMM = (
    (r"blocks\.(\d+)\.attn\.qkv\.", r"layer.\1.qkv."),
    (r"blocks\.(\d+)\.attn\.proj\.", r"layer.\1.out."),
    (r"blocks\.(\d+)\.norm(\d)\.", r"layer.\1.norm\2."),
    (r"blocks\.(\d+)\.mlp\.fc(\d)\.", r"layer.\1.fc\2."),
    (r"blocks\.(\d+)\.ls(\d)\.gamma", r"layer.\1.scale\2"),
    (r"norm\.", "norm."),
    (r"patch_embed\.proj\.", "patches."),
    (r"cls_token", "class_token"),
    (r"pos_embed", "positions"),
    (r"head\.", "labels."),
)
"""Beginnings of foreign names as patterns, and what they are called in `TABLE`."""
_SHAPES = no_effect("the tensors say it")
_OF_TRAINING = no_effect("of training")
CONFIG = Keys(
    "config.json",
    "ViT and DINOv2",
    {
        **CONFIG_ROWS,
        **LABELS,
        **rows_of("hidden_size num_hidden_layers num_attention_heads intermediate_size", USED),
        **rows_of("num_channels patch_size image_size layer_norm_eps", USED),
        "mlp_ratio": _SHAPES,
        "hidden_act": only(*ACTIVATIONS),
        "qkv_bias": only(True),
        "use_swiglu_ffn": only(False),
        "apply_layernorm": only(True),
        "problem_type": only(None, "single_label_classification"),
        **rows_of("encoder_stride use_mask_token", no_effect("of models that fill in pixels")),
        **rows_of("pooler_act pooler_output_size", no_effect("the pooler is not read")),
        **rows_of("drop_path_rate layerscale_value", _OF_TRAINING),
        **rows_of("out_features out_indices stage_names", no_effect("of a backbone")),
        **rows_of("_out_features _out_indices reshape_hidden_states", no_effect("of a backbone")),
    },
)
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
    **rows_of("drop_rate pos_drop_rate patch_drop_rate proj_drop_rate", _OF_TRAINING),
    **rows_of("attn_drop_rate drop_path_rate weight_init fix_init", _OF_TRAINING),
    **rows_of("dynamic_img_size strict_img_size", no_effect("images have one size")),
}
_TIMM_ROWS = {
    **rows_of("architecture global_pool", USED),
    **rows_of("num_features labels", no_effect("names and shapes")),
    **rows_of("num_classes label_names label_descriptions", USED),
    "model_args": _MODEL_ARGS,
}
TIMM = Keys("config.json", "timm", {**_TIMM_ROWS, "pretrained_cfg": TIMM_PREPARATION})
TIMM_EARLIER = Keys("config.json", "timm", {**TIMM_PREPARATION, **_TIMM_ROWS})
"""Of versions that had no object pretrained_cfg."""
FAMILIES = {"vit": "ViT", "dinov2": "DINOv2"}
"""Names of families by their `model_type`."""
UNSUPPORTED = {
    "deit": "has a distillation token; import a DeiT that was not distilled, which is a ViT",
    "dinov2_with_registers": "has register tokens; import a DINOv2 without",
    "dinov3_vit": "has register tokens and rotary positions of its own; import a DINOv2",
    "vit_mae": "is trained to fill in pixels; import a ViT",
    "beit": "has positions of its own; import a ViT",
}
"""Near relatives that are not imported, and what to do."""
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
"""Architectures of timm that are plain where model_args do not say otherwise: the width of their
heads, and how they pool."""
_TIMM_EPSILON = 1e-6
_EPSILON = {"vit": 1e-12, "dinov2": 1e-6}


def is_vit(path: Path) -> bool:
    """Returns whether a directory holds one of these models, or a near relative."""
    file = path / "config.json"
    if not file.is_file():
        return False
    settings = read_json_file(file)
    kind, name = settings.get("model_type"), settings.get("architecture")
    return (isinstance(kind, str) and kind in {*FAMILIES, *UNSUPPORTED}) or _is_timm(name)


def _is_timm(architecture: object) -> bool:
    return isinstance(architecture, str) and architecture.startswith(("vit_", "deit"))


def convert(path: Path) -> ForeignModel:
    """Converts a directory of Hugging Face or timm."""
    file = path / "config.json"
    settings = read_json_file(file)
    arrays, weight_files = read_weights_of(path)
    if _is_timm(settings.get("architecture")):
        source = _of_timm(file, settings, arrays)
    else:
        source = _of_hugging_face(file, settings, arrays)
    return _assembled(source, (*source.files, *weight_files))


@dataclass(kw_only=True)
class _Source:
    """A foreign model under the names of `TABLE`."""

    kind: str
    file: Path
    settings: Mapping[str, Any]
    """Where labels are named."""
    reader: Reader
    n_heads: int
    epsilon: float
    pooling: Pooling
    """With labels, or without."""
    preparation: Preparation
    activation: str = "gelu"
    """tformer's name of it."""
    files: tuple[Path, ...]
    notes: list[str] = field(default_factory=list)


def _of_hugging_face(file: Path, settings: Mapping[str, Any], arrays: LazyArrays) -> _Source:
    kind = str(settings.get("model_type"))
    if kind in UNSUPPORTED:
        raise ArtifactError(f"{file}: model_type = {json.dumps(kind)} {UNSUPPORTED[kind]}")
    notes = CONFIG.read(file, settings)
    for name in settings.get("architectures") or ():
        if not str(name).endswith(("Model", "ForImageClassification")):
            raise ArtifactError(
                f"{file}: {str(name)[:60]} is not supported; import a model without a head, or one "
                "for the classification of images"
            )
    renamed = _renamed(arrays, _HUGGING_FACE, f"{kind}.")
    if left := [name for name in renamed if name.startswith("pooler.")]:
        notes.append("the pooler, tanh of a product with the class token, is not read")
    has_labels = "labels.weight" in renamed
    is_joined = has_labels and kind == "dinov2"
    preparation = of_processor(file.parent / "preprocessor_config.json", settings, kind)
    reader = Reader(renamed, str(file.parent))
    reader.ignore([*left, "embeddings.mask_token"])
    return _Source(
        kind=f"Hugging Face {FAMILIES[kind]}",
        file=file,
        settings=settings,
        reader=reader,
        n_heads=number(file, settings, "num_attention_heads"),
        epsilon=float(settings.get("layer_norm_eps", _EPSILON[kind])),
        pooling="first-and-mean" if is_joined else "first",
        preparation=preparation,
        activation=ACTIVATIONS[settings.get("hidden_act", "gelu")],
        files=(file, *preparation.files),
        notes=[*notes, *preparation.notes],
    )


def _of_timm(file: Path, settings: Mapping[str, Any], arrays: LazyArrays) -> _Source:
    name = str(settings["architecture"])[:80]
    if "_distilled" in name or "dist_token" in arrays or "head_dist.weight" in arrays:
        raise ArtifactError(f"{file}: {name} has a distillation token; import one without")
    if "reg_token" in arrays:
        raise ArtifactError(f"{file}: {name} has register tokens; import one without")
    if "fc_norm.weight" in arrays:
        raise ArtifactError(
            f"{file}: {name} norms what it has pooled (fc_norm), which is not supported; import "
            "one that pools normed states"
        )
    usual = [more for known, more in _ARCHITECTURES.items() if re.fullmatch(known, name)]
    if not usual:
        raise ArtifactError(f"{file}: architecture = {json.dumps(name)} is not supported")
    table = TIMM if "pretrained_cfg" in settings else TIMM_EARLIER
    notes = table.read(file, settings)
    renamed = _renamed(arrays, _TIMM, "")
    width = renamed["patches.weight"].shape[0] if "patches.weight" in renamed else 0
    arguments = settings.get("model_args") or {}
    (head_width, pools), n_heads = usual[0], arguments.get("num_heads")
    if n_heads is None and width % head_width == 0:
        n_heads = width // head_width
    if type(n_heads) is not int or n_heads < 1:
        raise ArtifactError(
            f"{file}: {name} does not tell its number of heads; give model_args.num_heads there"
        )
    pools = arguments.get("global_pool") or pools
    for found in (settings.get("global_pool") or pools, pools):
        if found not in ("token", "avg"):
            raise ArtifactError(f"{file}: global_pool = {shown(found)} is not supported")
        if found != pools:
            raise ArtifactError(
                f"{file}: global_pool = {shown(found)}, but {name} is built with {shown(pools)}; "
                "give model_args.global_pool there"
            )
    activation = arguments.get("act_layer")
    if activation not in list(_TIMM_ACTIVATIONS):
        raise ArtifactError(f"{file}: act_layer = {shown(activation)} is not supported")
    preparation = of_timm(file, settings)
    return _Source(
        kind="timm Vision Transformer",
        file=file,
        settings=settings,
        reader=Reader(renamed, str(file.parent)),
        n_heads=n_heads,
        epsilon=_TIMM_EPSILON,
        pooling="first" if pools == "token" else "mean",
        preparation=preparation,
        activation=_TIMM_ACTIVATIONS[activation],
        files=(file,),
        notes=notes,
    )


def _renamed(arrays: LazyArrays, patterns: Sequence[tuple[str, str]], prefix: str) -> LazyArrays:
    """Gives arrays the names of `TABLE`; queries, keys and values are put together."""
    renamed: dict[str, Any] = {}
    for name in arrays:
        short = name.removeprefix(prefix)
        for pattern, new in patterns:
            changed, n_changed = re.subn(f"^{pattern}", new, short)
            if n_changed:
                short = changed
                break
        renamed[short] = partial(arrays.__getitem__, name)
    for name in [name for name in renamed if re.fullmatch(r"layer\.\d+\.query\.\w+", name)]:
        parts = [name.replace(".query.", f".{part}.") for part in ("query", "key", "value")]
        if all(part in renamed for part in parts):
            reads = [renamed.pop(part) for part in parts]
            renamed[name.replace(".query.", ".qkv.")] = partial(_joined, reads)
    return LazyArrays(renamed)


def _joined(reads: Sequence[Any]) -> Array:
    return np.concatenate([read() for read in reads])


def _assembled(source: _Source, files: tuple[Path, ...]) -> ForeignModel:
    """Puts a model together, its layer scales multiplied into the products before them."""
    reader, file, preparation = source.reader, source.file, source.preparation
    kernel = reader.take("patches.weight")
    if kernel.ndim != 4 or kernel.shape[2] != kernel.shape[3]:
        raise ArtifactError(f"{file}: its patches are no squares; import another model")
    d_model, channels, patch, _ = kernel.shape
    height, width = preparation.size
    grid = height // patch, width // patch
    if not all(grid):
        raise ArtifactError(
            f"{file}: images of {height}×{width} pixels are smaller than a patch of {patch}×{patch}"
            "; correct image_size, or crop_size of preprocessor_config.json"
        )
    has_class = "class_token" in reader
    labels, given = _head(source, d_model)
    given["encoder_input.patches.weight"] = kernel.reshape(d_model, -1)
    given["encoder_input.patches.bias"] = reader.take("patches.bias")
    given["encoder_input.positions.table"] = _positions(source, grid, patch, has_class=has_class)
    if has_class:
        given["encoder_input.class_token"] = reader.take("class_token").reshape(-1)
    n_layers = sum(re.fullmatch(r"layer\.\d+\.fc1\.weight", n) is not None for n in reader.arrays)
    d_ff = len(reader.arrays["layer.0.fc1.weight"]) if n_layers else 1
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
    config = model_config(
        file,
        d_model=d_model,
        n_heads=source.n_heads,
        d_ff=d_ff,
        n_encoder_layers=n_layers,
        n_decoder_layers=0,
        norm="pre",
        norm_epsilon=source.epsilon,
        activation=source.activation,
        positions="learned",
        patch_size=patch,
        image_size=(height, width, channels),
        image_mean=preparation.mean,
        image_std=preparation.std,
        class_token=has_class,
        pooling=source.pooling,
        head="labels" if labels else "none",
        n_labels=len(labels),
    )
    weights = assembled(config, N_IDS, TABLE, _scaling(reader), given, str(file))
    reader.check_all_taken()
    return ForeignModel(
        kind=source.kind,
        config=config,
        weights=weights,
        tokenizer=ImageTokenizer(preparation.scaling(channels), patch),
        decoding=DecodingConfig(),
        files=files,
        ids=(*[-1] * FIRST_PIXEL, *range(N_IDS - FIRST_PIXEL)),
        labels=labels,
        notes=tuple(source.notes),
    )


def _scaling(reader: Reader) -> Any:  # noqa: ANN401 - a function
    """Returns what reads arrays, those of products multiplied by the scale of their layer."""

    def read(name: str) -> Array:
        array = reader.take(name)
        match = re.fullmatch(r"layer\.(\d+)\.(out|fc2)\.\w+", name)
        scale = match and f"layer.{match[1]}.scale{1 if match[2] == 'out' else 2}"
        if not scale or scale not in reader:
            return array
        factors = reader.take(scale)
        return array * (factors[:, None] if array.ndim == 2 else factors)

    return read


def _head(source: _Source, d_model: int) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The names of labels and the weights of their rows; nothing without a head."""
    reader = source.reader
    if "labels.weight" not in reader:
        if source.pooling == "mean":
            source.notes.append("its vectors are the mean of the patches")
        return (), {}
    rows, bias = reader.take("labels.weight"), reader.take("labels.bias")
    if rows.ndim != 2 or rows.shape[1] not in (d_model, 2 * d_model):
        raise ArtifactError(f"{source.file}: its labels are no rows of the model's width")
    names = label_names(source.file, source.settings, len(rows), source.notes)
    return names, {"output_projection.weight": rows, "output_bias": bias}


def _check_shapes(source: _Source, shapes: Mapping[str, int]) -> None:
    """Refuses settings that say other numbers than the tensors."""
    arguments = source.settings.get("model_args") or {}
    for names, found in shapes.items():
        for name in names.split():
            said = arguments.get(name, source.settings.get(name))
            if said is not None and said not in (found, [found, found]):
                raise ArtifactError(
                    f"{source.file}: {name} = {shown(said)}, but its tensors say {found}; use this "
                    "model's own files"
                )


def _positions(source: _Source, grid: tuple[int, int], patch: int, *, has_class: bool) -> Array:
    """The vectors of positions, the class token's first, interpolated to the grid of patches.

    As transformers and timm do it: bicubic, the square that they were trained for stretched.
    """
    table = source.reader.take("positions")
    table = table.reshape(-1, table.shape[-1])
    is_timm = source.preparation.is_timm
    height, width = (side // patch for side in source.preparation.own_size)
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
    is_stretched = source.settings.get("model_type") == "dinov2" and grid[0] != grid[1]
    if len(table) == height * width + has_class and grid == (height, width) and not is_stretched:
        return table
    first, patches = table[: int(has_class)], table[int(has_class) :]
    side = math.isqrt(len(patches))
    if side * side != len(patches):
        raise ArtifactError(f"{source.file}: its positions are no square; import another model")
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
