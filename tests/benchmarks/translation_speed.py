"""How fast engines translate the same sentences with the same weights, in turns on one machine.

    python tests/benchmarks/translation_speed.py MODEL --source FILE --reference FILE

Prints for each beam size and contestant the medians over the rounds, and writes them with --json.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import (
    KEEP_PAGES,
    TFORMER,
    Contestant,
    ContestantError,
    bleu,
    fail,
    run_contestant,
    say,
    work_directory,
)
from rich.console import Console
from rich.table import Table

from tformer_cli.data.lines import read_lines
from tformer_cli.model.runtime import has_fast_bfloat16

SPLIT = "lines"
"""Name of the files of sentences and references."""


def own(precision: str) -> Contestant:
    return Contestant(
        script="translate_tformer.py", precision=precision, options={"precision": precision}
    )


def ctranslate2(precision: str, workers: int) -> Contestant:
    return Contestant(
        script="translate_ctranslate2.py",
        precision=precision,
        options={"precision": precision, "workers": str(workers)},
    )


def can_compute(precision: str) -> bool:
    """Says whether the processor does so itself: emulated bfloat16 is no speed to speak of."""
    return precision != "bfloat16" or has_fast_bfloat16("cpu")


CONTESTANTS = {
    "tformer-float32": own("float32"),
    "tformer-float32-torch": Contestant(
        script="translate_tformer.py",
        precision="float32",
        options={"precision": "float32"},
        environment={"TFORMER_NATIVE": "0"},
    ),
    "tformer-bfloat16": own("bfloat16"),
    "tformer-int8": own("int8"),
    "tformer-int8-torch": Contestant(
        script="translate_tformer.py",
        precision="int8",
        options={"precision": "int8"},
        environment={"TFORMER_NATIVE": "0"},
    ),
    "ctranslate2-float32": ctranslate2("float32", 1),
    "ctranslate2-float32-2-workers": ctranslate2("float32", 2),
    "ctranslate2-int8": ctranslate2("int8", 1),
    "ctranslate2-int8-2-workers": ctranslate2("int8", 2),
    "hf": Contestant(script="translate_hf.py"),
    "hf-tuned": Contestant(
        script="translate_hf.py",
        options={"attention": "eager", "onednn": ""},
        environment=KEEP_PAGES,
    ),
}


@dataclass
class Result:
    """All runs of one contestant with one beam size."""

    answers: list[dict[str, Any]] = field(default_factory=list)
    """What it wrote, run by run."""
    peak_rss: float = 0.0
    """MB."""

    def record(self) -> dict[str, Any]:
        """Medians over the runs; latencies of all runs together."""
        runs = self.answers
        milliseconds = [1e3 * seconds for run in runs for seconds in run["latencies"]]
        loads = [run["load_seconds"] for run in runs if run["load_seconds"] is not None]
        rates = [run["lines"] / run["seconds"] for run in runs]
        return {
            "sentences_per_second": statistics.median(rates),
            "lowest": min(rates),
            "highest": max(rates),
            "tokens_per_second": statistics.median(run["tokens"] / run["seconds"] for run in runs),
            "single_p50_ms": statistics.median(milliseconds),
            "single_p95_ms": statistics.quantiles(milliseconds, n=20, method="inclusive")[-1],
            "peak_rss_mb": self.peak_rss,
            "load_seconds": statistics.median(loads) if loads else None,
            "runs": len(runs),
            "version": runs[0]["version"],
        }


def main() -> None:
    arguments = parse_arguments()
    beams = [int(beam) for beam in arguments.beams.split(",")]
    with work_directory(arguments.work) as work:
        n_lines = prepare(arguments, work)
        job = {
            "model": str(arguments.model.resolve()),
            "export": str(work / "export"),
            "lines": str(work / "text" / f"{SPLIT}.source"),
            "length_penalty": arguments.length_penalty,
            "max_length": arguments.max_length,
            "threads": arguments.threads,
            "single_lines": arguments.single_lines,
        }
        results = run_rounds(arguments.contestants.split(","), beams, work, job, arguments.rounds)
        report = summary(results, work)
    show(report, n_lines, arguments)
    if arguments.json:
        text = json.dumps({"lines": n_lines, "threads": arguments.threads, "results": report})
        arguments.json.write_text(text + "\n", encoding="utf-8")
    if len(report) < len(beams) * len(arguments.contestants.split(",")):
        sys.exit(1)


def parse_arguments() -> argparse.Namespace:
    """Reads and checks the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="a model directory of tformer")
    parser.add_argument("--source", type=Path, required=True, help="text to translate, or .gz")
    parser.add_argument("--reference", type=Path, required=True, help="its translations, or .gz")
    parser.add_argument("--sentences", type=int, default=1000, help="the first so many [1000]")
    parser.add_argument("--single-lines", type=int, default=100, help="for the latency [100]")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each contestant [3]")
    parser.add_argument("--beams", default="1,5", help="beam sizes; 1 is greedy [1,5]")
    parser.add_argument("--length-penalty", type=float, default=0.6, help="exponent [0.6]")
    parser.add_argument("--max-length", type=int, default=80, help="tokens of a translation [80]")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="[all cores]")
    everybody = ",".join(CONTESTANTS)
    able = [name for name, one in CONTESTANTS.items() if can_compute(one.precision)]
    parser.add_argument(
        "--contestants", default=",".join(able), help=f"of {everybody} [what this processor can]"
    )
    parser.add_argument("--work", type=Path, help="keep all files here [a temporary directory]")
    parser.add_argument("--json", type=Path, help="write all figures here too")
    arguments = parser.parse_args()
    if arguments.single_lines < 2:
        parser.error("--single-lines: must be at least 2")
    unknown = set(arguments.contestants.split(",")) - CONTESTANTS.keys()
    if unknown:
        parser.error(f"--contestants: no {', '.join(unknown)}; there are {everybody}")
    return arguments


