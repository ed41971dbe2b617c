"""The kernels as a library, which the build of the package compiled: chosen, checked and loaded.

Nothing here is an error to the user unless a level was asked for. Where there is no library that
this processor runs, PyTorch computes; `KernelsUnavailable` gives the reason.
"""

from __future__ import annotations

import ctypes
import os
import platform
import threading
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tformer_cli.errors import UsageError
from tformer_cli.fast.native.structs import find_mismatch

if TYPE_CHECKING:
    from collections.abc import Callable

KERNELS = Path(__file__).parent / "kernels"
"""C sources; a wheel has none."""
LIBRARIES = Path(__file__).parent / "libraries"
"""Compiled libraries, one a level."""
FLAGS = ("-O3", "-std=c11", "-ffp-contract=fast", "-fno-math-errno", "-fPIC", "-Wall", "-Wextra")
"""Compiler flags of all levels: products may be fused with the addition that follows, and
nothing that lets sums change their order (-ffast-math)."""
NATIVE = "native"
"""Level of a library for all that the building machine has (-march=native), used only on it."""
SANITIZED = "sanitized"
"""Level of a library with checks of addresses and undefined behavior, used only by name."""
_CPUINFO = Path("/proc/cpuinfo")
_CPUINFO_NAMES = {
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "sahf": "lahf_lm",
    "lzcnt": "abm",
    "bmi": "bmi1",
    "avx512vnni": "avx512_vnni",
    "avxvnni": "avx_vnni",
}
"""Names in Linux's /proc/cpuinfo of features that compilers name otherwise."""
_V2 = ("cx16", "sahf", "popcnt", "sse3", "ssse3", "sse4.1", "sse4.2")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_X86 = {
    "x86-64-v2": _V2,
    "x86-64-v3": _V3,
    "x86-64-v3-vnni": (*_V3, "avxvnni"),
    "x86-64-v4": _V4,
    "x86-64-v4-vnni": (*_V4, "avx512vnni"),
}


class Level(NamedTuple):
    """A kind of processor."""

    name: str
    features: tuple[str, ...]
    """Instructions beyond the architecture's first ones, as compilers name them."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Compiler flags that allow its instructions."""
        return tuple(f"-m{feature}" for feature in self.features)


def levels_of(machine: str) -> tuple[Level, ...]:
    """Returns the levels of an architecture, the lowest first; others than x86 have one."""
    if machine.lower() in ("x86_64", "amd64"):
        return tuple(Level(name, features) for name, features in _X86.items())
    return (Level(machine.lower(), ()),)


def levels_of_processor() -> tuple[Level, ...]:
    """Returns the levels whose instructions this machine's processor has, the lowest first.

    Where the system has no /proc/cpuinfo, that is the lowest one.
    """
    flags = _first_processor("flags")
    has = set(flags.split())
    every = levels_of(platform.machine())
    return tuple(
        level
        for number, level in enumerate(every)
        if has.issuperset(_CPUINFO_NAMES.get(name, name) for name in level.features)
        # Nothing is known of the processor, but the lowest level asks for least
        or (number == 0 and not flags)
    )


def processor_digest() -> str:
    """Tells processors apart that have other instructions or another model name."""
    fields = ("model name", "flags", "Features", "CPU implementer", "CPU part", "isa", "uarch")
    parts = (platform.machine(), platform.processor(), *map(_first_processor, fields))
    joined = "\n".join(parts)
    return f"{zlib.crc32(joined.encode()):08x}"


def source_digest(sources: Path = KERNELS) -> str:
    """Tells other versions of the C files, and of how they are compiled, from these."""
    # Other flags make other numbers, so they count as sources do
    # And not by `hashlib`, which loads a library that a cold line does without
    digest = zlib.crc32(repr((FLAGS, _X86)).encode())
    for path in sorted(path for path in sources.iterdir() if path.suffix in (".c", ".h")):
        digest = zlib.crc32(f"\n{path.name}\n".encode() + path.read_bytes(), digest)
    return f"{digest:08x}"


def library_path(level: str, folder: Path = LIBRARIES) -> Path:
    """Returns where the library of a level lies in a folder."""
    return folder / f"kernels-{level}.so"


def _first_processor(field: str) -> str:
    """The value of a field of /proc/cpuinfo for the first processor; "" where there is none."""
    try:
        with _CPUINFO.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.partition(":")
                if not name.strip():
                    break
                if name.strip() == field:
                    return value.strip()
    except OSError:
        pass
    return ""


SWITCH = "TFORMER_NATIVE"
"""Environment variable: "0" switches the kernels off."""
LEVEL = "TFORMER_NATIVE_LEVEL"
"""Environment variable: names the level whose library is used."""
REBUILD = "`pip install -e .` builds them"

_once = threading.Lock()
_library: ctypes.CDLL | KernelsUnavailable | None = None


class KernelsUnavailable(Exception):  # noqa: N818 - a state of affairs, not an error
    """No library may be used, and why."""


def load_library(tell: Callable[[str], None] | None = None) -> ctypes.CDLL:
    """Returns the library; a process chooses it once."""
    global _library
    if os.environ.get(SWITCH) == "0":
        raise KernelsUnavailable(f"{SWITCH}=0 disables them")
    with _once:
        if _library is None:
            try:
                _library = find_library()
            except KernelsUnavailable as error:
                # Kept, so that the reason is given once and the search is not repeated
                _library = error
                if tell is not None:
                    tell(f"without compiled kernels, PyTorch computes more slowly: {error}")
    if isinstance(_library, KernelsUnavailable):
        # A new one each time, because a traceback grows with every raise
        raise KernelsUnavailable(str(_library))
    return _library


def find_library(folder: Path = LIBRARIES, sources: Path = KERNELS) -> ctypes.CDLL:
    """Loads the library of the highest level that was built and that this processor has."""
    named = os.environ.get(LEVEL, "")
    if named:
        return load_from(_path_of_named(named, folder), sources)
    of_this_machine = library_path(NATIVE, folder)
    if of_this_machine.exists():
        library = load_from(of_this_machine, sources)
        # A library for another processor may stop at an unknown instruction
        if _read_text(library, "tformer_processor") == processor_digest():
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
    # A wheel has no sources to compare with
    if sources.exists() and _read_text(library, "tformer_sources") != source_digest(sources):
        raise KernelsUnavailable(f"they were built from other sources; {REBUILD} again")
    mismatch = find_mismatch(library)
    if mismatch is not None:
        raise KernelsUnavailable(f"{path.name} has another version: {mismatch}")
    return library


def _read_text(library: ctypes.CDLL, name: str) -> str:
    """A text that a library states about itself; "" if it does not."""
    try:
        function = library[name]
    except AttributeError:
        return ""
    function.argtypes, function.restype = [], ctypes.c_char_p
    text: bytes | None = function()
    return (text or b"").decode("utf-8", "replace")
