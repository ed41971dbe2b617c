"""What the translation benchmark makes of its answers: figures, tables, comparisons."""

import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import bleu
from rich.console import Console
from rich.table import Table

SPLIT = "lines"
"""Name of the files of sentences and references."""
REFERENCE = "tformer-float32"
"""The contestant whose translations the others' are compared with."""
RIVALS = (("ctranslate2",), ("hf", "fairseq", "eole"))
"""Engines that tformer is compared with; of several the fastest."""


@dataclass
class Result:
    """All runs of one contestant with one beam size."""

    precision: str
    """Of its products."""
    answers: list[dict[str, Any]] = field(default_factory=list)
    """What it wrote, run by run."""
    peak_rss: float = 0.0
    """MB."""

    @property
    def hypotheses(self) -> Path:
        """File of its translations, a line each."""
        return Path(self.answers[0]["hypotheses"])

    def record(self) -> dict[str, Any]:
        """Medians over the runs; latencies of all runs together."""
        runs = self.answers
        milliseconds = [1e3 * seconds for run in runs for seconds in run["latencies"]]
        loads = [run["load_seconds"] for run in runs if run["load_seconds"] is not None]
        rates = [run["lines"] / run["seconds"] for run in runs]
        return {
            "precision": self.precision,
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


def summary(results: dict[tuple[int, str], Result], work: Path) -> list[dict[str, Any]]:
    """All figures, a record for each contestant and beam size."""
    records = []
    for (beam, name), result in results.items():
        score, signature = bleu(work, result.hypotheses, SPLIT)
        reference = results.get((beam, REFERENCE))
        records.append(
            {
                "contestant": name,
                "beam_size": beam,
                **result.record(),
                "bleu": score,
                "signature": signature,
                "same_percent": percent_same(result, reference) if reference else None,
            }
        )
    return records


def percent_same(result: Result, reference: Result) -> float:
    """How many of a hundred translations are the reference's, letter by letter."""
    texts, expected = (
        one.hypotheses.read_text(encoding="utf-8").split("\n")[:-1] for one in (result, reference)
    )
    n_same = sum(text == other for text, other in zip(texts, expected, strict=True))
    return 100 * n_same / len(texts)


def show(report: list[dict[str, Any]], title: str) -> None:
    """Prints a table for each beam size, and how tformer's rows compare with the others'."""
    console = Console(width=None if sys.stdout.isatty() else 130, highlight=False)
    columns = ("sentences/s", "min", "max", "tokens/s", "p50 ms", "p95 ms", "peak MB", "load s",
               "BLEU", "same %")  # fmt: skip
    keys = ("sentences_per_second", "lowest", "highest", "tokens_per_second", "single_p50_ms",
            "single_p95_ms", "peak_rss_mb", "load_seconds", "bleu", "same_percent")  # fmt: skip
    formats = (",.1f", ",.1f", ",.1f", ",.0f", ".1f", ".1f", ",.0f", ".2f", ".2f", ".1f")
    for beam in sorted({record["beam_size"] for record in report}):
        rows = [record for record in report if record["beam_size"] == beam]
        what = "greedy" if beam == 1 else f"beam {beam}"
        table = Table(title=f"{title}, {what}")
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
        ("float32", [row for row in rows if row["precision"] == "float32"]),
        ("best precision", rows),
    ):
        for rivals in RIVALS:
            for measure, key, sign in (
                ("batches", "sentences_per_second", 1),
                ("single lines", "single_p50_ms", -1),
            ):
                ours, theirs = best(kept, ("tformer",), key, sign), best(kept, rivals, key, sign)
                if ours is None or theirs is None:
                    continue
                ratio = (ours[key] / theirs[key]) ** sign
                lines.append(
                    f"{what}, {measure}: {ours['contestant']} is {ratio:.2f} × as fast as "
                    f"{theirs['contestant']}, ΔBLEU {ours['bleu'] - theirs['bleu']:+.2f}"
                )
    return lines


def best(
    rows: list[dict[str, Any]], engines: tuple[str, ...], key: str, sign: int
) -> dict[str, Any] | None:
    """The row of some engines with the highest (sign 1) or lowest (-1) value."""
    found = [row for row in rows if row["contestant"].startswith(engines) and row[key] is not None]
    return max(found, key=lambda row: sign * row[key], default=None)
