"""How fast engines translate the same sentences with the same weights, in turns on one machine.

    python tests/benchmarks/translation_speed.py MODEL --source FILE --reference FILE

Prints for each beam size and contestant the medians over the rounds, and writes them with --json.
"""

import argparse
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from harness import (
    KEEP_PAGES,
    TFORMER,
    Contestant,
    answers_in_turns,
    bleu,
    environments,
    fail,
    print_table,
    say,
    work_directory,
    write,
    write_json,
)

from tformer_cli.text.lines import read_lines

SPLIT = "lines"
"""Name of the files of sentences and references."""
REFERENCE = "tformer-float32"
"""The contestant whose translations the others' are compared with."""
RIVALS = (("ctranslate2",), ("hf", "fairseq", "eole"))
"""Engines that tformer is compared with; of several the fastest."""


def engine(name, precision="float32", environment=None, venv="", **options):
    """An engine that translates in a process of its own."""
    return Contestant(
        script="translate_engine.py", precision=precision, environment=environment or {}, venv=venv,
        options={"engine": name, "precision": precision, **options},
    )  # fmt: skip


def own(precision, **environment):
    return engine("tformer", precision, environment)


def ctranslate2(precision, workers):
    return engine("ctranslate2", precision, workers=str(workers))


def on_torch(name, **options):
    """A library on PyTorch, as it is and tuned; all but transformers need an environment."""
    script, venv, given = "translate_torch.py", "" if name == "hf" else name, {"library": name}
    tuned = {**given, **options, "onednn": ""}
    return {
        name: Contestant(script=script, options=given, venv=venv),
        f"{name}-tuned": Contestant(
            script=script, options=tuned, environment=KEEP_PAGES, venv=venv
        ),
    }


CONTESTANTS = {
    "tformer-float32": own("float32"),
    "tformer-float32-torch": own("float32", TFORMER_NATIVE="0"),
    "tformer-bfloat16": own("bfloat16"),
    "tformer-int8": own("int8"),
    "tformer-int8-torch": own("int8", TFORMER_NATIVE="0"),
    "ctranslate2-float32": ctranslate2("float32", 1),
    "ctranslate2-float32-2-workers": ctranslate2("float32", 2),
    "ctranslate2-int8": ctranslate2("int8", 1),
    "ctranslate2-int8-2-workers": ctranslate2("int8", 2),
    **on_torch("hf", attention="eager"),
    **on_torch("fairseq"),
    **on_torch("eole"),
}


@dataclass
class Result:
    """All runs of one contestant with one beam size."""

    precision: str
    answers: list = field(default_factory=list)
    """What it wrote, run by run."""
    peak_rss: float = 0.0

    def record(self):
        """Medians over the runs; latencies of all runs together."""
        runs = self.answers
        milliseconds = [1e3 * seconds for run in runs for seconds in run["latencies"]]
        loads = [run["load_seconds"] for run in runs if run["load_seconds"] is not None]
        rates = [run["lines"] / run["seconds"] for run in runs]
        computing = [1e3 * run["computing_seconds"] / run["lines"] for run in runs]
        return {
            "precision": self.precision,
            "sentences_per_second": statistics.median(rates),
            "lowest": min(rates),
            "highest": max(rates),
            "tokens_per_second": statistics.median(run["tokens"] / run["seconds"] for run in runs),
            "computing_ms": statistics.median(computing),
            "single_p50_ms": statistics.median(milliseconds),
            "single_p95_ms": statistics.quantiles(milliseconds, n=20, method="inclusive")[-1],
            "peak_rss_mb": self.peak_rss,
            "load_seconds": statistics.median(loads) if loads else None,
            "runs": len(runs),
            "version": runs[0]["version"],
        }


def results_of(contestants, pythons, work, job, n_rounds):
    """Runs all in turns; their results by key."""
    results = {}
    for key, answer in answers_in_turns(contestants, pythons, work, job, n_rounds):
        result = results.setdefault(key, Result(contestants[key].precision))
        result.answers.append(answer.values)
        result.peak_rss = max(result.peak_rss, answer.peak_rss)
        rate = answer.values["lines"] / answer.values["seconds"]
        say(f"{key}: {rate:,.1f} sentences/s")
    return results


