"""tformer, by its command line, as a user would run it."""

import json
import shutil
import subprocess
import sys
from itertools import pairwise

from job import read_job, write_answer

TFORMER = (sys.executable, "-m", "tformer_cli")


def main():
    job = read_job()
    run = job.scratch / "run"
    train_quality(job, run) if job.minutes else train_speed(job, run)
    version = subprocess.run([*TFORMER, "--version"], capture_output=True, text=True, check=True)
    write_answer(
        job,
        updates=[] if job.minutes else updates(run),
        curve=curve(job, run) if job.minutes else [],
        version=version.stdout.strip(),
    )


def updates(run):
    """Target tokens and seconds of each update, which was reported by itself."""
    metrics = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    reports = [entry for entry in map(json.loads, metrics) if entry["kind"] == "report"]
    totals = [(0, 0.0), *((report["tokens"], report["seconds"]) for report in reports)]
    return [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(totals)]


def train_speed(job, run):
    """Trains on the shared tokenizer and dimensions, reporting every update, or some together."""
    every = int(job.options.get("report_every", "1"))
    recipe = job.scratch / "recipe.toml"
    recipe.touch()
    keys = {
        "tokenizer.path": json.dumps(str(job.ids / "tokenizer.json")),
        "model.d_model": job.d_model, "model.n_heads": job.n_heads, "model.d_ff": job.d_ff,
        "model.n_encoder_layers": job.n_layers, "model.n_decoder_layers": job.n_layers,
        "model.dropout": 0.1, "training.tokens_per_batch": job.tokens_per_batch,
        "training.label_smoothing": 0.1, "training.max_steps": every * job.updates,
        "training.report_every": every, "training.compile": str("compile" in job.options).lower(),
        "training.average": '"none"',
    }  # fmt: skip
    train(job, recipe, run, keys)


def train_quality(job, run):
    """Trains by the shipped recipe, keeping all its checkpoints, without validating meanwhile."""
    bounds = ("--max-time", f"{60 * job.minutes:.3f}s", "--seed", str(job.seed))
    train(job, job.recipe, run, {"data.valid": "[]", "training.keep_last": 100_000}, *bounds)


def train(job, recipe, run, keys, *bounds):
    """Trains on the text by a recipe with some keys changed."""
    source, target = (json.dumps(str(job.text / f"train.{side}")) for side in ("source", "target"))
    keys = {
        "data.train": f"[{{ source = {source}, target = {target} }}]",
        "data.cache_directory": json.dumps(str(job.text.parent / "tformer-cache")),
        **keys,
    }
    sets = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    device = ("--device", job.options.get("device", "auto"))
    _run("train", str(recipe), "-o", str(run), *bounds, *sets, *_precision(job), *device)


def curve(job, run):
    """Translates with a checkpoint for every interval, and with the final model."""
    points = []
    next_seconds = 60.0 * job.checkpoint_minutes
    for checkpoint in sorted((run / "checkpoints").iterdir()):
        state = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
        if state["is_finished"] or state["seconds"] < next_seconds:
            continue
        while next_seconds <= state["seconds"]:
            next_seconds += 60.0 * job.checkpoint_minutes
        model = job.scratch / checkpoint.name
        model.mkdir()
        shutil.copy(run / "config.json", model)
        shutil.copy(run / "tokenizer.json", model)
        average = checkpoint / "average.safetensors"  # what such a run would publish
        weights = average if average.exists() else checkpoint / "model.safetensors"
        shutil.copy(weights, model / "model.safetensors")
        points.append(_point(job, model, state["seconds"], state["step"]))
    final = _point(job, run, state["seconds"], state["step"])
    final["test"] = str(_translate(job, run, "test"))
    return [*points, final]


def _point(job, model, seconds, step):
    valid = _translate(job, model, "valid")
    return {"seconds": seconds, "updates": step, "valid": str(valid), "is_text": True}


def _translate(job, model, split):
    output = job.scratch / f"{model.name}.{split}"
    _run("translate", str(model), "-i", str(job.text / f"{split}.source"), "-o", str(output))
    return output


def _precision(job):
    return ("--precision", job.options.get("precision", "auto"))


def _run(*arguments):
    subprocess.run([*TFORMER, *arguments, "--quiet"], stdout=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    main()
