"""What each training trick changes after the same number of updates.

python tests/benchmarks/tricks.py --data DIR --work DIR --updates 300 --seeds 1 2 3

Equal updates and not equal minutes: other programs on the machine then change no score. The cost of
an update is measured apart (`--cost`), so that equal time can be told. A finished run is kept in
WORK/results.json and not repeated; one that was cut off is resumed.
"""

import argparse
import json
import statistics
from pathlib import Path

from harness import TFORMER, cost_of, output_of, print_table, say, write, write_json

DECAY = "training.weight_decay=0.1"
SWITCHES = {
    "baseline": (),
    "zero-init": ("training.zero_outputs=true",),
    "normuon": ("training.optimizer=normuon",),
    "decay": (DECAY,),
    "cautious": (DECAY, "training.cautious_decay=true"),
    "qk-cosine": ("model.similarity=cosine",),
}
"""Keys that a run differs in from the recipe; "+" joins several, as in zero-init+normuon."""
WARM_UP, TIMED = 5, 25
"""Updates that do not count, and that do, in each turn of the measurement of cost."""


def main():
    options = parse_options()
    options.work.mkdir(parents=True, exist_ok=True)
    if options.cost:
        for name, seconds in costs(options).items():
            write(f"{name}\t{seconds:.3f} processor seconds an update")
        return
    file = options.work / "results.json"
    results = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for seed in options.seeds:  # switches take turns, so that the first table has all of them
        for name in options.switches:
            key = f"{name}-{options.updates}-{seed}"
            if key not in results:
                say(key)
                results[key] = train_run(key, name, seed, options)
                write_json(file, results)
    show(results, options)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("switches", nargs="*", default=list(SWITCHES), help=", ".join(SWITCHES))
    parser.add_argument("--data", type=Path, required=True, help="Multi30k")
    parser.add_argument("--work", type=Path, required=True, help="keeps runs and results.json")
    parser.add_argument("--recipe", default="multi30k-en-de-muon", help="[multi30k-en-de-muon]")
    parser.add_argument("--updates", type=int, default=300, help="of each run [300]")
    parser.add_argument("--tokens", type=int, default=2048, help="tokens of a batch [2048]")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="[1]")
    parser.add_argument("--threads", type=int, default=1, help="[1]")
    parser.add_argument("--beam-size", type=int, default=5, help="[5]")
    parser.add_argument("--test", default="test_2016_flickr", help="[test_2016_flickr]")
    parser.add_argument(
        "--cost", type=int, default=0, metavar="ROUNDS", help="only measure what an update costs"
    )
    return parser.parse_args()


def keys_of(name, options):
    """All keys that a run sets, as KEY=VALUE."""
    yield from (f"data.directory={options.data.resolve()}", "training.max_epochs=0")
    yield from (f"training.max_steps={options.updates}", "training.average=none")
    yield from (f"training.tokens_per_batch={options.tokens}", "validation.every=1000000")
    for switch in name.split("+"):
        yield from SWITCHES[switch]


def train_run(key, name, seed, options):
    """Trains in a process of its own; a run that was cut off is resumed."""
    run = options.work / key
    sets = [part for setting in keys_of(name, options) for part in ("--set", setting)]
    threads = ("--threads", options.threads)
    command = ["train", options.recipe, "-o", run, "--seed", seed, *sets, *threads, "--quiet"]
    cost = cost_of([*TFORMER, *command])
    entries = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    scores = [
        entry["scores"] for entry in map(json.loads, entries) if entry["kind"] == "validation"
    ]
    source = options.data / f"{options.test}.en.gz"
    beam = ("--beam-size", options.beam_size)
    text = output_of("translate", run, "-i", source, *beam, *threads, "--quiet")
    return {"loss": scores[-1]["loss"], "processor": cost.processor, "text": text.splitlines()}


def costs(options):
    """Processor seconds of an update: what `TIMED` more of them cost; switches take turns."""
    seconds = {name: [] for name in options.switches}
    for number in range(options.cost):
        for name, taken in seconds.items():
            few, many = (
                time_training(name, n, options.work / f"cost-{name}-{number}-{n}", options)
                for n in (WARM_UP, WARM_UP + TIMED)
            )
            taken.append((many - few) / TIMED)
            say(f"{name}: {taken[-1]:.3f}")
    return {name: statistics.median(taken) for name, taken in seconds.items()}


def time_training(name, n_updates, run, options):
    """Processor seconds of a whole training without validation."""
    keys = [*keys_of(name, options), f"training.max_steps={n_updates}", "data.valid=[]"]
    sets = [part for setting in keys for part in ("--set", setting)]
    threads = ("--threads", options.threads)
    command = ["train", options.recipe, "-o", run, "--fresh", *sets, *threads, "--quiet"]
    return cost_of([*TFORMER, *command]).processor


def show(results, options):
    """The table: means over seeds, and paired tests of all seeds' translations together."""
    from tformer_cli.metrics.significance import PairedScores
    from tformer_cli.text.lines import read_lines

    def of(name):
        return [results[f"{name}-{options.updates}-{seed}"] for seed in options.seeds]

    def texts(name):
        return [line for result in of(name) for line in result["text"]]

    reference = list(read_lines(options.data / f"{options.test}.de.gz")) * len(options.seeds)
    first, *_ = options.switches
    paired = PairedScores(texts(first), [reference])
    rows = []
    for name in options.switches:
        cells = [f"{statistics.mean(result['loss'] for result in of(name)):.3f}"]
        for score in paired.compare(texts(name)):
            low, high = score.interval
            cells += [f"{score.value:.1f}", f"{score.difference:+.1f} ({low:+.1f} to {high:+.1f})"]
            cells.append(f"{score.p_value:.3f}" if name != first else "")
        rows.append((name, *cells))
    heads = ("switch", "loss", "BLEU", "difference", "p", "chrF", "difference", "p")
    print_table(f"{options.updates} updates, seeds {options.seeds}", heads, rows)
    for name, signature in paired.signatures.items():
        write(f"{name}: {signature}")


if __name__ == "__main__":
    main()
