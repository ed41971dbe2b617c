"""Whether the fast path of training ends where the plain one does.

    python tests/benchmarks/loss_curves.py [--recipe quickstart] [--steps 300] [--seeds 1 2 3]

Trains by one recipe with `tformer train` as it is and with `plain_training.py`, once for each seed,
taking turns. Prints training loss along the way and the loss on the validation pairs at the end,
the mean of each path over the seeds, and their difference beside the spread between seeds. The
paths draw other random numbers for dropout, so they cannot be equal, only as close as two seeds
are; with `--set model.dropout=0` they are equal but for rounding.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean, stdev

HERE = Path(__file__).parent
PATHS = {
    "fast": (sys.executable, "-m", "tformer_cli", "train"),
    "plain": (sys.executable, str(HERE / "plain_training.py"), "train"),
}
N_POINTS = 5
"""Points of a curve that are printed."""


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as temporary:
        directory = arguments.directory or Path(temporary)
        curves: dict[str, list[dict[int, float]]] = {path: [] for path in PATHS}
        finals: dict[str, list[float]] = {path: [] for path in PATHS}
        for seed in arguments.seeds:
            for path, command in PATHS.items():
                curve, final = _run(command, directory / f"{path}-{seed}", arguments, seed)
                curves[path].append(curve)
                finals[path].append(final)
                _write(f"{path:<6} seed {seed}: {_points(curve)}, validation {final:.4f}")
    for path, of_path in curves.items():
        means = {step: mean(curve[step] for curve in of_path) for step in of_path[0]}
        spread = f" ± {stdev(finals[path]):.4f}" if len(finals[path]) > 1 else ""
        _write(f"{path:<6} mean:   {_points(means)}, validation {mean(finals[path]):.4f}{spread}")
    _write(f"fast - plain: validation {mean(finals['fast']) - mean(finals['plain']):+.4f}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The fast path's loss beside the plain path's.")
    parser.add_argument("--recipe", default="quickstart", help="[quickstart]")
    parser.add_argument("--steps", type=int, default=300, help="of a run [300]")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="[1 2 3]")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="[all cores]")
    parser.add_argument("--set", action="append", default=[], help="a setting of the recipe")
    parser.add_argument("--directory", type=Path, help="keep the runs here")
    return parser.parse_args()


def _run(
    command: tuple[str, ...], run: Path, arguments: argparse.Namespace, seed: int
) -> tuple[dict[int, float], float]:
    """Trains; returns training loss by step, and the last validation loss."""
    settings = [
        f"training.max_steps={arguments.steps}",
        f"training.report_every={max(1, arguments.steps // N_POINTS)}",
        f"validation.every={arguments.steps}",
        'validation.metric="loss"',
        'training.average="none"',
        f"training.seed={seed}",
        *arguments.set,
    ]
    options = [word for setting in settings for word in ("--set", setting)]
    threads = str(arguments.threads)
    subprocess.run(
        [*command, arguments.recipe, "-o", str(run), "--threads", threads, "--quiet", *options],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines]
    curve = {entry["step"]: entry["loss"] for entry in entries if entry["kind"] == "report"}
    scores = [entry["scores"] for entry in entries if entry["kind"] == "validation"]
    return curve, scores[-1]["loss"]


def _points(curve: dict[int, float]) -> str:
    return "loss " + " ".join(f"{step}: {loss:.3f}" for step, loss in sorted(curve.items()))


def _write(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
