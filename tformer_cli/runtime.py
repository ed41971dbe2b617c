"""Resources of the machine: device, precision, threads, memory, and the door to `fast`.

What torch is asked for, it is imported for: reading this file costs a start of the program nothing.
"""

from __future__ import annotations

import functools
import gc
import os
import re
import sys
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping

    import torch

    from tformer_cli.model.config import Precision

_ONEDNN_LEVELS_WITH_BFLOAT16 = (
    "DEFAULT", "ALL", "AVX512_CORE_BF16", "AVX512_CORE_FP16", "AVX512_CORE_AMX", "AVX10",
)  # fmt: skip
"""Beginnings of the levels of processors, as `ONEDNN_MAX_CPU_ISA` names them."""
_SPINNING = ("GOMP_SPINCOUNT", "3000")
"""Some tens of microseconds: as fast as spinning without end while nothing else runs."""
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # of glibc's malloc.h
_CPU_ALLOCATOR = ("DefaultCPUAllocator: can't allocate memory", "not enough memory")


class Stopwatch:
    """Adds up where time goes; a lap is the time since the lap before."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = perf_counter()

    def lap(self, part: str) -> None:
        """Counts the time since the last lap for a part of the work."""
        before, self._last = self._last, perf_counter()
        self.seconds[part] = self.seconds.get(part, 0.0) + self._last - before


def n_processors() -> int:
    """Counts the processors that this process may use."""
    # macOS and Windows do not tell
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_threads() -> int:
    """Threads that torch uses, if it is loaded, or else would use."""
    torch = sys.modules.get("torch")
    if torch is None:
        return default_threads()
    # A forked process would wait forever for threads that its parent had started
    check_threads()
    n_threads: int = torch.get_num_threads()
    return n_threads


@functools.cache
def default_threads(topology: Path = Path("/sys/devices/system/cpu")) -> int:
    """Counts the threads that torch uses by default: $OMP_NUM_THREADS, or one for each core."""
    # It may name a number for each nested level; the first counts
    named = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if named.isdecimal() and int(named):
        return int(named)
    if not hasattr(os, "sched_getaffinity"):
        return n_processors()
    processors = os.sched_getaffinity(0)
    cores = set()
    for number in processors:
        try:
            # Threads of one core share its arithmetic, so a core counts once
            cores.add((topology / f"cpu{number}/topology/thread_siblings_list").read_text())
        except OSError:
            return len(processors)
    return len(cores)


def check_device_name(name: str) -> None:
    """Checks a name before torch is imported."""
    if not re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,4})?", name):
        raise ValueError(f'must be auto, cpu, cuda or cuda:N, but is "{name}"')


def resolve_device(name: str) -> torch.device:
    """Turns "auto", "cpu", "cuda" or "cuda:N" into a device that is there."""
    check_device_name(name)
    import torch

    if name == "auto":
        return prepare_device(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    kind, _, index = name.partition(":")
    if kind == "cuda":
        if not torch.cuda.is_available():
            raise ValueError(f'"{name}" needs a GPU, but CUDA is not usable; use cpu or auto')
        if index and int(index) >= torch.cuda.device_count():
            raise ValueError(f'"{name}" does not exist; there are {torch.cuda.device_count()} GPUs')
        if index:
            torch.cuda.set_device(int(index))  # graphs, events and waiting are the current GPU's
    return prepare_device(torch.device(name))


def prepare_device(device: torch.device) -> torch.device:
    """Disables what makes a GPU slow with batches of ever new shapes; returns the device."""
    import torch

    if device.type == "cuda":
        # cuDNN's attention plans each shape anew, which takes longer than a training step
        torch.backends.cuda.enable_cudnn_sdp(enabled=False)
    return device


def free_gpu_memory(device: torch.device) -> int:
    """Returns the bytes that are free on a GPU; 0 for a CPU."""
    import torch

    if device.type != "cuda":
        return 0
    free: int = torch.cuda.mem_get_info(device)[0]
    return free


def bound_waiting(environment: MutableMapping[str, str]) -> None:
    """Bounds how long OpenMP's threads spin while they wait; its library reads it with torch."""
    # By default they spin for milliseconds; with other programs running, they then keep the thread
    # that they wait for from running, and two threads are many times slower than one
    if not waiting_is_chosen(environment):
        environment[_SPINNING[0]] = _SPINNING[1]


def waiting_is_chosen(environment: Mapping[str, str]) -> bool:
    """Returns whether a user has chosen how OpenMP's threads wait."""
    is_ours = environment.get(_SPINNING[0]) == _SPINNING[1]
    names = ("OMP_WAIT_POLICY", "KMP_BLOCKTIME", *(() if is_ours else _SPINNING[:1]))
    return any(name in environment for name in names)


