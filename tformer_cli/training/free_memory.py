"""Main memory that a process may still take."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

_CGROUP_FILES = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)


def free_memory(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Returns the bytes that are free by the system, the control group and the process's limit.

    Args:
        proc: where Linux tells of the system and the process.
        cgroup: where it tells of the control group, version 2 or 1.
    """
    limits = [*_of_system(proc), *_of_group(cgroup), *_of_process(proc)]
    half_of_all = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return max(0, min(limits, default=half_of_all))


def _of_system(proc: Path) -> Iterator[int]:
    for line in _text(proc / "meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) * 1024


def _of_group(cgroup: Path) -> Iterator[int]:
    for limit, used in _CGROUP_FILES:
        values = _text(cgroup / limit).strip(), _text(cgroup / used).strip()
        if all(value.isdecimal() for value in values):  # "max": no limit
            yield int(values[0]) - int(values[1])


def _of_process(proc: Path) -> Iterator[int]:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    pages = _text(proc / "self" / "statm").split()
    if limit != resource.RLIM_INFINITY and pages:
        yield limit - int(pages[0]) * os.sysconf("SC_PAGE_SIZE")


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""
