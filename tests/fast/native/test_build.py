"""What the build of the package compiles, with which compiler, and where it runs."""

import ctypes
import re
import shutil
import sys
from pathlib import Path

import pytest

from tformer_cli.fast.native import build as module
from tformer_cli.fast.native.build import (
    BuildError,
    Compiler,
    build,
    find_compiler,
    levels_asked_for,
    main,
    wheel_platform,
)
from tformer_cli.fast.native.library import (
    KERNELS,
    NATIVE,
    SANITIZED,
    Level,
    levels_of,
    levels_of_processor,
    library_path,
    processor_digest,
    source_digest,
)

X86 = Compiler(("cc",), "x86_64")
ZIG = Compiler(("zig",), "aarch64", is_cross=True)
LEVEL = Level("plain", ())


@pytest.fixture(autouse=True)
def nothing_asked_for(monkeypatch):
    for name in ("CC", *(f"TFORMER_BUILD_{each}" for each in ("COMPILER", "MACHINE", "LEVELS"))):
        monkeypatch.delenv(name, raising=False)


def names(levels):
    return [level.name for level in levels]


def test_a_library_is_made_of_all_sources(compiler, sources, tmp_path):
    (sources / "twice.c").write_text("int twice(int number) { return 2 * number; }\n")
    (made,) = build([LEVEL], tmp_path / "made", compiler=compiler, sources=sources)
    library = ctypes.CDLL(str(made))
    assert (library.add(2, 3), library.twice(4)) == (5, 8)
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["kernels-plain.so"]


def test_levels_whose_names_begin_alike_are_made_apart(compiler, sources, tmp_path):
    (sources / "add.c").write_text("int level(void);\nint level(void) { return LEVEL; }\n")
    levels = [Level("v3", ()), Level("v3-vnni", ())]
    for number, level in enumerate(levels):
        build([level], tmp_path, compiler=compiler, sources=sources, extra=[f"-DLEVEL={number}"])
    both = build(levels, tmp_path / "both", compiler=compiler, sources=sources, extra=["-DLEVEL=7"])
    assert [ctypes.CDLL(str(library_path(name, tmp_path))).level() for name in names(levels)] == [
        0,
        1,
    ]
    assert [ctypes.CDLL(str(path)).level() for path in both] == [7, 7]


def test_a_library_states_what_it_was_made_of(compiler, sources, tmp_path):
    (sources / "add.c").write_text(
        "const char *sources(void) { return TFORMER_SOURCES; }\n"
        "#ifndef TFORMER_PROCESSOR\n#define TFORMER_PROCESSOR 0\n#endif\n"
        "const char *processor(void) { return TFORMER_PROCESSOR; }\n"
    )
    for name, processor in (("plain", None), (NATIVE, processor_digest().encode())):
        (made,) = build([Level(name, ())], tmp_path, compiler=compiler, sources=sources)
        library = ctypes.CDLL(str(made))
        library.sources.restype = library.processor.restype = ctypes.c_char_p
        assert library.sources().decode() == source_digest(sources)
        assert library.processor() == processor


def test_a_librarys_own_functions_come_first(compiler, sources, tmp_path):
    """Another library's function of the same name does not take their place."""
    (sources / "twice.c").write_text(
        "int add(int left, int right);\nint twice(int number) { return add(number, number); }\n"
    )
    (made,) = build([LEVEL], tmp_path / "right", compiler=compiler, sources=sources)
    (sources / "add.h").write_text("#define MORE 100\n")
    (other,) = build([LEVEL], tmp_path / "other", compiler=compiler, sources=sources)
    program = "import ctypes, sys\nctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)\n"
    program += "sys.exit(ctypes.CDLL(sys.argv[2]).twice(4))"
    command = [sys.executable, "-c", program, str(other), str(made)]
    assert module.subprocess.run(command, check=False).returncode == 8


