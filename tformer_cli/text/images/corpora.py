"""Images with their labels: folders of pictures, idx files, tables of pixels, built-in shapes."""

from __future__ import annotations

import math
import os
import re
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from tformer_cli.errors import DataError
from tformer_cli.files.regular_file import hash_file, hash_tree
from tformer_cli.text.images.decoding import ENDINGS
from tformer_cli.text.images.named import is_idx, is_row, read_idx, read_images
from tformer_cli.text.lines import LineCounts, read_lines
from tformer_cli.wording import is_number

if TYPE_CHECKING:
    from collections.abc import Iterator

_SEPARATORS = ("\t", ",", ";", " ")
_LABEL_COLUMNS = ("label", "class", "target", "digit")
# MNIST's train-images-idx3-ubyte.gz has its labels in train-labels-idx1-ubyte.gz.
_MNIST = re.compile(r"images([-.])idx\d")


def labeled_images(
    path: Path,
    labels: str,
    field: str,
    counts: LineCounts,
    names: tuple[str, str] = ("labels", "target_field"),
) -> Iterator[tuple[str, str]]:
    """Yields the name of each image (see `named`) and its label."""
    if path.is_dir():
        if labels or field:
            what = names[0] if labels else names[1]
            raise DataError(f"{what}: a folder of pictures has the labels in its names; omit it")
        return _of_folder(path)
    if not path.exists():
        raise DataError(f"{path}: no such file or folder; check the path")
    if not path.is_file():
        raise DataError(f"{path}: is not an ordinary file, but corpora are read more than once")
    if is_idx(path):
        if field:
            raise DataError(
                f"{names[1]}: only tables have a label column; name an idx file's labels with "
                f"{names[0]}"
            )
        return _of_idx(path, labels, names[0])
    if labels:
        raise DataError(
            f"{names[0]}: only for idx files; a table has its labels in a column: {names[1]}"
        )
    return _of_table(path, field, counts, field_name=names[1])


def image_names(path: Path, size: tuple[int, ...], field: str = "") -> Iterator[str]:
    """Yields the names of all images in a folder, an idx file or a table, without their labels."""
    if path.is_dir():
        pictures = [file for file in sorted(path.rglob("*")) if _is_picture(file)]
        if not pictures:
            raise DataError(f"{path}: has no pictures ({', '.join(ENDINGS)}); name another folder")
        yield from map(str, pictures)
    elif path.is_file() and is_idx(path):
        yield from (f"{path}#{number}" for number in range(len(read_images(path))))
    elif path.is_file():
        n_values = math.prod(size)
        pairs = _of_table(path, field, LineCounts(), n_values, field_name="--label-field")
        yield from (name for name, _ in pairs)
    else:
        raise DataError(f"{path}: no such file or folder; check the path")


def content_of(path: Path, labels: str) -> list[str]:
    """Returns texts that differ whenever the images or labels do."""
    if path.is_dir():
        return ["folder", hash_tree(path, "*")]
    if path.is_file() and is_idx(path):
        return ["idx", hash_file(path), hash_file(_labels_file(path, labels))]
    return ["table", hash_file(path)]


def _of_folder(path: Path) -> Iterator[tuple[str, str]]:
    # sorted: the order of a directory differs from machine to machine
    folders = sorted(entry for entry in path.iterdir() if entry.is_dir() and entry.name[0] != ".")
    has_any = False
    for folder in folders:
        for file in filter(_is_picture, sorted(folder.rglob("*"))):
            has_any = True
            yield str(file), folder.name
    if not has_any:
        raise DataError(
            f"{path}: has no folders with pictures ({', '.join(ENDINGS)}), one for each label; "
            "name the folder above those"
        )


def _is_picture(file: Path) -> bool:
    """Returns whether a file's name is that of a picture."""
    # folders of pictures hold Thumbs.db and ._cat.png, too
    if file.suffix.lower() not in ENDINGS or file.name[0] == "." or not file.is_file():
        return False
    try:
        str(file).encode()
    except UnicodeEncodeError:
        raise DataError(f"{os.fsencode(file)!r}: has a name that is not UTF-8; rename it") from None
    return True


def _labels_file(path: Path, labels: str, name: str = "labels") -> Path:
    """The file of the labels of an idx file; `name` is what `labels` is called in messages."""
    file = Path(labels)
    if not labels:
        file = path.with_name(_MNIST.sub(r"labels\1idx1", path.name))
        if file == path:
            raise DataError(f"{path}: name the file of its labels, idx or text: {name}")
    if not file.is_file():
        raise DataError(f"{file}: no such file of labels; name it: {name}")
    return file


def _of_idx(path: Path, labels: str, name: str) -> Iterator[tuple[str, str]]:
    file = _labels_file(path, labels, name)
    n_images = len(read_images(path))
    if is_idx(file):
        array = read_idx(file)
        if array.ndim != 1:
            raise DataError(f"{file}: is not a file of labels, which has one dimension")
        names = [str(number) for number in array.tolist()]
    else:
        names = [line.strip() for line in read_lines(file, LineCounts())]
    if len(names) != n_images:
        raise DataError(
            f"{path}, {file}: there are {n_images:,} images but {len(names):,} labels; give files "
            "that belong together"
        )
    return ((f"{path}#{number}", name) for number, name in enumerate(names))


def _of_table(
    path: Path,
    field: str,
    counts: LineCounts,
    n_values: int = -1,
    *,
    field_name: str = "target_field",
) -> Iterator[tuple[str, str]]:
    """Yields the values of each line, and its label; that is blank if there are `n_values`."""
    lines = enumerate(read_lines(path, counts), start=1)
    first = next(lines, None)
    if first is None or not first[1].strip():
        raise DataError(f"{path}: has no pixel values in its first line; name another file")
    separator = next((mark for mark in _SEPARATORS if mark in first[1].strip()), ",")
    cells = _cells(first[1], separator)
    names = [cell.lower() for cell in cells]
    # only one cell of words may be a label
    has_names = sum(not is_number(cell) for cell in cells) > 1
    if has_names and not field:
        known = [column for column, name in enumerate(names, 1) if name in _LABEL_COLUMNS]
        field = str(known[0]) if known else ""
    has_label = bool(field) or len(cells) != n_values
    place = _place(field or "last", len(cells), f"{path}: {field_name}")
    has_any = False
    for number, line in lines if has_names else chain([first], lines):
        row = _cells(line, separator)
        if len(row) == 1 and not row[0]:
            continue
        if len(row) != len(cells):
            raise DataError(
                f"{path}, line {number}: has {len(row):,} columns, but the first line "
                f"{len(cells):,}; correct it"
            )
        label = row.pop(place) if has_label else ""
        if has_label and not label:
            raise DataError(f"{path}, line {number}: has no label in column {place + 1}")
        values = separator.join(row)
        if not is_row(values):
            wrong = next((cell for cell in row if not is_number(cell)), values)
            raise DataError(f'{path}, line {number}: "{wrong[:40]}" is not a pixel value')
        has_any = True
        yield values, label
    if not has_any:
        raise DataError(f"{path}: has a header, but no line of pixels; name another file")


def _cells(line: str, separator: str) -> list[str]:
    if separator == " ":
        return line.split()
    return [cell.strip().strip('"') for cell in line.split(separator)]


def _place(field: str, n_columns: int, where: str) -> int:
    if field in ("first", "last"):
        return 0 if field == "first" else n_columns - 1
    if field.isascii() and field.isdigit() and 1 <= int(field) <= n_columns:
        return int(field) - 1
    raise DataError(
        f'{where}: must be "first", "last" or a column from 1 to {n_columns}, but is "{field}"'
    )
