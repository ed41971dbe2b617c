"""How a foreign model of images scales and normalizes them: preprocessor_config.json, and timm's.

Source: transformers 5.23, image_processing_vit.py and image_processing_bit.py; timm 1.0,
data/transforms_factory.py, transforms_imagenet_eval.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tformer_cli.converters.foreign_model import check_settings, read_json_file
from tformer_cli.data.images.decoding import Resample, Scaling
from tformer_cli.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HALF = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
RESAMPLING: Mapping[int, Resample] = {2: "bilinear", 3: "bicubic"}
"""Ways to interpolate pixels by Pillow's numbers."""
_KNOWN: Mapping[str, tuple[Any, ...]] = {
    "do_rescale": (True,),
    "rescale_factor": (1 / 255, 0.00392156862745098),
    "do_normalize": (True,),
    "do_resize": (True, False),
    "do_pad": (False, None),
    "do_grayscale": (False, None),
    "resample": tuple(RESAMPLING),
}
_CROP_SHARE = 0.875
"""timm's, of models that do not say."""


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """Scaling and normalization of images."""

    size: tuple[int, int]
    """Height and width that the model reads."""
    resize: tuple[int, ...]
    """See `Scaling`."""
    resample: Resample
    mean: tuple[float, ...]
    std: tuple[float, ...]
    files: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()

    def scaling(self, channels: int) -> Scaling:
        """Returns the scaling of images with so many channels."""
        return Scaling(size=(*self.size, channels), resize=self.resize, resample=self.resample)


def of_processor(file: Path, settings: Mapping[str, Any], kind: str) -> Preparation:
    """Reads a preprocessor_config.json.

    Args:
        file: its path; it may be missing.
        settings: the model's config.json.
        kind: its `model_type`.

    Raises:
        ArtifactError: if it is damaged, or does what is not supported.
    """
    own = _sides(file.with_name("config.json"), "image_size", settings.get("image_size", 224))
    own_size = own if len(own) == 2 else (own[0], own[0])
    default = IMAGENET if kind == "dinov2" else HALF
    if not file.is_file():
        return Preparation(
            size=own_size,
            resize=own_size,
            resample="bilinear",
            mean=default[0],
            std=default[1],
            notes=(_by_default(own_size, *default),),
        )
    values = read_json_file(file)
    check_settings(file, values, _KNOWN)
    resize = _sides(file, "size", values.get("size", own_size))
    size = own_size
    if values.get("do_center_crop"):
        crop = _sides(file, "crop_size", values.get("crop_size", own_size))
        size = crop if len(crop) == 2 else (crop[0], crop[0])
    elif len(resize) == 2:
        size = (resize[0], resize[1])
    if min(resize) < min(size):
        raise ArtifactError(f"{file}: crops {size} out of images of {resize}; correct the file")
    if kind == "vit" and size != own_size:
        raise ArtifactError(
            f"{file}: images have {size[0]}×{size[1]} pixels, but config.json says {own_size[0]}×"
            f"{own_size[1]}; correct one of the two"
        )
    mean, std = (
        _numbers(file, name, values.get(name, list(usual)))
        for name, usual in zip(("image_mean", "image_std"), default, strict=True)
    )
    if values.get("do_resize") is False:
        resize = ()
    resample = RESAMPLING[values.get("resample", 2)]
    return Preparation(
        size=size, resize=resize, resample=resample, mean=mean, std=std, files=(file,)
    )


def _by_default(size: tuple[int, int], mean: tuple[float, ...], std: tuple[float, ...]) -> str:
    """Notes what is done without a preprocessor_config.json."""
    shown = (" ".join(f"{value:g}" for value in values) for values in (mean, std))
    how = "mean {}, deviation {}".format(*shown)
    return (
        f"there is no preprocessor_config.json: images are scaled to {size[0]}×{size[1]} pixels, "
        f"{how}, as this kind of model does by default"
    )


def of_timm(file: Path, settings: Mapping[str, Any]) -> Preparation:
    """Reads the preparation in a config.json of timm.

    Raises:
        ArtifactError: if it is damaged, or does what is not supported.
    """
    values = settings.get("pretrained_cfg")
    values = values if isinstance(values, dict) else {}
    size = values.get("input_size", [3, 224, 224])
    if not (isinstance(size, list) and len(size) == 3 and all(type(n) is int for n in size)):
        raise ArtifactError(f"{file}: input_size is not three whole numbers; download it again")
    height, width = size[1:]
    share = values.get("crop_pct", _CROP_SHARE)
    if not isinstance(share, int | float) or not 0.1 <= share <= 1.0:
        raise ArtifactError(f"{file}: crop_pct = {json.dumps(share)[:40]} is not supported")
    if values.get("crop_mode", "center") != "center" or height != width:
        raise ArtifactError(f"{file}: only the middle of square images is supported")
    resample = values.get("interpolation", "bicubic")
    if resample not in RESAMPLING.values():
        raise ArtifactError(f"{file}: interpolation = {json.dumps(resample)[:40]} is not supported")
    mean, std = (
        _numbers(file, name, values.get(name, list(usual)))
        for name, usual in zip(("mean", "std"), IMAGENET, strict=True)
    )
    return Preparation(
        size=(height, width),
        resize=(math.floor(height / share),),
        resample=resample,
        mean=mean,
        std=std,
    )


def _sides(file: Path, name: str, value: object) -> tuple[int, ...]:
    """Height and width, or the shorter side alone."""
    found: object = value
    if isinstance(value, dict):
        keys = ("height", "width") if "height" in value else ("shortest_edge",)
        found = [value.get(key) for key in keys]
    elif isinstance(value, int):
        found = [value]
    if isinstance(found, list | tuple) and 1 <= len(found) <= 2:
        sides = tuple(side for side in found if type(side) is int and 1 <= side <= 1 << 13)
        if len(sides) == len(found):
            return sides
    raise ArtifactError(f"{file}: {name} = {json.dumps(value)[:60]} is not supported")


def _numbers(file: Path, name: str, value: object) -> tuple[float, ...]:
    if isinstance(value, list) and all(isinstance(one, int | float) for one in value):
        return tuple(map(float, value))
    raise ArtifactError(f"{file}: {name} is not a list of numbers; download the file again")
