"""Fine-tuning an encoder to label sentences, beside Hugging Face's loop: speed and memory.

python tests/benchmarks/encoder_tuning.py MODEL TEXT

MODEL is a directory of sentence-transformers or of a BERT, TEXT has a label and a sentence a line,
with a tab between (SST-2). Both train all weights for one epoch, in float32 or, with `--bfloat16`,
in mixed precision. Contestants run in turns, in processes of their own. What counts is an epoch of
many sentences less one of few, so that neither imports nor files do.

The loop is what Hugging Face's Trainer does at its best on a processor: batches of sentences of
like length padded to the longest, fused AdamW, attention by one operator, gradients clipped.
"""

import argparse
import itertools
import os
import statistics
import sys
from pathlib import Path

from harness import TFORMER, Cost, cost_of, print_table, say, work_directory

TOKENS = 1024
"""Of a batch, for both; those of the loop with their padding."""
NO_AVERAGE = "training.average=none"  # the loop makes none


def main():
    if sys.argv[1:2] == ["child"]:
        tune_by_transformers(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--few", type=int, default=200, help="sentences of a short epoch [200]")
    parser.add_argument("--many", type=int, default=1000, help="of a long one [1000]")
    parser.add_argument("--rounds", type=int, default=5, help="[5]")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="[all cores]")
    parser.add_argument("--bfloat16", action="store_true", help="mixed precision")
    options = parser.parse_args()
    precision = "bfloat16" if options.bfloat16 else "float32"
    found = {}
    with work_directory(None) as work:
        files = [parts_of(options.text, n, work) for n in (options.few, options.many)]

        def tformer(file):
            sets = (
                f'data.train=[{{tsv="{file}"}}]',
                "data.valid=[]",
                "training.max_epochs=1",
                NO_AVERAGE,
            )
            given = [part for setting in sets for part in ("--set", setting)]
            run = work / f"run-{len(list(work.iterdir()))}"
            source = ("--from", options.model, "--precision", precision)
            return [*TFORMER, "train", "sst2", "-o", run, *source, *given, "--quiet"]

        def loop(file):
            return [sys.executable, __file__, "child", options.model, file, precision]

        contestants = {"tformer": tformer, "transformers": loop}
        for _, (name, command) in itertools.product(range(options.rounds), contestants.items()):
            less, more = (cost_of(command(file), threads=options.threads) for file in files)
            cost = Cost(more.processor - less.processor, more.wall - less.wall, more.peak)
            found.setdefault(name, []).append(cost)
            say(f"{name}: {cost.wall:.1f} s")
    n_sentences = options.many - options.few
    medians = {
        name: Cost(*map(statistics.median, zip(*costs, strict=True)))
        for name, costs in found.items()
    }
    first = medians["tformer"]
    rows = (
        (
            name,
            f"{n_sentences / cost.wall:.1f}",
            f"{cost.wall / first.wall:.2f}",
            f"{n_sentences / cost.processor:.1f}",
            f"{cost.processor / first.processor:.2f}",
            f"{cost.peak:,.0f}",
        )
        for name, cost in medians.items()
    )
    columns = ("sentences/s", "first is × as fast", "of processor", "× as fast", "peak MB")
    print_table(f"{precision}, {options.threads} threads", ("contestant", *columns), rows)


def parts_of(text, n, work):
    """Writes the first lines as sentence and label."""
    lines = itertools.islice(text.read_text(encoding="utf-8").splitlines(), n)
    pairs = (line.partition("\t") for line in lines)
    file = work / f"{n}.tsv"
    file.write_text("".join(f"{text}\t{label}\n" for label, _, text in pairs), encoding="utf-8")
    return file


def tune_by_transformers(model, file, precision):
    """One epoch of a plain loop over the library's classifier."""
    import random

    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch.manual_seed(1)
    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForSequenceClassification.from_pretrained(
        model, num_labels=2, hidden_dropout_prob=0.2, attn_implementation="sdpa"
    ).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-4, weight_decay=0.01, fused=True)
    pairs = [line.rpartition("\t") for line in Path(file).read_text("utf-8").splitlines()]
    rows = [(tokenizer.encode(text), int(label)) for text, _, label in pairs]
    batches, batch = [], []
    for row in sorted(rows, key=lambda row: len(row[0])):
        if len(row[0]) * (len(batch) + 1) > TOKENS:
            batches.append(batch)
            batch = []
        batch.append(row)
    batches.append(batch)
    random.Random(1).shuffle(batches)
    for batch in batches:
        inputs = tokenizer.pad({"input_ids": [ids for ids, _ in batch]}, return_tensors="pt")
        labels = torch.tensor([label for _, label in batch])
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            loss = network(**inputs, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


if __name__ == "__main__":
    main()
