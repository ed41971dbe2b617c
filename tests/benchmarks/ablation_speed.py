"""Times the loss without each head: all heads of a batch together against one at a time.

    python tests/benchmarks/ablation_speed.py MODEL --source FILE --reference FILE [--lines 200]

Prints both times, their ratio and the largest difference of a sentence's loss as JSON. The ways
take turns; the fastest of `--rounds` counts.
"""

import argparse
import json
import sys
from pathlib import Path
from time import perf_counter

import torch

from tformer_cli.evaluate.evaluate import read_texts
from tformer_cli.heads.names import head_layout
from tformer_cli.inspect.ablation import heads_off, losses_without_each, sentence_losses
from tformer_cli.inspect.jobs.ablate import Ablator
from tformer_cli.inspect.views.ablation import AblationSettings
from tformer_cli.kinds.opening.translator import open_translator


@torch.inference_mode()
def one_at_a_time(model, batch, heads):
    """Runs the whole model once for each head, and once with all."""
    losses = []
    for head in heads:
        with heads_off(model, [head]):
            losses.append(sentence_losses(model, batch))
    return sentence_losses(model, batch), torch.stack(losses)


def timed(function, model, batches, heads):
    """Runs over all batches; returns the seconds and the losses."""
    start = perf_counter()
    losses = [function(model, batch, heads) for batch in batches]
    return perf_counter() - start, losses


def main() -> None:
    """Reads the arguments, measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    source, reference = read_texts([given.source, given.reference])
    opened = open_translator(
        given.model, device=given.device, threads=given.threads, precision="float32"
    )
    model = opened.directory.model
    heads = list(head_layout(model))
    texts = (source[: given.lines], [reference[: given.lines]])
    ablator = Ablator(opened, *texts, AblationSettings())
    batches = [batch for _, batch in ablator.batches_on_device("measuring")]
    seconds = {"together": [], "one_at_a_time": []}
    for _ in range(given.rounds):
        taken, together = timed(losses_without_each, model, batches, heads)
        seconds["together"].append(taken)
        taken, alone = timed(one_at_a_time, model, batches, heads)
        seconds["one_at_a_time"].append(taken)
    difference = max(
        ((a[1] - b[1].cpu()).abs() / b[1].cpu()).max().item()
        for a, b in zip(together, alone, strict=True)
    )
    best = {name: round(min(times), 3) for name, times in seconds.items()}
    record = {
        "lines": len(texts[0]),
        "heads": len(heads),
        "device": str(opened.device),
        "seconds": best,
        "ratio": round(best["one_at_a_time"] / best["together"], 2),
        "largest_relative_difference": difference,
    }
    sys.stdout.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
