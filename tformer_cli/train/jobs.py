"""Jobs of a directory: one that keeps a record, a training run, or runs of several seeds.

Everything is read from files, while others write them; nothing is changed.
"""

import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from tformer_cli.artifacts.job_file import JobRecord, Spent, State, read_job
from tformer_cli.errors import TformerError
from tformer_cli.files.atomic import LOCK, is_alive, is_held
from tformer_cli.files.regular_file import MIB, read_regular
from tformer_cli.recipe import RECIPE, load_recipe
from tformer_cli.show.curves import METRICS_FILE, RunMetrics, read_run

TRAIN = "train"
Source = TypeVar("Source")
Value = TypeVar("Value")


def find_jobs(directory: Path) -> dict[str, JobRecord]:
    """Finds the jobs of a directory by their paths in it; its own has the name "".

    Raises an ArtifactError if a record is damaged.
    """
    jobs = {}
    if (own := read_job(directory)) is not None:
        jobs[""] = own
        # A distillation trains in a directory of its own
        if own.doing and (run := _read_run(directory / own.doing.partition(":")[0])) is not None:
            jobs[own.doing] = run
    elif (run := _read_run(directory)) is not None:
        jobs[""] = run
    elif directory.is_dir():
        folders = sorted(directory.glob("seed-*"), key=lambda path: (len(path.name), path.name))
        runs = {folder.name: _read_run(folder) for folder in folders}
        jobs = {name: run for name, run in runs.items() if run is not None}
    return jobs


def _read_run(run: Path) -> JobRecord | None:
    """Describes a training by the files of its run directory; None: it is no run directory."""
    holder = _json(run / LOCK)
    process = holder.get("process")
    process = process if isinstance(process, int) else None
    is_running = is_held(run, process)
    # A training with --fresh names itself only when it replaces the run
    if is_running and process is not None and not is_alive(process):
        process = None
    if not (run / LOCK).is_file() or not ((run / RECIPE).is_file() or (holder and is_running)):
        return None
    # A run that prepares its data has no recipe yet
    recipe = _if_readable(load_recipe, str(run / RECIPE))
    checkpoint = _last_checkpoint(run)
    metrics = _if_readable(read_run, run)
    last = metrics.reports[-1] if metrics is not None and metrics.reports else {}
    times: tuple[Spent, ...] = ()
    with suppress(KeyError, TypeError):  # a line that somebody has changed
        times = () if metrics is None else _times(metrics, last)
    step, seconds = int(last.get("step", 0)), sum(row.seconds for row in times)
    if metrics is not None and metrics.validations:  # there may be no report yet
        step = max(step, int(metrics.validations[-1]["step"]))
    share = _number(last.get("share_done"))
    reason = str(checkpoint.get("reason", ""))
    state: State = "running" if is_running else "finished" if reason else "interrupted"
    if state == "finished":  # the last report may be of some steps before
        step = int(_number(checkpoint.get("step")))
        seconds = max(seconds, _number(checkpoint.get("seconds")))
    files = [run / name for name in (LOCK, RECIPE, METRICS_FILE)]
    changed = max(file.stat().st_mtime for file in files if file.exists())
    return JobRecord(
        command=TRAIN,
        state=state,
        reason=reason,
        process=process,
        host=str(holder.get("host", "")),
        begun=str(holder.get("since", "")),
        updated=datetime.fromtimestamp(changed, UTC).isoformat(timespec="seconds"),
        seconds=seconds,
        doing="" if state != "running" else "training" if step else "preparing",
        unit="steps",
        done=step,
        total=(recipe.training.max_steps or None) if recipe is not None else None,
        per_second=step / seconds if seconds else None,
        seconds_left=seconds * (1.0 - share) / share if share else None,
        times=times,
    )


def _if_readable(read: Callable[[Source], Value], source: Source) -> Value | None:
    """Reads a file of a run; None if it is not there yet or cannot be read."""
    with suppress(TformerError):
        return read(source)
    return None


def _times(metrics: RunMetrics, last: Mapping[str, float]) -> tuple[Spent, ...]:
    step, seconds = last.get("step", 0.0), last.get("seconds", 0.0)
    validations = [*metrics.validations, *metrics.averages]
    # A step is validated after its report, whose time includes the validations before
    before = sum(entry["seconds"] for entry in validations if entry["step"] < step)
    return (
        Spent(part="training", seconds=max(0.0, seconds - before)),
        Spent(part="validating", seconds=sum(entry["seconds"] for entry in validations)),
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0


def _last_checkpoint(run: Path) -> dict[str, Any]:
    for folder in sorted((run / "checkpoints").glob("step-*"), reverse=True):
        if state := _json(folder / "state.json"):
            return state
    return {}


def _json(file: Path) -> dict[str, Any]:
    """Reads an object; empty if there is none, or it is just being written."""
    with suppress(OSError, ValueError, RecursionError, TformerError):
        value = json.loads(read_regular(file, MIB))
        return value if isinstance(value, dict) else {}
    return {}
