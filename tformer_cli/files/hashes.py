"""Hashes of files by their content."""

import hashlib
from pathlib import Path

from tformer_cli.errors import DataError

BLOCK_BYTES = 1 << 20


def hash_file(path: Path) -> str:
    """Returns the SHA-256 of a file's bytes in hexadecimal digits.

    Raises:
        DataError: if it cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({(error.strerror or str(error)).lower()}); check "
            "the file and its permissions"
        ) from None
    return digest.hexdigest()


def hash_tree(directory: Path, pattern: str) -> str:
    """Returns the SHA-256 of the relative names and contents of a directory's files.

    Args:
        directory: where to start; directories in it are followed.
        pattern: of file names, such as ``*.py``.

    Raises:
        DataError: if there is no such file, or one cannot be read.
    """
    files = sorted(path for path in directory.rglob(pattern) if path.is_file())
    if not files:
        raise DataError(f"{directory}: holds no file named {pattern}; check the directory")
    names = [f"{path.relative_to(directory).as_posix()} {hash_file(path)}" for path in files]
    return hashlib.sha256("\n".join(names).encode()).hexdigest()
