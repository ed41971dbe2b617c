"""Kinds of models, one module each: its verbs and its training.

Begin with `kind`, which says what every kind has. Verbs ask `kind_of`; none of them names a kind.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from tformer_cli.artifacts.config_file import TaskKind, task_kind

if TYPE_CHECKING:
    from collections.abc import Container

    from tformer_cli.artifacts.config_file import Verb
    from tformer_cli.kinds.kind import Kind, Training
    from tformer_cli.model.config import ModelConfig
    from tformer_cli.recipe import Recipe


def kind_of(config: ModelConfig) -> Kind:
    return kind_named(task_kind(config))


def kind_named(name: TaskKind) -> Kind:
    # Only the module of the kind in use is loaded: a command line starts sooner
    kind: Kind = import_module(f"{__name__}.{name.replace('-', '_')}").KIND
    return kind


def training_of(recipe: Recipe) -> Training:
    """Returns how the kind of model that a recipe names is trained."""
    training = kind_named(recipe.task.kind).training
    if training is None:  # a recipe checks that there is one
        raise ValueError(f'"{recipe.task.kind}" cannot be trained')
    return training


def kinds_for(verb: Verb) -> Container[TaskKind]:
    """Returns the kinds of models that a command takes."""
    return _KindsFor(verb)


class _KindsFor:
    def __init__(self, verb: Verb) -> None:
        self._verb = verb

    def __contains__(self, name: object) -> bool:
        # Only the kind in use is asked, so that no other module is loaded
        return self._verb in kind_named(cast("TaskKind", name)).verbs


def reads_words(config: ModelConfig) -> bool:
    """Returns whether a model has a source, and it is text."""
    return not (config.is_decoder_only or config.reads_images)


def reads_names(config: ModelConfig) -> bool:
    """Returns whether a line is the name of an image to a model, and no text."""
    return config.reads_images
