"""Levels of processors: which there are, and that the kernels of each agree with torch."""

import ctypes
import shutil

import pytest

from tests.fast.native.agreement import Mismatch, check_library
from tformer_cli.fast.native import library as module
from tformer_cli.fast.native.build import build
from tformer_cli.fast.native.library import (
    KERNELS,
    levels_of,
    levels_of_processor,
    library_path,
    processor_digest,
    source_digest,
)

SKYLAKE_SERVER = (
    "fpu cx16 lahf_lm popcnt pni ssse3 sse4_1 sse4_2 avx avx2 bmi1 bmi2 f16c fma abm movbe "
    "avx512f avx512bw avx512cd avx512dq avx512vl"
)
ALDER_LAKE = f"{SKYLAKE_SERVER.partition(' avx512f')[0]} avx_vnni"
NEHALEM = "fpu cx16 lahf_lm popcnt pni ssse3 sse4_1 sse4_2"


@pytest.fixture
def cpuinfo(tmp_path, monkeypatch):
    """Makes this an x86 processor with these flags."""

    def write(flags):
        path = tmp_path / "cpuinfo"
        path.write_text(f"processor : 0\nmodel name\t: X\nflags\t\t: {flags}\n\nflags : none\n")
        monkeypatch.setattr(module, "_CPUINFO", path)
        monkeypatch.setattr(module.platform, "machine", lambda: "x86_64")

    return write


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ("fpu sse2", []),
        (NEHALEM, ["v2"]),
        (ALDER_LAKE, ["v2", "v3", "v3-vnni"]),
        (SKYLAKE_SERVER, ["v2", "v3", "v4"]),
        (f"{SKYLAKE_SERVER} avx512_vnni", ["v2", "v3", "v4", "v4-vnni"]),  # Ice Lake: no bfloat16
        (f"{SKYLAKE_SERVER} avx512_vnni avx_vnni", ["v2", "v3", "v3-vnni", "v4", "v4-vnni"]),
    ],
)
def test_a_processor_has_the_levels_whose_instructions_it_has(cpuinfo, flags, names):
    cpuinfo(flags)
    assert [level.name for level in levels_of_processor()] == [f"x86-64-{name}" for name in names]


def test_where_the_system_has_no_list_of_instructions_the_lowest_level_is_taken(
    cpuinfo, monkeypatch, tmp_path
):
    cpuinfo("")
    monkeypatch.setattr(module, "_CPUINFO", tmp_path / "missing")
    assert [level.name for level in levels_of_processor()] == ["x86-64-v2"]


def test_another_architecture_has_one_level(monkeypatch):
    monkeypatch.setattr(module.platform, "machine", lambda: "aarch64")
    assert [(level.name, level.flags) for level in levels_of_processor()] == [("aarch64", ())]


def test_a_level_allows_what_all_below_it_allow():
    by_name = {level.name: set(level.flags) for level in levels_of("x86_64")}
    assert by_name["x86-64-v2"] < by_name["x86-64-v3"] < by_name["x86-64-v4"]
    assert by_name["x86-64-v4-vnni"] - by_name["x86-64-v4"] == {"-mavx512vnni"}


def test_processors_with_other_instructions_have_other_digests(cpuinfo):
    digests = set()
    for flags in (NEHALEM, ALDER_LAKE):
        cpuinfo(flags)
        digests.add(processor_digest())
    assert len(digests) == 2


@pytest.mark.parametrize("name", ["add.c", "add.h", "new.h"])
def test_other_sources_have_another_digest(sources, name):
    before = source_digest(sources)
    assert source_digest(sources) == before
    path = sources / name
    path.write_text((path.read_text() if path.exists() else "") + "\n")
    assert source_digest(sources) != before


def test_other_flags_have_another_digest(sources, monkeypatch):
    before = source_digest(sources)
    monkeypatch.setattr(module, "FLAGS", (*module.FLAGS, "-g"))
    assert source_digest(sources) != before


@pytest.mark.slow
@pytest.mark.parametrize("name", [level.name for level in levels_of(module.platform.machine())])
def test_the_kernels_of_each_level_agree_with_torch(kernels, library_of, name):
    if kernels._name == str(library_path(name)):
        pytest.skip("these are the kernels in use")
    check_library(library_of(name))


def test_the_kernels_in_use_agree_with_torch(kernels):
    """Those under the sanitizers, too, which are of no level."""
    check_library(kernels)


@pytest.mark.long
@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        ("loss.c", "load(scratch + i) * factor", "load(scratch + i) * factor * 1.01f"),
        ("random.h", ">= threshold", ">= threshold / 2"),
        ("attention_training.c", "(load(gradient + i) - mean)", "load(gradient + i)"),
        ("orthogonal.c", "polynomial[row] += a", "polynomial[row] += a * 1.01f"),
        ("norm.c", "sum_of_lanes(sum) / (float)width", "sum_of_lanes(sum) / (float)width * 1.01f"),
    ],
)
def test_wrong_kernels_do_not_agree(compiler, tmp_path, file, right, wrong):
    folder = shutil.copytree(KERNELS, tmp_path / "kernels")
    text = (folder / file).read_text()
    assert right in text
    (folder / file).write_text(text.replace(right, wrong))
    level = levels_of_processor()[-1]
    build([level], tmp_path, compiler=compiler, sources=folder)
    with pytest.raises(Mismatch):
        check_library(ctypes.CDLL(str(library_path(level.name, tmp_path))))
