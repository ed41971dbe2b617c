"""Speed of the compiled search by source tokens per batch; what "auto" chooses stands beside.

    python tests/benchmarks/batch_tokens.py corpus/test.en MODEL…

Each model translates the same lines in float32 and int8, greedily and by beam search, with batches
of every size in turns, on one thread. Compared are processor seconds, so that other programs
matter little. Cells are speeds relative to 4,096 tokens. Bytes must not depend on the size.
"""

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

import tformer_cli
from tformer_cli.artifacts.model_directory import load_model_directory, save_model_directory
from tformer_cli.model.config import PRESETS, ModelConfig
from tformer_cli.model.transformer import Transformer

SIZES = (64, 128, 256, 512, 1024, 2048, 4096, 0)
STANDARD, AUTO = 4096, 0
MAX_LENGTH = 24
"""Tokens of a translation: random weights find no end."""


def make_random(model: str, output: Path) -> None:
    """Writes a model of the paper's base size and of random weights, with another's tokenizer."""
    directory = load_model_directory(Path(model))
    torch.manual_seed(1)
    made = Transformer(ModelConfig(**PRESETS["base"]), directory.tokenizer.vocab_size)
    save_model_directory(
        output,
        made.state_dict(),
        config=made.config,
        tokenizer=directory.tokenizer,
        decoding=directory.decoding,
        info=directory.info,
    )


def speeds(
    model: str,
    precision: str,
    beam_size: int,
    lines: Sequence[str],
    rounds: int,
    sizes: Sequence[int],
) -> dict[int, float]:
    """Lines a processor second for each size: the median of the rounds."""
    loaded = tformer_cli.load(model, precision=precision, device="cpu", threads=1)
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    texts = set()
    list(loaded.translate(lines[:8], beam_size=beam_size))
    for number in range(rounds):
        for size in sizes if number % 2 else reversed(sizes):
            given = {} if size == AUTO else {"batch_tokens": size}
            start = time.process_time()
            found = loaded.translate(
                lines, beam_size=beam_size, max_length=MAX_LENGTH, buffer_lines=len(lines), **given
            )
            text = "\n".join(one.hypotheses[0].text for one in found)
            seconds[size].append(time.process_time() - start)
            texts.add(text)
    if len(texts) > 1:
        raise SystemExit(f"{model}, {precision}: translations depend on the size of batches")
    return {size: len(lines) / statistics.median(taken) for size, taken in seconds.items()}


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--lines", type=int, default=512)
    parser.add_argument(
        "--base-lines",
        type=int,
        default=160,
        help="for a model of base size as well; 0: without it",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beam-sizes", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    options = parser.parse_args()
    with options.source.open(encoding="utf-8") as source:
        lines = [line.rstrip("\n") for line in itertools.islice(source, options.lines)]
    shown = "".join(f"{size or 'auto':>7}" for size in options.sizes)
    sys.stdout.write(f"{'model':24}{'precision':10}{'beam':>5}{'lines/s at 4096':>17}{shown}\n")
    with tempfile.TemporaryDirectory() as folder:
        models = list(options.models)
        if options.base_lines:
            models.append(f"{folder}/base (random)")
            make_random(models[0], Path(models[-1]))
        for model, precision, beam_size in itertools.product(
            models, ("float32", "int8"), options.beam_sizes
        ):
            some = lines[: options.base_lines] if model.startswith(folder) else lines
            found = speeds(model, precision, beam_size, some, options.rounds, options.sizes)
            cells = "".join(f"{found[size] / found[STANDARD]:7.2f}" for size in options.sizes)
            speed = f"{Path(model).name:24}{precision:10}{beam_size:5}{found[STANDARD]:17,.1f}"
            sys.stdout.write(f"{speed}{cells}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
