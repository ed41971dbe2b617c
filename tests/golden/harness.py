"""Runs command lines on the zoo, and makes fingerprints of all that they write.

A fingerprint is a hash of the text without its decimal numbers, and their count, norm and sum under
random weights: processors differ in the last digits, which would change a hash of all.
"""

import base64
import gzip
import hashlib
import io
import json
import math
import os
import re
import shlex
import shutil
import zipfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from safetensors.numpy import load
from typer.testing import CliRunner

from tests.zoo import RECIPES, Zoo, application, recipe_of
from tformer_cli.cli import jobs, progress

FOLDER = Path(__file__).parent
UNITS = r"(?:tokens|lines|sentences|texts|images|pairs|records|[KMG]?FLOPS?)"
TIMES = r"(?:seconds|per_second|hardware|memory_bytes|elapsed|start)"
MASKS = [
    (re.compile(pattern), mask)
    for pattern, mask in (
        (r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?", "DATE"),
        (r"\b\d+\.\d+\.\d+(?:\.?(?:dev|rc|post)\d*)?(?:\+\w+)?\b", "VERSION"),
        (r"(?<![.\w])(?=\d*[a-f])[0-9a-f]{16,}\b", "HASH"),
        (rf"[\d,.]+ ?{UNITS}/s\b", "SPEED"),
        (r"\d+% of the hardware's limit", "SHARE"),
        (r"\b[\d,.]+ (?:ms|s|min|h|seconds|minutes)\b|\b\d+:\d\d(?::\d\d)?\b", "TIME"),
        (rf'("\w*{TIMES}\w*":) ?[\d.e+-]+', r"\1 TIME"),
        (r"(\ttokens_per_second\t\d+\t)[\d.]+", r"\1SPEED"),
        (r'("[\w.]+\.(?:safetensors|json)":) ?\d+', r"\1 SUM"),
        (r'("bytes": \{"model":) \d+, ("directory":) \d+', r"\1 SUM, \2 SUM"),
        (r"\b[\d,.]+ (?:KiB|MiB|GiB|GB|TFLOPS?|GFLOPS?)\b", "SIZE"),
        (r'("process":) \d+, ("host":) "[^"]*"', r"\1 PROCESS, \2 HOST"),
        (r'("(?:process|host)":) (?:\d+|"[^"]*")', r"\1 PROCESS"),
        (r"x86-64(?:-v\d)?|AVX-?\d+\w*", "LEVEL"),
        # Dots of a curve; what they draw is in the table and the SVG of the same run
        (r"[ \u2800-\u28ff]*[\u2801-\u28ff][ \u2800-\u28ff]*", "CURVE"),
    )
]
"""What differs between runs, machines and versions, and what stands in its place."""
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.\d+(?:[eE][-+]?\d+)?|\d+[eE][-+]\d+)(?!\w|\.\d)")
PACKED = re.compile(
    r'"(weights|(?:enc|dec|cross)\.\d+\.\d+|[bc])":"([\w+/=]*)"|"fixed":"([\w+/=]*)","bytes":(\d)'
)
"""Numbers of a page: shades of maps, queries and keys, terms of scores, parts of the largest."""
TEXT_TOLERANCE, ARRAY_TOLERANCE = 3e-4, 2e-3
"""Least difference of a number, in units of itself, that is one; times the root of their count."""


def read_cases():
    """Returns the command lines of `cases.txt` by their names."""
    lines = (FOLDER / "cases.txt").read_text().splitlines()
    pairs = [line.split(":", 1) for line in lines if line and not line.startswith("#")]
    assert len({name for name, _ in pairs}) == len(pairs)
    return {name: command.strip() for name, command in pairs}


