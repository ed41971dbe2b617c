import os
import shutil
import subprocess
import sys
import tempfile

import pytest

from tformer_cli.fast.native import library as module
from tformer_cli.fast.native.compiler import find_compiler
from tformer_cli.fast.native.library import (
    check_in_process,
    find_library,
    library_name,
    load_library,
)
from tformer_cli.fast.native.library_cache import Refused


@pytest.fixture(autouse=True)
def nothing_kept(tmp_path, monkeypatch):
    """An empty cache, an own temporary directory, and a process that has loaded nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(module, "_found", None)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv(module.SWITCH, raising=False)


def adds(path):
    """The check of the adder."""
    import ctypes

    if ctypes.CDLL(str(path)).add(2, 3) != 5:
        raise Refused("2 + 3 is not 5")


def found_in(sources, told):
    return find_library(told.append, sources, adds)


def test_it_is_compiled_once(compiler, sources):
    told = []
    assert found_in(sources, told).add(2, 3) == 5
    assert told == ["compiling the kernels, once for this machine"]
    assert found_in(sources, told).add(2, 3) == 5
    assert len(told) == 1


@pytest.mark.parametrize("name", ["add.c", "add.h", "new.h"])
def test_other_sources_are_compiled_anew(compiler, sources, name):
    before = library_name(sources, compiler)
    path = sources / name
    path.write_text((path.read_text() if path.exists() else "") + "\n")
    assert library_name(sources, compiler) != before


def test_a_library_that_fails_its_check_is_not_compiled_again(compiler, sources):
    (sources / "add.h").write_text("#define MORE 1\n")
    told = []
    for _ in range(2):
        with pytest.raises(Refused, match="2 \\+ 3 is not 5"):
            found_in(sources, told)
    assert len(told) == 1


def test_without_a_compiler(sources, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Refused, match="no C compiler"):
        found_in(sources, [])


def test_a_broken_compiler(sources, fake_compiler):
    script = fake_compiler("echo error: broken >&2; exit 1")
    with pytest.raises(Refused, match=f"could not be compiled: {script}: error: broken"):
        found_in(sources, [])
    fake_compiler("exit 9")  # a new one is tried at once
    with pytest.raises(Refused, match="without a message"):
        found_in(sources, [])


def test_where_the_cache_cannot_be_written_a_temporary_directory_is_used(
    compiler, sources, tmp_path
):
    (tmp_path / "cache").write_text("a file, where root cannot make a directory, either")
    told = []
    assert found_in(sources, told).add(2, 3) == 5
    assert found_in(sources, told).add(2, 3) == 5
    assert len(told) == 1
    assert (tmp_path / "temporary" / f"tformer-{os.geteuid()}").is_dir()


def test_where_others_can_write_nothing_is_loaded(compiler, sources, tmp_path):
    for folder in (tmp_path / "cache", tmp_path / "temporary"):
        name = "tformer" if folder.name == "cache" else f"tformer-{os.geteuid()}"
        (folder / name).mkdir(parents=True)
        (folder / name).chmod(0o777)
    told = []
    with pytest.raises(Refused, match="not private to this user"):
        found_in(sources, told)
    assert "not private to this user); PyTorch computes instead" in told[0]


def test_a_link_in_the_place_of_the_temporary_directory_is_not_followed(
    compiler, sources, tmp_path
):
    (tmp_path / "cache").write_text("")
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "temporary" / f"tformer-{os.geteuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused):
        found_in(sources, [])
    assert not list((tmp_path / "elsewhere").iterdir())


def test_two_processes_at_once(compiler, sources, tmp_path):
    log = tmp_path / "log"
    script = tmp_path / "slow-cc"
    script.write_text(f'#!/bin/sh\necho x >>{log}\nsleep 0.3\nexec {compiler.command[0]} "$@"\n')
    script.chmod(0o755)
    program = (
        "import sys, pathlib\n"
        "from tformer_cli.fast.native.library import find_library\n"
        "print(find_library(print, pathlib.Path(sys.argv[1]), lambda path: None).add(2, 3))\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(sources)],
            env={**os.environ, "CC": str(script), "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    told = [process.communicate()[0].splitlines() for process in processes]
    assert sorted(map(len, told)) == [1, 2]
    assert {lines[-1] for lines in told} == {"5"}
    assert log.read_text() == "x\n"


def test_a_process_looks_once(monkeypatch):
    calls = []

    def refuse(tell):
        calls.append(tell)
        raise Refused("no")

    monkeypatch.setattr(module, "find_library", refuse)
    for _ in range(2):
        with pytest.raises(Refused, match="no"):
            load_library()
    assert len(calls) == 1


def test_the_switch(monkeypatch):
    monkeypatch.setenv("TFORMER_NATIVE", "0")
    monkeypatch.setattr(module, "find_library", lambda tell: pytest.fail("it looked"))
    with pytest.raises(Refused, match="TFORMER_NATIVE=0"):
        load_library()


def test_a_check_that_ends_badly_refuses(tmp_path):
    (tmp_path / "none.so").write_text("")
    with pytest.raises(Refused, match="failed its check"):
        check_in_process(tmp_path / "none.so")


def test_a_check_that_cannot_run_refuses(tmp_path, monkeypatch):
    monkeypatch.setattr(module.sys, "executable", str(tmp_path / "no-python"))
    with pytest.raises(Refused, match="did not run"):
        check_in_process(tmp_path / "none.so")
    monkeypatch.setattr(module.sys, "executable", None)
    with pytest.raises(Refused, match="no interpreter"):
        check_in_process(tmp_path / "none.so")


def test_the_compiler_named_is_the_one_used(sources, fake_compiler, tmp_path):
    fake_compiler(f"touch {tmp_path}/called", "exit 1")
    with pytest.raises(Refused):
        found_in(sources, [])
    assert (tmp_path / "called").exists()
    assert find_compiler() is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        ("loss.c", "load(scratch + i) * factor", "load(scratch + i) * factor * 1.01f"),
        ("dropout.c", ">= dropout->threshold", ">= dropout->threshold / 2"),
        ("attention_training.c", "(load(gradient + i) - mean)", "load(gradient + i)"),
        ("orthogonal.c", "polynomial[row] += a", "polynomial[row] += a * 1.01f"),
        ("norm.c", "sum_of_lanes(sum) / (float)width", "sum_of_lanes(sum) / (float)width * 1.01f"),
    ],
)
def test_wrong_kernels_fail_their_check(compiler, tmp_path, file, right, wrong):
    folder = shutil.copytree(module.KERNELS, tmp_path / "kernels")
    text = (folder / file).read_text()
    assert right in text
    (folder / file).write_text(text.replace(right, wrong))
    with pytest.raises(Refused, match="failed its check"):
        find_library(lambda message: None, folder)
