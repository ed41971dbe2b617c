"""The threads that torch computes with, for the kernels to compute with, too."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


def threads_of_torch() -> ctypes.c_void_p | None:
    """Finds the entry point of the OpenMP library that torch itself calls.

    As the loader does for torch: first among what is loaded for everybody, such as another OpenMP
    library that the user has preloaded, then in what torch's library was loaded with. None where
    torch has no OpenMP, or one without the name that GNU's has.
    """
    for library in _libraries():
        function = getattr(library, "GOMP_parallel", None)
        if function is not None:
            return ctypes.cast(function, ctypes.c_void_p)
    return None


def _libraries() -> Iterator[ctypes.CDLL]:
    yield ctypes.CDLL(None)
    folder = Path(torch.__file__).parent / "lib"
    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
        if (folder / name).exists():
            try:
                yield ctypes.CDLL(str(folder / name))
            except OSError:  # not one that can be opened by itself
                continue
