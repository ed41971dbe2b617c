import ctypes
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch

from tformer_cli import runtime
from tformer_cli.model.operations import OneDnnProducts, StandardProducts, has_exact_onednn
from tformer_cli.runtime import (
    autocast,
    has_fast_bfloat16,
    is_out_of_memory,
    keep_freed_pages,
    resolve_device,
    set_threads,
    training_products,
)


def test_devices_are_found_or_refused():
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    for name in ("gpu", "cpu:x", "cuda:x", ""):
        with pytest.raises(ValueError, match="must be auto, cpu, cuda or cuda:N"):
            resolve_device(name)


def test_a_gpu_that_is_named_becomes_the_current_one(monkeypatch):
    current = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    assert resolve_device("cuda:1") == torch.device("cuda", 1)
    assert resolve_device("cuda") == torch.device("cuda")
    assert current == [1]
    with pytest.raises(ValueError, match='"cuda:2" does not exist; there are 2 GPUs'):
        resolve_device("cuda:2")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_said():
    with pytest.raises(ValueError, match='"cuda:1" needs a GPU, but CUDA is not usable'):
        resolve_device("cuda:1")


def test_threads_must_not_be_negative():
    with pytest.raises(ValueError, match="must be at least 0, but is -1"):
        set_threads(-1)


def test_float32_products_stay_exact(one_thread):
    torch.manual_seed(0)
    left, right = torch.randn(100, 256), torch.randn(512, 256)
    product = torch.nn.functional.linear(left, right)
    exact = left.double() @ right.double().T
    assert ((product - exact).abs().max() / exact.abs().max()).item() < 1e-5


def test_standard_products_are_put_back(one_thread):
    matmul = torch.backends.mkldnn.matmul
    before = matmul.fp32_precision
    with StandardProducts():
        assert matmul.fp32_precision == "ieee"
    assert matmul.fp32_precision == before


@pytest.mark.parametrize(
    ("vendor", "is_intel"), [("GenuineIntel", True), ("AuthenticAMD", False), (None, False)]
)
def test_intels_processors_train_by_intels_library(tmp_path, vendor, is_intel):
    file = tmp_path / "cpuinfo"
    if vendor:
        file.write_text(f"processor\t: 0\nvendor_id\t: {vendor}\n\nprocessor\t: 1\n")
    assert runtime._is_intel(file) is is_intel


@pytest.mark.parametrize("is_intel", [True, False])
def test_products_are_back_as_they_were_after_training(monkeypatch, is_intel):
    if not torch.backends.mkl.is_available():
        pytest.skip("torch has no MKL")
    monkeypatch.setattr(runtime, "_is_intel", lambda: is_intel)
    before = torch.backends.mkldnn.matmul.fp32_precision
    with training_products():
        during = torch.backends.mkldnn.matmul.fp32_precision
        exact = "bf16" if has_exact_onednn() else before
        assert during == ("ieee" if is_intel else exact)
    assert torch.backends.mkldnn.matmul.fp32_precision == before


@pytest.mark.parametrize(("tf32", "setting"), [(True, "tf32"), (False, None)])
def test_products_of_a_gpu_are_rounded_only_where_asked_for(tf32, setting):
    matmul = torch.backends.cuda.matmul
    before, on_cpu = matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision

    def fail_within():
        with training_products(tf32=tf32):
            assert matmul.fp32_precision == (setting or before)
            raise KeyError

    with pytest.raises(KeyError):
        fail_within()
    assert matmul.fp32_precision == before
    assert torch.backends.mkldnn.matmul.fp32_precision == on_cpu


@pytest.mark.parametrize(
    ("held_to", "is_fast"),
    [
        (None, True),
        ("default", True),
        ("AVX512_CORE_AMX", True),
        ("AVX512_CORE_BF16", True),
        ("AVX512_CORE", False),
        ("AVX2", False),
        ("a level of tomorrow", False),
    ],
)
def test_bfloat16_is_not_fast_where_onednn_is_held_to_older_instructions(
    monkeypatch, held_to, is_fast
):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.delenv("DNNL_MAX_CPU_ISA", raising=False)
    if held_to is not None:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", held_to)
    assert has_fast_bfloat16.__wrapped__("cpu") == is_fast


def test_autocast_computes_products_in_bfloat16_only_when_asked():
    layer = torch.nn.Linear(8, 8)
    with autocast(torch.device("cpu"), "float32"):
        assert layer(torch.randn(2, 8)).dtype == torch.float32
    with autocast(torch.device("cpu"), "bfloat16"):
        assert layer(torch.randn(2, 8)).dtype == torch.bfloat16
    assert isinstance(has_fast_bfloat16("cpu"), bool)


def test_real_errors_of_the_allocators_are_known_and_others_are_not():
    with pytest.raises(RuntimeError) as full:
        torch.empty(10**15, dtype=torch.uint8)
    assert is_out_of_memory(full.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(RuntimeError) as wrong:
        torch.zeros(2) @ torch.zeros(3)
    assert not is_out_of_memory(wrong.value)


FORK = """
import os, torch
from tformer_cli import runtime

runtime.prepare_cpu()
torch.set_num_threads(2)
for n_threads in (0, 2, 1):
    child = os.fork()
    if not child:
        try:
            runtime.set_threads(n_threads)
            print(n_threads, "works", flush=True)
        except ValueError as error:
            print(n_threads, error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_threads_in_a_fork_of_a_process_with_threads_are_refused():
    done = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60, check=True
    )
    refusals, works = done.stdout.splitlines()[:2], done.stdout.splitlines()[2]
    assert all('with multiprocessing\'s "spawn" method' in line for line in refusals)
    assert works == "1 works"


def test_threads_that_enter_and_leave_standard_products_leave_the_switch_as_it_was():
    before = torch.backends.mkldnn.matmul.fp32_precision
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"

    def enter_and_leave():
        for _ in range(300):
            with OneDnnProducts(), StandardProducts():
                assert torch.backends.mkldnn.matmul.fp32_precision == "ieee"

    switch_interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(enter_and_leave) for _ in range(8)]:
                done.result()
        assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
    finally:
        sys.setswitchinterval(switch_interval)
        torch.backends.mkldnn.matmul.fp32_precision = before


@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_the_allocator_of_linux_is_told_once_to_keep_what_is_freed(monkeypatch, system):
    told = {}
    library = SimpleNamespace(mallopt=told.__setitem__)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    keep_freed_pages.__wrapped__()
    assert told == ({-4: 0, -1: 2**31 - 1, -2: 64 << 20} if system == "linux" else {})


def test_a_library_without_that_setting_stays_as_it_is(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    keep_freed_pages.__wrapped__()
