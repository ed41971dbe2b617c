"""Where caches lie, and what users called the files in them."""

import os
import re
from pathlib import Path

from tformer_cli.errors import ArtifactError

_names: dict[str, str] = {}
"""Names that users gave to directories of the cache; messages show these, not a hash."""


def cache_directory() -> Path:
    """Returns the directory of what can be made again, which need not exist.

    Source: XDG Base Directory Specification; a relative path in $XDG_CACHE_HOME does not count.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if base.is_absolute():
        return base / "tformer"
    try:
        return Path.home() / ".cache" / "tformer"
    except RuntimeError:
        raise ArtifactError(
            "HOME: is not set, so there is no directory for caches; set XDG_CACHE_HOME to one"
        ) from None


def remember_name(directory: Path, name: str) -> None:
    """Remembers by which name this process was asked for a directory of the cache."""
    _names[str(directory)] = name


def given_name(directory: Path) -> str:
    """Returns by which name this process was asked for a directory; empty: by its own."""
    return _names.get(str(directory), "")


def as_named(text: str) -> str:
    """Returns a text with the names that users gave in the place of directories of the cache."""
    for directory, name in list(_names.items()):
        # Paths of files inside stay: a damaged one is found by its own
        before = re.compile(rf"{re.escape(directory)}(?![/\\])")
        text = name.join(before.split(text))
    return text