def main():
    arguments = parse_arguments()
    beams = [int(beam) for beam in arguments.beams.split(",")]
    pythons = environments(arguments.venv)
    names = arguments.contestants.split(",") if arguments.contestants else everybody_able(pythons)
    with work_directory(arguments.work) as work:
        n_lines = write_lines(arguments, work)
        if any(name.startswith("ctranslate2") for name in names):
            export_model(arguments.model, work / "export")
        job = {
            "model": str(arguments.model.resolve()),
            "export": str(work / "export"),
            "lines": str(work / "text" / f"{SPLIT}.source"),
            "length_normalization": arguments.length_normalization,
            "length_penalty": arguments.length_penalty,
            "min_length": 0,
            "max_length": arguments.max_length,
            "threads": arguments.threads,
            "single_lines": arguments.single_lines,
        }
        contestants = {(beam, name): CONTESTANTS[name] for beam in beams for name in names}
        results = results_of(contestants, pythons, work, job, arguments.rounds)
        report = summary(results, work)
    show(report, f"{n_lines:,} sentences, {arguments.threads} threads")
    about = {"lines": n_lines, "threads": arguments.threads}
    write_json(arguments.json, {**about, "results": report})
    if len(report) < len(contestants):
        sys.exit(1)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="a model directory of tformer")
    parser.add_argument("--source", type=Path, required=True, help="text to translate, or .gz")
    parser.add_argument("--reference", type=Path, required=True, help="its translations, or .gz")
    parser.add_argument("--sentences", type=int, default=1000, help="the first so many [1000]")
    parser.add_argument("--single-lines", type=int, default=100, help="for the latency [100]")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each contestant [3]")
    parser.add_argument("--beams", default="1,5", help="beam sizes; 1 is greedy [1,5]")
    parser.add_argument("--length-penalty", type=float, default=0.6, help="exponent [0.6]")
    parser.add_argument(
        "--length-normalization",
        choices=("gnmt", "average"),
        default="gnmt",
        help="tformer's; the others divide by length^exponent, as average does with 1 [gnmt]",
    )
    parser.add_argument("--max-length", type=int, default=80, help="tokens of a translation [80]")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="[all cores]")
    everybody = ", ".join(CONTESTANTS)
    parser.add_argument(
        "--contestants", default="", help=f"of {everybody} [what this processor can]"
    )
    parser.add_argument(
        "--venv", action="append", default=[], metavar="NAME=PATH", help="a peer's environment"
    )
    parser.add_argument("--work", type=Path, help="keep all files here [a temporary directory]")
    parser.add_argument("--json", type=Path, help="write all figures here too")
    arguments = parser.parse_args()
    if arguments.single_lines < 2:
        parser.error("--single-lines: must be at least 2")
    if arguments.length_normalization == "average" and arguments.length_penalty != 1:
        parser.error("--length-normalization average: needs --length-penalty 1")
    unknown = set(filter(None, arguments.contestants.split(","))) - CONTESTANTS.keys()
    if unknown:
        parser.error(f"--contestants: no {', '.join(unknown)}; there are {everybody}")
    return arguments


def everybody_able(pythons):
    """Those whose environment is known and whose precision this processor has."""
    # asked in another process: what this one holds would count as its contestants' peak memory
    question = (
        "from tformer_cli.runtime import has_fast_bfloat16\n"
        "raise SystemExit(not has_fast_bfloat16('cpu'))"
    )
    lacks_bfloat16 = subprocess.run([sys.executable, "-c", question], check=False).returncode
    able = {
        name: contestant.venv
        for name, contestant in CONTESTANTS.items()
        if not (lacks_bfloat16 and contestant.precision == "bfloat16")
    }
    missing = set(able.values()) - pythons.keys() - {""}
    for venv in sorted(missing):
        say(f"{venv}: skipped; give its environment with --venv {venv}=PATH")
    return [name for name, venv in able.items() if venv not in missing]


