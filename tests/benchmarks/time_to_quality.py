"""How good a translator is after how many minutes of training: a curve for one contestant.

python tests/benchmarks/time_to_quality.py tformer --data DIR --minutes 12 -o curve.jsonl
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from harness import (
    CONTESTANTS,
    DIMENSIONS,
    ContestantError,
    bleu,
    common_parser,
    decode,
    environments,
    prepare,
    python_of,
    run_contestant,
    say,
    work_directory,
)

VOCAB_SIZE = 8000
BATCH_TOKENS = {"hf": 2048, "hf-tuned": 2048, "fairseq": 4096}
"""Of each contestant's recipe; tformer's is in its recipe file."""


def main() -> None:
    arguments = parse_arguments()
    name, contestant = arguments.contestant, CONTESTANTS[arguments.contestant]
    python = python_of(name, contestant, environments(arguments.venv))
    job: dict[str, Any] = {
        **DIMENSIONS[arguments.model],
        "vocab_size": VOCAB_SIZE,
        "tokens_per_batch": BATCH_TOKENS.get(name, 0),
        "threads": arguments.threads,
        "minutes": arguments.minutes,
        "checkpoint_minutes": arguments.every,
        "recipe": arguments.recipe,
        "seed": arguments.seed,
    }
    with work_directory(arguments.work) as work:
        say("preparing data")
        prepare(arguments.data, work, splits(arguments), VOCAB_SIZE)
        say(f"{name}: {arguments.minutes:g} minutes of training, then the translations")
        try:
            answer = run_contestant(name, contestant, work, python, job)
        except ContestantError as error:
            say(f"error: {error}")
            sys.exit(1)
        points = [scored(work, point) for point in answer.values["curve"]]
    lines = [{"contestant": name, "version": answer.values["version"], **p} for p in points]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    if arguments.output:
        arguments.output.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


def parse_arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = common_parser(__doc__ or "")
    names = ("tformer", "tformer-float32", *BATCH_TOKENS)
    parser.add_argument("contestant", choices=names)
    parser.add_argument("--minutes", type=float, default=12.0, help="of training [12]")
    parser.add_argument("--every", type=float, default=2.0, help="minutes between checkpoints [2]")
    parser.add_argument("--valid", default="val", help="name of the validation files [val]")
    parser.add_argument(
        "--test", default="test_2016_flickr", help="name of the test files [test_2016_flickr]"
    )
    parser.add_argument("--recipe", default="multi30k-en-de", help="tformer's [multi30k-en-de]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, help="write the curve here too")
    return parser.parse_args()


def splits(arguments: argparse.Namespace) -> dict[str, tuple[str, str]]:
    """Names of the files of each split."""
    names = {"train": arguments.train, "valid": arguments.valid, "test": arguments.test}
    return {
        split: (f"{name}.{arguments.source}", f"{name}.{arguments.target}")
        for split, name in names.items()
    }


def scored(work: Path, point: dict[str, Any]) -> dict[str, Any]:
    """A point of the curve: seconds of training, updates and cased BLEU of raw text."""
    line = {"seconds": round(point["seconds"], 1), "updates": point["updates"]}
    for split in ("valid", "test"):
        if split in point:
            hypotheses = Path(point[split])
            text = hypotheses if point.get("is_text") else decode(work, hypotheses)
            line[f"{split}_bleu"], line["signature"] = bleu(work, text, split)
    return line


if __name__ == "__main__":
    main()
