"""State of a run: everything that resuming needs, apart from weights and optimizer.

A run's numbers depend on its recipe, data and conditions. On a CPU, resuming under the same
conditions ends bit for bit as an uninterrupted run. Under others the run continues, with a note.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from tformer_cli.model.base import Model
from tformer_cli.model.config import Precision
from tformer_cli.structure import structure
from tformer_cli.text.loading.loader import LoaderPosition
from tformer_cli.trainer.config import ValidationConfig
from tformer_cli.trainer.events import RolledBack
from tformer_cli.trainer.hardware import is_compiled
from tformer_cli.trainer.processes.group import Processes
from tformer_cli.trainer.report_interval import LossHistory
from tformer_cli.wording import count_of


@dataclass(kw_only=True)
class TrainingState:
    """Counters and memory of a run, all of it JSON."""

    step: int = 0
    position: LoaderPosition = field(default_factory=LoaderPosition)
    tokens: int = 0
    seconds: float = 0.0
    """Time spent, interruptions excluded."""
    seconds_to_end: float = 0.0
    """Time that validation and checkpoint after the last step will take, by those so far."""
    validations: list[dict[str, float]] = field(default_factory=list)
    is_finished: bool = False
    reason: str = ""
    world_size: int = 1
    """Processes that made the last steps."""
    by_kernels: bool = False
    """True if the last steps were computed by the compiled kernels."""
    is_compiled: bool = False
    """True if torch has compiled their layers."""
    shards_weights: bool = False
    """True if each process had a part of every weight."""
    precision: str = ""
    """Library of their products; empty, like the next two, in older checkpoints."""
    device: str = ""
    """The kind of device that made them."""
    n_threads: int = 0
    """CPU threads of each process that made them (0: they were made elsewhere)."""
    fingerprints: list[str] = field(default_factory=list)
    """Content of the corpora; a resumption with other data is refused."""
    tokens_per_batch: int = 0
    """Token budget of the run's batches; found before the first step if not in the recipe."""
    batch_factor: float = 1.0
    """Times the default budget that was found on a GPU, for learning rate and warm-up."""
    window: dict[str, float] = field(default_factory=dict)
    """Sums for the next report."""
    losses: LossHistory = field(default_factory=LossHistory)
    """Reference values for detecting divergence."""
    rollbacks: list[RolledBack] = field(default_factory=list)

    @property
    def learning_rate_factor(self) -> float:
        """Factor of all learning rates: halved at each rollback."""
        return self.rollbacks[-1].learning_rate_factor if self.rollbacks else 1.0

    def add_validation(self, scores: Mapping[str, float], config: ValidationConfig) -> bool:
        """Remembers the scores of the present step; returns whether they are the best so far."""
        self.validations.append({"step": self.step, **scores})
        return self.best_steps(config)[0] == self.step

    def best_steps(self, config: ValidationConfig) -> list[int]:
        """Orders the validated steps from best to worst; of equal ones the earlier is better."""
        sign = -1.0 if config.higher_is_better else 1.0
        ordered = sorted(self.validations, key=lambda s: (sign * s[config.metric], s["step"]))
        return [int(scores["step"]) for scores in ordered]

    def validations_since_best(self, config: ValidationConfig) -> int:
        best = self.best_steps(config)[:1]
        return sum(scores["step"] > best[0] for scores in self.validations) if best else 0

    @property
    def is_validated(self) -> bool:
        """True if the present step has its scores."""
        return bool(self.validations) and self.validations[-1]["step"] == self.step

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "TrainingState":
        return structure(cls, values)


@contextmanager
def generators_kept(device: torch.device) -> Iterator[None]:
    """Puts torch's generators back at the end: a run seeds them, its caller has them as before."""
    before = generator_tensors(device)
    try:
        yield
    finally:
        restore_generators(before, device)


def generator_tensors(device: torch.device) -> dict[str, Tensor]:
    """Saves the states of torch's generators, the only ones that training draws from."""
    tensors = {"generator.cpu": torch.get_rng_state()}
    if device.type == "cuda":
        tensors["generator.cuda"] = torch.cuda.get_rng_state(device)
    return tensors


def restore_generators(tensors: dict[str, Tensor], device: torch.device) -> None:
    """Puts the generators back where `generator_tensors` found them."""
    # A run that moves from a CPU to a GPU has no state of the latter's generator; it keeps the
    # seeded one.
    torch.set_rng_state(tensors["generator.cpu"].cpu())
    if device.type == "cuda" and "generator.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["generator.cuda"].cpu(), device)


CONDITIONS = (
    "world_size", "by_kernels", "is_compiled", "shards_weights", "precision", "device", "n_threads"
)  # fmt: skip


def present_conditions(model: Model, precision: Precision, processes: Processes) -> dict[str, Any]:
    device = next(model.parameters()).device.type
    return {
        "world_size": processes.world_size,
        "by_kernels": model.operations is not None,
        "is_compiled": is_compiled(model),
        "shards_weights": processes.shards_weights,
        "precision": precision,
        "device": device,
        "n_threads": torch.get_num_threads() if device == "cpu" else 0,
    }


def notes_of_changes(before: TrainingState, now: Mapping[str, Any]) -> list[str]:
    """Lists the conditions that differ from those of the last steps; empty for a new run."""
    # A checkpoint of an earlier version may lack some of them.
    if not before.step:
        return []
    all_but_chance = "same data and steps, but different dropout and rounding"
    all_but_roundings = "same data and steps, but different rounding"
    notes = []
    if before.world_size != now["world_size"]:
        had = count_of(before.world_size, "process", "processes")
        notes.append(f"a run of {had} resumes with {now['world_size']}; {all_but_chance}")
    for name, what in (
        ("by_kernels", "compiled kernels"),
        ("is_compiled", "torch.compile"),
        ("shards_weights", "training.shard_weights"),
    ):
        if getattr(before, name) != now[name]:
            how = "with" if now[name] else "without"
            notes.append(f"the run resumes {how} {what}, unlike before; {all_but_chance}")
    for name, words, what in (
        ("device", "the run moves from {old} to {new}", all_but_chance),
        ("precision", "the run resumes in {new}, before it was {old}", all_but_roundings),
        ("n_threads", "the run resumes with {new} threads, before it had {old}", all_but_roundings),
    ):
        old, new = getattr(before, name), now[name]
        if old and new and old != new:
            notes.append(f"{words.format(old=old, new=new)}; {what}")
    return notes
