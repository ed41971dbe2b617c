"""How a foreign model of images scales and normalizes them: preprocessor_config.json, and timm's.

Source: transformers 5.23, image_processing_vit.py and image_processing_bit.py; timm 1.0,
data/transforms_factory.py, transforms_imagenet_eval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.keys import (
    USED,
    Keys,
    no_effect,
    only,
    quote,
    read_json_file,
    rows_of,
    unsupported_error,
)
from tformer_cli.text.images.decoding import Resample, Scaling

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HALF = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
_CLIP = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
# ways to interpolate pixels by Pillow's numbers
RESAMPLING: Mapping[int, Resample] = {2: "bilinear", 3: "bicubic"}
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "ViT": {"size": 224, "square": True, "resample": 2, "crops": False, "normal": HALF},
    "DeiT": {"size": 256, "square": True, "resample": 3, "crops": True, "normal": HALF},
    "Bit": {"size": 224, "square": False, "resample": 3, "crops": True, "normal": _CLIP},
    "CLIP": {"size": 224, "square": False, "resample": 3, "crops": True, "normal": _CLIP},
}
_CROP_SIZE = 224
_USUAL = {"vit": "ViT", "dinov2": "Bit"}  # the processor of a model whose file does not name it
_NAMES = {f"{name}{end}": name
          for name in _DEFAULTS
          for end in ("ImageProcessor", "ImageProcessorFast", "ImageProcessorPil",
                      "FeatureExtractor")}  # fmt: skip
PROCESSOR = Keys(
    "preprocessor_config.json",
    "ViT and DINOv2",
    {
        **rows_of("do_resize do_center_crop", only(True, False, None)),
        **rows_of("image_processor_type feature_extractor_type", only(None, *_NAMES)),
        **rows_of("size crop_size image_mean image_std", USED),
        "default_to_square": USED,
        "resample": only(*RESAMPLING),
        **rows_of("do_rescale do_normalize", only(True)),
        "rescale_factor": only(1 / 255),
        **rows_of("do_pad do_grayscale do_reduce_labels do_flip_channel_order", only(False, None)),
        "do_convert_rgb": no_effect("images get the channels of the model"),
        **rows_of("data_format input_data_format return_tensors device", no_effect("of arrays")),
        **rows_of("disable_grouping", no_effect("speed of the library")),
        **rows_of("processor_class _processor_class auto_map", no_effect("names of classes")),
        **rows_of("_valid_processor_keys transformers_version", no_effect("of the library")),
    },
)
_LABELS = rows_of("num_classes label_names label_descriptions", no_effect("names of labels"))
TIMM_PREPARATION = {
    **_LABELS,
    **rows_of("input_size crop_pct interpolation mean std fixed_input_size", USED),
    "crop_mode": only("center", None),
    "custom_load": only(False, None),
    "label_offset": only(0, None),
    "pool_size": only(None),
    **rows_of("test_input_size test_crop_pct min_input_size", no_effect("only when asked for")),
    "test_pool_size": no_effect("only when asked for"),
    **rows_of("first_conv classifier", no_effect("names of modules")),
    **rows_of("url file hf_hub_id hf_hub_filename source architecture tag", no_effect("origin")),
    **rows_of("license description origin_url paper_name paper_ids notes", no_effect("origin")),
}
_CROP_SHARE = 0.875  # timm's, of models that do not say
_LARGEST_SIDE = 1 << 13


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """Scaling and normalization of images."""

    size: tuple[int, int]
    resize: tuple[int, ...]  # see `Scaling`
    resample: Resample
    mean: tuple[float, ...]
    std: tuple[float, ...]
    own_size: tuple[int, int]  # of the images that the positions were trained for
    is_timm: bool = False
    files: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()

    def scaling(self, channels: int) -> Scaling:
        return Scaling(
            size=(*self.size, channels),
            resize=self.resize,
            resample=self.resample,
            odd_margins="even" if self.is_timm else "down",
        )


def of_processor(file: Path, settings: Mapping[str, Any], kind: str) -> Preparation:
    config = file.with_name("config.json")
    own_size = _both_sides(config, "image_size", settings.get("image_size", 224))
    if not file.is_file():
        usual_mean, usual_std = IMAGENET if kind == "dinov2" else HALF
        return Preparation(
            size=own_size,
            resize=own_size,
            resample="bilinear",
            mean=usual_mean,
            std=usual_std,
            own_size=own_size,
            notes=(_by_default(own_size, usual_mean, usual_std),),
        )
    values = read_json_file(file)
    notes = PROCESSOR.read(file, values)
    named = values.get("image_processor_type") or values.get("feature_extractor_type")
    usual = _DEFAULTS[_NAMES[named] if named else _USUAL[kind]]
    is_square = bool(values.get("default_to_square", usual["square"]))
    resize: tuple[int, ...] = ()
    if values.get("do_resize", True):
        resize = _sides(file, "size", values.get("size", usual["size"]), is_square=is_square)
    size = own_size
    if values.get("do_center_crop", usual["crops"]):
        size = _both_sides(file, "crop_size", values.get("crop_size", _CROP_SIZE))
    elif len(resize) == 2:
        size = resize[0], resize[1]
    elif resize:
        raise ArtifactError(
            f"{file}: images have different sizes without do_center_crop, which is not supported; "
            "import another model"
        )
    if resize and any(side < wanted for side, wanted in zip(resize * 2, size, strict=False)):
        raise ArtifactError(f"{file}: crops {size} out of images of {resize}; correct the file")
    if kind == "vit" and size != own_size:
        raise ArtifactError(
            f"{file}: images have {size[0]}×{size[1]} pixels, but config.json says {own_size[0]}×"
            f"{own_size[1]}; correct one of the two"
        )
    mean, std = (
        _numbers(file, name, values.get(name, list(default)))
        for name, default in zip(("image_mean", "image_std"), usual["normal"], strict=True)
    )
    return Preparation(
        size=size,
        resize=resize,
        resample=RESAMPLING[values.get("resample", usual["resample"])],
        mean=mean,
        std=std,
        own_size=own_size,
        files=(file,),
        notes=tuple(notes),
    )


def _by_default(size: tuple[int, int], mean: tuple[float, ...], std: tuple[float, ...]) -> str:
    """Describes the defaults without a preprocessor_config.json."""
    shown = (" ".join(f"{value:g}" for value in values) for values in (mean, std))
    how = "mean {}, deviation {}".format(*shown)
    return (
        f"there is no preprocessor_config.json: images are scaled to {size[0]}×{size[1]} pixels, "
        f"{how}, as this kind of model does by default"
    )


def of_timm(file: Path, settings: Mapping[str, Any]) -> Preparation:
    """Reads the preparation in a config.json of timm, whose keys are known ones."""
    values = settings.get("pretrained_cfg", settings)
    shape = values.get("input_size", [3, 224, 224])
    if not (isinstance(shape, list) and len(shape) == 3 and all(type(n) is int for n in shape)):
        raise ArtifactError(f"{file}: input_size is not three whole numbers; download it again")
    size = shape[1], shape[2]
    built = (settings.get("model_args") or {}).get("img_size")
    if built is not None:
        built_size = _both_sides(file, "model_args.img_size", built)
        if built_size != size and not values.get("fixed_input_size"):
            raise ArtifactError(
                f"{file}: input_size = {quote(shape)}, but model_args.img_size = {quote(built)}, "
                "which is not supported; import another model"
            )
        size = built_size
    share = values.get("crop_pct") or _CROP_SHARE
    if not isinstance(share, int | float) or not 0.1 <= share <= 1.0:
        raise unsupported_error(file, "crop_pct", share)
    if size[0] != size[1] or not 1 <= size[0] <= _LARGEST_SIDE:
        raise ArtifactError(f"{file}: only the middle of square images is supported")
    named = values.get("interpolation") or "bicubic"
    resample = next((method for method in RESAMPLING.values() if method == named), None)
    if resample is None:
        raise unsupported_error(file, "interpolation", named)
    mean, std = (
        _numbers(file, name, values.get(name) or list(usual))
        for name, usual in zip(("mean", "std"), IMAGENET, strict=True)
    )
    return Preparation(
        size=size,
        resize=(math.floor(size[0] / share),),
        resample=resample,
        mean=mean,
        std=std,
        own_size=size,
        is_timm=True,
    )


def _both_sides(file: Path, name: str, value: object) -> tuple[int, int]:
    """Height and width; a number is the side of a square."""
    sides = _sides(file, name, value, is_square=True)
    if len(sides) != 2:
        raise unsupported_error(file, name, value)
    return sides[0], sides[1]


def _sides(file: Path, name: str, value: object, *, is_square: bool) -> tuple[int, ...]:
    """Height and width, or only the shorter side; a number means a square, or the shorter side."""
    numbers = [value]
    if isinstance(value, dict):
        lengths = {key: side for key, side in value.items() if side is not None}
        numbers = [
            lengths.get(key) for key in ("height", "width", "shortest_edge") if key in lengths
        ]
        if lengths.keys() not in ({"height", "width"}, {"shortest_edge"}):
            raise unsupported_error(file, name, value)
    elif isinstance(value, list) and len(value) == 2:
        numbers = value
    elif is_square:
        numbers = [value] * 2
    sides = tuple(side for side in numbers if type(side) is int and 1 <= side <= _LARGEST_SIDE)
    if len(sides) != len(numbers):
        raise unsupported_error(file, name, value)
    return sides


def _numbers(file: Path, name: str, value: object) -> tuple[float, ...]:
    if isinstance(value, list) and all(isinstance(number, int | float) for number in value):
        return tuple(map(float, value))
    raise ArtifactError(f"{file}: {name} is not a list of numbers; download the file again")
