"""Where caches lie."""

import os
from pathlib import Path

from tformer_cli.errors import ArtifactError


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
