import ctypes
import os

import pytest

from tformer_cli.fast.native import compiler as module
from tformer_cli.fast.native.compiler import (
    CompileError,
    Compiler,
    describe_processor,
    find_compiler,
    tunings,
)


def test_a_library_is_made_of_all_sources(compiler, sources, tmp_path):
    (sources / "twice.c").write_text("int twice(int number) { return 2 * number; }\n")
    compiler.compile(sorted(sources.glob("*.c")), tmp_path / "made.so")
    library = ctypes.CDLL(str(tmp_path / "made.so"))
    assert (library.add(2, 3), library.twice(4)) == (5, 8)


def test_what_is_wrong_with_a_source_is_said(compiler, tmp_path):
    broken = tmp_path / "broken.c"
    broken.write_text("int nothing(void) { return missing; }\n")
    with pytest.raises(CompileError, match=r"broken\.c.*missing"):
        compiler.compile([broken], tmp_path / "made.so")
    assert not (tmp_path / "made.so").exists()


def test_a_compiler_that_refuses_to_tune_is_asked_again(compiler, sources, fake_compiler, tmp_path):
    real = compiler.command[0]
    fake_compiler(
        'case "$*" in *native*) echo "error: unknown flag" >&2; exit 1;; esac', f'exec {real} "$@"'
    )
    find_compiler().compile([sources / "add.c"], tmp_path / "made.so")
    assert ctypes.CDLL(str(tmp_path / "made.so")).add(1, 1) == 2


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["exit 1"], "it failed without a message"),
        (["echo note >&2; echo 'error: no disk' >&2; exit 4"], "error: no disk"),
        (["exit 0"], "it failed without a message"),  # and wrote nothing
        (["sleep 5"], "timed out"),
    ],
)
def test_a_compiler_that_makes_nothing(fake_compiler, tmp_path, monkeypatch, lines, message):
    monkeypatch.setattr(module, "MOST_SECONDS", 0.2)
    monkeypatch.setattr(module, "tunings", lambda: [()])
    fake_compiler(*lines)
    with pytest.raises(CompileError, match=message):
        find_compiler().compile([], tmp_path / "made.so")


def test_the_named_compiler_comes_first_with_its_arguments(fake_compiler, monkeypatch):
    script = fake_compiler("exit 0")
    monkeypatch.setenv("CC", f"{script} -m64 'a b'")
    assert find_compiler().command == (str(script), "-m64", "a b")


@pytest.mark.parametrize("named", ["/nowhere/cc", "'open"])
def test_a_named_compiler_that_is_not_there_is_none(monkeypatch, named):
    monkeypatch.setenv("CC", named)
    assert find_compiler() is None


def test_without_a_path_there_is_none(monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    assert find_compiler() is None


def test_the_first_of_the_usual_names_is_taken(monkeypatch, tmp_path):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("clang", "gcc"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert find_compiler().command == (str(tmp_path / "gcc"),)


def test_a_changed_compiler_is_another_one(fake_compiler):
    script = fake_compiler("exit 0")
    before = find_compiler()
    assert find_compiler() == before
    os.utime(script, (1, 1))
    assert find_compiler() != before


def test_tuning_fits_the_machine(monkeypatch):
    monkeypatch.setattr(module.platform, "machine", lambda: "x86_64")
    assert tunings() == [("-march=native",), ()]
    monkeypatch.setattr(module.platform, "machine", lambda: "arm64")
    assert tunings()[0] == ("-mcpu=native",)


def test_the_processor_is_described_the_same_each_time():
    assert describe_processor() == describe_processor() != ""


def test_where_no_file_describes_the_processor_its_machine_is_told(monkeypatch):
    monkeypatch.setattr(module, "_PROCESSOR_FIELDS", ())
    monkeypatch.setattr(module.platform, "node", lambda: "one")
    on_one = describe_processor()
    monkeypatch.setattr(module.platform, "node", lambda: "another")
    assert describe_processor() != on_one


def test_apples_offer_to_install_a_compiler_is_none(monkeypatch, tmp_path):
    tool = tmp_path / "clang"
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(module.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(module.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(module, "_APPLE_TOOLS", (str(tool),))
    monkeypatch.setattr(module, "_CANDIDATES", ("env",))  # a program that is there
    assert find_compiler() is None
    tool.touch()
    assert find_compiler().command == ("/usr/bin/env",)


def test_what_a_killed_compiler_leaves_lies_beside_its_target(fake_compiler, tmp_path):
    fake_compiler('echo >"$TMPDIR/left"', "exit 1")
    (tmp_path / "aside").mkdir()
    with pytest.raises(CompileError):
        find_compiler().compile([], tmp_path / "aside" / "made.so")
    assert (tmp_path / "aside" / "left").exists()


def test_a_program_that_cannot_be_started(tmp_path):
    with pytest.raises(CompileError, match="No such file"):
        Compiler((str(tmp_path / "gone"),), "").compile([], tmp_path / "made.so")
