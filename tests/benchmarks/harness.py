"""What the benchmarks share: the data every contestant gets, and how one is run."""

import argparse
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tformer_cli.text.lines import read_lines

HERE = Path(__file__).parent
TFORMER = (sys.executable, "-m", "tformer_cli")
SIDES = ("source", "target")
DEVNULL = Path(os.devnull)
LONGEST = 126
"""Training pairs with more tokens on a side are left out, for everybody."""

DIMENSIONS = {
    "tiny": {"n_layers": 3, "d_model": 128, "n_heads": 4, "d_ff": 512},
    "small": {"n_layers": 3, "d_model": 256, "n_heads": 4, "d_ff": 1024},
    "base": {"n_layers": 6, "d_model": 512, "n_heads": 8, "d_ff": 2048},
    "big": {"n_layers": 6, "d_model": 1024, "n_heads": 16, "d_ff": 4096},
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
    "hf-trainer": Contestant(script="run_hf.py", options={"trainer": ""}),
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
    """What a contestant wrote, and the largest resident memory of its processes in MB."""

    values: dict[str, Any]
    peak_rss: float


class Cost(NamedTuple):
    """Seconds of the processor and on the clock, and the largest memory in MB, of a process."""

    processor: float
    wall: float
    peak: float


def cost_of(command, *, threads=None, stdin=None, **variables):
    """Runs a command to its end; its output is shown if it fails."""
    if threads:
        variables |= {"OMP_NUM_THREADS": str(threads), "RAYON_NUM_THREADS": str(threads)}
    begun = time.perf_counter()
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as text:
        text.write(stdin or b"")
        text.seek(0)
        process = subprocess.Popen(
            list(map(str, command)), env={**os.environ, **variables}, stdin=text, stdout=output,
            stderr=output,
        )  # fmt: skip
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            fail(f"{' '.join(map(str, command))}\n{output.read().decode(errors='replace')}")
    wall = time.perf_counter() - begun
    return Cost(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024)


def output_by(*arguments, stdin=None):
    """Runs Python with arguments; returns what it wrote."""
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, input=stdin, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def output_of(*arguments, stdin=None):
    """Runs a command of tformer; returns what it wrote."""
    return output_by(*TFORMER[1:], *arguments, stdin=stdin)


def write(line):
    """Prints a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def print_table(title, columns, rows, width=130):
    """Prints a table; all columns but the first hold numbers."""
    from rich.console import Console  # here, or it would count as memory of those who print none
    from rich.table import Table

    table = Table(title=title)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=not number)
    for row in rows:
        table.add_row(*map(str, row))
    Console(width=None if sys.stdout.isatty() else width, highlight=False).print(table)


def write_json(file, report):
    """Writes all figures, if they are asked for."""
    if file:
        file.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def common_parser(description):
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
def work_directory(path):
    """The directory of a benchmark's files; a temporary one goes at the end."""
    if path is not None:
        path.mkdir(parents=True, exist_ok=True)
        yield path.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="tformer-benchmark-") as directory:
        yield Path(directory)


def say(text):
    """Tells how far the work is."""
    sys.stderr.write(text + "\n")


def fail(text):
    """Ends the benchmark with one line."""
    say(f"error: {text}")
    sys.exit(2)


def environments(assignments):
    """`NAME=PATH`s as a mapping of names to Python interpreters."""
    found = {}
    for text in assignments:
        name, _, path = text.partition("=")
        # absolute, but not resolved: the link itself is what makes Python use the environment
        python = Path(path).absolute() / "bin" / "python"
        if not python.is_file():
            fail(f"no environment (--venv {text}): write NAME=PATH, PATH a virtual environment")
        found[name] = str(python)
    return found


def python_of(name, contestant, pythons):
    """The interpreter of a contestant: its own environment's, or this one."""
    return pythons.get(name, pythons.get(contestant.venv or name.split("-")[0], sys.executable))


def prepare(data, work, files, vocab_size, algorithm="bpe"):
    """Writes raw text, the shared tokenizer and token ids of every split that is not there yet."""
    text, ids = work / "text", work / "ids"
    text.mkdir(exist_ok=True)
    ids.mkdir(exist_ok=True)
    tokenizer = ids / "tokenizer.json"
    for split, names in files.items():
        done = ids / f"{split}.done"
        if done.exists():
            continue
        outputs = [text / f"{split}.{side}" for side in SIDES]
        for name, output in zip(names, outputs, strict=True):
            _unpack(data / name, output)
        if split == "train":
            kind = ("--algorithm", algorithm, "--vocab-size", vocab_size)
            _tformer("tokenize", "train", *outputs, "-o", tokenizer, *kind, "--quiet")
        for output in outputs:
            encode = ("tokenize", "encode", tokenizer, "--ids")
            _tformer(*encode, stdin=output, stdout=ids / output.name)
        if split == "train":
            _leave_out_long_pairs(text, ids)
        done.touch()


