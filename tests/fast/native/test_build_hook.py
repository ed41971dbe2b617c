"""Wheels as pip has them built: of the package itself, with one small C file for the kernels."""

import ast
import base64
import hashlib
import importlib.util
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from tformer_cli.api.model import load_model
from tformer_cli.cli.app import LEFT_OUT
from tformer_cli.fast.native.library import levels_of_processor
from tformer_cli.version import __version__

hatchling = importlib.util.find_spec("hatchling")
has_both = hatchling is not None and importlib.util.find_spec("editables") is not None
pytestmark = pytest.mark.skipif(not has_both, reason="hatchling or editables is not installed")
ROOT = Path(__file__).parents[3]
PROGRAM = "import sys, hatchling.build as b; getattr(b, sys.argv[1])(sys.argv[2])"
LIBRARIES = "tformer_cli/fast/native/libraries"
BUILD_ONLY = ("hatchling",)
ALIAS_FOLDER = "tformer_cli/api/alias"


@pytest.fixture
def checkout(tmp_path, sources):
    """A copy of what a wheel is made from."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, folder)
    for name in ("tformer_cli", "recipes"):
        unwanted = shutil.ignore_patterns("__pycache__", "kernels", "libraries")
        shutil.copytree(ROOT / name, folder / name, ignore=unwanted)
    shutil.copytree(sources, folder / "tformer_cli/fast/native/kernels")
    return folder


@pytest.fixture
def make(checkout, tmp_path):
    """Has hatchling build; returns the finished process and the wheel, None if there is none."""

    def build(kind="build_wheel", **environment):
        (tmp_path / "wheels").mkdir()
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, kind, str(tmp_path / "wheels")],
            cwd=checkout,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(Path(hatchling.origin).parents[1]),
                **environment,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        return done, next((tmp_path / "wheels").iterdir(), None)

    return build


def files_of(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_a_wheel_has_the_levels_asked_for_and_names_its_platform(compiler, make):
    levels = [level.name for level in levels_of_processor()[:2]]
    done, wheel = make(TFORMER_BUILD_LEVELS=",".join(levels))
    assert done.returncode == 0, done.stderr
    files = files_of(wheel)
    assert {name for name in files if "/libraries/" in name} == {
        f"{LIBRARIES}/kernels-{level}.so" for level in levels
    }
    assert "py3-none-any" not in wheel.name
    assert "tformer_cli/recipes/quickstart.toml" in files
    assert "tformer_cli/plugins/built_in/grammar/words/lexicon.toml" in files
    assert not any("/kernels/" in name for name in files)


ALIAS = """
import pathlib, site, sys
sys.path[:] = [path for path in sys.path if not pathlib.Path(path, "tformer_cli").is_dir()]
site.addsitedir(sys.argv[1])  # reads its .pth, as of an installation
before = set(sys.modules)
import tformer
heavy = {"torch", "numpy", "tokenizers", "typer", "importlib.abc", "tformer_cli.api.model"}
heavy &= set(sys.modules) - before
import tformer.api.calls, tformer.errors as errors
from tformer.errors import TformerError
import tformer_cli.api.calls, importlib, importlib.util, pickle
same = [
    tformer is tformer_cli, tformer.api.calls is tformer_cli.api.calls,
    errors is tformer_cli.errors, TformerError is tformer.TformerError,
    tformer.api.calls.__spec__.name == "tformer_cli.api.calls",
    importlib.reload(tformer_cli.version) is tformer.version,
    importlib.util.find_spec("tformer.nothing") is None,
    type(pickle.loads(pickle.dumps(errors.DataError("a")))) is tformer_cli.errors.DataError,
]
names = [getattr(module, "__name__", "") for module in sys.modules.values()]
copies = [name for name in names if name.startswith("tformer.")]
print(heavy, all(same), copies, tformer.__file__)
"""


@pytest.mark.parametrize("kind", ["build_wheel", "build_editable"])
def test_an_installed_package_is_imported_as_tformer(make, checkout, tmp_path, kind):
    _, wheel = make(kind, TFORMER_BUILD_LEVELS="none")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    assert not (site / "tformer_cli/api/alias").exists()
    is_wheel = kind == "build_wheel"
    assert [path.name for path in sorted((site / "tformer").glob("*"))] == (
        ["__init__.py", "py.typed"] if is_wheel else []
    )
    run = [sys.executable, "-W", "error", "-c", ALIAS, str(site)]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=tmp_path)
    place = site if is_wheel else checkout
    assert (done.stdout, done.stderr) == (f"set() True [] {place}/tformer_cli/__init__.py\n", "")
    module = [sys.executable, "-m", "tformer", "--version"]
    where = {**os.environ, "PYTHONPATH": str(site if is_wheel else checkout / ALIAS_FOLDER)}
    done = subprocess.run(
        module, capture_output=True, text=True, check=False, cwd=tmp_path, env=where
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip().endswith(__version__)


def test_a_wheel_has_nothing_that_lay_in_the_checkout(make, checkout):
    (checkout / LIBRARIES).mkdir()
    (checkout / LIBRARIES / "kernels-old.so").write_text("")
    _, wheel = make(TFORMER_BUILD_LEVELS="none")
    assert wheel.name.endswith("py3-none-any.whl")
    assert not any("/libraries/" in name for name in files_of(wheel))


def test_an_editable_install_builds_in_the_checkout(compiler, make, checkout):
    done, wheel = make("build_editable")
    assert done.returncode == 0, done.stderr
    assert not any(name.endswith(".so") for name in files_of(wheel))
    built = [path.name for path in (checkout / LIBRARIES).iterdir()]
    assert built == [f"kernels-{levels_of_processor()[-1].name}.so"]


def test_without_the_folder_of_what_is_fast_there_is_nothing_to_build(make, checkout):
    shutil.rmtree(checkout / "tformer_cli/fast")
    done, wheel = make(TFORMER_BUILD_LEVELS="all")
    assert done.returncode == 0, done.stderr
    assert wheel.name.endswith("py3-none-any.whl")
    assert not any("/fast/" in name for name in files_of(wheel))


def test_without_a_compiler_the_package_is_pure_python(make):
    done, wheel = make(PATH="")
    assert done.returncode == 0
    assert wheel.name.endswith("py3-none-any.whl")
    assert done.stderr.count("without compiled kernels") == 1
    assert "there is no C compiler (CC, cc, gcc, clang)" in done.stderr


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"PATH": "", "TFORMER_BUILD_LEVELS": "all"}, "there is no C compiler"),
        ({"TFORMER_BUILD_LEVELS": "v3"}, '"v3" is not a level'),
        ({"TFORMER_BUILD_COMPILER": "zag"}, '"zag" is not known'),
    ],
)
def test_what_was_asked_for_is_had_or_nothing(make, environment, message):
    done, wheel = make(**environment)
    assert (done.returncode, wheel) == (1, None)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_kernel_that_does_not_compile_makes_a_pure_package(compiler, make, checkout):
    (checkout / "tformer_cli/fast/native/kernels/add.c").write_text("int add(void) { return x; }")
    done, wheel = make()
    assert wheel.name.endswith("py3-none-any.whl")
    assert "without compiled kernels, which is slower" in done.stderr


def test_the_runtime_has_the_same_files_and_leaves_out_what_is_heavy(make, tmp_path):
    _, wheel = make(TFORMER_BUILD_LEVELS="none")
    tool = runpy.run_path(str(ROOT / ".ci/runtime_wheel.py"))
    made = tool["runtime_wheel"](wheel)
    assert made.name == wheel.name.replace("tformer-", "tformer_runtime-")
    with zipfile.ZipFile(made) as archive:
        archive.extractall(tmp_path / "installed")
    with zipfile.ZipFile(made) as archive:  # no time of its making: the same bytes again
        assert len({item.date_time for item in archive.infolist()}) == 1
    package = {name for name in files_of(wheel) if ".dist-info/" not in name}
    assert package == {name for name in files_of(made) if ".dist-info/" not in name}
    (found,) = metadata.distributions(path=[str(tmp_path / "installed")])
    assert found.metadata["Name"] == "tformer-runtime"
    assert found.metadata["Summary"].startswith("Train, use")
    # A package index has no other files to show or to lead to
    description = found.metadata.get_payload()
    assert description.startswith("# tformer\n\nTrain, use")
    assert re.findall(r"\]\((?!#)[^)]*\)", description) == []
    (command,) = found.entry_points
    assert command.value == "tformer_cli.__main__:main"
    needed = {
        re.match("[a-z0-9-]+", requirement)[0]
        for requirement in found.requires
        if ";" not in requirement
    }
    assert not needed & set(LEFT_OUT)
    assert {"markdown-it-py", "numpy", "tokenizers", "typer"} <= needed
    extra = [requirement for requirement in found.requires if "extra == 'train'" in requirement]
    assert sorted(re.match("[a-z]+", requirement)[0] for requirement in extra) == sorted(LEFT_OUT)
    for file in found.files:  # the digests of RECORD
        if file.hash is not None:
            digest = hashlib.sha256(file.read_binary()).digest()
            assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == file.hash.value


def test_what_is_imported_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [
        requirement for group in project["optional-dependencies"].values() for requirement in group
    ]
    requirements = (*project["dependencies"], *extras, *BUILD_ONLY)
    declared = {re.match(r"[\w-]+", requirement)[0].lower() for requirement in requirements}
    owners = metadata.packages_distributions()
    for file in (ROOT / "tformer_cli").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            for name in (module.partition(".")[0] for module in names):
                found = {package.lower().replace("_", "-") for package in owners.get(name, ())}
                # What came only with another package may be gone in its next version
                assert not found or found & declared or name == "tformer_cli", (file, name)


@pytest.mark.long
def test_the_runtime_translates_in_200_megabytes(tmp_path, zoo):
    """Needs a compiler, and packages to install."""
    pip = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "-q", "-w", str(tmp_path)]
    subprocess.run(pip, check=True)
    tool = runpy.run_path(str(ROOT / ".ci/runtime_wheel.py"))
    made = tool["runtime_wheel"](next(tmp_path.glob("tformer-*.whl")))
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    subprocess.run([venv / "bin/pip", "install", "-q", str(made)], check=True)
    packages = next((venv / "lib").glob("*/site-packages"))
    own = ("pip", "setuptools", "pkg_resources", "_distutils_hack")  # of the environment itself
    files = [file for file in packages.rglob("*") if file.is_file()]
    files = [file for file in files if not file.relative_to(packages).parts[0].startswith(own)]
    assert sum(file.stat().st_size for file in files) < 200e6
    command = [venv / "bin/tformer", "translate", str(zoo["translate"]), "The dog.", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == f"{load_model(zoo['translate']).translate(['The dog.'])[0].text}\n"
