"""Builds the files of a release twice, to the same bytes, and proves each in an empty environment.

    python .ci/release.py dist                  # all; minutes, and packages from the index
    python .ci/release.py dist --arm-root DIR   # also runs the wheels for Arm, by qemu-user
    python .ci/release.py dist --quick          # what `.ci/run` does: with this machine's compiler

Run it where `pip install -e . --group test` was. Nothing is published. DIR is a Debian for Arm:
`debootstrap --arch=arm64 --foreign --include=python3 bookworm DIR`, then `dpkg-deb -x FILE DIR` for
each FILE of DIR/var/cache/apt/archives.
"""

import argparse
import hashlib
import os
import platform
import runpy
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
QEMU = ("qemu-aarch64", "qemu-aarch64-static")
TEXTS = ["The old house is green.", "Two dogs run in the snow.", "A woman and a dog."]
TOOLS = ("auditwheel", "check-wheel-contents", "hatchling", "twine", "ziglang")
# Two folders of commands have the same __init__.py; kernels are loaded by ctypes, no module; and
# the wheel has two names for one package
LAWFUL = "W002,W004,W009"
ZIG = {"TFORMER_BUILD_COMPILER": "zig", "TFORMER_BUILD_LEVELS": "all"}
PURE = {"TFORMER_BUILD_LEVELS": "none"}
WHEELS = [
    {**ZIG, "TFORMER_BUILD_MACHINE": "x86_64"},
    {**ZIG, "TFORMER_BUILD_MACHINE": "aarch64"},
    PURE,
]
"""What the environment says to the build of each wheel."""
QUICK_WHEELS = [{"TFORMER_BUILD_LEVELS": ""}]


def run(*command: str | Path, **options: object) -> str:
    """Runs a program and returns its output; what it says on a failure ends this program."""
    done = subprocess.run(  # noqa: S603 - programs that stand below
        list(map(str, command)), capture_output=True, text=True, check=False, **options
    )
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


# Building


