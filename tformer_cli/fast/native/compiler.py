"""The system's C compiler, and the one command that makes the kernels a library."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

FLAGS = ("-O3", "-std=c11", "-ffp-contract=fast", "-fno-math-errno", "-fPIC", "-shared")
"""Flags of every compilation: products may be fused with the addition that follows, and
nothing that lets sums change their order (-ffast-math)."""
LIBRARIES = ("-lm",)
MOST_SECONDS = 300
"""After this long a compiler is taken to hang."""
_CANDIDATES = ("cc", "gcc", "clang")
_APPLE_TOOLS = (
    "/Library/Developer/CommandLineTools/usr/bin/clang",
    "/Applications/Xcode.app/Contents/Developer/usr/bin/clang",
)
"""Tool that Apple's /usr/bin/cc starts. Without it, cc opens a window that offers to install
one; no one who translates has asked for that."""
_PROCESSOR_FIELDS = (
    *("model name", "flags"),  # x86
    *("Features", "CPU implementer", "CPU part"),  # Arm
    *("isa", "uarch"),  # RISC-V
    *("cpu", "cpu model", "features", "machine"),  # POWER, MIPS, Z
)
"""Lines of /proc/cpuinfo that say what a processor can do."""


class CompileError(Exception):
    """A compiler made no library; the message is its first error."""


@dataclass(frozen=True)
class Compiler:
    """A C compiler."""

    command: tuple[str, ...]
    """The program's path, and arguments that always go with it ("ccache gcc")."""
    identity: str
    """Differs where another compiler, or another version of it, stands there. The file's size and
    time tell as much as `--version`, without starting it."""

    def compile(self, sources: Sequence[Path], target: Path) -> None:
        """Creates a shared library of C files, for this very processor where the compiler can.

        Raises:
            CompileError: if there is none afterwards.
        """
        reason = ""
        for tuning in tunings():
            arguments = [*FLAGS, *tuning, *map(str, sources), "-o", str(target), *LIBRARIES]
            try:
                done = subprocess.run(  # noqa: S603 - the user's own compiler
                    [*self.command, *arguments],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=MOST_SECONDS,
                    check=False,
                    # What a killed compiler leaves lies where its target lies, and goes with it
                    env={**os.environ, "TMPDIR": str(target.parent)},
                    # Ctrl-C on the terminal is for the program, which may continue
                    start_new_session=True,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise CompileError(f"{self.command[0]}: {error}") from None
            if done.returncode == 0 and target.is_file():
                return
            reason = reason or _first_error(done.stderr)
        raise CompileError(f"{self.command[0]}: {reason}")


def find_compiler() -> Compiler | None:
    """Finds what `$CC` names, or else the first of cc, gcc and clang on the path."""
    named = os.environ.get("CC", "").strip()
    try:
        commands = [shlex.split(named)] if named else [[name] for name in _CANDIDATES]
    except ValueError:  # an open quotation mark
        return None
    for program, *arguments in commands:
        path = shutil.which(program)
        if path is None or _only_offers_to_install(path):
            continue
        try:
            real = Path(path).resolve(strict=True)
            status = real.stat()
        except OSError:
            continue
        identity = f"{real} {status.st_size} {status.st_mtime_ns} {arguments}"
        return Compiler((path, *arguments), identity)
    return None


def tunings() -> list[tuple[str, ...]]:
    """Flags that ask for all this processor has, the likeliest first; the last asks for nothing."""
    by_cpu, by_architecture = ("-mcpu=native",), ("-march=native",)
    if platform.machine().lower() in ("aarch64", "arm64"):
        return [by_cpu, by_architecture, ()]
    return [by_architecture, ()]


def describe_processor() -> str:
    """Tells this processor from others that a home directory may be shared with.

    Where the system does not say in a file what it can do, its machine is told from others.
    """
    parts = [platform.system(), platform.machine(), platform.processor()]
    n_general = len(parts)
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            for line in file:
                if not line.strip():
                    break  # the first processor is told
                if line.partition(":")[0].strip() in _PROCESSOR_FIELDS:
                    parts.append(line.strip())
    except OSError:
        pass
    if len(parts) == n_general:
        parts.append(platform.node())
    return "\n".join(parts)


def _only_offers_to_install(path: str) -> bool:
    is_stub = platform.system() == "Darwin" and Path(path).parent == Path("/usr/bin")
    return is_stub and not any(Path(tool).exists() for tool in _APPLE_TOOLS)


def _first_error(stderr: bytes) -> str:
    """The first line of a compiler's messages that names an error, or else the first one."""
    lines = [line for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["it failed without a message"])[0].strip()