def write_lines(arguments, work):
    """Writes sentences and references; returns how many."""
    text = work / "text"
    text.mkdir(exist_ok=True)
    pairs = zip(read_lines(arguments.source), read_lines(arguments.reference), strict=False)
    kept = [pair for pair in pairs if pair[0].strip()][: arguments.sentences]
    for side, lines in zip(("source", "target"), zip(*kept, strict=True), strict=True):
        (text / f"{SPLIT}.{side}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return len(kept)


def export_model(model, export):
    """Writes the model for CTranslate2."""
    if export.exists():
        return
    say("exporting for CTranslate2")
    if subprocess.run([*TFORMER, "export", model, "-o", export, "-q"], check=False).returncode:
        fail(f"no export ({model}): see above, or name --contestants without it")


def summary(results, work):
    """All figures, a record for each contestant and beam size."""
    records, texts = [], {}
    for key, result in results.items():
        file = Path(result.answers[0]["hypotheses"])
        texts[key] = file.read_text(encoding="utf-8").split("\n")[:-1]
        beam, name = key
        score, signature = bleu(work, file, SPLIT)
        records.append(
            {"contestant": name, "beam_size": beam, **result.record(), "bleu": score,
             "signature": signature, "same_percent": None}
        )  # fmt: skip
    for record in records:
        beam, name = record["beam_size"], record["contestant"]
        if (expected := texts.get((beam, REFERENCE))) is not None:
            same = [a == b for a, b in zip(texts[beam, name], expected, strict=True)]
            record["same_percent"] = 100 * statistics.mean(same)
    return records


COLUMNS = {
    "sentences/s": ("sentences_per_second", ",.1f"),
    "min": ("lowest", ",.1f"),
    "max": ("highest", ",.1f"),
    "tokens/s": ("tokens_per_second", ",.0f"),
    "CPU ms each": ("computing_ms", ".1f"),
    "p50 ms": ("single_p50_ms", ".1f"),
    "p95 ms": ("single_p95_ms", ".1f"),
    "peak MB": ("peak_rss_mb", ",.0f"),
    "load s": ("load_seconds", ".2f"),
    "BLEU": ("bleu", ".2f"),
    "same %": ("same_percent", ".1f"),
}


def cells(row, columns=COLUMNS):
    """The cells of a record's row."""
    values = ((row.get(key), form) for key, form in (COLUMNS[name] for name in columns))
    return ["" if value is None else f"{value:{form}}" for value, form in values]


def show(report, title):
    """Prints a table for each beam size, and how tformer's rows compare with the others'."""
    for beam in sorted({record["beam_size"] for record in report}):
        rows = [record for record in report if record["beam_size"] == beam]
        what = "greedy" if beam == 1 else f"beam {beam}"
        print_table(
            f"{title}, {what}",
            ("contestant", *COLUMNS),
            ((row["contestant"], *cells(row)) for row in rows),
        )
        for line in comparisons(rows):
            write(line)
    for version in sorted({record["version"] for record in report}):
        write(version)


def comparisons(rows):
    """How many times as fast tformer's best is as each other engine's best: batches, single lines.

    In float32 alone and in whatever precision is fastest.
    """
    plain = [row for row in rows if row["precision"] == "float32"]
    measures = (("batches", "sentences_per_second", 1), ("single lines", "single_p50_ms", -1))
    for what, kept in (("float32", plain), ("best precision", rows)):
        for rivals in RIVALS:
            for measure, key, sign in measures:
                ours, theirs = best(kept, ("tformer",), key, sign), best(kept, rivals, key, sign)
                if ours is not None and theirs is not None:
                    yield (
                        f"{what}, {measure}: {ours['contestant']} is "
                        f"{(ours[key] / theirs[key]) ** sign:.2f} × as fast as "
                        f"{theirs['contestant']}, ΔBLEU {ours['bleu'] - theirs['bleu']:+.2f}"
                    )


def best(rows, engines, key, sign):
    """The row of some engines with the highest (sign 1) or lowest (-1) value."""
    found = [row for row in rows if row["contestant"].startswith(engines) and row[key] is not None]
    return max(found, key=lambda row: sign * row[key], default=None)


if __name__ == "__main__":
    main()
