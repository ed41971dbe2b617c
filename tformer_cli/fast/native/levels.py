"""Levels of processors: for each the kernels are compiled once, and one is chosen when they load.

The levels of x86 are those of the x86-64 psABI, two of them with VNNI's products of bytes as well.
None asks for bfloat16 instructions: compilers make none of the kernels' code, so that requiring
them would only take VNNI from processors that have no bfloat16 (Cascade Lake, Ice Lake).
"""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path
from typing import NamedTuple

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
    found = _first_processor("flags")
    has = set(found.split())
    every = levels_of(platform.machine())
    return tuple(
        level
        for number, level in enumerate(every)
        if has.issuperset(_CPUINFO_NAMES.get(name, name) for name in level.features)
        or (number == 0 and not found)
    )


def processor_digest() -> str:
    """Tells processors apart that have other instructions or another model name."""
    fields = ("model name", "flags", "Features", "CPU implementer", "CPU part", "isa", "uarch")
    parts = (platform.machine(), platform.processor(), *map(_first_processor, fields))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def source_digest(sources: Path = KERNELS) -> str:
    """Tells other versions of the C files, and of how they are compiled, from these."""
    digest = hashlib.sha256(repr((FLAGS, _X86)).encode())
    for path in sorted(path for path in sources.iterdir() if path.suffix in (".c", ".h")):
        digest.update(f"\n{path.name}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


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
