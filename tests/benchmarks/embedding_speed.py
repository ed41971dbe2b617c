"""Sentence vectors of tformer beside those of its peers, with the same model, in turns.

    python tests/benchmarks/embedding_speed.py MODEL TEXTS --onnx GRAPH --precision int8

MODEL is a directory of sentence-transformers with mean pooling, such as all-MiniLM-L6-v2, and GRAPH
the onnx/model.onnx that `tformer export --format onnx` makes of it; onnxruntime quantizes it by its
own `quantize_dynamic` for int8. All compute on one thread, once all texts and once each; the
peers in batches of 32 texts of like length, which is their best case. Seconds are those of the
processor, medians of the rounds. The vectors are compared, too.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from harness import write

from tformer_cli.kinds.lines.embed import embed_texts
from tformer_cli.kinds.opening import open_model

BATCH = 32


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path, help="one text a line")
    parser.add_argument("--onnx", type=Path, help="the graph that onnxruntime computes")
    parser.add_argument("--precision", choices=("float32", "int8"), default="float32")
    parser.add_argument("--alone", type=int, default=64, help="texts computed one by one [64]")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    texts = given.texts.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    contestants = {"tformer": ours(given.model, given.precision)}
    if given.precision == "float32":
        contestants["transformers"] = by_transformers(given.model)
    if given.onnx is not None:
        contestants["onnxruntime"] = by_onnxruntime(given.model, given.onnx, given.precision)
    race(contestants, texts, given.rounds, "together")
    race(contestants, texts[: given.alone], given.rounds, "alone", is_alone=True)


def race(contestants, texts, n_rounds, title, *, is_alone=False):
    """Prints the time a text of each, and how many times as fast tformer is."""
    seconds = {name: [] for name in contestants}
    vectors = {}
    for _ in range(n_rounds):
        for name, embed in contestants.items():
            begun = time.process_time()
            parts = [embed([text]) for text in texts] if is_alone else [embed(texts)]
            seconds[name].append(time.process_time() - begun)
            vectors[name] = np.concatenate(parts)
    for name, times in seconds.items():
        ratios = [b / a for a, b in zip(seconds["tformer"], times, strict=True)]
        shown = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        milliseconds = 1e3 * statistics.median(times) / len(texts)
        cosine = (vectors["tformer"] * vectors[name]).sum(axis=1).mean()
        write(f"| {title} | {name} | {milliseconds:.2f} ms a text | {shown} | {cosine:.6f} |")


def ours(model, precision):
    opened = open_model(model, "embed", device="cpu", threads=1, precision=precision)
    if opened.compiled is None:
        raise SystemExit("the kernels do not take this model")

    def embed(texts):
        return np.array([embedding.vector for embedding in embed_texts(opened, texts)])

    return embed


def by_transformers(model):
    import torch
    import transformers

    torch.set_num_threads(1)
    encoder = transformers.AutoModel.from_pretrained(model).eval()

    @torch.inference_mode()
    def compute(batch):
        batch = {name: torch.from_numpy(values) for name, values in batch.items()}
        mask = batch["attention_mask"].unsqueeze(2)
        mean = (encoder(**batch).last_hidden_state * mask).sum(1) / mask.sum(1)
        return torch.nn.functional.normalize(mean).numpy()

    return in_batches(model, compute)


def by_onnxruntime(model, graph, precision):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        if precision == "int8":
            from onnxruntime.quantization import quantize_dynamic

            quantized = Path(folder) / "model.onnx"
            quantize_dynamic(graph, quantized)
            graph = quantized
        session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    return in_batches(model, lambda batch: session.run(["sentence_embedding"], batch)[0])


def in_batches(model, compute):
    """Lets an engine compute padded batches of texts of like length."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()

    def embed(texts):
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        found = [None] * len(texts)
        for first in range(0, len(order), BATCH):
            some = order[first : first + BATCH]
            read = tokenizer.encode_batch([texts[number] for number in some])
            batch = {
                "input_ids": np.array([encoding.ids for encoding in read]),
                "attention_mask": np.array([encoding.attention_mask for encoding in read]),
            }
            for number, vector in zip(some, compute(batch), strict=True):
                found[number] = vector
        return np.array(found)

    return embed


if __name__ == "__main__":
    main()
