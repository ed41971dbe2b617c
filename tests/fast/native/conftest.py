import platform
import subprocess

import pytest
import torch

from tests.fast.native.kernels import declare
from tformer_cli.fast.native.compiler import FLAGS, LIBRARIES, find_compiler
from tformer_cli.fast.native.library import KERNELS, find_library, library_name
from tformer_cli.fast.native.library_cache import LibraryCache, Refused, cache_directories
from tformer_cli.fast.native.training import NativeOperations


@pytest.fixture
def compiler():
    found = find_compiler()
    if found is None:
        pytest.skip("there is no C compiler")
    return found


@pytest.fixture
def sources(tmp_path):
    """A directory of kernels: one that adds, by a number in a header."""
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "add.h").write_text("#define MORE 0\n")
    (folder / "add.c").write_text(
        '#include "add.h"\nint add(int left, int right) { return left + right + MORE; }\n'
    )
    return folder


@pytest.fixture(scope="session")
def adder(tmp_path_factory):
    """A compiled library that adds."""
    found = find_compiler()
    if found is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("adder")
    (folder / "add.c").write_text("int add(int left, int right) { return left + right; }\n")
    found.compile([folder / "add.c"], folder / "add.so")
    return folder / "add.so"


@pytest.fixture
def fake_compiler(tmp_path, monkeypatch):
    """Makes `$CC` a shell script; returns what writes it."""

    def write(*lines):
        script = tmp_path / "fake-cc"
        script.write_text("#!/bin/sh\n" + "\n".join(lines) + "\n")
        script.chmod(0o755)
        monkeypatch.setenv("CC", str(script))
        return script

    return write


@pytest.fixture(scope="session")
def kernels():
    """The compiled kernels; compiled once for all tests, unchecked: that is what tests are for."""
    try:
        library = find_library(lambda message: None, check=lambda path: None)
    except Refused as refusal:
        pytest.skip(str(refusal))
    return declare(library)


@pytest.fixture(scope="session", params=["native", "avx2", "sse2"])
def training_library(request, kernels):
    """The kernels that training calls: the library itself, and builds with shorter vectors."""
    if request.param == "native":
        return kernels
    if platform.machine() != "x86_64":
        pytest.skip("of another processor")
    if request.param == "avx2" and "AVX" not in torch.backends.cpu.get_cpu_capability():
        pytest.skip("the processor has no AVX2")
    names = (
        "arena",
        "matmul",
        "parallel",
        "dropout",
        "bias_gradient",
        "residual_norm",
        "attention_training",
        "loss",
        "orthogonal",
    )
    tuning = {"avx2": "-march=haswell", "sse2": "-march=x86-64"}[request.param]
    compiler = find_compiler()

    def compile_into(target):
        sources = [KERNELS / f"{name}.c" for name in names]
        command = [*compiler.command, *FLAGS, tuning, *sources, "-o", target, *LIBRARIES]
        subprocess.run(command, check=True)

    # kept beside the library itself: the workers of a test run compile each once
    name = f"{library_name(KERNELS, compiler)}-{request.param}"
    cache = LibraryCache(next(iter(cache_directories())), name)
    with cache.locked():
        found = cache.load()
        if found is None:
            cache.make(compile_into, check=lambda path: None)
            found = cache.load()
    return found


@pytest.fixture
def operations(training_library):
    """What training computes by those kernels."""
    return NativeOperations(training_library)
