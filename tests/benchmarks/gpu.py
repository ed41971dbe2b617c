"""How fast tformer is on one GPU, next to plain torch, CTranslate2 and Hugging Face, in minutes.

python tests/benchmarks/gpu.py --out OUT [--data DIR] [--seconds 570] [--rehearse]

DIR holds Multi30k (train, val and test_2016_flickr, .en.gz and .de.gz); without it the built-in
corpus is translated. Trainings are measured on generated text. Every measurement is a process of
its own with a time limit, and OUT/results.json and OUT/results.md are written anew after each: what
fails or takes too long is a row that says so, and the others stay. `--rehearse` runs all of it on
the CPU with tiny models.
"""

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from harness import (
    DIMENSIONS,
    HERE,
    TFORMER,
    Contestant,
    bleu,
    mean_lengths,
    prepare,
    run_contestant,
    say,
    work_directory,
    write,
    write_json,
)
from training_speed import flops_per_token
from translation_speed import SPLIT, engine, export_model, on_torch

from tformer_cli.text.lines import read_lines

ROOT = HERE.parents[1]
PEAK = 989.0
"""TFLOP/s in dense bfloat16 of an H100 or H200 by their data sheet; MFU is a share of it."""
REPORT_EVERY = 10
"""Updates that are timed together: a GPU is not waited for after each."""
VOCABULARY, PAIRS = 37_000, 120_000
SMALL = {"n_layers": 1, "d_model": 32, "n_heads": 2, "d_ff": 64, "vocab_size": 300}
"""Of a rehearsal."""

TRAINERS = {
    "tformer": Contestant(script="run_tformer.py", options={"precision": "auto"}),
    "tformer, compiled": Contestant(
        script="run_tformer.py", options={"precision": "auto", "compile": ""}
    ),
    "torch, layers compiled": Contestant(
        script="run_torch.py", options={"bfloat16": "", "compile": ""}
    ),
}
# Preset, tokens a batch, reports and trainers, the most important ones first. 25,000 tokens are the
# batch of the WMT recipes, 4,096 the default, 2,048 that of multi30k-en-de-muon
TRAININGS = (
    ("base", 25_000, 8, ("tformer", "torch, layers compiled", "tformer, compiled")),
    ("big", 25_000, 6, ("tformer", "torch, layers compiled", "tformer, compiled")),
    ("tiny", 25_000, 20, ("tformer", "torch, layers compiled")),
    ("base", 4_096, 20, ("tformer", "torch, layers compiled")),
    ("tiny", 2_048, 20, ("tformer",)),
)
ENGINES = {
    "tformer": (engine("tformer"), ("float32", "bfloat16")),
    "CTranslate2": (engine("ctranslate2", workers="1"), ("float16", "bfloat16", "float32")),
    "Hugging Face": (on_torch("hf")["hf"], ("bfloat16", "float32")),
}
BEAMS = (1, 4)
COLUMNS = {
    "training": ("trainer", "model", "tokens a batch", "target tokens/s", "ms an update", "MFU %"),
    "translation": (
        "engine", "model", "beam", "precision", "lines/s", "tokens/s", "BLEU", "p50 ms"
    ),
}  # fmt: skip
_ENDED = re.compile(r"(?m)^\[gw\d+\] .*?(PASSED|FAILED|ERROR|SKIPPED|XFAIL) (\S.*?) *$")
_REASON = re.compile(
    r"(?m)^_+ (?:ERROR at \w+ of )?(\S.*?) _+$(?:\n(?!_+ \S.* _+$|E ).*)*\nE +(.*)$"
)


