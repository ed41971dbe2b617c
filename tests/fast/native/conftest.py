import contextlib
import fcntl

import pytest

from tests.fast.native.kernels import LOWER_LEVELS, declare
from tests.slowly import slowly
from tformer_cli.fast.native.build import STRICT, build, find_compiler
from tformer_cli.fast.native.library import (
    KERNELS,
    KernelsUnavailable,
    levels_of_processor,
    library_path,
    load_from,
)
from tformer_cli.fast.native.training import NativeOperations


@pytest.fixture(scope="session")
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
        '#include "add.h"\nint add(int left, int right);\n'
        "int add(int left, int right) { return left + right + MORE; }\n"
    )
    return folder


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
def kernels(kernels):
    """The built kernels, with the types of the functions that tests call."""
    return declare(kernels)


@pytest.fixture(scope="session")
def library_of(request, tmp_path_factory):
    """Loads the kernels of a level; one that is not built is built once for its sources.

    That takes ten seconds of a processor, so what was built is kept in pytest's cache.
    """
    kept = getattr(request.config, "cache", None)
    folder = tmp_path_factory.mktemp("libraries") if kept is None else kept.mkdir("kernels")

    def load(name):
        level = {level.name: level for level in levels_of_processor()}.get(name)
        if level is None:
            pytest.skip(f"this processor is not {name}")
        with contextlib.suppress(KernelsUnavailable):
            return declare(load_from(library_path(name), KERNELS))
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with contextlib.suppress(KernelsUnavailable):  # not there, or of other sources
                return declare(load_from(library_path(name, folder), KERNELS))
            compiler = find_compiler()
            if compiler is None:
                pytest.skip("there is no C compiler")
            build([level], folder, compiler=compiler, extra=STRICT)
        return declare(load_from(library_path(name, folder), KERNELS))

    return load


@pytest.fixture(scope="session", params=["highest", *slowly(*LOWER_LEVELS)])
def training_library(request, kernels, library_of):
    """The kernels that training calls: those in use, and builds with shorter vectors."""
    return kernels if request.param == "highest" else library_of(request.param)


@pytest.fixture
def operations(training_library):
    """What training computes by those kernels."""
    return NativeOperations(training_library)
