"""What the benchmarks share: the data every contestant gets, and how one is run."""

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TFORMER = (sys.executable, "-m", "tformer_cli")
SIDES = ("source", "target")
LONGEST = 126
"""Training pairs with more tokens on a side are left out, for everybody."""

DIMENSIONS = {
    "small": {"n_layers": 3, "d_model": 256, "n_heads": 4, "d_ff": 1024},
    "base": {"n_layers": 6, "d_model": 512, "n_heads": 8, "d_ff": 2048},
}

KEEP_PAGES = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "100000000000",
    "MALLOC_TOP_PAD_": "268435456",
}
"""glibc keeps freed memory instead of giving it back and faulting it in again."""


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """Who is run, and how."""

    script: str
    """File in `contestants/`."""
    precision: str = "float32"
    """Of its products; "auto" is what tformer decides."""
    options: dict[str, str] = field(default_factory=dict)
    """Handed to the script."""
    environment: dict[str, str] = field(default_factory=dict)
    """Added to the process's environment."""
    venv: str = ""
    """Needs `--venv NAME=PATH`; without a name it runs in this very environment."""


CONTESTANTS = {
    "tformer": Contestant(script="run_tformer.py", precision="auto"),
    "tformer-float32": Contestant(script="run_tformer.py", options={"precision": "float32"}),
    "hf": Contestant(script="run_hf.py"),
    "hf-tuned": Contestant(
        script="run_hf.py",
        precision="bfloat16",
        options={"attention": "eager", "bfloat16": "", "onednn": ""},
        environment=KEEP_PAGES,
    ),
    "torch": Contestant(script="run_torch.py"),
    "fairseq": Contestant(script="run_fairseq.py", venv="fairseq"),
    "marian": Contestant(script="run_marian.py", venv="marian"),
}


class ContestantError(Exception):
    """A contestant could not do what it was asked."""


@dataclass(frozen=True)
class Answer:
    """What a contestant's process came to."""

    values: dict[str, Any]
    """What it wrote."""
    peak_rss: float
    """Largest resident memory of the process and of those it started, MB."""


def common_parser(description: str) -> argparse.ArgumentParser:
    """Options of data, model, threads and environments."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, required=True, help="directory of parallel text")
    parser.add_argument("--source", default="en", help="ending of the source files [en]")
    parser.add_argument("--target", default="de", help="ending of the target files [de]")
    parser.add_argument("--train", default="train", help="name of the training files [train]")
    parser.add_argument("--model", choices=tuple(DIMENSIONS), default="small")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="[all cores]")
    parser.add_argument(
        "--venv", action="append", default=[], metavar="NAME=PATH", help="a peer's environment"
    )
    parser.add_argument("--work", type=Path, help="keep all files here [a temporary directory]")
    return parser


@contextmanager
def work_directory(path: Path | None) -> Iterator[Path]:
    """The directory of a benchmark's files; a temporary one goes at the end."""
    if path is not None:
        path.mkdir(parents=True, exist_ok=True)
        yield path.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="tformer-benchmark-") as directory:
        yield Path(directory)


def say(text: str) -> None:
    """Tells how far the work is."""
    sys.stderr.write(text + "\n")


def environments(given: list[str]) -> dict[str, str]:
    """`NAME=PATH`s as a mapping of names to Python interpreters."""
    pairs = (text.split("=", 1) for text in given)
    return {name: str(Path(path) / "bin" / "python") for name, path in pairs}


def python_of(name: str, contestant: Contestant, pythons: dict[str, str]) -> str:
    """The interpreter of a contestant: its own environment's, or this one."""
    return pythons.get(name, pythons.get(contestant.venv or name.split("-")[0], sys.executable))