def set_threads(n_threads: int) -> None:
    """Lets torch use this many CPU threads (0: leave torch's own choice)."""
    import torch

    if n_threads < 0:
        raise ValueError(f"must be at least 0, but is {n_threads}")
    if n_threads:
        torch.set_num_threads(n_threads)
    check_threads()


def check_threads() -> None:
    """Checks that other threads would answer."""
    if not _is_fork_of_threads:
        return
    import torch

    # A fork copies one thread and the locks of all: OpenMP, which torch and the compiled kernels
    # run on, then waits forever for threads that the parent process had started
    if torch.get_num_threads() > 1:
        raise ValueError(
            "this process was forked from one that used several threads, and would hang; start it "
            'with multiprocessing\'s "spawn" method, or use 1 thread'
        )


_is_fork_of_threads = False


def _note_fork() -> None:
    global _is_fork_of_threads
    operations = sys.modules.get("tformer_cli.model.operations")
    if operations is None or not operations.has_exact_onednn.cache_info().currsize:
        return  # nothing has been computed
    import torch

    _is_fork_of_threads = torch.get_num_threads() > 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def soft_limit(name: str) -> int | None:
    """Returns a limit of this process by its name in `resource`; None: there is none."""
    try:
        import resource
    except (ImportError, MemoryError):  # not on Windows, nor where nothing is left to load it
        return None
    limit: int = resource.getrlimit(getattr(resource, name))[0]
    return None if limit == resource.RLIM_INFINITY else limit


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Exempts the objects that an import makes from garbage collection, then and later."""
    # torch makes some 200,000 objects that live as long as the program does: looking through
    # them is a twentieth of the time of the import, and would delay every translation later
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@functools.cache
def keep_freed_pages() -> None:
    """Tells glibc's allocator to keep freed pages, once a process; elsewhere it does nothing."""
    # Returning each large temporary to the system and faulting it in again costs more than many
    # an operator: a tenth of greedy search
    if sys.platform != "linux":
        return
    import ctypes  # takes as long to import as all the rest here

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_TOP_PAD, 64 << 20)


@functools.cache
def prepare_cpu() -> bool:
    """Makes float32 products fast and repeatable on the CPU for the whole process, once."""
    from tformer_cli.model.operations import has_exact_onednn, matmul_settings

    # Only for programs, which own their process: see `OneDnnProducts` for libraries
    keep_freed_pages()
    if has_exact_onednn():
        matmul_settings().fp32_precision = "bf16"
    return has_exact_onednn()


@contextmanager
def training_products(*, tf32: bool = False) -> Iterator[None]:
    """Makes float32 products of training fast while it is entered.

    With `tf32` a GPU rounds their factors to 10 bits; otherwise they are exact.
    """
    import torch

    from tformer_cli.model.operations import OneDnnProducts, StandardProducts

    # On Intel's processors torch's standard path, Intel's own library, is faster by a tenth, and
    # makes no code for every number of rows, of which training has many; elsewhere it is slow
    has_mkl: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    products = StandardProducts() if has_mkl and _is_intel() else OneDnnProducts()
    # This switch and no other: torch's older ones also change the products of the CPU
    matmul: Any = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    with products:
        try:
            matmul.fp32_precision = "tf32" if tf32 else before
            yield
        finally:
            matmul.fp32_precision = before


@functools.cache
def _is_intel(cpu_information: Path = Path("/proc/cpuinfo")) -> bool:
    """Returns whether the processor is Intel's, if the system has a file that says so."""
    try:
        text = cpu_information.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return "GenuineIntel" in text.partition("\n\n")[0]


@functools.cache
def has_fast_bfloat16(device_type: str) -> bool:
    """Returns whether the device multiplies bfloat16 in hardware and torch's library may use it."""
    import torch

    if device_type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    held_to = os.environ.get("ONEDNN_MAX_CPU_ISA", os.environ.get("DNNL_MAX_CPU_ISA", "DEFAULT"))
    # Held to older instructions, oneDNN emulates bfloat16, many times slower than float32
    if not held_to.upper().startswith(_ONEDNN_LEVELS_WITH_BFLOAT16):
        return False
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Returns the context in which a model computes with the given precision."""
    import torch

    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an error means that there is too little memory, on a GPU or a CPU."""
    import torch

    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    # only GPUs have their own exception in torch
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _CPU_ALLOCATOR)


@functools.cache
def has_fast() -> bool:
    """Returns whether `fast` is there, the folder of all that only makes tformer faster."""
    # It may be missing: what it would compute, `model` and `search` compute more slowly. So nothing
    # outside imports from it but in a function, after this question. Only integers have no plain
    # counterpart, and engines that are asked for by name are in the folder or nowhere
    return find_spec("tformer_cli.fast") is not None


def require_fast(what: str) -> None:
    """Raises UsageError if the compiled kernels are missing."""
    if not has_fast():
        raise UsageError.of(
            "{}: needs tformer_cli/fast, which is missing; install tformer again", what
        )
