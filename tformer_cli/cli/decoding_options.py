"""Options of the search and of opening a model, shared by the commands that translate.

A command takes the search's as ``**decoding``, under `takes_decoding_options`, and passes them on:
each is a field of `DecodingConfig`.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tformer_cli.cli.console import note
from tformer_cli.cli.option_groups import Command, option_type, optional, with_settings
from tformer_cli.cli.process import torch_preparation
from tformer_cli.cli.text_io import note_choices
from tformer_cli.decoding.config import DecodingConfig, search_options
from tformer_cli.decoding.opening import OpeningSettings
from tformer_cli.settings import Option, declared_options, types_of

if TYPE_CHECKING:
    from tformer_cli.workflows.opening.translator import Opened

_OF_TRANSLATION = search_options()


def search_option(name: str) -> Any:  # noqa: ANN401 - a type
    """Returns the annotated type of one option of the search."""
    return optional(types_of(DecodingConfig)[name], _OF_TRANSLATION[name])


BeamSizeOption = search_option("beam_size")
LengthPenaltyOption = search_option("length_penalty")
NormalizationOption = search_option("length_normalization")
CoveragePenaltyOption = search_option("coverage_penalty")
SourceLanguageOption = option_type(OpeningSettings, "source_language")
TargetLanguageOption = option_type(OpeningSettings, "target_language")


def takes_decoding_options(command: Command) -> Command:
    """Gives a command that ends in ``**decoding`` every option of the search."""
    return with_settings(command, DecodingConfig, _OF_TRANSLATION)


def takes_generation_options(command: Command) -> Command:
    """Gives a command that ends in ``**decoding`` the options of a search for texts."""
    return with_settings(command, DecodingConfig, search_options(of_prompts=True))


@dataclass(frozen=True, kw_only=True)
class TranslatorOptions(OpeningSettings):
    """Options of a translator besides those of its search."""

    def settings(self, *, quiet: bool) -> dict[str, Any]:
        """Returns them as arguments of `open_translator`."""
        given = {name: getattr(self, name) for name in declared_options(OpeningSettings, Option)}
        return {**given, "tell": partial(note, quiet=quiet)}

    def open(self, model: Path, *, quiet: bool, **more: Any) -> "Opened":  # noqa: ANN401
        """Opens a model for translation and notes where it computes."""
        from tformer_cli.workflows.opening.translator import open_translator

        before_torch = torch_preparation(self.threads)
        settings = self.settings(quiet=quiet)
        opened = open_translator(model, **settings, before_torch=before_torch, **more)
        note_choices(opened, quiet=quiet)
        return opened