def test_what_is_wrong_with_a_source_is_said_and_nothing_is_left(compiler, sources, tmp_path):
    build([LEVEL], tmp_path / "made", compiler=compiler, sources=sources)
    before = library_path("plain", tmp_path / "made").read_bytes()
    (sources / "broken.c").write_text("int nothing(void) { return missing; }\n")
    with pytest.raises(BuildError, match=r"broken\.c.*missing"):
        build([LEVEL], tmp_path / "made", compiler=compiler, sources=sources)
    assert [path.read_bytes() for path in (tmp_path / "made").iterdir()] == [before]


@pytest.mark.parametrize(
    ("lines", "message", "seconds"),
    [
        (["exit 1"], "it failed without a message", 60.0),
        (["echo note >&2; echo 'error: no disk' >&2; exit 4"], "error: no disk", 60.0),
        (["sleep 5"], "timed out", 0.2),
    ],
)
def test_a_compiler_that_makes_nothing(
    fake_compiler, sources, tmp_path, monkeypatch, lines, message, seconds
):
    monkeypatch.setattr(module, "MOST_SECONDS", seconds)
    fake_compiler(*lines)
    with pytest.raises(BuildError, match=message):
        build([LEVEL], tmp_path / "made", compiler=find_compiler(), sources=sources)
    assert list((tmp_path / "made").iterdir()) == []


def test_a_program_that_cannot_be_started(sources, tmp_path):
    gone = Compiler((str(tmp_path / "gone"),))
    with pytest.raises(BuildError, match="No such file"):
        build([LEVEL], tmp_path / "made", compiler=gone, sources=sources)


