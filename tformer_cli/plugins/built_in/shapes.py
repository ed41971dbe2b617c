"""The built-in shapes: small gray pictures of one shape each, at a random place.

A picture has 24×24 pixels. A circle, a ring, a square, a triangle or a cross of random size and
brightness, the last three turned a little, lies somewhere on a darker ground, under noise. Which
pixels belong to the shape is known: the gold of where a head should look.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from tformer_cli.errors import DataError
from tformer_cli.files.atomic import make_directory, write_text, written_aside
from tformer_cli.show.png import png_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
KINDS = ("circle", "cross", "ring", "square", "triangle")
SIDE = 24
MOST_SHAPES = 1_000_000
"""Training pictures that may be asked for."""
N_PICTURES = 50
_EVALUATION = 500
_EDGE = 5.0
"""Least distance of a shape's center from the edge of the picture, in pixels."""
_SMALLEST, _LARGEST = 4.0, 7.5
"""Radius of shapes, in pixels."""
_TURN = 0.5
"""Largest angle that a shape is turned by to either side, in radians."""
_NOISE = 20.0
"""Standard deviation of the noise, of 255."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A picture of a shape."""

    kind: str
    pixels: NDArray[np.uint8]
    """(24, 24) gray."""
    gold: NDArray[np.bool_]
    """(24, 24) True where the shape is."""


def shape_sizes(n_train: int) -> Mapping[Split, int]:
    if not 1 <= n_train <= MOST_SHAPES:
        raise DataError(
            f"pairs: must be 1 to {MOST_SHAPES:,} for shapes, but is {n_train:,}; ask for fewer"
        )
    held_out = max(2, min(_EVALUATION, n_train // 5))
    return {"train": n_train, "valid": held_out, "test": held_out}


def shape_image(split: str, seed: int, number: int) -> Shape:
    # Any picture can be made without the others
    rng = np.random.default_rng([seed, SPLITS.index(split), number])
    kind = KINDS[int(rng.integers(len(KINDS)))]
    radius = rng.uniform(_SMALLEST, _LARGEST)
    center = rng.uniform(_EDGE, SIDE - _EDGE, size=2)
    angle = rng.uniform(-_TURN, _TURN)
    ground, light = rng.uniform(0.0, 90.0), rng.uniform(140.0, 255.0)
    rows, columns = np.mgrid[:SIDE, :SIDE] + 0.5 - center[:, None, None]
    across = np.cos(angle) * columns + np.sin(angle) * rows
    down = np.cos(angle) * rows - np.sin(angle) * columns
    # A pixel on the edge is inside in part, as in a photograph
    inside = np.clip(0.5 - _distance(kind, across, down, radius), 0.0, 1.0)
    values = ground + (light - ground) * inside + rng.normal(0.0, _NOISE, inside.shape)
    pixels = np.rint(np.clip(values, 0.0, 255.0)).astype(np.uint8)
    return Shape(kind=kind, pixels=pixels, gold=inside >= 0.5)


def _distance(
    kind: str, across: NDArray[np.float64], down: NDArray[np.float64], radius: float
) -> NDArray[np.float64]:
    """How far each pixel is outside a shape around 0; negative inside."""
    far = np.hypot(across, down)
    distance: NDArray[np.float64]
    if kind == "circle":
        distance = far - 0.9 * radius
    elif kind == "ring":
        distance = np.abs(far - 0.75 * radius) - 0.25 * radius
    elif kind == "square":
        distance = np.maximum(np.abs(across), np.abs(down)) - 0.8 * radius
    elif kind == "triangle":  # its sides are half a radius from its center
        slope = np.sqrt(0.75) * np.abs(across) - 0.5 * down
        distance = np.maximum(slope, down) - 0.5 * radius
    else:
        arms = [
            np.maximum(np.abs(axis) - radius, np.abs(other) - 0.3 * radius)
            for axis, other in ((across, down), (down, across))
        ]
        distance = np.minimum(*arms)
    return distance


def generate_shapes(n_train: int, seed: int, split: str) -> Iterator[tuple[str, str]]:
    """Yields the name of each picture of a split, by which it is made, and its kind."""
    for number in range(dict(shape_sizes(n_train))[split]):  # type: ignore[index]  # looked up
        yield f"shapes:{split}:{seed}#{number}", shape_image(split, seed, number).kind


def write_shapes(
    directory: Path,
    n_pairs: int = 5000,
    seed: int = 1,
    progress: Callable[[int], None] | None = None,
) -> dict[str, int]:
    """Writes `train|valid|test` as idx files with labels and gold, and some pictures."""
    # `train.images.idx` and the like hold the pictures, `train.label` their kinds line by line, and
    # `train.gold.idx` 1 where a shape is. `pictures/KIND/NUMBER.png` are the first of the test.
    sizes = shape_sizes(n_pairs)
    names = [f"{split}.{part}" for split in SPLITS for part in ("images.idx", "label", "gold.idx")]
    there = [name for name in names if os.path.lexists(directory / name)]
    # All of them are from an earlier call, which this one may replace
    if there and len(there) < len(names):
        raise DataError(
            f"{directory}: holds {there[0]}, which this command did not write and would replace; "
            "name another directory"
        )
    make_directory(directory)
    n_done = 0
    for split, size in sizes.items():
        shapes = []
        for number in range(size):
            shapes.append(shape_image(split, seed, number))
            n_done += 1
            if progress is not None and n_done % 1000 == 0:
                progress(n_done)
        _write_idx(directory / f"{split}.images.idx", np.stack([shape.pixels for shape in shapes]))
        gold = np.stack([shape.gold for shape in shapes]).astype(np.uint8)
        _write_idx(directory / f"{split}.gold.idx", gold)
        write_text(directory / f"{split}.label", "".join(f"{shape.kind}\n" for shape in shapes))
    for number, shape in enumerate(shapes[:N_PICTURES]):  # of the test, the last
        folder = directory / "pictures" / shape.kind
        make_directory(folder)
        with written_aside(folder / f"{number:03}.png") as aside:
            aside.write_bytes(png_of(shape.pixels[..., None]))
    if progress is not None:
        progress(n_done)
    return {str(split): n for split, n in sizes.items()}


def _write_idx(path: Path, array: NDArray[np.uint8]) -> None:
    """Writes an array of bytes as an idx file (see `data.images.idx`), whole or not at all."""
    header = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes()
    with written_aside(path) as aside:
        aside.write_bytes(header + array.tobytes())
