"""Files and directories that exist whole or not at all.

Everything is written beside its place under another name, flushed to the disk and renamed. A kill
or a power cut at any moment leaves the old state or the new one; see `directory_aside` for its one
exception.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.files.aside import ASIDE, aside_of, drawn_aside_of
from tformer_cli.files.guarded import check_unread


@contextmanager
def written_aside(path: Path, *, among_machines: bool = False) -> Iterator[Path]:
    """Yields another path beside `path`; the file written there replaces it at the end.

    On an exception nothing is left.

    Args:
        path: the file to make.
        among_machines: true if a process of another machine may be writing the same file now.

    Raises:
        ArtifactError: if the file cannot be written (read-only or full disk, missing directory).
    """
    aside = drawn_aside_of(path) if among_machines else aside_of(path)
    try:
        yield aside
        flush_file(aside)
        check_unread(path)
        aside.replace(path)
        flush_directory(path.parent)
    except OSError as error:
        _discard(aside)
        raise not_writable(path, error) from None
    except BaseException:
        _discard(aside)
        raise


def _discard(file: Path) -> None:
    """Removes a file, if it exists; a disk that refuses this holds none."""
    with suppress(OSError):
        file.unlink()


@contextmanager
def directory_aside(path: Path) -> Iterator[Path]:
    """Yields a new directory beside `path` that takes its place, with its files, at the end.

    If one exists already, a kill between the two renames leaves neither under that name. Of a link
    the directory that it leads to is replaced.

    Raises:
        ArtifactError: if it cannot be written, or a file has its name.
    """
    path = replaceable_directory(path)
    aside = aside_of(path)
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        yield aside
        for file in aside.iterdir():
            flush_file(file)
        flush_directory(aside)
        remove_tree(path)
        aside.rename(path)
        flush_directory(path.parent)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise not_writable(path, error) from None
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def replaceable_directory(path: Path) -> Path:
    """Returns the directory that may take a name: of a link the one that it leads to.

    Raises:
        ArtifactError: if a file has the name.
    """
    try:
        found = Path(os.path.realpath(path)) if path.is_symlink() else path
        is_file = found.exists() and not found.is_dir()
    except OSError as error:  # a name too long
        raise not_writable(path, error) from None
    if is_file:
        raise ArtifactError(f"{path}: is a file; name a directory")
    return found


def check_free(path: Path, option: str = "--output", unless: str | None = None) -> None:
    """Refuses a place with files, which would be lost; not if one has the name `unless`.

    Raises:
        UsageError: naming the option.
        ArtifactError: if it cannot be looked at.
    """
    try:
        is_ours = unless is not None and (path / unless).is_file()
        is_free = is_ours or not path.exists() or (path.is_dir() and not any(path.iterdir()))
    except OSError as error:  # a name too long
        raise not_writable(path, error) from None
    if not is_free:
        raise UsageError(f"{option}: {path} is already there; name a new directory")


def write_text(path: Path, text: str) -> None:
    """Writes a whole UTF-8 text file.

    Raises:
        ArtifactError: if it cannot be written.
    """
    with written_aside(path) as aside:
        aside.write_text(text, encoding="utf-8", newline="")


def make_directory(path: Path) -> None:
    """Creates a directory with its parents, if it does not exist.

    Raises:
        ArtifactError: if it cannot be made, or a file has its name.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ArtifactError(f"{path}: is a file; name a directory") from None
    except OSError as error:
        raise not_writable(path, error) from None


def remove_tree(path: Path) -> None:
    """Removes a directory and its contents, if it exists.

    It is renamed first, so that a kill half-way leaves no half directory under its name.
    """
    if path.exists():
        doomed = aside_of(path.with_name(path.name + ".removed"))
        shutil.rmtree(doomed, ignore_errors=True)
        path.rename(doomed)
        shutil.rmtree(doomed)


def remove_leftovers(directory: Path) -> None:
    """Removes half-written files from a directory of ours that no other process is writing."""
    for leftover in directory.glob(f"*{ASIDE}"):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def flush_file(path: Path) -> None:
    """Waits until a file's content is on the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def flush_directory(path: Path) -> None:
    """Waits until a directory's entries are on the disk, where the system knows how."""
    if os.name == "posix":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def not_writable(path: Path, error: OSError) -> ArtifactError:
    """Describes in one line why a file could not be written."""
    reason = (error.strerror or str(error)).lower()
    return ArtifactError(
        f"{path}: cannot be written ({reason}); choose a place that can be written"
    )
