"""Knowledge of whether a translation model was trained on single sentences."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

from tformer_cli.artifacts.config_file import task_kind

if TYPE_CHECKING:
    from pathlib import Path

    from tformer_cli.artifacts.model_directory import ModelDirectory

MOST_SEVERAL = 0.2
"""Share of training lines with several sentences up to which lines count as sentences. Corpora of
sentences have about a tenth at most, as translators join and divide; documents have most."""
SENTENCE_KINDS = ("Bergamot", "Marian", "Argos", "Hugging Face Marian", "Hugging Face M2M-100")
"""Beginnings of the kinds of imported models that are trained on sentences."""


def trained_on_sentences(directory: ModelDirectory) -> bool:
    """Tells whether a model drops text of lines with several sentences, as far as is known.

    A model of our own stores the share of such lines in its training; one from before that is known
    by its recipe if it learned from the built-in corpus; an imported one by its kind.
    """
    info = directory.info
    if task_kind(directory.config) != "translate":
        return False
    if info.several_sentences is not None:
        return info.several_sentences <= MOST_SEVERAL
    if info.origin is not None:
        return info.origin.kind.startswith(SENTENCE_KINDS)
    return _is_of_built_in_corpus(directory.path)


def _is_of_built_in_corpus(run: Path) -> bool:
    from tformer_cli.files.regular_file import read_regular

    try:
        recipe = tomllib.loads(read_regular(run / "recipe.toml", 1 << 20).decode())
        corpora = recipe["data"]["train"]
        return bool(corpora) and all(corpus["built_in"] for corpus in corpora)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return False
