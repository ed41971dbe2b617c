"""Where caches lie."""

import os
from pathlib import Path


def cache_directory() -> Path:
    """Returns the directory of what can be made again, which need not exist.

    Source: XDG Base Directory Specification; a relative path in $XDG_CACHE_HOME does not count.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "tformer"
