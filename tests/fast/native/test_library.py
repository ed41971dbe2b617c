"""Which library is loaded, and which are refused; the libraries here only state things."""

import os
import subprocess
import sys

import pytest

from tformer_cli.errors import UsageError
from tformer_cli.fast.native import library as module
from tformer_cli.fast.native.build import build
from tformer_cli.fast.native.library import (
    NATIVE,
    SANITIZED,
    KernelsUnavailable,
    Level,
    built_levels,
    find_library,
    levels_of_processor,
    library_path,
    load_library,
    processor_digest,
    source_digest,
)
from tformer_cli.fast.native.structs import SHARED

HIGHEST = levels_of_processor()[-1].name
"""Of this processor."""
LEVELS = (Level("low", ()), Level("middle", ()), Level("high", ()))
KNOWN = (*LEVELS, Level("higher", ()))


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch):
    """A process that has loaded nothing, on a processor of three levels of four."""
    monkeypatch.setattr(module, "_library", None)
    monkeypatch.delenv(module.SWITCH, raising=False)
    monkeypatch.delenv(module.LEVEL, raising=False)
    monkeypatch.setattr(module, "levels_of_processor", lambda: LEVELS)
    monkeypatch.setattr(module, "levels_of", lambda machine: KNOWN)


@pytest.fixture(scope="session")
def make(tmp_path_factory, compiler):
    """Makes libraries of names in a folder; they state digests and sizes, and their own name."""
    sources = tmp_path_factory.mktemp("sources")
    sizes = "".join(
        f'if (!__builtin_strcmp(name, "{struct.__name__}")) return sizeof(char[{size}]);'
        for struct, size in ((struct, module.ctypes.sizeof(struct)) for struct in SHARED)
    )
    (sources / "stated.c").write_text(f"""
#ifndef TFORMER_PROCESSOR
#define TFORMER_PROCESSOR ""
#endif
const char *tformer_sources(void) {{ return TFORMER_SOURCES; }}
const char *tformer_processor(void) {{ return TFORMER_PROCESSOR; }}
const char *own_name(void) {{ return OWN_NAME; }}
unsigned long tformer_struct_size(const char *name) {{ {sizes} return LEFT_OVER; }}
""")

    def make_in(folder, *names, processor=None, left_over=0):
        for name in names:
            extra = [f'-DOWN_NAME="{name}"', f"-DLEFT_OVER={left_over}"]
            if processor is not None:
                extra.append(f'-DTFORMER_PROCESSOR="{processor}"')
            build([Level(name, ())], folder, compiler=compiler, sources=sources, extra=extra)
        return sources

    return make_in


def own_name(library):
    library.own_name.restype = module.ctypes.c_char_p
    return library.own_name().decode()


def test_the_highest_level_of_the_processor_is_loaded(make, tmp_path):
    sources = make(tmp_path, "low", "middle", "higher")
    assert own_name(find_library(tmp_path, sources)) == "middle"
    assert built_levels(tmp_path) == ["higher", "low", "middle"]


def test_the_level_that_is_named_is_loaded(make, tmp_path, monkeypatch):
    sources = make(tmp_path, "low", "high", SANITIZED)
    for name in ("low", "high", SANITIZED):
        monkeypatch.setenv(module.LEVEL, name)
        assert own_name(find_library(tmp_path, sources)) == name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hihg", '"hihg" is not a level; choose one of low, middle, high, higher, native'),
        ("higher", "this processor is below higher; it has low, middle, high"),
        ("middle", "middle was not built; built: high, low"),
        (NATIVE, "native was not built; built: high, low"),
    ],
)
def test_a_level_that_cannot_be_had_is_an_error(make, tmp_path, monkeypatch, name, message):
    sources = make(tmp_path, "low", "high")
    monkeypatch.setenv(module.LEVEL, name)
    with pytest.raises(UsageError, match=f"^TFORMER_NATIVE_LEVEL: {message}"):
        find_library(tmp_path, sources)


def test_a_library_for_this_very_processor_comes_first(make, tmp_path):
    make(tmp_path, "high")
    sources = make(tmp_path, NATIVE, processor=processor_digest())
    assert own_name(find_library(tmp_path, sources)) == NATIVE


def test_a_library_for_another_processor_is_left(make, tmp_path):
    make(tmp_path, "high")
    sources = make(tmp_path, NATIVE, processor="another")
    assert own_name(find_library(tmp_path, sources)) == "high"


def test_the_sanitized_library_is_only_for_those_who_name_it(make, tmp_path):
    sources = make(tmp_path, SANITIZED)
    with pytest.raises(
        KernelsUnavailable, match=f"none of the levels that were built \\({SANITIZED}\\)"
    ):
        find_library(tmp_path, sources)


def test_a_library_of_other_sources_is_refused(make, tmp_path):
    make(tmp_path, "high")
    (tmp_path / "kernels").mkdir()
    with pytest.raises(
        KernelsUnavailable, match=r"from other sources; `pip install -e \.` builds them again"
    ):
        find_library(tmp_path, tmp_path / "kernels")


def test_without_sources_beside_it_a_library_is_taken_as_it_is(make, tmp_path):
    make(tmp_path, "high")
    assert own_name(find_library(tmp_path, tmp_path / "kernels")) == "high"


def test_a_library_with_other_structs_is_refused(make, tmp_path, monkeypatch):
    class Shape(module.ctypes.Structure):
        _fields_ = (("x", module.ctypes.c_int64),)

    sources = make(tmp_path, "high")
    monkeypatch.setattr(module, "find_mismatch", lambda library: "its struct Shape has 9 bytes")
    with pytest.raises(
        KernelsUnavailable, match=r"kernels-high\.so has another version: its struct Shape"
    ):
        find_library(tmp_path, sources)


def test_a_damaged_library_is_refused(make, tmp_path):
    sources = make(tmp_path, "high")
    path = library_path("high", tmp_path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(KernelsUnavailable, match="cannot be loaded"):
        find_library(tmp_path, sources)


def test_where_nothing_is_built_the_reason_is_given(tmp_path):
    (tmp_path / "kernels").mkdir()
    with pytest.raises(
        KernelsUnavailable, match=r"they are not built; `pip install -e \.` builds them"
    ):
        find_library(tmp_path, tmp_path / "kernels")
    with pytest.raises(KernelsUnavailable, match="no C compiler was there when it was built"):
        find_library(tmp_path, tmp_path / "missing")


def test_a_process_looks_and_tells_once(monkeypatch):
    calls, told = [], []

    def refuse():
        calls.append(1)
        raise KernelsUnavailable("no")

    monkeypatch.setattr(module, "find_library", refuse)
    for _ in range(2):
        with pytest.raises(KernelsUnavailable, match="no"):
            load_library(told.append)
    assert (len(calls), told) == (1, ["without compiled kernels, PyTorch computes more slowly: no"])


def test_the_switch(monkeypatch):
    monkeypatch.setenv("TFORMER_NATIVE", "0")
    monkeypatch.setattr(module, "find_library", lambda: pytest.fail("it looked"))
    told = []
    with pytest.raises(KernelsUnavailable, match="TFORMER_NATIVE=0"):
        load_library(told.append)
    assert told == []


def test_what_is_built_here_is_loaded_without_torch(kernels):
    """The sources' digest of a checkout included."""
    assert source_digest()
    program = (
        "import sys\n"
        "from tformer_cli.fast.native.library import load_library\n"
        "load_library()\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop(module.LEVEL, None)
    done = subprocess.run([sys.executable, "-c", program], env=environment, check=False)
    assert (done.returncode, library_path(HIGHEST).exists()) == (0, True)
