"""Compiles the kernels: `python -m tformer_cli.fast.native.build`, and the build of the package.

Needs only the standard library: it runs where tformer is being installed. The environment decides:

    CC                      the C compiler (else cc, gcc or clang)
    TFORMER_BUILD_COMPILER  zig: that of the Python package `ziglang`, for Linux with glibc 2.28
    TFORMER_BUILD_MACHINE   the architecture that zig compiles for, such as aarch64
    TFORMER_BUILD_LEVELS    all, native, none, or names of levels with commas between them; else the
                            highest level of this machine's processor
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tformer_cli.fast.native.library import (
    FLAGS,
    KERNELS,
    LIBRARIES,
    NATIVE,
    SANITIZED,
    Level,
    levels_of,
    levels_of_processor,
    library_path,
    processor_digest,
    source_digest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

STRICT = ("-Werror",)
"""Flags of developers' builds; an installation does not fail for a warning of a new compiler."""
SANITIZERS = (
    *("-O2", "-g", "-fno-omit-frame-pointer"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
)
MOST_SECONDS = 300
"""After this long a compiler is taken to hang."""
_GLIBC = "2.28"
"""C library that zig's programs ask for: the one that torch's own wheels ask for."""
_CANDIDATES = ("cc", "gcc", "clang")
_APPLE_TOOLS = (
    "/Library/Developer/CommandLineTools/usr/bin/clang",
    "/Applications/Xcode.app/Contents/Developer/usr/bin/clang",
)
"""Tool that Apple's /usr/bin/cc starts. Without it, cc opens a window that offers to install
one; no one who installs tformer has asked for that."""


class BuildError(Exception):
    """No library can be made; the message is the first error."""


@dataclass(frozen=True)
class Compiler:
    """A C compiler."""

    command: tuple[str, ...]
    """The program's path, and arguments that always go with it ("ccache gcc")."""
    machine: str = platform.machine()
    """Architecture that it compiles for, as `platform.machine` names it."""
    is_cross: bool = False
    """True if its output may be for another machine."""

    def run(self, arguments: Iterable[str | Path], aside: Path) -> None:
        """Compiles or links."""
        try:
            done = subprocess.run(  # noqa: S603 - the user's own compiler
                [*self.command, *map(str, arguments)],
                # A compiler that asks something must not wait for an answer
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=MOST_SECONDS,
                check=False,
                # The compiler's own leftovers go with the folder, even where it hangs
                env={**os.environ, "TMPDIR": str(aside)},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BuildError(f"{self.command[0]}: {error}") from None
        if done.returncode != 0:
            raise BuildError(f"{self.command[0]}: {_first_error(done.stderr)}")


def find_compiler() -> Compiler | None:
    """Finds the compiler that the environment asks for, or else the first usual one on the path."""
    requested = os.environ.get("TFORMER_BUILD_COMPILER", "")
    machine = os.environ.get("TFORMER_BUILD_MACHINE", "")
    if requested == "zig":
        machine = machine or platform.machine()
        target = f"{machine}-linux-gnu.{_GLIBC}"
        # A module of Python's, so no program of that name has to be on the path
        zig = (sys.executable, "-m", "ziglang", "cc", "-target", target)
        return Compiler(zig, machine, is_cross=True)
    if requested:
        raise BuildError(
            f'TFORMER_BUILD_COMPILER: "{requested}" is not known; unset it, or set zig'
        )
    if machine:
        raise BuildError(
            "TFORMER_BUILD_MACHINE: only TFORMER_BUILD_COMPILER=zig compiles for others"
        )
    named = os.environ.get("CC", "").strip()
    try:
        commands = [shlex.split(named)] if named else [[name] for name in _CANDIDATES]
    except ValueError:  # an open quotation mark
        return None
    for program, *arguments in commands:
        path = shutil.which(program)
        if path is not None and not _only_offers_to_install(path):
            return Compiler((path, *arguments))
    return None


def require_compiler() -> Compiler:
    """Finds a compiler, or raises `BuildError`."""
    compiler = find_compiler()
    if compiler is None:
        raise BuildError("there is no C compiler (CC, cc, gcc, clang)")
    return compiler


def levels_asked_for(compiler: Compiler, requested: str = "") -> list[Level]:
    """Returns the levels to build."""
    every = {level.name: level for level in levels_of(compiler.machine)}
    # An installation without kernels is fine: torch computes
    if requested == "none":
        return []
    if not requested and not compiler.is_cross:
        return list(levels_of_processor()[-1:])
    if requested in ("", "all"):
        return list(every.values())
    if not compiler.is_cross:
        by_cpu = platform.machine().lower() in ("aarch64", "arm64")
        every[NATIVE] = Level(NATIVE, ("cpu=native" if by_cpu else "arch=native",))
    levels = []
    for name in requested.split(","):
        if name.strip() not in every:
            known = ", ".join(("all", "none", *every))
            raise BuildError(f'"{name.strip()}" is not a level; choose from {known}')
        levels.append(every[name.strip()])
    return levels


def build(
    levels: Sequence[Level],
    folder: Path = LIBRARIES,
    *,
    compiler: Compiler,
    sources: Path = KERNELS,
    extra: Sequence[str] = (),
) -> list[Path]:
    """Compiles a library for each level, all their files side by side on all cores."""
    files = sorted(sources.glob("*.c"))
    if not files:
        raise BuildError(f"the sources are not here ({sources})")
    folder.mkdir(parents=True, exist_ok=True)
    digest = source_digest(sources)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".building-") as name:
        # Inside the folder, so that the last move stays on one file system
        aside = Path(name)

        def compile_one(job: tuple[Level, Path]) -> None:
            level, source = job
            object_file = aside / level.name / f"{source.stem}.o"
            stated = f'-DTFORMER_SOURCES="{digest}"', *_stated_processor(level)
            flags = (*FLAGS, *_baseline(compiler), *level.flags, *stated, *extra)
            compiler.run((*flags, "-c", source, "-o", object_file), aside)

        def link(level: Level) -> Path:
            objects = sorted((aside / level.name).iterdir())
            library = library_path(level.name, aside)
            # A library's calls to its own functions stay inside, whatever else the process loaded
            inside = ("-Wl,-Bsymbolic",) if sys.platform != "darwin" or compiler.is_cross else ()
            # Developers want the symbols, an installation the smaller file
            strip = () if extra else ("-s",)
            compiler.run(
                ("-shared", *extra, *strip, *objects, *inside, "-o", library, "-lm", "-lpthread"),
                aside,
            )
            return library

        for level in levels:
            (aside / level.name).mkdir()
        jobs = [(level, source) for source in files for level in levels]
        with ThreadPoolExecutor(_n_cores()) as pool:
            list(pool.map(compile_one, jobs))
            paths = list(pool.map(link, levels))
        # Moved when all are made: no one loads half a library
        return [path.replace(folder / path.name) for path in paths]


def wheel_platform(libraries: Sequence[Path], compiler: Compiler) -> str:
    """Names the oldest system that libraries run on, as wheels do.

    That is on Linux a version of glibc, the newest one of the symbols that they ask for (PEP 600),
    provided that they ask for no library but C's own.
    """
    if not (compiler.is_cross or sys.platform == "linux"):
        return re.sub(r"[-.]", "_", sysconfig.get_platform())
    contents = [path.read_bytes() for path in libraries]
    needed = {name for text in contents for name in re.findall(rb"\0(lib[\w+-]+\.so[.\d]*)", text)}
    # Another library may be missing elsewhere, and a wheel must not promise it
    if not needed <= {b"libc.so.6", b"libm.so.6", b"libpthread.so.0"}:
        return f"linux_{compiler.machine}"
    versions = [int(minor) for text in contents for minor in re.findall(rb"GLIBC_2\.(\d+)", text)]
    # pip knows no manylinux older than 2.5, and nothing that runs this Python is older than 2.17
    return f"manylinux_2_{max([17, *versions])}_{compiler.machine}"


def _baseline(compiler: Compiler) -> tuple[str, ...]:
    """Flags that undo what a compiler was configured to allow by default."""
    is_x86 = compiler.machine.lower() in ("x86_64", "amd64")
    return ("-march=x86-64",) if is_x86 and not compiler.is_cross else ()


def _stated_processor(level: Level) -> tuple[str, ...]:
    return (f'-DTFORMER_PROCESSOR="{processor_digest()}"',) if level.name == NATIVE else ()


def _n_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _only_offers_to_install(path: str) -> bool:
    is_stub = platform.system() == "Darwin" and Path(path).parent == Path("/usr/bin")
    return is_stub and not any(Path(tool).exists() for tool in _APPLE_TOOLS)


def _first_error(stderr: bytes) -> str:
    """The first line of a compiler's messages that names an error, or else the first one."""
    lines = [line for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["it failed without a message"])[0].strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Builds the libraries of this checkout in place, warnings being errors."""
    parser = argparse.ArgumentParser(prog="python -m tformer_cli.fast.native.build")
    requested = os.environ.get("TFORMER_BUILD_LEVELS", "")
    parser.add_argument(
        "levels", nargs="?", default=requested, help="all, native, or LEVEL,LEVEL,…"
    )
    parser.add_argument("-o", dest="folder", type=Path, default=LIBRARIES, help="where to put them")
    parser.add_argument(
        "--sanitize", action="store_true", help=f"check one level's memory, as level {SANITIZED}"
    )
    options = parser.parse_args(arguments)
    started = time.monotonic()
    extra: tuple[str, ...] = STRICT
    try:
        compiler = require_compiler()
        levels = levels_asked_for(compiler, options.levels)
        if options.sanitize:
            levels = [level._replace(name=SANITIZED) for level in levels[-1:]]
            extra = (*STRICT, *SANITIZERS)
        paths = build(levels, options.folder, compiler=compiler, sources=KERNELS, extra=extra)
    except (BuildError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    for path in paths:
        sys.stdout.write(f"{path}: {path.stat().st_size / 1e6:.2f} MB\n")
    sys.stdout.write(f"{time.monotonic() - started:.1f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
