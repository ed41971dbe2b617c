"""Pictures as bytes of pixels: reading PNG, JPEG and the like with Pillow, and scaling."""

from __future__ import annotations

import io
import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from tformer_cli.errors import DataError, UsageError
from tformer_cli.wording import installing

if TYPE_CHECKING:
    from PIL import Image

# (H, W, C) bytes; C is 1 for gray, 3 for red, green and blue.
Pixels = NDArray[np.uint8]
Resample = Literal["bilinear", "bicubic"]
ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif")
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
_MAGIC = (b"\x89PNG", b"\xff\xd8", b"RIFF", b"BM", b"GIF8")
# Pixels of a picture: a small file may unpack to any number, of up to 10 bytes each.
MOST_PIXELS = 80_000_000
# Pixels of a WebP picture, whose reader takes 16 bytes for each.
_MOST_WEBP_PIXELS = 50_000_000
MOST_BYTES = 1 << 28
"""Bytes of a picture's file."""
GRAY = ("1", "L", "LA", "I;16", "I;16B", "I;16L", "I")
"""Pillow's names of kinds of gray pictures."""
# Rows of a picture to read at a time, so that a large one is held at most twice.
_STRIP_PIXELS = 1 << 20
# Of an image that is scaled whole; of a thinner one only the middle is.
_MOST_SCALED_PIXELS = 1 << 25
_FILTER_REACH = 3
"""Pixels beyond those that fall together which a filter takes in on each side, and one."""


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """Settings by which an image is scaled, and its middle cut out."""

    size: tuple[int, int, int]
    """Height, width and channels of the result."""
    resize: tuple[int, ...] = ()
    """Height and width that an image is scaled to, or only the length of its shorter side; empty:
    images of other sizes are refused."""
    resample: Resample = "bilinear"
    """Interpolation of pixels."""
    odd_margins: Literal["down", "even"] = "down"
    """Beginning of the middle if an odd number is cut off: half of it is rounded down, or to the
    even number as torchvision does it."""

    def __post_init__(self) -> None:
        if len(self.resize) > 2 or not all(1 <= n <= MOST_PIXELS for n in self.resize):
            raise ValueError(f"resize: must be height and width, or one side, but is {self.resize}")
        is_small = any(n < side for n, side in zip(self.resize * 2, self.size[:2], strict=False))
        if self.resize and (is_small or self.size[2] not in (1, 3)):
            raise ValueError(f"resize: {list(self.resize)} does not make an image of {self.size}")


def decode_image(content: bytes, name: str) -> Pixels:
    """Reads a picture; it is upright, and white shows through where it is transparent."""
    not_one = f"{name}: is not a picture that can be read here; give {', '.join(_FORMATS)}"
    if not content.startswith(_MAGIC):  # who names a text should not be told to install Pillow
        raise DataError(not_one)
    image_module = _pillow()
    from PIL import ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of oddities in files, and of size, seen to below
            picture = image_module.open(io.BytesIO(content), formats=_FORMATS)
            _check_size(picture, name)
            picture.load()
            ImageOps.exif_transpose(picture, in_place=True)
            return _bytes_of(picture, name)
    except DataError:
        raise
    except MemoryError:
        raise DataError(f"{name}: needs more memory than there is; scale it down") from None
    except image_module.DecompressionBombError:
        raise DataError(f"{name}: has too many pixels; scale it down") from None
    except image_module.UnidentifiedImageError:
        raise DataError(not_one) from None
    except Exception as error:  # noqa: BLE001 - damaged files make its readers raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{name}: is damaged ({reason[:200]}); restore the file") from None


def _check_size(picture: Image.Image, name: str) -> None:
    width, height = picture.size
    most = _MOST_WEBP_PIXELS if picture.format == "WEBP" else MOST_PIXELS
    if width * height > most:
        raise DataError(
            f"{name}: has {width:,}×{height:,} pixels, more than {most:,}; scale it down"
        )


def _pillow() -> Any:  # noqa: ANN401 - a module
    # an extra: idx files and rows of numbers, in their own size, do without it
    try:
        from PIL import Image
    except ImportError:
        raise UsageError(
            f"images: reading and scaling pictures needs Pillow; {installing('images')}"
        ) from None
    return Image


