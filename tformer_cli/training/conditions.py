"""Conditions that a run's numbers depend on besides recipe and data, and notes of their changes.

A resumption under the conditions of the run before it ends bit for bit as an uninterrupted run on
a CPU. Under others it continues all the same, but says so.
"""

from collections.abc import Mapping
from typing import Any

import torch

from tformer_cli.model.runtime import Precision
from tformer_cli.model.transformer import Transformer
from tformer_cli.training.state import TrainingState
from tformer_cli.wording import count_of

CONDITIONS = ("world_size", "by_kernels", "precision", "device", "n_threads")
"""Fields of a run's state."""


def present_conditions(model: Transformer, precision: Precision, world_size: int) -> dict[str, Any]:
    """Finds the conditions of this process.

    Args:
        model: the model, on its device.
        precision: of its products.
        world_size: processes that train together.
    """
    device = next(model.parameters()).device.type
    return {
        "world_size": world_size,
        "by_kernels": model.operations is not None,
        "precision": precision,
        "device": device,
        "n_threads": torch.get_num_threads() if device == "cpu" else 0,
    }


def notes_of_changes(before: TrainingState, now: Mapping[str, Any]) -> list[str]:
    """Lists the conditions that differ from those of the last steps; of a new run nothing.

    What a checkpoint of an earlier version does not tell is not compared.
    """
    if not before.step:
        return []
    all_but_chance = "same data and steps, but different dropout and rounding"
    all_but_roundings = "same data and steps, but different rounding"
    notes = []
    if before.world_size != now["world_size"]:
        had = count_of(before.world_size, "process", "processes")
        notes.append(f"a run of {had} resumes with {now['world_size']}; {all_but_chance}")
    if before.by_kernels != now["by_kernels"]:
        how = "with" if now["by_kernels"] else "without"
        notes.append(f"the run resumes {how} compiled kernels, unlike before; {all_but_chance}")
    for field, words, what in (
        ("device", "the run moves from {old} to {new}", all_but_chance),
        ("precision", "the run resumes in {new}, before it was {old}", all_but_roundings),
        ("n_threads", "the run resumes with {new} threads, before it had {old}", all_but_roundings),
    ):
        old, new = getattr(before, field), now[field]
        if old and new and old != new:
            notes.append(f"{words.format(old=old, new=new)}; {what}")
    return notes
