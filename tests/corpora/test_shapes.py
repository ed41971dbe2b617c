"""The built-in shapes: the same for the same seed, all kinds, gold, files."""

import numpy as np
import pytest

from tformer_cli.corpora.shapes import (
    KINDS,
    SIDE,
    generate_shapes,
    shape_image,
    shape_sizes,
    write_shapes,
)
from tformer_cli.errors import DataError
from tformer_cli.text.images.decoding import decoded
from tformer_cli.text.images.named import read_idx, read_images


def test_a_picture_depends_on_seed_split_and_number_alone():
    one = shape_image("train", 1, 7)
    assert np.array_equal(shape_image("train", 1, 7).pixels, one.pixels)
    for other in (("test", 1, 7), ("train", 2, 7), ("train", 1, 8)):
        assert not np.array_equal(shape_image(*other).pixels, one.pixels)


def test_a_shape_is_where_its_gold_says():
    shapes = [shape_image("valid", 4, number) for number in range(200)]
    assert {shape.kind for shape in shapes} == set(KINDS)
    for shape in shapes:
        assert shape.pixels.shape == shape.gold.shape == (SIDE, SIDE)
        assert 9 <= shape.gold.sum() <= 250
        assert shape.pixels[shape.gold].mean() > shape.pixels[~shape.gold].mean() + 25


def test_kinds_differ_in_shape_and_not_in_brightness():
    gold = {kind: [] for kind in KINDS}
    for number in range(600):
        shape = shape_image("train", 5, number)
        rows, columns = np.nonzero(shape.gold)
        box = (np.ptp(rows) + 1) * (np.ptp(columns) + 1)
        gold[shape.kind].append(shape.gold.sum() / box)
    filled = {kind: float(np.mean(shares)) for kind, shares in gold.items()}
    assert filled["square"] > filled["ring"] > filled["cross"]
    assert filled["circle"] > filled["triangle"]


def test_names_and_kinds_of_a_split():
    found = list(generate_shapes(20, 2, "valid"))
    assert found[3] == ("shapes:valid:2#3", shape_image("valid", 2, 3).kind)
    assert [len(list(generate_shapes(20, 2, split))) for split in ("train", "valid", "test")] == [
        20, 4, 4,
    ]  # fmt: skip
    with pytest.raises(DataError, match="pairs: must be 1 to 1,000,000 for shapes"):
        shape_sizes(0)


def test_files_hold_what_is_generated(tmp_path):
    told = []
    assert write_shapes(tmp_path, 60, 3, told.append) == {"train": 60, "valid": 12, "test": 12}
    assert told == [84]
    for split, n_shapes in (("train", 60), ("test", 12)):
        shapes = [shape_image(split, 3, number) for number in range(n_shapes)]
        images = read_images(tmp_path / f"{split}.images.idx")
        assert np.array_equal(images[..., 0], [shape.pixels for shape in shapes])
        gold = read_idx(tmp_path / f"{split}.gold.idx")
        assert np.array_equal(gold, [shape.gold for shape in shapes])
        labels = (tmp_path / f"{split}.label").read_text().splitlines()
        assert labels == [shape.kind for shape in shapes]
    picture = tmp_path / "pictures" / shapes[4].kind / "004.png"
    assert np.array_equal(decoded(picture.read_bytes(), "a")[..., 0], shapes[4].pixels)
    assert len(list((tmp_path / "pictures").rglob("*.png"))) == 12
    write_shapes(tmp_path, 60, 3)  # the same again
    (tmp_path / "train.label").unlink()
    with pytest.raises(
        DataError, match=r"holds train.images.idx, which this command did not write"
    ):
        write_shapes(tmp_path, 60, 3)
