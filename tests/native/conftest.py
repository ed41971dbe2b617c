import pytest

from tests.native.kernels import declare
from tformer_cli.native.compiler import find_compiler
from tformer_cli.native.library import find_library
from tformer_cli.native.library_cache import Refused


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
