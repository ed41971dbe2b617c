"""A checkpoint of a run as a model: its weights, with the run's tokenizer and recipe."""

from collections.abc import Container
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from tformer_cli.artifacts.config_file import CONFIG, TOKENIZER, TaskKind, check_task, read_config
from tformer_cli.artifacts.model_directory import (
    TRANSLATORS,
    ModelDirectory,
    ModelInfo,
    load_model_directory,
    make_model,
)
from tformer_cli.artifacts.weights_file import StoredWeights, read_weights
from tformer_cli.data.tokenizer import Tokenizer
from tformer_cli.errors import ArtifactError
from tformer_cli.model.adapter_config import adapter_shapes
from tformer_cli.recipe import Recipe, load_recipe
from tformer_cli.training.adapters import merged_weights
from tformer_cli.training.resuming.checkpoints import MODEL, STATE, Checkpoints
from tformer_cli.workflows.import_model import resolve_model
from tformer_cli.workflows.train import RECIPE, has_run
from tformer_cli.workflows.training.tasks import task_of


def open_model_or_checkpoint(
    path: Path,
    device: torch.device | str = "cpu",
    tasks: Container[TaskKind] = TRANSLATORS,
) -> ModelDirectory:
    """Reads a model directory, or `RUN/checkpoints/step-NNNNNN` of a run.

    Args:
        path: of the directory.
        device: where the model is to be.
        tasks: those whose models will do.

    Raises:
        ArtifactError: in one line, if it is neither, or damaged.
        RecipeError: if the run's recipe cannot be read.
        DataError: if its tokenizer cannot be.
    """
    run = run_of_checkpoint(path)
    if run is None:
        return load_model_directory(resolve_model(path, weights="float32"), device, tasks=tasks)
    place = path.resolve()
    checkpoints = Checkpoints(run)
    steps = [step for step in checkpoints.steps() if checkpoints.path(step) == place]
    if not steps or not has_run(run):
        raise ArtifactError(
            f"{path}: is a checkpoint without its run; name it inside the run, as "
            "RUN/checkpoints/step-NNNNNN"
        )
    recipe = _completed(load_recipe(str(run / RECIPE)), run)
    check_task(path, recipe.model, tasks)
    tokenizer = Tokenizer.from_file(run / TOKENIZER)
    checkpoints.check(steps[0])
    shapes = adapter_shapes(recipe.model, recipe.adapter)
    weights = read_weights(place / MODEL, recipe.model, tokenizer.vocab_size, adapters=shapes)
    if shapes:
        tensors = {name: torch.from_numpy(array) for name, array in weights.arrays.items()}
        whole = merged_weights(tensors, recipe.model, recipe.adapter)
        arrays = {name: tensor.numpy() for name, tensor in whole.items()}
        weights = StoredWeights(arrays, weights.mapping)
    return ModelDirectory(
        path=path,
        config=recipe.model,
        load=partial(make_model, weights, recipe.model, tokenizer.vocab_size, device),
        tokenizer=tokenizer,
        decoding=recipe.decoding,
        info=ModelInfo(
            source_language=recipe.data.source_language,
            target_language=recipe.data.target_language,
            step=steps[0],
            labels=recipe.task.labels,
            several_sentences=read_config(run).several_sentences
            if (run / CONFIG).is_file()
            else None,
        ),
    )


def _completed(recipe: Recipe, run: Path) -> Recipe:
    """Adds what the task and its data decide; labels stand in the run, if it has a model yet."""
    if (run / CONFIG).is_file():
        recipe = replace(recipe, task=replace(recipe.task, labels=read_config(run).labels))
    return task_of(recipe).completed(recipe, None)


def run_of_checkpoint(path: Path) -> Path | None:
    """Names the run that a checkpoint lies in, as RUN/checkpoints/step-NNNNNN.

    Returns:
        None if the directory is not a checkpoint, such as a model directory.
    """
    if not (path / STATE).is_file() or (path / CONFIG).exists():
        return None
    return path.resolve().parent.parent