def copy_checkout(folder: Path) -> Path:
    """Copies the files that git knows: what is edited while this runs belongs to no release."""
    for name in run("git", "ls-files", "-z", cwd=ROOT).rstrip("\0").split("\0"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


def build_files(
    folder: Path, checkout: Path, python: Path, wheels: Sequence[dict[str, str]], mask: int
) -> None:
    """Builds the source distribution from the checkout, and from that all the rest.

    The folder, the mask of new files' modes and the cache of zig are this build's own.
    """
    made = folder / "made"
    made.mkdir(parents=True)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "SOURCE_DATE_EPOCH": run("git", "log", "-1", "--format=%ct", cwd=ROOT).strip(),
    }
    hatchling = [python, "-m", "hatchling", "build", "-d", made, "-t"]
    run(*hatchling, "sdist", cwd=checkout, env=environment, umask=mask)
    with tarfile.open(next(made.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    sources = next(folder.glob("tformer-*"))
    for asked in wheels:
        run(*hatchling, "wheel", cwd=sources, env=environment | asked, umask=mask)
    runtime_wheel = runpy.run_path(str(ROOT / ".ci/runtime_wheel.py"))["runtime_wheel"]
    for wheel in sorted(made.glob("*.whl")):
        if not wheel.stem.endswith("-any"):  # without kernels it would ask for PyTorch
            runtime_wheel(wheel)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def build_twice(
    work: Path, python: Path, wheels: Sequence[dict[str, str]], output: Path
) -> list[Path]:
    """Builds all files in two places, which must give the same bytes; returns them."""
    checkout = copy_checkout(work / "checkout")
    for name, mask in (("first", 0o022), ("second place", 0o077)):
        build_files(work / name, checkout, python, wheels, mask)
    first, second = (
        {path.name: digest(path) for path in (work / name / "made").iterdir()}
        for name in ("first", "second place")
    )
    if first != second:
        names = sorted({name for name, _ in first.items() ^ second.items()})
        sys.exit(f"error: two builds differ in {', '.join(names)}")
    output.mkdir(parents=True, exist_ok=True)
    return [
        Path(shutil.copy(work / "first/made" / name, output))
        for name in sorted(first, key=lambda name: (not name.startswith("tformer-"), name))
    ]


# Proving


@dataclass
class Environment:
    """An environment that holds nothing but pip, for this machine or for Arm."""

    folder: Path
    runner: list[str] = field(default_factory=list)
    """Program that runs Arm's, with its arguments."""
    base: str = sys.executable

    @property
    def python(self) -> list[str]:
        return [*self.runner, str(self.folder / "bin/python")]

    def create(self) -> None:
        if not self.runner:
            run(sys.executable, "-m", "venv", self.folder)
            return
        # As venv writes it; that starts programs, which would not be qemu's
        (self.folder / "bin").mkdir(parents=True)
        (self.folder / "bin/python").symlink_to(self.base)
        (self.folder / "pyvenv.cfg").write_text(f"home = {Path(self.base).parent}\n")
        aside = self.folder / "aside"
        run(sys.executable, "-m", "venv", aside)
        shutil.copytree(next(aside.glob("lib/*/site-packages/pip")), self.packages / "pip")

    @property
    def packages(self) -> Path:
        version = run(*self.runner, self.base, "-c", "import sys; print(sys.version_info[1])")
        return self.folder / f"lib/python3.{version.strip()}/site-packages"

    def call(self, *words: str | Path) -> str:
        """Runs Python from a folder and with variables that know no checkout."""
        known = {"PATH", "SSL_CERT_FILE", "LANG"}
        variables = {name: value for name, value in os.environ.items() if name in known}
        variables |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        variables |= {"HOME": str(self.folder.parent), "PYTHONNOUSERSITE": "1"}
        return run(*self.python, *words, cwd=self.folder.parent, env=variables)

    def remains(self) -> list[str]:
        """Lists what is left of the package, its compiled bytes and its command."""
        names = ("tformer", "tformer_cli", "tformer.exe")
        paths = [*self.packages.glob("*"), *(self.folder / "bin").glob("*")]
        return [
            str(path) for path in paths if path.name in names or path.name.startswith("tformer")
        ]


USE = """
import sys, tformer
model = tformer.load(sys.argv[1], device="cpu")
print(*[translation.text for translation in model.translate(sys.argv[2:])], sep="\\n")
assert tformer.__version__ == tformer.version.__version__
"""
KERNELS = """
from tformer_cli.fast.native.library import KernelsUnavailable, load_library
try:
    print(load_library()._name.rpartition("kernels-")[2].removesuffix(".so"))
except KernelsUnavailable:
    print("none")
"""


def prove(file: Path, environment: Environment, model: Path, expected: str) -> str:
    """Installs a file, uses it and removes it; returns which kernels it computed with."""
    environment.create()
    version = file.name.split("-")[1].removesuffix(".tar.gz")
    project = file.name.split("-")[0].replace("_", "-")
    environment.call("-m", "pip", "install", "-q", file)
    environment.call("-m", "pip", "check")
    command = environment.folder / "bin/tformer"
    ways = [["-m", "tformer_cli"], ["-m", "tformer"], [command]]
    for way in ways:
        if (said := environment.call(*way, "--version")) != f"tformer {version}\n":
            sys.exit(f"error: {file.name}: --version says {said!r}")
    kernels = environment.call("-c", KERNELS).strip()
    is_pure = file.name.endswith("-any.whl")
    if (kernels == "none") != is_pure:
        sys.exit(f"error: {file.name}: its kernels are {kernels}")
    outputs = [environment.call(*way, "translate", model, *TEXTS, "--quiet") for way in ways[::2]]
    outputs.append(environment.call("-c", USE, model, *TEXTS))
    if not is_pure:
        environment.call(command, "translate", model, *TEXTS, "-q", "--precision", "int8")
    if outputs != [expected] * len(outputs):
        sys.exit(f"error: {file.name}: translates otherwise: {outputs}, not {expected!r}")
    environment.call("-m", "pip", "uninstall", "-q", "-y", project)
    if remains := environment.remains():
        sys.exit(f"error: {file.name}: leaves {', '.join(remains)} when it is removed")
    return kernels


def arm_runner(root: Path) -> tuple[list[str], str]:
    """Returns the program that runs Arm's, and the Python of a Debian for Arm."""
    qemu = next(filter(None, map(shutil.which, QEMU)), None)
    python = root / "usr/bin/python3"
    if qemu is None or not python.exists():
        sys.exit(f"error: --arm-root: needs {' or '.join(QEMU)}, and {python}")
    return [qemu, "-L", str(root)], str(python.resolve())


def check_metadata(tools: Path, files: Sequence[Path]) -> None:
    """Has the tools of the package index read the files."""
    run(tools / "twine", "check", "--strict", *files)
    for wheel in (file for file in files if file.suffix == ".whl"):
        run(tools / "check-wheel-contents", "--ignore", LAWFUL, wheel)
        tag = wheel.stem.rpartition("-")[2]
        if "linux" in tag:
            said = run(tools / "auditwheel", "show", wheel)
            if f'platform tag: "{tag}"' not in " ".join(said.split()):
                sys.exit(f"error: {wheel.name}: {said}")


def proofs(
    files: Sequence[Path], work: Path, arm_root: Path | None, *, is_quick: bool
) -> Iterator[tuple[Path, str]]:
    """Yields each file with what was proven of it."""
    make = (
        "import pathlib, sys, tests.zoo as z; print(z.Zoo(pathlib.Path(sys.argv[1]))['translate'])"
    )
    model = Path(run(sys.executable, "-c", make, work / "models", cwd=ROOT).splitlines()[-1])
    expected = run(sys.executable, "-m", "tformer_cli", "translate", model, *TEXTS, "-q", cwd=work)
    for number, file in enumerate(files):
        environment = Environment(work / f"environment-{number}")
        is_runtime = file.name.startswith("tformer_runtime")
        if is_quick and not is_runtime:
            yield file, "built twice"  # with PyTorch: the long way
            continue
        if "aarch64" in file.name and platform.machine() != "aarch64":
            # PyTorch does not run by qemu in a time that anyone waits for
            if arm_root is None or not is_runtime:
                yield file, "built twice, not run"
                continue
            environment.runner, environment.base = arm_runner(arm_root)
        kernels = prove(file, environment, model, expected)
        shutil.rmtree(environment.folder)
        by = f", by {Path(environment.runner[0]).name}" if environment.runner else ""
        yield file, f"ran with kernels {kernels}{by}"


def main() -> None:
    """Builds, proves and lists."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path, help="where the files go")
    parser.add_argument("--quick", action="store_true", help="only what needs no PyTorch")
    parser.add_argument("--arm-root", type=Path, help="a Debian for Arm, to run its wheels")
    options = parser.parse_args()
    if not options.quick and run("git", "status", "--porcelain", cwd=ROOT):
        sys.exit("error: the checkout has changes that no commit has; commit or stash them")
    with tempfile.TemporaryDirectory(prefix="tformer-release-") as name:
        work = Path(name)
        python = Path(sys.executable)
        if not options.quick:
            run(sys.executable, "-m", "venv", work / "tools")
            constraints = ROOT / ".ci/constraints.txt"
            python = work / "tools/bin/python"
            run(python, "-m", "pip", "install", "-q", "-c", constraints, *TOOLS)
        wheels = QUICK_WHEELS if options.quick else WHEELS
        files = build_twice(work, python, wheels, options.output.resolve())
        if not options.quick:
            check_metadata(work / "tools/bin", files)
        for file, proof in proofs(files, work, options.arm_root, is_quick=options.quick):
            size = f"{file.stat().st_size / 1e6:.2f} MB"
            sys.stdout.write(f"{digest(file)}  {file.name}  {size}  {proof}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
