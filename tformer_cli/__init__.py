"""tformer: train, use and understand Transformers, translation first.

`load` opens a model for Python; every command calls one function of its folder, such as
`tformer_cli.train.train.train`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from tformer_cli.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from tformer_cli.api import LoadedModel
    from tformer_cli.search.keywords import TranslatorOptions

__all__ = ["__version__", "load"]


def load(model: Path | str, **options: Unpack[TranslatorOptions]) -> LoadedModel:
    """Opens a model to translate, to score and to look into, as often as you like.

    Nothing that holds for the whole process is changed, and nothing heavy is imported before.

    Args:
        model: a model directory, or a foreign model.
        **options: of `tformer_cli.kinds.opening.open_model`: device, precision,
            threads, beam_size, …

    Raises:
        UsageError: if a setting is impossible.
        ArtifactError: if the model cannot be used.
    """
    from tformer_cli.api import load_model

    return load_model(model, **options)
