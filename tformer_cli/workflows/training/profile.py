"""Profile of a recipe's training steps; nothing is trained."""

from pathlib import Path
from tempfile import TemporaryDirectory

from tformer_cli.kinds.training import Progress
from tformer_cli.recipe import Recipe
from tformer_cli.training.processes.group import Processes
from tformer_cli.training.processes.launch import Launch
from tformer_cli.training.profiling import StepProfile, profile_steps
from tformer_cli.workflows.train import prepare, settle_batches
from tformer_cli.workflows.training.device import training_device


def profile_training(
    recipe: Recipe,
    n_steps: int,
    *,
    device: str = "auto",
    progress: Progress | None = None,
) -> StepProfile:
    """Makes some steps on the recipe's data, as training would, and measures them."""
    # Nothing is left but the tokenized corpora in the cache, which training will find there.
    with TemporaryDirectory() as directory:
        place = training_device(device, Launch())
        prepared = prepare(recipe, Path(directory), place, Processes(), progress)
        started = settle_batches(recipe, prepared)
        return profile_steps(prepared.trainer, n_steps, vocab_size=started.vocab_size)