@pytest.mark.skipif(sys.platform != "linux", reason="loads the sanitizers before all else")
@pytest.mark.parametrize(
    ("index", "message"),
    [(3, ""), (4, "AddressSanitizer: use-after-poison"), (40, "shift exponent 40 is too large")],
)
def test_the_sanitizers_end_what_leaves_its_part_of_an_arena(compiler, tmp_path, index, message):
    for name in ("arena.c", "arena.h"):
        shutil.copy(KERNELS / name, tmp_path)
    (tmp_path / "wrong.c").write_text("""
#include "arena.h"
int element(int index);
int element(int index) {
    Arena arena = {0};
    char *first = 0;
    for (int pass = 0; pass < 2; pass++) {
        first = arena_take(&arena, 4, 1);
        arena_take(&arena, 64, 1);
        if (pass == 0 && !arena_allocate(&arena))
            return 1;
    }
    const int is_wide = (1 << index) > 64; /* undefined from 32 on */
    first[is_wide ? 0 : index] = 1;
    arena_free(&arena);
    return 0;
}
""")
    extra = (*module.STRICT, *module.SANITIZERS)
    (made,) = build([LEVEL], tmp_path, compiler=compiler, sources=tmp_path, extra=extra)
    find = (*compiler.command, "-print-file-name=libasan.so")
    sanitizer = module.subprocess.run(
        find, capture_output=True, text=True, check=True
    ).stdout.strip()
    if not Path(sanitizer).is_absolute():
        pytest.skip("the compiler has no shared address sanitizer")
    program = "import ctypes, sys; sys.exit(ctypes.CDLL(sys.argv[1]).element(int(sys.argv[2])))"
    done = module.subprocess.run(
        [sys.executable, "-I", "-c", program, str(made), str(index)],
        env={"LD_PRELOAD": sanitizer, "ASAN_OPTIONS": "detect_leaks=0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert message in done.stderr
    assert (done.returncode == 0) == (message == ""), done.stderr


def test_the_named_compiler_comes_first_with_its_arguments(fake_compiler, monkeypatch):
    script = fake_compiler("exit 0")
    monkeypatch.setenv("CC", f"{script} -m64 'a b'")
    assert find_compiler().command == (str(script), "-m64", "a b")


@pytest.mark.parametrize("named", ["/nowhere/cc", "'open"])
def test_a_named_compiler_that_is_not_there_is_none(monkeypatch, named):
    monkeypatch.setenv("CC", named)
    assert find_compiler() is None


def test_without_a_path_there_is_none(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert find_compiler() is None


def test_the_first_of_the_usual_names_is_taken(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("clang", "gcc"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert find_compiler().command == (str(tmp_path / "gcc"),)


def test_apples_offer_to_install_a_compiler_is_none(monkeypatch, tmp_path):
    tool = tmp_path / "clang"
    monkeypatch.setattr(module.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(module.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(module, "_APPLE_TOOLS", (str(tool),))
    monkeypatch.setattr(module, "_CANDIDATES", ("env",))  # a program that is there
    assert find_compiler() is None
    tool.touch()
    assert find_compiler().command == ("/usr/bin/env",)


def test_zig_compiles_for_an_old_glibc_and_for_others(monkeypatch):
    monkeypatch.setenv("TFORMER_BUILD_COMPILER", "zig")
    monkeypatch.setenv("TFORMER_BUILD_MACHINE", "aarch64")
    zig = find_compiler()
    assert zig.command[1:] == ("-m", "ziglang", "cc", "-target", "aarch64-linux-gnu.2.28")
    assert names(levels_asked_for(zig)) == ["aarch64"]


@pytest.mark.parametrize(("name", "value"), [("COMPILER", "zag"), ("MACHINE", "aarch64")])
def test_what_only_zig_can_is_refused_without_it(monkeypatch, name, value):
    monkeypatch.setenv(f"TFORMER_BUILD_{name}", value)
    with pytest.raises(BuildError, match=f"TFORMER_BUILD_{name}: .*zig"):
        find_compiler()


def test_a_checkout_builds_the_highest_level_and_a_wheel_what_is_asked_for():
    every = names(levels_of("x86_64"))
    assert names(levels_asked_for(Compiler(("cc",)))) == names(levels_of_processor()[-1:])
    assert names(levels_asked_for(X86, "all")) == every
    assert names(levels_asked_for(X86, f"{every[1]}, {every[0]}")) == [every[1], every[0]]
    assert levels_asked_for(X86, "none") == []
    assert levels_asked_for(X86, NATIVE)[0].flags[0] in ("-march=native", "-mcpu=native")


@pytest.mark.parametrize(("compiler", "level"), [(X86, "v3"), (X86, SANITIZED), (ZIG, NATIVE)])
def test_a_level_that_is_not_known_is_refused(compiler, level):
    with pytest.raises(BuildError, match=f'"{level}" is not a level; choose from all, none'):
        levels_asked_for(compiler, level)


@pytest.mark.parametrize(
    ("contents", "name"),
    [
        ([b"\0libc.so.6\0GLIBC_2.2.5\0GLIBC_2.14\0"], "manylinux_2_17_aarch64"),
        (
            [b"\0libm.so.6\0libc.so.6\0GLIBC_2.14\0", b"\0libc.so.6\0GLIBC_2.34\0"],
            "manylinux_2_34_aarch64",
        ),
        ([b"\0libpthread.so.0\0libc.so.6\0GLIBC_2.14\0"], "manylinux_2_17_aarch64"),
        ([b"\0libc.so.6\0libgomp.so.1\0GLIBC_2.14\0"], "linux_aarch64"),
    ],
)
def test_a_wheel_runs_where_its_newest_symbol_is(tmp_path, contents, name):
    paths = [tmp_path / str(number) for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    assert wheel_platform(paths, ZIG) == name


def test_the_command_builds_in_place(monkeypatch, sources, tmp_path, capsys, compiler):
    monkeypatch.setattr(module, "KERNELS", sources)
    assert main([levels_of_processor()[0].name, "-o", str(tmp_path / "made")]) == 0
    out = capsys.readouterr().out.splitlines()
    name = f"kernels-{levels_of_processor()[0].name}"
    assert re.search(rf"{name}\.so: 0\.0\d MB$", out[0])
    assert main(["v0"]) == 1
    assert 'error: "v0" is not a level' in capsys.readouterr().err
    monkeypatch.setenv("PATH", "")
    assert main([]) == 1
    assert capsys.readouterr().err == "error: there is no C compiler (CC, cc, gcc, clang)\n"
