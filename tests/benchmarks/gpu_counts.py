"""What a search asks of a GPU at each step, counted on a simulated device without one.

python tests/benchmarks/gpu_counts.py --json FILE

The weights are random and the searches run to their longest. Counts are no times.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

import torch
from harness import print_table, write_json
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).parents[1]))
import simulated_device as simulated

LINES, TOKENS, LONGEST, ENTRIES = 8, 12, 20, 1_000
BEAMS = {"greedy": 1, "beam 4": 4}
VIEWS = {
    "_reshape_alias",
    "_unsafe_view",
    "alias",
    "as_strided",
    "detach",
    "empty",
    "empty_like",
    "empty_strided",
    "expand",
    "lift_fresh",
    "new_empty",
    "new_empty_strided",
    "permute",
    "select",
    "slice",
    "split",
    "split_with_sizes",
    "squeeze",
    "t",
    "transpose",
    "unbind",
    "unsqueeze",
    "view",
}
"""Operators that start no kernel."""


class Counting(TorchDispatchMode):
    """Counts the calls that work on the device, and copies to it and from it."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        if name in ("copy_", "_to_copy"):
            source, target = (args[1], args[0]) if name == "copy_" else (args[0], result)
            if is_there(source) != is_there(target):
                self.counts["from" if is_there(source) else "to"] += 1
        results = result if isinstance(result, (tuple, list)) else [result]
        works = name not in VIEWS and not name.startswith("prim::")
        self.counts["calls"] += works and any(map(is_there, [*args, *results]))
        return result


def is_there(value):
    return isinstance(value, simulated.ElsewhereTensor)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, help="gets the figures")
    options = parser.parse_args()
    simulated.prepare()
    figures = {name: count_search(beam_size) for name, beam_size in BEAMS.items()}
    columns = ["search", *next(iter(figures.values()))]
    rows = [[name, *row.values()] for name, row in figures.items()]
    print_table("a step of a search, counted without a GPU", columns, rows)
    write_json(options.json, figures)


def count_search(beam_size):
    from tformer_cli.model.config import PRESETS, ModelConfig
    from tformer_cli.model.transformer import Transformer
    from tformer_cli.search.beam_search import BeamSearch
    from tformer_cli.search.config import DecodingConfig
    from tformer_cli.search.sampling import greedy_search

    torch.manual_seed(0)
    model = Transformer(ModelConfig(**PRESETS["tiny"]), ENTRIES).eval()
    tokens = torch.randint(4, ENTRIES, (LINES, TOKENS))
    config = DecodingConfig(beam_size=beam_size, max_length=LONGEST)
    steps = Counter()
    decode_step = model.decode_step

    def counted_step(*arguments):
        steps["all"] += 1
        return decode_step(*arguments)

    model.decode_step = counted_step
    with torch.no_grad(), simulated.Simulation():
        model = model.to(simulated.DEVICE)
        source = tokens.to(simulated.DEVICE)
        mask = torch.ones_like(tokens, dtype=torch.bool).to(simulated.DEVICE)
        simulated.WAITS.clear()
        with Counting() as counting:
            if beam_size == 1:
                greedy_search(model, source, mask, config)
            else:
                search = BeamSearch(model, config)
                search.start(source, mask)
                while search.is_running:
                    search.step()
                search.finish()
    n, counts = steps["all"], counting.counts
    totals = {
        "ATen calls": counts["calls"],
        "host waits": simulated.WAITS.total(),
        "copies to the device": counts["to"],
        "copies from it": counts["from"],
    }
    return {"steps": n, **{name: round(total / n, 2) for name, total in totals.items()}}


if __name__ == "__main__":
    main()
