"""Processes that train together have to be started alike."""

from typing import Any

from tformer_cli.errors import RecipeError, UsageError
from tformer_cli.recipe import Recipe, differing_keys, make_recipe
from tformer_cli.training.processes.group import Processes

OF_A_MACHINE = ("data.directory", "data.cache_directory")
"""Keys that may differ between processes: where files lie; their content is compared elsewhere."""


def check_same_recipe(processes: Processes, recipe: Recipe, *, fresh: bool) -> None:
    """Compares what this process was started with with what the first one was."""
    # Machines may hold different versions of a recipe. With other learning rates their weights
    # would drift apart in silence, and with other limits some would wait for the others for ever.
    own: dict[str, Any] = {"recipe": recipe.to_mapping(), "fresh": fresh}
    first = processes.first(lambda: own)
    if processes.is_first:
        return
    keys = differing_keys(make_recipe(first["recipe"], "the first process"), recipe, OF_A_MACHINE)
    if keys:
        shown = ", ".join(keys[:5]) + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")
        raise RecipeError(
            f"process {processes.rank} has another recipe than the first one: {shown} differ; "
            "bring the same recipe and options to every machine"
        )
    if first["fresh"] != fresh:
        raise UsageError(
            f"--fresh: process {processes.rank} and the first one disagree; start all "
            "processes with the same options"
        )
