"""Lengths of runs: steps, tokens and time, which a comparison must not pass over."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tformer_cli.files.regular_file import MIB, read_regular


@dataclass(frozen=True, kw_only=True)
class RunLength:
    """The length of a run so far, by its newest checkpoint."""

    steps: int
    tokens: int
    seconds: float
    is_finished: bool
    reason: str
    """Reason of its end, such as "max_minutes = 2.0 is reached"; empty: it has not ended."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run of a system."""

    name: str
    steps: int | None
    """Training steps; None: not known, as of a model directory without checkpoints."""


def read_length(run: Path) -> RunLength | None:
    """Reads the newest checkpoint of a run, without torch; None: it has none that is sound."""
    states = run.glob("checkpoints/step-*/state.json")
    try:
        newest = max(states, key=lambda path: int(path.parent.name.removeprefix("step-")))
        state = json.loads(read_regular(newest, 8 * MIB))
        return RunLength(
            steps=int(state["step"]),
            tokens=int(state["tokens"]),
            seconds=float(state["seconds"]),
            is_finished=bool(state["is_finished"]),
            reason=str(state["reason"]),
        )
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None  # training finds out what is wrong with it


def unequal_lengths(steps: Mapping[str, Sequence[int]]) -> str:
    """Describes runs of different lengths; empty: all have the same number of steps.

    steps: for each system or run, the steps of each of its runs.
    """
    if len({number for numbers in steps.values() for number in numbers}) < 2:
        return ""
    parts = [
        f"{name} {', '.join(f'{number:,}' for number in dict.fromkeys(numbers))}"
        for name, numbers in steps.items()
    ]
    return (
        f"the runs trained for different numbers of steps ({'; '.join(parts)}), so that scores "
        "differ for that, too; train all with the same --max-steps"
    )
