"""Opening a model directory for generation: a language model and what searches with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from tformer_cli.artifacts.model_directory import ModelDirectory, read_model_directory
from tformer_cli.errors import UsageError
from tformer_cli.kinds.opening.engines import search_engines, tell_if_slower
from tformer_cli.kinds.opening.precision import choose_precision, in_precision
from tformer_cli.kinds.opening.stored_model import DirectoryModel
from tformer_cli.kinds.opening.translator import device_of, overridden, resolved
from tformer_cli.search.generator import Generator
from tformer_cli.search.opening import split_options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import torch

    from tformer_cli.model.config import Precision
    from tformer_cli.search.config import DecodingConfig, Engine, PrecisionChoice
    from tformer_cli.search.keywords import DecodingOverrides, TranslatorOptions


@dataclass(frozen=True, kw_only=True)
class OpenedGenerator:
    """A language model ready to continue prompts, and where and how it computes."""

    directory: ModelDirectory
    """The model directory."""
    generator: Generator
    """What continues prompts."""
    place: str
    """Name of the device."""
    precision: PrecisionChoice
    """Precision that it computes in."""
    engine: Engine = "tformer"
    """Name of what searches, as `--engine` of other commands has it."""

    @property
    def device(self) -> torch.device:
        """The device, as torch knows it."""
        import torch

        return torch.device(self.place)


def open_generator(
    model: Path | str, *, stops: Sequence[str] = (), **options: Unpack[TranslatorOptions]
) -> OpenedGenerator:
    """Reads a model directory and connects it to a generator.

    Args:
        model: the directory of a language model.
        stops: texts that end what is written.
        **options: device, precision, threads, seed, adapter; and fields of `DecodingConfig` that
            differ from the model's defaults. A beam size without `sampling` asks for a search.

    Raises:
        UsageError: if a setting is impossible.
        ArtifactError: if the model directory cannot be used, or the model is of another task.
    """
    settings, overrides = split_options(options)
    place = device_of(settings)
    directory, weights = read_model_directory(
        resolved(model, settings),
        place,
        takes_int8=True,
        adapter=settings.adapter,
        tasks=("language-model",),
    )
    decoding = generation_config(directory.decoding, settings.tell, **overrides)
    precision = choose_precision(directory, settings.precision, place)
    directory = in_precision(directory, precision, settings, may_change=True)
    torch_precision: Precision = "bfloat16" if precision == "bfloat16" else "float32"
    is_compiled = place == "cpu" and precision != "bfloat16" and settings.engine == "tformer"
    if is_compiled and settings.tell is not None:
        tell_if_slower(directory.config, directory.tokenizer.vocab_size, settings.tell)
    generator = Generator(
        DirectoryModel(directory, weights, in_integers=precision == "int8")
        if place == "cpu"
        else directory.model,
        directory.tokenizer,
        decoding,
        engines=search_engines(
            settings.engine, place, torch_precision, settings.tell, settings.threads
        ),
        target_bos=directory.config.target_bos,
        target_eos=directory.config.target_eos,
        seed=settings.seed,
        stops=stops,
    )
    return OpenedGenerator(
        directory=directory,
        generator=generator,
        place=place,
        precision=precision,
        engine=settings.engine,
    )


def generation_config(
    config: DecodingConfig,
    tell: Callable[[str], None] | None = None,
    **overrides: Unpack[DecodingOverrides],
) -> DecodingConfig:
    """Replaces the fields that are given, as `overridden` does.

    A beam size without `sampling` asks for a search.

    Raises:
        UsageError: if a setting is impossible.
    """
    if overrides.get("beam_size") is not None and overrides.get("sampling") is None:
        overrides["sampling"] = False
    chosen = overridden(config, tell, **overrides)
    if chosen.coverage_penalty:
        raise UsageError("--coverage-penalty: there is no source to cover; omit it")
    return chosen