class Stage:
    """A folder with the zoo and one folder for each command line."""

    def __init__(self, folder):
        self.folder = Path(folder).resolve()
        self.zoo = Zoo(self.folder / "zoo")
        self.zoo.make_all()
        for name in RECIPES:
            (self.zoo.inputs / f"{name}.toml").write_text(recipe_of(name, "in"))
        (self.zoo.inputs / "distill.toml").write_text(
            recipe_of("translate", "in") + '[distillation]\nteachers = ["zoo/translate"]\n'
        )

    def run(self, name, command):
        """Runs a case's command lines one after another in a folder of their own."""
        folder = self.folder / "cases" / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "zoo").symlink_to(self.zoo.folder)
        (folder / "in").symlink_to(self.zoo.inputs)
        outputs = {}
        with inside(folder):
            for number, part in enumerate(command.split(" && "), 1):
                for stream, content in run_one(part).items():
                    if content:
                        outputs[f"{number} {stream}" if " && " in command else stream] = content
        for file in sorted(folder.rglob("*")):
            if file.is_file() and not {"zoo", "in"} & {*file.relative_to(folder).parts[:1]}:
                # events of TensorBoard have times in their names and all through their bytes
                is_log = "tfevents" in file.name
                key = file.parent / "events" if is_log else file
                outputs[str(key.relative_to(folder))] = b"" if is_log else file.read_bytes()
        return {key: self._mask_content(name, key, content) for key, content in outputs.items()}

    def _mask_content(self, name, key, content):
        if key.endswith(".gz"):
            content = gzip.decompress(content)
        try:
            text = content.decode()
        except UnicodeDecodeError:
            return content
        if "\0" in text:
            return content
        for path in (self.folder / "cases" / name, self.folder / "zoo", self.folder):
            text = text.replace(str(path), "PATH")
        lines = text.split("\n")
        for number, line in enumerate(lines):
            masked = line
            for pattern, mask in MASKS:
                masked = pattern.sub(mask, masked)
            # what is masked had another width
            lines[number] = (
                re.sub(r"(?<=\S) {2,}", " ", masked).rstrip() if masked != line else line
            )
        return "\n".join(lines).encode()


def run_one(command):
    """Runs a command line of the table; `< FILE` and `> FILE` are standard streams."""
    words = shlex.split(command)
    stdin = output = None
    if "<" in words:
        words, stdin = words[: words.index("<")], Path(words[-1]).read_bytes()
    if ">" in words:
        words, output = words[: words.index(">")], Path(words[-1])
    if words[:1] == ["cp"]:
        source, target = map(Path, words[1:])
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copyfile(source, target)
        return {}
    done = CliRunner().invoke(application(), words, input=stdin)
    found = {
        "status": f"{done.exit_code}\n".encode(),
        "stdout": done.stdout_bytes,
        "stderr": done.stderr_bytes,
    }
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        found["exception"] = repr(done.exception).encode()
    if output is not None:
        output.write_bytes(found.pop("stdout"))
    return found


@contextmanager
def inside(folder):
    """Changes the current directory, and the environment to that of a pipe without a network."""
    import torch

    before, environment, here = os.environ.copy(), os.environ, Path.cwd()
    os.chdir(folder)
    for name in ("FORCE_COLOR", "NO_COLOR", "LINES", "GITHUB_ACTIONS", "CI"):
        environment.pop(name, None)
    environment.update(
        COLUMNS="80", OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", XDG_CACHE_HOME=str(folder / "cache")
    )
    fsync, os.fsync = os.fsync, os.fstat  # nothing here cuts the power
    # On a slow machine, a line of progress is said after some seconds
    seconds, progress.SECONDS_BETWEEN_REPORTS = progress.SECONDS_BETWEEN_REPORTS, math.inf
    # The rows of a table of times depend on the speed
    least, jobs.LEAST_SECONDS = jobs.LEAST_SECONDS, math.inf
    torch.set_num_threads(1)
    try:
        yield
    finally:
        os.fsync, progress.SECONDS_BETWEEN_REPORTS = fsync, seconds
        jobs.LEAST_SECONDS = least
        os.chdir(here)
        environment.clear()
        environment.update(before)
        shutil.rmtree(folder / "cache", ignore_errors=True)


