"""How fast engines translate the same sentences with the same weights, in turns on one machine.

    python tests/benchmarks/translation_speed.py MODEL --source FILE --reference FILE

Prints for each beam size and contestant the medians over the rounds, and writes them with --json.
With --widen base the model is first made as large as that preset, in such a way that it still
writes the same translations; see `widen.py`.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import (
    HERE,
    KEEP_PAGES,
    TFORMER,
    Contestant,
    ContestantError,
    environments,
    fail,
    python_of,
    run_contestant,
    say,
    work_directory,
)
from translation_report import SPLIT, Result, show, summary

from tformer_cli.model.config import PRESETS
from tformer_cli.text.lines import read_lines


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


def in_environment(name: str) -> dict[str, Contestant]:
    """A library on PyTorch that needs an environment of its own, as it is and tuned."""
    script = f"translate_{name}.py"
    return {
        name: Contestant(script=script, venv=name),
        f"{name}-tuned": Contestant(
            script=script, options={"onednn": ""}, environment=KEEP_PAGES, venv=name
        ),
    }


def can_compute(precision: str) -> bool:
    """Says whether the processor does so itself: emulated bfloat16 is no speed to speak of.

    Asked in another process, as is all that needs torch: what this one holds would count as its
    contestants' peak memory.
    """
    if precision != "bfloat16":
        return True
    question = (
        "from tformer_cli.runtime import has_fast_bfloat16\n"
        "raise SystemExit(not has_fast_bfloat16('cpu'))"
    )
    return not subprocess.run([sys.executable, "-c", question], check=False).returncode


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
    **in_environment("fairseq"),
    **in_environment("eole"),
}


def main() -> None:
    arguments = parse_arguments()
    beams = [int(beam) for beam in arguments.beams.split(",")]
    pythons = environments(arguments.venv)
    names = arguments.contestants.split(",") if arguments.contestants else everybody_able(pythons)
    with work_directory(arguments.work) as work:
        n_lines = write_lines(arguments, work)
        place = work / (arguments.widen or "")
        model = widened_model(arguments, place / "model") if arguments.widen else arguments.model
        export = place / "export"
        if any(name.startswith("ctranslate2") for name in names):
            export_model(model, export)
        job = {
            "model": str(model.resolve()),
            "export": str(export),
            "lines": str(work / "text" / f"{SPLIT}.source"),
            "length_normalization": arguments.length_normalization,
            "length_penalty": arguments.length_penalty,
            "min_length": 0,
            "max_length": arguments.max_length,
            "threads": arguments.threads,
            "single_lines": arguments.single_lines,
        }
        results = run_rounds(names, pythons, beams, work, job, arguments.rounds)
        report = summary(results, work)
    size = f", as large as {arguments.widen}" if arguments.widen else ""
    show(report, f"{n_lines:,} sentences, {arguments.threads} threads{size}")
    if arguments.json:
        about = {"lines": n_lines, "threads": arguments.threads, "widened": arguments.widen}
        text = json.dumps({**about, "results": report})
        arguments.json.write_text(text + "\n", encoding="utf-8")
    if len(report) < len(beams) * len(names):
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
    parser.add_argument(
        "--length-normalization",
        choices=("gnmt", "average"),
        default="gnmt",
        help="tformer's; the others divide by length^exponent, as average does with 1 [gnmt]",
    )
    parser.add_argument("--max-length", type=int, default=80, help="tokens of a translation [80]")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="[all cores]")
    parser.add_argument(
        "--widen", choices=tuple(PRESETS), help="make the model as large, with the same output"
    )
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


def everybody_able(pythons: dict[str, str]) -> list[str]:
    """Those whose environment is known and whose precision this processor has."""
    able = [name for name, one in CONTESTANTS.items() if can_compute(one.precision)]
    missing = {CONTESTANTS[name].venv for name in able} - pythons.keys() - {""}
    for venv in sorted(missing):
        say(f"{venv}: skipped; give its environment with --venv {venv}=PATH")
    return [name for name in able if CONTESTANTS[name].venv not in missing]


def write_lines(arguments: argparse.Namespace, work: Path) -> int:
    """Writes sentences and references; returns how many."""
    text = work / "text"
    text.mkdir(exist_ok=True)
    pairs = zip(read_lines(arguments.source), read_lines(arguments.reference), strict=False)
    kept = [pair for pair in pairs if pair[0].strip()][: arguments.sentences]
    for side, lines in zip(("source", "target"), zip(*kept, strict=True), strict=True):
        (text / f"{SPLIT}.{side}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return len(kept)


def widened_model(arguments: argparse.Namespace, model: Path) -> Path:
    """Writes the larger model there."""
    say(f"making the model as large as {arguments.widen}")
    widen = (sys.executable, str(HERE / "widen.py"))
    command = [*widen, str(arguments.model), str(model), arguments.widen]
    if subprocess.run(command, check=False).returncode:
        sys.exit(2)
    return model


def export_model(model: Path, export: Path) -> None:
    """Writes the model for CTranslate2."""
    if export.exists():
        return
    say("exporting for CTranslate2")
    command = [*TFORMER, "export", str(model), "-o", str(export), "-q"]
    if subprocess.run(command, check=False).returncode:
        fail(f"no export ({model}): see above, or name --contestants without it")


def run_rounds(
    names: Sequence[str],
    pythons: dict[str, str],
    beams: Sequence[int],
    work: Path,
    job: dict[str, Any],
    n_rounds: int,
) -> dict[tuple[int, str], Result]:
    """Runs all in turns, A B C A B C, so that slow minutes of the machine hit everybody."""
    results: dict[tuple[int, str], Result] = {}
    for turn in range(1, n_rounds + 1):
        for beam in beams:
            for name in names:
                contestant = CONTESTANTS[name]
                python = python_of(name, contestant, pythons)
                whole = {**job, "beam_size": beam}
                try:
                    answer = run_contestant(name, contestant, work, python, whole)
                except ContestantError as error:
                    say(str(error))
                    continue
                result = results.setdefault((beam, name), Result(contestant.precision))
                result.answers.append(answer.values)
                result.peak_rss = max(result.peak_rss, answer.peak_rss)
                rate = answer.values["lines"] / answer.values["seconds"]
                say(f"round {turn}, beam {beam}, {name}: {rate:,.1f} sentences/s")
    return results


if __name__ == "__main__":
    main()
