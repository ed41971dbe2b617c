"""Names of images, which stand wherever a text would stand.

============================  ======================================================================
``photos/cat.jpg``            a picture: PNG, JPEG, WebP, BMP or GIF
``t10k-images.idx.gz#17``     image 17, counted from 0, of an idx file
``0 12 255 …``                the values of its pixels row by row, separated by commas or spaces
``data:image/png;base64,…``   a picture inside the name
``data:8x6x3;base64,…``       the bytes of an array inside the name: height, width, channels
``shapes:test:1#17``          image 17 of the built-in shapes: split, seed and number
============================  ======================================================================
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import zlib
from functools import lru_cache
from math import prod
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tformer_cli.errors import DataError
from tformer_cli.files.regular_file import read_regular
from tformer_cli.sockets import load_place
from tformer_cli.text.images.decoding import MOST_BYTES, decode_image
from tformer_cli.text.lines import open_bytes
from tformer_cli.wording import is_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tformer_cli.text.images.decoding import Pixels

INLINE = "data:"
_NUMBER = r"[-+]?[\d.][-+.\deE]*"
_ROW = re.compile(rf"\s*{_NUMBER}(?:[\s,;]+{_NUMBER})+[\s,;]*")
_SEPARATORS = re.compile(r"[\s,;]+")
_SHAPE = re.compile(r"shapes:(train|valid|test):(\d{1,18})#(\d{1,18})")
_ARRAY = re.compile(r"data:(\d{1,6})x(\d{1,6})x([1-4]);base64,")
LARGEST_PIXEL = 255
MOST_CHANNELS = 4
MOST_SHOWN = 200
"""Characters of a name that messages show whole."""


def is_row(name: str) -> bool:
    return _ROW.fullmatch(name) is not None


def count_values(name: str) -> int:
    return len(_SEPARATORS.split(name.strip(" \t,;")))


def read_image(name: str, size: tuple[int, int, int], pixel_max: int = LARGEST_PIXEL) -> Pixels:
    """Reads a named image (H, W, C) in its own size."""
    if is_row(name):
        return row_of_pixels(
            _SEPARATORS.split(name.strip(" \t,;")), size, pixel_max, short_name(name)
        )
    if array := _ARRAY.match(name):
        return _array(name, tuple(map(int, array.groups())))
    if name.startswith(INLINE):
        return decode_image(_inline(name), short_name(name))
    if built_in := _SHAPE.fullmatch(name):
        split, seed, number = built_in.groups()
        shape = load_place("tformer_cli.plugins.built_in.shapes:shape_image")(
            split, int(seed), int(number)
        )
        pixels: Pixels = shape.pixels[..., None]
        return pixels
    path = Path(name).expanduser()
    file, mark, number = name.rpartition("#")
    # a file may have "#" in its name
    if mark and number.isascii() and number.isdigit() and not path.exists():
        return _one_of_many(Path(file).expanduser(), int(number))
    return _picture(path, name)


def _picture(path: Path, name: str) -> Pixels:
    if path.is_dir():
        raise DataError.of(
            "{}: is a folder; name the pictures in it{ (--images takes all)}", short_name(name)
        )
    try:
        content = read_regular(path, MOST_BYTES)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(
            f"{short_name(name)}: cannot be read ({reason.lower()}); name a picture, FILE#NUMBER "
            "of an idx file, or give the values of pixels"
        ) from None
    if is_idx(path):
        raise DataError(f"{name}: holds many images; name one, such as {name}#0")
    return decode_image(content, name)


def _one_of_many(path: Path, number: int) -> Pixels:
    images = read_images(path)
    if number >= len(images):
        raise DataError(f"{path}#{number}: there are {len(images):,} images, counted from 0")
    image: Pixels = images[number]
    return image


def row_of_pixels(
    cells: list[str], size: tuple[int, int, int], pixel_max: int, where: str
) -> Pixels:
    """Builds an image (H, W, C) from its values v, row by row: bytes v·255 / `pixel_max`."""
    height, width, channels = size
    if len(cells) != height * width * channels:
        raise DataError(
            f"{where}: has {len(cells):,} values, but an image of {height}×{width} pixels and "
            f"{channels} channel{'s'[: channels > 1]} has {height * width * channels:,}"
        )
    try:
        values = np.array(cells, dtype=np.float64)
    except ValueError:
        wrong = next(cell for cell in cells if not is_number(cell))
        raise DataError(f'{where}: "{wrong[:40]}" is not a pixel value') from None
    # NaN fails each of these
    bad = ~((values >= 0) & (values <= pixel_max) & (values == np.floor(values)))
    if bad.any():
        place = int(bad.argmax())
        raise DataError(
            f"{where}: value {place + 1} is {cells[place][:40]}, and pixels are whole numbers from "
            f"0 to {pixel_max} (data.pixel_max)"
        )
    return np.rint(values * (LARGEST_PIXEL / pixel_max)).astype(np.uint8).reshape(size)


def _inline(name: str) -> bytes:
    header, _, content = name.partition(",")
    if not header.endswith(";base64"):
        raise DataError(
            f"{short_name(name)}: is not written in base64; write data:image/png;base64,…"
        )
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        raise DataError(f"{short_name(name)}: is not base64; check the text") from None


def _array(name: str, size: tuple[int, ...]) -> Pixels:
    content = np.frombuffer(_inline(name), np.uint8)
    if content.size != prod(size) or not content.size:
        raise DataError(
            f"{short_name(name)}: has {content.size:,} bytes, not {prod(size):,}; check the size"
        )
    return content.reshape(size)


def name_of_image(image: object, where: str) -> str:
    """Returns the name of an image that a Python program gives: a name, path or array."""
    if isinstance(image, str):
        return image
    if isinstance(image, PathLike):
        return str(fspath(image))
    pixels = np.asarray(image)
    height, width, channels = (*pixels.shape, 1, 1, 1)[:3]
    is_image = pixels.ndim in (2, 3) and 0 < channels <= MOST_CHANNELS
    if pixels.dtype != np.uint8 or not is_image or not pixels.size:
        what = type(image).__name__
        if isinstance(image, np.ndarray):
            what = f"an array {image.shape} of {image.dtype}"
        raise TypeError(
            f"{where}: is {what}; give a name, a path, or an array (H, W) or (H, W, C) of uint8, "
            f"C at most {MOST_CHANNELS}"
        )
    content = base64.b64encode(pixels.tobytes()).decode("ascii")
    return f"{INLINE}{height}x{width}x{channels};base64,{content}"


def short_name(name: str) -> str:
    """A name for messages: both ends of a long one, since the end of a path says most."""
    return name if len(name) <= MOST_SHOWN else f"{name[:60]}…{name[-60:]}"


_UNSIGNED_BYTES = 8
_MOST_DIMENSIONS = 4
# Bytes of an array: a damaged or hostile header must not cause unlimited allocation.
MOST_ARRAY_BYTES = 1 << 32


def is_idx(path: Path) -> bool:
    """Returns whether a file, perhaps compressed, begins as an idx file does."""
    try:
        with open_bytes(path) as stream:
            start = stream.read(4)
    except (DataError, OSError, EOFError, zlib.error):
        return False
    return start[:3] == bytes((0, 0, _UNSIGNED_BYTES)) and len(start) == 4 and start[3] > 0


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Reads the array of an idx file; `.gz` and the like are read through."""
    wrong = f"{path}: is damaged or not an idx file of bytes; restore the file"
    try:
        with open_bytes(path) as stream:
            start = stream.read(4)
            if start[:3] != bytes((0, 0, _UNSIGNED_BYTES)) or len(start) < 4:
                raise DataError(wrong)
            n_dimensions = start[3]
            sizes = stream.read(4 * n_dimensions)
            if not 1 <= n_dimensions <= _MOST_DIMENSIONS or len(sizes) < 4 * n_dimensions:
                raise DataError(wrong)
            shape = tuple(np.frombuffer(sizes, ">u4").tolist())
            n_bytes = math.prod(shape)
            if n_bytes > MOST_ARRAY_BYTES:
                raise DataError(
                    f"{path}: is too large: its header promises {n_bytes:,} bytes; split it into "
                    "files"
                )
            # one more, to see that nothing follows
            content = stream.read(n_bytes + 1)
    except (OSError, EOFError, zlib.error):
        raise DataError(wrong) from None
    if len(content) != n_bytes:
        raise DataError(
            f"{path}: is truncated: its header promises {n_bytes:,} bytes; restore the file"
        )
    return np.frombuffer(content, np.uint8).reshape(shape)


def read_images(path: Path) -> NDArray[np.uint8]:
    """Reads the images (N, H, W, C) of an idx file; caches those of the last files."""
    try:
        status = path.stat()
    except OSError:
        raise DataError(f"{path}: no such file; check the path") from None
    return _images(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=4)
def _images(path: Path, changed: int, size: int) -> NDArray[np.uint8]:
    del changed, size  # another file of the same name is read anew
    array = read_idx(path)
    if array.ndim < 3 or not array.size:
        raise DataError(
            f"{path}: has {array.ndim} dimensions of {' × '.join(map(str, array.shape))}, and "
            "images have three (number, rows, columns) or four; is it the file of labels?"
        )
    return array[..., None] if array.ndim == 3 else array