def prepare(data: Path, work: Path, files: dict[str, tuple[str, str]], vocab_size: int) -> None:
    """Writes raw text, the shared tokenizer and token ids of every split, unless they are there.

    Args:
        data: directory of the given text.
        work: gets `text/` and `ids/`.
        files: for each split the names of its source and its target file, without `.gz`.
        vocab_size: of the tokenizer.
    """
    text, ids = work / "text", work / "ids"
    if (ids / "done").exists():
        return
    text.mkdir(exist_ok=True)
    ids.mkdir(exist_ok=True)
    for split, names in files.items():
        for side, name in zip(SIDES, names, strict=True):
            (text / f"{split}.{side}").write_bytes(_read(data / name))
    both = [str(text / f"train.{side}") for side in SIDES]
    tokenizer = ids / "tokenizer.json"
    _tformer("tokenize", "train", *both, "-o", tokenizer, "--vocab-size", vocab_size, "--quiet")
    for split in files:
        for side in SIDES:
            output = _tformer(
                "tokenize", "encode", tokenizer, "--ids", stdin=text / f"{split}.{side}"
            )
            (ids / f"{split}.{side}").write_bytes(output)
    _leave_out_long_pairs(text, ids)
    (ids / "done").touch()


def run_contestant(
    name: str, contestant: Contestant, work: Path, python: str, job: dict[str, Any]
) -> Answer:
    """Runs one contestant in a process of its own.

    Raises:
        ContestantError: with its last words, if it fails.
    """
    scratch = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=work))
    job = {
        **job,
        "ids": str(work / "ids"),
        "text": str(work / "text"),
        "scratch": str(scratch),
        "options": contestant.options,
    }
    (scratch / "job.json").write_text(json.dumps(job), encoding="utf-8")
    environment = {**os.environ, **contestant.environment, "OMP_NUM_THREADS": str(job["threads"])}
    if python != sys.executable:
        environment.pop("PYTHONPATH", None)
    log = scratch / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [python, str(HERE / "contestants" / contestant.script), str(scratch / "job.json")],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        words = log.read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((line for line in reversed(words) if line.strip()), "no output")
        raise ContestantError(f"{name}: exit status {process.returncode}: {last} ({log})")
    answer = json.loads((scratch / "answer.json").read_text(encoding="utf-8"))
    return Answer(answer, usage.ru_maxrss / 1024)


def mean_lengths(work: Path) -> tuple[float, float]:
    """Mean source and target tokens of a training pair, the end of the sentence included."""
    means = []
    for side in SIDES:
        with (work / "ids" / f"train.{side}").open(encoding="utf-8") as lines:
            lengths = [len(line.split()) + 1 for line in lines]
        means.append(sum(lengths) / len(lengths))
    return means[0], means[1]


def decode(work: Path, hypotheses: Path) -> Path:
    """Turns lines of token ids into text."""
    output = hypotheses.with_name(f"{hypotheses.name}.text")
    tokenizer = work / "ids" / "tokenizer.json"
    output.write_bytes(_tformer("tokenize", "decode", tokenizer, "--ids", stdin=hypotheses))
    return output


def bleu(work: Path, hypotheses: Path, split: str) -> tuple[float, str]:
    """Cased BLEU of text against the raw reference, with its signature."""
    reference = work / "text" / f"{split}.target"
    scored = _tformer(
        "evaluate", "--hypothesis", hypotheses, "--reference", reference, "--format", "json"
    )
    score = json.loads(scored)["bleu"]
    return score["score"], score["signature"]


def _tformer(*arguments: object, stdin: Path = Path(os.devnull)) -> bytes:
    with stdin.open("rb") as lines:
        command = [*TFORMER, *map(str, arguments)]
        done = subprocess.run(command, stdin=lines, stdout=subprocess.PIPE, check=True)
    return done.stdout


def _read(file: Path) -> bytes:
    packed = file.with_name(f"{file.name}.gz")
    if packed.is_file():
        return gzip.decompress(packed.read_bytes())
    return file.read_bytes()


def _leave_out_long_pairs(text: Path, ids: Path) -> None:
    """Rewrites the training files without pairs that are blank or too long on a side."""
    files = [directory / f"train.{side}" for side in SIDES for directory in (ids, text)]
    columns = [file.read_text(encoding="utf-8").split("\n") for file in files]
    rows = [
        row
        for row in zip(*columns, strict=True)
        if all(0 < len(tokens.split()) <= LONGEST for tokens in (row[0], row[2]))
    ]
    for file, column in zip(files, zip(*rows, strict=True), strict=True):
        file.write_text("\n".join(column) + "\n", encoding="utf-8")