def prepare(arguments: argparse.Namespace, work: Path) -> int:
    """Writes sentences, references and the export for CTranslate2; returns the sentences."""
    text = work / "text"
    text.mkdir(exist_ok=True)
    pairs = zip(read_lines(arguments.source), read_lines(arguments.reference), strict=False)
    kept = [pair for pair in pairs if pair[0].strip()][: arguments.sentences]
    for side, lines in zip(("source", "target"), zip(*kept, strict=True), strict=True):
        (text / f"{SPLIT}.{side}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    if "ctranslate2" in arguments.contestants and not (work / "export").exists():
        say("exporting for CTranslate2")
        command = [*TFORMER, "export", str(arguments.model), "-o", str(work / "export"), "-q"]
        if subprocess.run(command, check=False).returncode:
            fail(f"no export ({arguments.model}): see above, or name --contestants without it")
    return len(kept)


def run_rounds(
    names: Sequence[str], beams: Sequence[int], work: Path, job: dict[str, Any], n_rounds: int
) -> dict[tuple[int, str], Result]:
    """Runs all in turns, A B C A B C, so that slow minutes of the machine hit everybody."""
    results: dict[tuple[int, str], Result] = {}
    for turn in range(1, n_rounds + 1):
        for beam in beams:
            for name in names:
                try:
                    whole = {**job, "beam_size": beam}
                    answer = run_contestant(name, CONTESTANTS[name], work, sys.executable, whole)
                except ContestantError as error:
                    say(str(error))
                    continue
                result = results.setdefault((beam, name), Result())
                result.answers.append(answer.values)
                result.peak_rss = max(result.peak_rss, answer.peak_rss)
                rate = answer.values["lines"] / answer.values["seconds"]
                say(f"round {turn}, beam {beam}, {name}: {rate:,.1f} sentences/s")
    return results


def summary(results: dict[tuple[int, str], Result], work: Path) -> list[dict[str, Any]]:
    """All figures, a record for each contestant and beam size."""
    records = []
    for (beam, name), result in results.items():
        score, signature = bleu(work, Path(result.answers[0]["hypotheses"]), SPLIT)
        record = {"contestant": name, "beam_size": beam, **result.record()}
        records.append({**record, "bleu": score, "signature": signature})
    return records


def show(report: list[dict[str, Any]], n_lines: int, arguments: argparse.Namespace) -> None:
    """Prints a table for each beam size, and how tformer's rows compare with the others'."""
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    columns = ("sentences/s", "min", "max", "tokens/s", "p50 ms", "p95 ms", "peak MB", "load s",
               "BLEU")  # fmt: skip
    keys = ("sentences_per_second", "lowest", "highest", "tokens_per_second", "single_p50_ms",
            "single_p95_ms", "peak_rss_mb", "load_seconds", "bleu")  # fmt: skip
    formats = (",.1f", ",.1f", ",.1f", ",.0f", ".1f", ".1f", ",.0f", ".2f", ".2f")
    for beam in sorted({record["beam_size"] for record in report}):
        rows = [record for record in report if record["beam_size"] == beam]
        what = "greedy" if beam == 1 else f"beam {beam}"
        table = Table(title=f"{n_lines:,} sentences, {what}, {arguments.threads} threads")
        table.add_column("contestant")
        for column in columns:
            table.add_column(column, justify="right")
        for row in rows:
            values = (
                "" if row[key] is None else f"{row[key]:{form}}"
                for key, form in zip(keys, formats, strict=True)
            )
            table.add_row(row["contestant"], *values)
        console.print(table)
        for line in comparisons(rows):
            console.print(line)
    for version in sorted({record["version"] for record in report}):
        console.print(version)


def comparisons(rows: list[dict[str, Any]]) -> list[str]:
    """How many times as fast tformer's best is as each other engine's best: batches, single lines.

    In float32 alone and in whatever precision is fastest.
    """
    lines = []
    for what, kept in (
        ("float32", [r for r in rows if CONTESTANTS[r["contestant"]].precision == "float32"]),
        ("best precision", rows),
    ):
        for rival in ("ctranslate2", "hf"):
            for measure, key, sign in (
                ("batches", "sentences_per_second", 1),
                ("single lines", "single_p50_ms", -1),
            ):
                ours, theirs = best(kept, "tformer", key, sign), best(kept, rival, key, sign)
                if ours is None or theirs is None:
                    continue
                ratio = (ours[key] / theirs[key]) ** sign
                lines.append(
                    f"{what}, {measure}: {ours['contestant']} is {ratio:.2f} × as fast as "
                    f"{theirs['contestant']}, ΔBLEU {ours['bleu'] - theirs['bleu']:+.2f}"
                )
    return lines


def best(rows: list[dict[str, Any]], engine: str, key: str, sign: int) -> dict[str, Any] | None:
    """The row of an engine with the highest (sign 1) or lowest (-1) value."""
    found = [row for row in rows if row["contestant"].startswith(engine) and row[key] is not None]
    return max(found, key=lambda row: sign * row[key], default=None)


if __name__ == "__main__":
    main()