class Report:
    """What was measured so far, and the time that is left."""

    def __init__(self, out, seconds):
        out.mkdir(parents=True, exist_ok=True)
        self.out, self.begun, self.seconds, self.rows = out, time.monotonic(), seconds, []

    def add(self, kind, **values):
        """Keeps a row, on the disk as well."""
        self.rows.append({"kind": kind, **values})
        took = round(time.monotonic() - self.begun, 1)
        write_json(self.out / "results.json", {"seconds": took, "rows": self.rows})
        (self.out / "results.md").write_text("\n".join(self._lines(took)) + "\n", "utf-8")

    def attempt(self, name, limit, measure, *arguments):
        """Measures something, and stops it after some seconds; a failure becomes a row."""
        took = time.monotonic() - self.begun
        limit = min(limit, self.seconds - took)
        say(f"{name} ({took:.0f} s)")

        def stop(*_):
            raise TimeoutError(f"stopped after {max(limit, 0.0):.0f} s")

        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, max(limit, 0.001))
        try:
            measure(*arguments)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the next one shall have its turn
            self.add("missing", part=name, why=f"{type(error).__name__}: {error}"[:400])
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    def _lines(self, took):
        yield f"# tformer on a GPU ({took:.0f} s)"
        for row in self._of("machine"):
            yield "\n" + ", ".join(f"{_cell(v)} {k}" for k, v in row.items() if k != "kind")
        for row in self._of("tests"):
            counts = ", ".join(f"{n} {outcome}" for outcome, n in row["counts"].items())
            yield f"\nGPU tests: {counts or 'none ended'}\n"
            yield from (f"- `{name}`: {why}" for name, why in row["failures"].items())
        for kind, columns in COLUMNS.items():
            rows = [[_cell(row.get(name)) for name in columns] for row in self._of(kind)]
            if rows:
                yield f"\n## {kind.capitalize()}\n"
                for cells in (columns, ["---"] * len(columns), *rows):
                    yield f"| {' | '.join(cells)} |"
        missing = [f"- {row['part']}: {row['why']}" for row in self._of("missing")]
        yield from ["\n## Missing\n", *missing] if missing else []

    def _of(self, kind):
        return [row for row in self.rows if row["kind"] == kind]


def _cell(value):
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return "" if value is None else str(value)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="directory of the results")
    parser.add_argument("--data", type=Path, help="directory of Multi30k [the built-in corpus]")
    parser.add_argument("--seconds", type=float, default=570.0, help="for all of it [570]")
    parser.add_argument("--only", default="tests,training,translation", help="parts [all]")
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, with tiny models")
    parser.add_argument("--work", type=Path, help="keep all files here [a temporary directory]")
    arguments = parser.parse_args()
    report = Report(arguments.out.resolve(), arguments.seconds)
    with work_directory(arguments.work) as work:
        run = Run(report, work, arguments.data, is_small=arguments.rehearse)
        parts = {"tests": run.tests, "training": run.trainings, "translation": run.translations}
        for name in arguments.only.split(","):
            parts[name]()
    write((report.out / "results.md").read_text("utf-8"))


