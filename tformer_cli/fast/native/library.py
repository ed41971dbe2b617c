"""The kernels as a library: compiled on first use, kept, checked, and loaded once a process.

Nothing here is an error to the user. Where no library is to be had, translation continues without;
`Refused` says why, for those who ask.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tformer_cli.fast.native.compiler import (
    FLAGS,
    LIBRARIES,
    CompileError,
    Compiler,
    describe_processor,
    find_compiler,
    tunings,
)
from tformer_cli.fast.native.library_cache import (
    LibraryCache,
    NotPrivate,
    Refused,
    cache_directories,
)
from tformer_cli.fast.native.structs import find_mismatch

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable

SWITCH = "TFORMER_NATIVE"
"""Environment variable: "0" switches the kernels off."""
KERNELS = Path(__file__).parent / "kernels"
CHECK_SECONDS = 300
"""After this long the check of a new library is taken to hang."""

_once = threading.Lock()
_found: ctypes.CDLL | Refused | None = None


def load_library(tell: Callable[[str], None] | None = None) -> ctypes.CDLL:
    """Returns the library; compiles it if this machine has not done so before.

    Args:
        tell: is told, in a line, that something takes a while.

    Raises:
        Refused: if there is none; in this process, there will be none later, either.
    """
    global _found
    if os.environ.get(SWITCH) == "0":
        raise Refused(f"{SWITCH}=0 disables them")
    with _once:
        if _found is None:
            try:
                _found = _checked(find_library(tell or _keep_quiet))
            except Refused as refusal:
                _found = refusal
    if isinstance(_found, Refused):
        raise Refused(str(_found))
    return _found


def _checked(library: ctypes.CDLL) -> ctypes.CDLL:
    """Returns a library whose structs are Python's; raises `Refused` for any other."""
    mismatch = find_mismatch(library)
    if mismatch is not None:
        raise Refused(f"the compiled library is another version's: {mismatch}")
    return library


def find_library(
    tell: Callable[[str], None],
    sources: Path = KERNELS,
    check: Callable[[Path], None] | None = None,
) -> ctypes.CDLL:
    """Loads the library from where it is kept, or compiles, checks, keeps and loads it.

    Args:
        tell: is told that something takes a while.
        sources: directory of the C files and their headers.
        check: raises `Refused` if the library at a path does not what it should; None: compares
            it with torch, in a process of its own.

    Raises:
        Refused: if there is none.
    """
    if os.name != "posix":
        raise Refused("they need a POSIX system")
    if not any(sources.glob("*.c")):
        raise Refused(f"their sources are not installed ({sources})")
    compiler = find_compiler()
    if compiler is None:
        raise Refused("there is no C compiler (CC, cc, gcc, clang)")
    name = library_name(sources, compiler)
    reason = "there is no directory to store them in"
    for directory in cache_directories():
        cache = LibraryCache(directory, name)
        try:
            library = cache.load()
            if library is None:
                with cache.locked():
                    library = cache.load()  # another process may just have made it
                    if library is None:
                        tell("compiling the kernels, once for this machine")
                        cache.make(_compiling(compiler, sources), check or check_in_process)
                        library = cache.load()
        except (OSError, NotPrivate) as error:
            reason = str(error)
            continue
        if library is not None:
            return library
    tell(f"the kernels cannot be compiled ({reason}); PyTorch computes instead, more slowly")
    raise Refused(reason)


def library_name(sources: Path, compiler: Compiler) -> str:
    """Names the library by all that it depends on."""
    digest = hashlib.sha256()
    files = sorted(path for path in sources.iterdir() if path.suffix in (".c", ".h"))
    for path in files:
        digest.update(f"{path.name}\n{path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    for part in (FLAGS, LIBRARIES, tunings(), compiler.identity, _c_library()):
        digest.update(f"{part}\n".encode())
    digest.update(describe_processor().encode())
    return f"kernels-{digest.hexdigest()[:32]}"


def check_in_process(library: Path) -> None:
    """Checks a library against torch in a process of its own, which a bad one may end.

    Raises:
        Refused: if it fails.
    """
    if not sys.executable:  # Python is part of another program
        raise Refused("there is no interpreter to check the compiled library with")
    # -P: not even by accident is anything imported from the current directory
    command = [sys.executable, "-P", "-m", "tformer_cli.fast.native.self_test", str(library)]
    path = os.pathsep.join(entry for entry in sys.path if entry)
    try:
        done = subprocess.run(  # noqa: S603 - this very interpreter
            command,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=CHECK_SECONDS,
            check=False,
            start_new_session=True,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise Refused(f"the check of the compiled library did not run: {error}") from None
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        reason = said[-1] if said else f"it ended with status {done.returncode}"
        raise Refused(f"the compiled library failed its check: {reason}")


def _compiling(compiler: Compiler, sources: Path) -> Callable[[Path], None]:
    def compile_into(target: Path) -> None:
        try:
            compiler.compile(sorted(sources.glob("*.c")), target)
        except CompileError as error:
            raise Refused(f"they could not be compiled: {error}") from None

    return compile_into


def _c_library() -> str:
    """Names the version of the C library that what is compiled here will ask for."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, OSError, ValueError):
        return ""


def _keep_quiet(message: str) -> None:
    """Discards messages."""
