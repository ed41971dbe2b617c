"""fairseq, its own train and generate commands called in this process with a stopwatch around."""

import contextlib
import os
import re
import subprocess
import sys

# fairseq's checkpoints are pickles, which torch refuses by default; these are our own
os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"

import fairseq
import torch
from fairseq.trainer import Trainer
from fairseq_cli import preprocess as fairseq_preprocess
from fairseq_cli import train as fairseq_train
from job import Stopwatch, read_job, write_answer

SPEED = ("--dropout", "0.1", "--weight-decay", "0")
QUALITY = ("--dropout", "0.3", "--weight-decay", "0.0001")


class TrainingOver(Exception):  # noqa: N818 - it is no error
    """Ends fairseq's loop at the job's limit."""


def main():
    job = read_job()
    torch.set_num_threads(job.threads)
    data = preprocess(job)
    stopwatch, checkpoints = train(job, data)
    curve = []
    for seconds, n_updates, file in checkpoints:
        valid = generate(data, file, "valid")
        curve.append({"seconds": seconds, "updates": n_updates, "valid": str(valid)})
    if checkpoints:
        curve[-1]["test"] = str(generate(data, checkpoints[-1][2], "test"))
    versions = f"fairseq {fairseq.__version__}, torch {torch.__version__}"
    write_answer(job, updates=stopwatch.updates, curve=curve, version=versions)


def preprocess(job):
    """Makes fairseq's data directory of our token ids."""
    data = job.scratch / "data"
    words = range(4, job.vocab_size)  # fairseq adds four special tokens of its own
    dictionary = job.scratch / "dict.txt"
    dictionary.write_text("".join(f"{word} 1\n" for word in words), encoding="utf-8")
    splits = ("train", "valid", "test") if job.minutes else ("train",)
    prefixes = [word for split in splits for word in (f"--{split}pref", str(job.ids / split))]
    _call(
        fairseq_preprocess, "-s", "source", "-t", "target", "--joined-dictionary",
        "--srcdict", str(dictionary), "--destdir", str(data), *prefixes,
    )  # fmt: skip
    return data


def train(job, data):
    """Runs fairseq-train; returns times and checkpoints (seconds, updates, file)."""
    stopwatch = Stopwatch(job)
    checkpoints = []
    original = Trainer.train_step

    def train_step(self, samples, *args, **kwargs):
        if not stopwatch.updates:
            stopwatch.restart()
        result = original(self, samples, *args, **kwargs)
        stopwatch.add_update(sum(sample["ntokens"] for sample in samples))
        if stopwatch.is_checkpoint_due():
            with stopwatch.pause():
                file = job.scratch / f"update-{len(stopwatch.updates)}.pt"
                self.save_checkpoint(str(file), {})
                checkpoints.append((stopwatch.seconds, len(stopwatch.updates), file))
        if stopwatch.is_over:
            raise TrainingOver
        return result

    Trainer.train_step = train_step
    with contextlib.suppress(TrainingOver):
        _call(fairseq_train, *train_arguments(job, data))
    return stopwatch, checkpoints


def train_arguments(job, data):
    """The published settings for small corpora, with our dimensions.

    Source: fairseq, `examples/translation`, IWSLT'14 German to English. The example ends with the
    best checkpoint of the validation set; here it is the last one.
    """
    sides = [
        word
        for side in ("encoder", "decoder")
        for word in (
            f"--{side}-layers", str(job.n_layers), f"--{side}-embed-dim", str(job.d_model),
            f"--{side}-ffn-embed-dim", str(job.d_ff), f"--{side}-attention-heads", str(job.n_heads),
        )
    ]  # fmt: skip
    return [
        str(data), "-s", "source", "-t", "target", "--cpu", "--seed", str(job.seed),
        "--arch", "transformer", *sides, "--share-all-embeddings",
        "--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--clip-norm", "0",
        "--lr", "5e-4", "--lr-scheduler", "inverse_sqrt", "--warmup-updates", "4000",
        "--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1",
        *(QUALITY if job.minutes else SPEED), "--max-tokens", str(job.tokens_per_batch),
        "--no-save", "--no-save-optimizer-state", "--disable-validation",
        "--no-progress-bar", "--log-interval", "100", "--save-dir", str(job.scratch / "unused"),
    ]  # fmt: skip


def generate(data, checkpoint, split):
    """Translates a split by beam 5; returns the file of token ids."""
    command = [
        sys.executable, "-m", "fairseq_cli.generate", str(data), "--path", str(checkpoint),
        "--gen-subset", split, "--beam", "5", "--batch-size", "64", "--cpu",
        "--required-batch-size-multiple", "1",  # or it leaves out what makes no whole multiple
    ]  # fmt: skip
    log = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    lines = re.findall(r"^H-(\d+)\t[^\t]*\t(.*)$", log, re.MULTILINE)
    output = checkpoint.with_suffix(f".{split}")
    ordered = sorted((int(index), text) for index, text in lines)
    output.write_text("".join(text + "\n" for _, text in ordered), encoding="utf-8")
    return output


def _call(module, *arguments):
    sys.argv = [module.__name__, *arguments]
    module.cli_main()


if __name__ == "__main__":
    main()
