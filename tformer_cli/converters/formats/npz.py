"""Marian's `.npz` files: a zip of numpy's arrays, read without its pickles."""

import io
import math
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.lib import format as numpy_format

from tformer_cli.converters.formats.lazy_arrays import Array, LazyArrays, widened
from tformer_cli.errors import ArtifactError
from tformer_cli.files.regular_file import open_regular

MOST_EXPANSION = 20
"""An uncompressed file may be so many times as large as the compressed one, and `FREE_BYTES`."""
FREE_BYTES = 1 << 24
_ENDING = ".npy"


def read_npz(path: Path) -> LazyArrays:
    """Opens a `.npz` file; its arrays are read, and uncompressed, when they are asked for."""
    try:
        with open_regular(path) as stream, zipfile.ZipFile(stream) as archive:
            entries = archive.infolist()
            length = stream.seek(0, io.SEEK_END)
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
        raise _damaged(path, error) from None
    size = sum(entry.file_size for entry in entries)
    if size > MOST_EXPANSION * length + FREE_BYTES:
        raise _damaged(path, f"{length:,} bytes would become {size:,}")
    return LazyArrays(
        {entry.filename.removesuffix(_ENDING): _reader(path, entry) for entry in entries}
    )


def _reader(path: Path, entry: zipfile.ZipInfo) -> Callable[[], Array]:
    def read() -> Array:
        try:
            with zipfile.ZipFile(path) as archive, archive.open(entry) as stream:
                content = stream.read(entry.file_size + 1)
            return _array(content)
        # besides its own error, zipfile raises those of the decompressors and of the system
        except Exception as error:  # noqa: BLE001
            raise _damaged(path, f"{entry.filename}: {error}") from None

    return read


def _array(content: bytes) -> Array:
    """Reads an array of numbers in numpy's format."""
    stream = io.BytesIO(content)
    version = numpy_format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"has the version {version}")
    read_header = (
        numpy_format.read_array_header_1_0
        if version == (1, 0)
        else numpy_format.read_array_header_2_0
    )
    shape, is_fortran, dtype = read_header(stream)
    if dtype.kind not in "fiu" or any(length < 0 for length in shape):
        raise ValueError(f"has the type {dtype} and the shape {list(shape)}")
    count, start = math.prod(shape), stream.tell()
    if start + count * dtype.itemsize != len(content):
        raise ValueError(f"does not hold the {count:,} numbers of its shape {list(shape)}")
    array = np.frombuffer(content, dtype, count, start)
    array = array.reshape(shape[::-1]).T if is_fortran else array.reshape(shape)
    return widened(array)


def _damaged(path: Path, reason: object) -> ArtifactError:
    text = " ".join(str(reason).split())[:200]
    return ArtifactError(
        f"{path}: is damaged or not a model file of Marian ({text}); copy it again, or use "
        "another one"
    )