def fingerprint(key, content):
    """Returns the hash of a content's text and three properties of its numbers."""
    if key == "status":
        return content.decode().strip()
    text, arrays = parts_of(key, content)
    words = [float(number) for number in NUMBER.findall(text)]
    text = NUMBER.sub("#", text)
    numbers = np.concatenate([np.ravel(array).astype(float) for array in (*arrays, [])])
    scaled = np.arcsinh(np.concatenate([np.multiply(100, words), 10 * np.nan_to_num(numbers)]))
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    if not len(scaled):
        return digest
    random = np.random.default_rng(len(scaled))
    weights = random.choice([-1.0, 1.0], len(scaled)) * random.uniform(0.5, 1.5, len(scaled))
    norm, total = np.linalg.norm(scaled), float(scaled @ weights)
    return f"{digest} {len(scaled)} {norm:.5f} {total:.5f}"


def parts_of(key, content):
    """Splits a content into its text and its arrays."""
    if content[8:9] == b"{" and key.endswith(".safetensors"):
        size = int.from_bytes(content[:8], "little")
        header = content[8 : 8 + size].decode()
        header = json.dumps(json.loads(mask_hashes(header)), sort_keys=True)
        return header, [array for _, array in sorted(load(content).items())]
    if content[:6] == b"\x93NUMPY":
        array = np.load(io.BytesIO(content))
        if array.dtype.kind not in "fiub":
            return str(array), []
        return f"{array.dtype} {array.shape}", [array]
    if content[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            inner = {name: file.read(name) for name in sorted(file.namelist())}
        found = [parts_of(name, member) for name, member in inner.items()]
        names = " ".join(f"{name} {text}" for name, (text, _) in zip(inner, found, strict=True))
        return names, [array for _, arrays in found for array in arrays]
    if content[:4] == b"\x89PNG":
        from PIL import Image

        pixels = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"), float)
        return f"png {pixels.shape}", [pixels.mean((0, 1))]
    try:
        return unpack_page(content.decode())
    except UnicodeDecodeError:
        return hashlib.sha256(content).hexdigest(), []


def unpack_page(text):
    """Splits a page into its text and the numbers that it holds in base64.

    A last bit may be another processor's rounding. So the numbers count a tenth of others: a few
    steps of 8 bits are within the tolerance, a cell with another weight is not.
    """
    bits = re.search(r'"bits":(\d+)', text)
    arrays = []

    def take_numbers(match):
        name, packed, fixed, n_bytes = match.groups()
        data = base64.b64decode(packed or fixed or "")
        if name not in (None, "weights"):
            arrays.append(0.1 * np.frombuffer(data, "<f4" if name in "bc" else "<f2"))
            return f"({name} {len(data)})"
        size = int(n_bytes) if n_bytes else int(bits[1]) // 8
        parts = [
            int.from_bytes(data[i : i + size], "little", signed=fixed is not None)
            for i in range(0, len(data), size)
        ]
        arrays.append(0.1 * np.array(parts, float) / 2 ** (8 * size - (fixed is not None)))
        return f"({size} {len(parts)})"

    return PACKED.sub(take_numbers, text) if bits else text, arrays


def mask_hashes(text):
    """Masks what stands for other bytes that may differ in the last digits."""
    return re.sub(r"[0-9a-f]{32,}", "HASH", text)


def is_same(key, actual, expected):
    """Compares two fingerprints, numbers within what processors differ by."""
    actual, expected = actual.split(), expected.split()
    if actual[:2] != expected[:2] or len(actual) != len(expected):
        return False
    suffix = key.rpartition(".")[2]
    tolerance = (
        ARRAY_TOLERANCE if suffix in ("safetensors", "npz", "npy", "png") else TEXT_TOLERANCE
    )
    most = tolerance * (1 + float(actual[1]) ** 0.5) if len(actual) > 2 else 0.0
    return all(
        abs(float(value) - float(other)) <= most
        for value, other in zip(actual[2:], expected[2:], strict=True)
    )
