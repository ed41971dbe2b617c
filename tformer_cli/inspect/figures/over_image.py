"""Shares of patches drawn over their image: pictures, and a sheet of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tformer_cli.show.png import png_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SHORTER_SIDE = 144
"""Least pixels of the shorter side of a picture."""
GAP = 6
"""Pixels between the pictures of a sheet."""
_HOT = np.array([255.0, 96.0, 0.0])
_DIMMED = 0.65
"""Share of its brightness that an image keeps below a map."""


def in_color(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Makes three channels of an image (H, W, C)."""
    if pixels.shape[2] < 3:
        return np.repeat(pixels[..., :1], 3, axis=2)
    return pixels[..., :3]


def enlarged(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Enlarges an image (H, W, C) by a whole number to three channels, its pixels as squares."""
    factor = max(1, -(-SHORTER_SIDE // min(pixels.shape[:2])))
    large: NDArray[np.uint8] = in_color(pixels).repeat(factor, axis=0).repeat(factor, axis=1)
    return large


def over_image(pixels: NDArray[np.uint8], shares: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Draws shares (h, w) of patches over an image of theirs, enlarged.

    The image is gray and dimmed; the largest share is orange, 0 shows the image alone.
    """
    picture = enlarged(pixels).astype(np.float64)
    gray = picture.mean(axis=2, keepdims=True) * _DIMMED
    strength = shares / max(float(shares.max()), 1e-12)
    height, width = picture.shape[:2]
    cells = strength.repeat(height // shares.shape[0], axis=0).repeat(
        width // shares.shape[1], axis=1
    )[..., None]
    mixed: NDArray[np.float64] = gray * (1.0 - 0.75 * cells) + _HOT * 0.75 * cells
    return np.rint(mixed).astype(np.uint8)


def sheet(rows: Sequence[Sequence[NDArray[np.uint8]]]) -> bytes:
    """Puts pictures of one size in rows on a white PNG."""
    height, width = rows[0][0].shape[:2]
    n_columns = max(map(len, rows))
    shape = (len(rows) * (height + GAP) - GAP, n_columns * (width + GAP) - GAP, 3)
    canvas = np.full(shape, 255, np.uint8)
    for number, row in enumerate(rows):
        for place, picture in enumerate(row):
            top, left = number * (height + GAP), place * (width + GAP)
            canvas[top : top + height, left : left + width] = picture
    return png_of(canvas, is_signed=True)
