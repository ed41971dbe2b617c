"""Sentence vectors of tformer beside transformers', with the same model, in turns.

    python tests/benchmarks/embedding_speed.py MODEL TEXTS

MODEL is a directory of sentence-transformers with mean pooling, such as all-MiniLM-L6-v2. Both
compute on one thread; transformers in batches of 32 texts of like length, which is its best case.
Seconds are those of the processor, medians of the rounds. The vectors are compared, too.
"""

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import torch
import transformers
from harness import write

from tformer_cli.kinds.lines.embed import embed_texts
from tformer_cli.kinds.opening import open_model

BATCH = 32


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path, help="one text a line")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    texts = given.texts.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    torch.set_num_threads(1)
    contestants = {"tformer": ours(given.model), "transformers": theirs(given.model)}
    seconds = {name: [] for name in contestants}
    vectors = {}
    for _ in range(given.rounds):
        for name, embed in contestants.items():
            begun = time.process_time()
            vectors[name] = embed(texts)
            seconds[name].append(time.process_time() - begun)
    for name, times in seconds.items():
        median = statistics.median(times)
        write(f"| {name} | {median:.2f} s | {len(texts) / median:,.0f} texts/s |")
    ratios = [b / a for a, b in zip(seconds["tformer"], seconds["transformers"], strict=True)]
    write(
        f"times as fast: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    )
    write(f"largest difference: {np.abs(vectors['tformer'] - vectors['transformers']).max():.1e}")


def ours(model):
    opened = open_model(model, "embed", device="cpu", threads=1)
    if opened.compiled is None:
        raise SystemExit("the kernels do not take this model")

    def embed(texts):
        return np.array([one.vector for one in embed_texts(opened, texts)])

    return embed


def theirs(model):
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    encoder = transformers.AutoModel.from_pretrained(model).eval()

    @torch.inference_mode()
    def embed(texts):
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        found = np.empty((len(texts), encoder.config.hidden_size), np.float32)
        for first in range(0, len(order), BATCH):
            some = order[first : first + BATCH]
            batch = tokenizer(
                [texts[number] for number in some],
                padding=True, truncation=True, max_length=256, return_tensors="pt",
            )  # fmt: skip
            hidden = encoder(**batch).last_hidden_state
            mask = batch["attention_mask"].unsqueeze(2)
            mean = (hidden * mask).sum(1) / mask.sum(1)
            found[some] = torch.nn.functional.normalize(mean).numpy()
        return found

    return embed


if __name__ == "__main__":
    main()