def _bytes_of(picture: Image.Image, name: str) -> Pixels:
    """The pixels of a picture as gray or as red, green and blue."""
    if picture.mode == "F":
        raise DataError(f"{name}: has pixels that are fractions; convert them to 8 bits")
    width, height = picture.size
    pixels = np.empty((height, width, 1 if picture.mode in GRAY else 3), np.uint8)
    n_rows = max(1, _STRIP_PIXELS // width)
    for top in range(0, height, n_rows):
        strip = picture.crop((0, top, width, min(top + n_rows, height)))
        pixels[top : top + n_rows] = _strip_bytes(strip, name).reshape(-1, *pixels.shape[1:])
    return pixels


def _strip_bytes(strip: Image.Image, name: str) -> NDArray[np.uint8]:
    if strip.mode.startswith("I"):
        values = np.asarray(strip).astype(np.int64)
        if not 0 <= values.min() <= values.max() <= 0xFFFF:
            raise DataError(f"{name}: has pixels beyond 16 bits; convert it to 8")
        return (values >> 8).astype(np.uint8)
    mode = "L" if strip.mode in GRAY else "RGB"
    if strip.mode in ("LA", "RGBA", "PA", "La", "RGBa") or "transparency" in strip.info:
        strip = strip.convert("RGBA")
        white = _pillow().new("RGBA", strip.size, (255, 255, 255, 255))
        strip = _pillow().alpha_composite(white, strip)
    return np.asarray(strip.convert(mode))


def scale_image(pixels: Pixels, scaling: Scaling, name: str) -> Pixels:
    """Resizes an image (h, w, c) to the size (H, W, C) that a model reads."""
    height, width, channels = scaling.size
    if pixels.shape[:2] != (height, width) and not scaling.resize:
        raise DataError(
            f"{name}: has {pixels.shape[0]}×{pixels.shape[1]} pixels, but images here have "
            f"{height}×{width}; scale it (models trained with data.scale_images do so themselves)"
        )
    pixels = _with_channels(pixels, channels, name)
    size = _scaled_size(pixels.shape[:2], scaling.resize)
    margins = size[0] - height, size[1] - width
    half = round if scaling.odd_margins == "even" else int
    top, left = (half(margin / 2) for margin in margins)
    if pixels.shape[:2] == size:
        return pixels[top : top + height, left : left + width]
    if math.prod(size) <= _MOST_SCALED_PIXELS:
        whole = _resize_image(pixels, size, (0, 0, *size), scaling.resample)
        return whole[top : top + height, left : left + width]
    return _resize_image(pixels, size, (top, left, height, width), scaling.resample)


def _resize_image(
    pixels: Pixels, size: tuple[int, int], window: tuple[int, int, int, int], resample: Resample
) -> Pixels:
    """Scales an image (h, w, c) to a size, computing only a window of it."""
    cuts, box = [], []
    for n_found, n_whole, start, n_wanted in zip(
        pixels.shape, size, window[:2], window[2:], strict=False
    ):
        first, last = start * n_found / n_whole, (start + n_wanted) * n_found / n_whole
        reach = math.ceil(_FILTER_REACH * max(1.0, n_found / n_whole))
        # Pillow has four bytes for a number of the box, so the cut brings it near 0
        cut = slice(max(0, math.floor(first) - reach), math.ceil(last) + reach)
        cuts.append(cut)
        box.append((first - cut.start, last - cut.start))
    image_module = _pillow()
    filters = {"bilinear": image_module.Resampling.BILINEAR,
               "bicubic": image_module.Resampling.BICUBIC}  # fmt: skip
    part = pixels[cuts[0], cuts[1]]
    flat = part[..., 0] if part.shape[2] == 1 else part
    picture = image_module.fromarray(np.ascontiguousarray(flat))
    (top, bottom), (left, right) = box
    # Pillow averages over the pixels that fall together: small details do not flicker
    resized = picture.resize(
        (window[3], window[2]), filters[resample], box=(left, top, right, bottom)
    )
    return np.asarray(resized).reshape(window[2], window[3], part.shape[2])


def _scaled_size(size: tuple[int, ...], resize: tuple[int, ...]) -> tuple[int, int]:
    if not resize:
        return size[0], size[1]
    if len(resize) == 2:
        return resize[0], resize[1]
    shorter = min(size)
    height, width = (int(resize[0] * side / shorter) for side in size)
    return height, width


def _with_channels(pixels: Pixels, channels: int, name: str) -> Pixels:
    n_channels = pixels.shape[2]
    if n_channels == channels:
        return pixels
    if {n_channels, channels} != {1, 3}:
        raise DataError(
            f"{name}: has {n_channels} channels, and images here {channels}; convert it"
        )
    if n_channels == 1:
        return np.broadcast_to(pixels, (*pixels.shape[:2], 3))
    return np.asarray(_pillow().fromarray(np.ascontiguousarray(pixels)).convert("L"))[..., None]