def run_contestant(name, contestant, work, python, job):
    """Runs one contestant in a process of its own."""
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
        environment["PYTHONPATH"] = str(HERE.parents[1])  # this tformer, and nothing else of ours
    log = scratch / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [python, str(HERE / "contestants" / contestant.script), str(scratch / "job.json")],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:  # a limit on the time, or Ctrl-C: what it has started goes with it
            os.killpg(process.pid, signal.SIGKILL)
            raise
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        words = log.read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((line for line in reversed(words) if line.strip()), "no output")
        raise ContestantError(f"{name}: exit status {process.returncode}: {last} ({log})")
    answer = json.loads((scratch / "answer.json").read_text(encoding="utf-8"))
    return Answer(answer, usage.ru_maxrss / 1024)


def answers_in_turns(contestants, pythons, work, job, n_rounds):
    """Runs all, A B C A B C, so that slow minutes of the machine hit everybody.

    Yields the key and the answer of each; what fails is said and left out. A key is a name, or a
    beam size and a name.
    """
    for _ in range(n_rounds):
        for key, contestant in contestants.items():
            beam, name = key if isinstance(key, tuple) else (None, key)
            whole = job if beam is None else {**job, "beam_size": beam}
            python = python_of(name, contestant, pythons)
            try:
                yield key, run_contestant(name, contestant, work, python, whole)
            except ContestantError as error:
                say(str(error))


def mean_lengths(work):
    """Mean source and target tokens of a training pair, the end of the sentence included."""
    means = []
    for side in SIDES:
        with (work / "ids" / f"train.{side}").open(encoding="utf-8") as lines:
            lengths = [len(line.split()) + 1 for line in lines]
        means.append(sum(lengths) / len(lengths))
    return means[0], means[1]


def decode(work, hypotheses):
    """Turns lines of token ids into text."""
    output = hypotheses.with_name(f"{hypotheses.name}.text")
    tokenizer = work / "ids" / "tokenizer.json"
    _tformer("tokenize", "decode", tokenizer, "--ids", stdin=hypotheses, stdout=output)
    return output


def bleu(work, hypotheses, split):
    """Cased BLEU of text against the raw reference, with its signature."""
    # What this process held before it started others would count as their peak memory
    from tformer_cli.metrics import scores

    reference = work / "text" / f"{split}.target"
    score = scores.bleu(list(read_lines(hypotheses)), [list(read_lines(reference))])
    return score.value, score.signature


def _tformer(*arguments, stdin=DEVNULL, stdout=DEVNULL):
    command = [*TFORMER, *map(str, arguments)]
    with stdin.open("rb") as lines, stdout.open("wb") as output:
        if subprocess.run(command, stdin=lines, stdout=output, check=False).returncode:
            fail(f"a command of tformer failed ({' '.join(command[2:])}): see above")


def _unpack(file, output):
    """Copies a plain or gzipped file."""
    packed = file.with_name(f"{file.name}.gz")
    if not (file.is_file() or packed.is_file()):
        fail(f"no such file, nor with .gz ({file}): name the files, see --help")
    with (
        gzip.open(packed) if packed.is_file() else file.open("rb") as source,
        output.open("wb") as target,
    ):
        shutil.copyfileobj(source, target)


def _leave_out_long_pairs(text, ids):
    """Rewrites the training files without pairs that are blank or too long on a side.

    Line by line: what this process once held would count as its children's peak memory.
    """
    files = [directory / f"train.{side}" for directory in (ids, text) for side in SIDES]
    shorter = [file.with_suffix(f"{file.suffix}.shorter") for file in files]
    with ExitStack() as stack:
        inputs = [stack.enter_context(file.open("rb")) for file in files]
        outputs = [stack.enter_context(file.open("wb")) for file in shorter]
        for row in zip(*inputs, strict=True):
            if all(0 < len(tokens.split()) <= LONGEST for tokens in row[:2]):
                for line, output in zip(row, outputs, strict=True):
                    output.write(line)
    for file, replaced in zip(shorter, files, strict=True):
        file.replace(replaced)