class Run:
    """All measurements on a device; small ones on the CPU."""

    def __init__(self, report, work, data, *, is_small):
        self.report, self.work, self.data, self.is_small = report, work, data, is_small
        self.device = "cpu" if is_small else "cuda"

    def answer(self, name, contestant, job, **options):
        """Has a contestant measure on the device."""
        whole = {**contestant.options, **options, "device": self.device}
        return run_contestant(
            re.sub(r"\W+", "-", name), replace(contestant, options=whole), self.work,
            sys.executable, {"threads": 1 if self.is_small else os.cpu_count(), **job},
        ).values  # fmt: skip

    def tests(self):
        """Runs the tests that need a GPU, and names each that fails."""
        self.report.attempt("tests", 100.0, self._run_pytest)

    def _run_pytest(self):
        tests = (ROOT / "tests").rglob("test_*.py")
        files = [file for file in tests if "mark.gpu" in file.read_text("utf-8")]
        command = [sys.executable, "-m", "pytest", *files, "-m", "gpu", "-v", "-p"]
        command += ["no:cacheprovider", "-n", *(["1", "-k", "muon"] if self.is_small else ["8"])]
        command += ["--dist", "load"]
        log = self.report.out / "pytest.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                list(map(str, command)), cwd=ROOT, stdout=output, stderr=output,
                env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True,
            )  # fmt: skip
            try:
                process.wait()
            finally:  # what had ended before it was stopped counts, too
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                self.report.add("tests", **ended_tests(log.read_text("utf-8", "replace")))

    def trainings(self):
        """Measures the machine, and tformer and a plain loop in torch at each shape and batch."""
        attempt = self.report.attempt
        size = SMALL["vocab_size"] if self.is_small else VOCABULARY
        attempt("corpus", 75.0, self._make_corpus, size)
        base = {"vocab_size": size, "tokens_per_batch": 25_000, **DIMENSIONS["base"]}
        base |= {**SMALL, "tokens_per_batch": 500} if self.is_small else {}
        attempt("machine", 30.0, self._measure_machine, base)
        for preset, tokens, n_reports, trainers in TRAININGS:
            job = {**base, "updates": n_reports}
            if self.is_small:
                job |= {"tokens_per_batch": tokens // 25, "updates": 4}
            else:
                job |= {**DIMENSIONS[preset], "tokens_per_batch": tokens}
            for name in trainers:
                # Compiling takes minutes on a CPU, and tformer does not
                if not (self.is_small and name == "tformer, compiled"):
                    what = f"{name}, {preset}, {tokens:,} tokens"
                    attempt(what, 45.0, self._measure_training, name, preset, job)

    def _make_corpus(self, size):
        raw = self.work / "raw"
        raw.mkdir(exist_ok=True)
        n_pairs = 400 if self.is_small else PAIRS
        files = [raw / "train.source", raw / "train.target"]
        write_corpus(files, n_pairs, size - 4)
        prepare(raw, self.work, {"train": [file.name for file in files]}, size, "word")

    def _measure_machine(self, job):
        answer = self.answer("limits", Contestant(script="limits.py"), job)
        products = {
            f"TFLOP/s in {name}": answer["gflops"][name] / 1e3 for name in ("bfloat16", "float32")
        }
        about = answer.get("about", {})
        self.report.add("machine", **about, **products, version=answer["version"])

    def _measure_training(self, name, preset, job):
        contestant, every = TRAINERS[name], 2 if self.is_small else REPORT_EVERY
        if self.is_small:
            contestant = replace(
                contestant, options={k: v for k, v in contestant.options.items() if k != "compile"}
            )
        updates = self.answer(name, contestant, job, report_every=str(every))["updates"]
        # The first half warms up: kernels, the compiler, the allocator
        kept = updates[len(updates) // 2 :]
        rate = statistics.median(n / seconds for n, seconds in kept)
        flops = flops_per_token(job, *mean_lengths(self.work))
        self.report.add("training", **{
            "trainer": name, "model": preset, "tokens a batch": job["tokens_per_batch"],
            "target tokens/s": rate, "MFU %": 100 * rate * flops / (1e12 * PEAK),
            "ms an update": 1e3 * statistics.median(seconds for _, seconds in kept) / every,
        })  # fmt: skip

    def translations(self):
        """Trains models for a while, and translates with them by every engine."""
        attempt = self.report.attempt
        for preset, seconds in (("tiny", 60.0), ("base", 40.0))[: 1 if self.is_small else 2]:
            model, export = self.work / f"model-{preset}", self.work / f"export-{preset}"
            attempt(f"model, {preset}", seconds + 30.0, self._train_model, preset, seconds, model)
            if not (model / "model.safetensors").exists():
                return
            attempt(f"export, {preset}", 20.0, export_model, model, export)
            for name, (contestant, precisions) in ENGINES.items():
                for precision in ("float32",) if self.is_small else precisions:
                    for beam in BEAMS:
                        what = f"{name}, {preset}, beam {beam}, {precision}"
                        job = {"model": str(model), "export": str(export), "beam_size": beam}
                        given = name, preset, contestant, precision, job
                        attempt(what, 30.0, self._measure_translation, *given)

    def _train_model(self, preset, seconds, model):
        corpus, keys, name = self.work / "corpus", [], "quickstart"
        sides = [corpus / "test.en", corpus / "test.fr"]
        if self.data is not None:
            name, keys = "multi30k-en-de-muon", [f"data.directory={self.data.resolve()}"]
            sides = [self.data / f"test_2016_flickr.{side}.gz" for side in ("en", "de")]
        elif not corpus.exists():
            subprocess.run([*TFORMER, "make-corpus", corpus, "-q"], check=True)
        if preset == "base":
            keys += ["model.preset=base", "model.dropout=0.2", "training.learning_rate=2e-3"]
        keys += [
            f"training.tokens_per_batch={2048 if self.is_small else 16_384}",
            "validation.every=100000",
        ]
        (self.work / "text").mkdir(exist_ok=True)
        for side, file in zip(("source", "target"), sides, strict=True):
            lines = list(read_lines(file))[: 6 if self.is_small else None]
            text = "".join(f"{line}\n" for line in lines)
            (self.work / "text" / f"{SPLIT}.{side}").write_text(text, "utf-8")
        limit = f"{6 if self.is_small else seconds:.0f}s"
        options = [word for key in keys for word in ("--set", key)]
        command = [
            *TFORMER,
            "train",
            name,
            "-o",
            model,
            "--max-time",
            limit,
            "--device",
            self.device,
        ]
        subprocess.run([*map(str, command), *options, "-q"], check=True)

    def _measure_translation(self, name, preset, contestant, precision, job):
        job |= {
            "lines": str(self.work / "text" / f"{SPLIT}.source"), "max_length": 96,
            "length_normalization": "average", "length_penalty": 1.0, "min_length": 0,
            "single_lines": 2 if self.is_small else 20,
        }  # fmt: skip
        answer = self.answer(name, contestant, job, precision=precision)
        score, _ = bleu(self.work, Path(answer["hypotheses"]), SPLIT)
        self.report.add("translation", **{
            "engine": name, "model": preset, "beam": job["beam_size"], "precision": precision,
            "lines/s": answer["lines"] / answer["seconds"],
            "tokens/s": answer["tokens"] / answer["seconds"], "BLEU": score,
            "p50 ms": 1e3 * statistics.median(answer["latencies"]),
        })  # fmt: skip


def ended_tests(log):
    """Counts the tests that have ended by their outcome, and says why some failed."""
    ended = _ENDED.findall(log)
    reasons = dict(_REASON.findall(log))
    outcomes = [outcome.lower() for outcome, _ in ended]
    failed = [name for outcome, name in ended if outcome in ("FAILED", "ERROR")]
    return {
        "counts": {outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))},
        "failures": {name: reasons.get(name.partition("::")[2], "")[:300] for name in failed},
    }


def write_corpus(files, n_pairs, n_words):
    """Writes pairs of about 25 words, as long and as unevenly frequent as those of news."""
    rng = np.random.default_rng(1)
    n_source = np.clip(np.exp(rng.normal(3.15, 0.55, n_pairs)), 2, 90)
    n_target = np.clip(n_source * np.exp(rng.normal(0.0, 0.15, n_pairs)), 2, 100)
    shares = 1.0 / np.arange(2, n_words + 2)
    # Of four letters each: digits would be tokens of their own
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    numbers = np.arange(n_words)[:, None] // 26 ** np.arange(4) % 26
    words = np.array(["".join(row) for row in letters[numbers]])
    for file, lengths in zip(files, (n_source, n_target), strict=True):
        ends = np.cumsum(lengths.astype(int))
        drawn = words[rng.choice(n_words, ends[-1], p=shares / shares.sum())]
        drawn[:n_words] = words[: ends[-1]]  # each occurs, so that the vocabulary has them all
        file.write_text(
            "".join(" ".join(row) + "\n" for row in np.split(drawn, ends[:-1])), "utf-8"
        )


if __name__ == "__main__":
    main()
