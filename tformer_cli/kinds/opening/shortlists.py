"""The shortlist that a model translates with: its own, another one, or none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tformer_cli.artifacts.shortlist_file import SHORTLIST, read_shortlist
from tformer_cli.errors import ArtifactError

if TYPE_CHECKING:
    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.search.shortlist import Shortlist

NO_SHORTLIST = "none"
"""Value of `--shortlist` that leaves out the model's own."""


def chosen_shortlist(directory: ModelDirectory, asked: str | None) -> Shortlist | None:
    """Reads the shortlist that a model translates with.

    Args:
        directory: the model.
        asked: path of a shortlist's file, or "none"; None: the model's own, if it has one.

    Raises:
        ArtifactError: if the file is missing, damaged, or of other vocabularies.
    """
    path = directory.path / SHORTLIST if asked is None else Path(asked)
    if asked == NO_SHORTLIST or (asked is None and not path.exists()):
        return None
    if asked is not None and not path.exists():
        raise ArtifactError(f"--shortlist: {path}: no such file; name one, or none")
    n_targets = directory.tokenizer.vocab_size
    return read_shortlist(path, directory.config.source_vocab_size or n_targets, n_targets)
