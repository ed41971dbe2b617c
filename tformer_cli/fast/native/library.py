"""The kernels as a library, which the build of the package compiled: chosen, checked and loaded.

Nothing here is an error to the user unless a level was asked for. Where there is no library that
this processor runs, PyTorch computes; `KernelsUnavailable` gives the reason.
"""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from typing import TYPE_CHECKING

from tformer_cli.errors import UsageError
from tformer_cli.fast.native.levels import (
    KERNELS,
    LIBRARIES,
    NATIVE,
    SANITIZED,
    levels_of,
    levels_of_processor,
    library_path,
    processor_digest,
    source_digest,
)
from tformer_cli.fast.native.structs import find_mismatch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SWITCH = "TFORMER_NATIVE"
"""Environment variable: "0" switches the kernels off."""
LEVEL = "TFORMER_NATIVE_LEVEL"
"""Environment variable: names the level whose library is used."""
REBUILD = "`pip install -e .` builds them"

_once = threading.Lock()
_found: ctypes.CDLL | KernelsUnavailable | None = None


class KernelsUnavailable(Exception):  # noqa: N818 - a state of affairs, not an error
    """No library may be used, and why."""


def load_library(tell: Callable[[str], None] | None = None) -> ctypes.CDLL:
    """Returns the library; a process chooses it once."""
    global _found
    if os.environ.get(SWITCH) == "0":
        raise KernelsUnavailable(f"{SWITCH}=0 disables them")
    with _once:
        if _found is None:
            try:
                _found = find_library()
            except KernelsUnavailable as error:
                _found = error
                if tell is not None:
                    tell(f"without compiled kernels, PyTorch computes more slowly: {error}")
    if isinstance(_found, KernelsUnavailable):
        raise KernelsUnavailable(str(_found))
    return _found


def find_library(folder: Path = LIBRARIES, sources: Path = KERNELS) -> ctypes.CDLL:
    """Loads the library of the highest level that was built and that this processor has."""
    named = os.environ.get(LEVEL, "")
    if named:
        return load_from(_path_of_named(named, folder), sources)
    of_this_machine = library_path(NATIVE, folder)
    if of_this_machine.exists():
        library = load_from(of_this_machine, sources)
        if _stated(library, "tformer_processor") == processor_digest():
            return library
    for level in reversed(levels_of_processor()):
        path = library_path(level.name, folder)
        if path.exists():
            return load_from(path, sources)
    built = built_levels(folder)
    if built:
        raise KernelsUnavailable(
            f"this processor has none of the levels that were built ({', '.join(built)})"
        )
    if sources.exists():
        raise KernelsUnavailable(f"they are not built; {REBUILD}")
    raise KernelsUnavailable(
        "this installation has none: no C compiler was there when it was built"
    )


def built_levels(folder: Path = LIBRARIES) -> list[str]:
    """Names the levels that were built."""
    prefix, suffix = library_path("*", folder).name.split("*")
    names = [path.name for path in folder.glob(f"{prefix}*{suffix}")]
    return sorted(name.removeprefix(prefix).removesuffix(suffix) for name in names)


def _path_of_named(name: str, folder: Path) -> Path:
    known = [*(level.name for level in levels_of(platform.machine())), NATIVE]
    if name not in (*known, SANITIZED):
        raise UsageError(f'{LEVEL}: "{name}" is not a level; choose one of {", ".join(known)}')
    own = [level.name for level in levels_of_processor()]
    if name not in own and name not in (NATIVE, SANITIZED):
        raise UsageError(f"{LEVEL}: this processor is below {name}; it has {', '.join(own)}")
    path = library_path(name, folder)
    if not path.exists():
        built = ", ".join(built_levels(folder)) or "none"
        raise UsageError(f"{LEVEL}: {name} was not built; built: {built}")
    return path


def load_from(path: Path, sources: Path = KERNELS) -> ctypes.CDLL:
    """Loads a library, provided that it fits these sources and this Python."""
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise KernelsUnavailable(f"their library cannot be loaded: {error}") from None
    if sources.exists() and _stated(library, "tformer_sources") != source_digest(sources):
        raise KernelsUnavailable(f"they were built from other sources; {REBUILD} again")
    mismatch = find_mismatch(library)
    if mismatch is not None:
        raise KernelsUnavailable(f"{path.name} is of another version: {mismatch}")
    return library


def _stated(library: ctypes.CDLL, name: str) -> str:
    """A text that a library states about itself; "" if it does not."""
    try:
        function = library[name]
    except AttributeError:
        return ""
    function.argtypes, function.restype = [], ctypes.c_char_p
    text: bytes | None = function()
    return (text or b"").decode("utf-8", "replace")
