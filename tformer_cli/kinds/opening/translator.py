"""Opening a model directory for translation, and connecting it to a search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

from tformer_cli.artifacts.config_file import check_task
from tformer_cli.artifacts.model_directory import TRANSLATORS, ModelDirectory, read_model_directory
from tformer_cli.artifacts.shortlist_file import load_seen_words
from tformer_cli.errors import UsageError
from tformer_cli.foreign.import_model import resolve_model
from tformer_cli.kinds.opening.engines import search_engines, tell_if_slower
from tformer_cli.kinds.opening.precision import choose_precision, in_precision
from tformer_cli.kinds.opening.sentence_models import trained_on_sentences
from tformer_cli.kinds.opening.shortlists import chosen_shortlist
from tformer_cli.kinds.opening.stored_model import DirectoryModel, is_cpu
from tformer_cli.search.config import MOST_HYPOTHESES, DecodingConfig
from tformer_cli.search.engine import TorchEngine
from tformer_cli.search.opening import OpeningSettings, split_options
from tformer_cli.search.sentences import sentence_splitter
from tformer_cli.search.translator import Translator
from tformer_cli.settings import type_problem, types_of

if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from pathlib import Path

    import torch

    from tformer_cli.artifacts.config_file import TaskKind
    from tformer_cli.artifacts.weights_file import StoredWeights
    from tformer_cli.model.config import Precision
    from tformer_cli.search.config import Engine, PrecisionChoice
    from tformer_cli.search.engine import SearchedModel
    from tformer_cli.search.keywords import DecodingOverrides, TranslatorOptions
    from tformer_cli.search.sentences import SentenceRule

OF_SAMPLING = ("temperature", "top_k", "top_p", "candidates")
"""Settings that beam search does not look at."""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A model directory ready to translate, and where and how it computes."""

    directory: ModelDirectory
    translator: Translator
    place: str
    """Name of the device."""
    precision: PrecisionChoice
    engine: Engine = "tformer"

    @property
    def device(self) -> torch.device:
        """The device, as torch knows it."""
        import torch

        return torch.device(self.place)


def open_translator(
    model: Path | str | ModelDirectory,
    *,
    tasks: Container[TaskKind] = TRANSLATORS,
    **options: Unpack[TranslatorOptions],
) -> Opened:
    """Reads a model directory and connects it to a translator.

    Nothing that holds for the whole process is set: torch's threads and generators stay as they
    are. On the CPU torch is imported once an engine needs it.

    Args:
        model: a model directory, or its path, or a foreign model.
        tasks: those whose models will do; models of others than translation have no translator
            that is of use.
        **options: fields of `OpeningSettings`; and fields of `DecodingConfig` that differ from the
            model's defaults, where None is as if it were not given. An `n_best` beyond the beam
            raises the beam.

    Raises:
        UsageError: if the device is not there, a setting is impossible, or the engine is not
            installed or does not know a setting.
        ArtifactError: if the model directory or its export cannot be used.
    """
    settings, overrides = split_options(options)
    weights: StoredWeights | None = None
    if isinstance(model, ModelDirectory) and settings.adapter is not None:
        model = model.path
    if isinstance(model, ModelDirectory):
        directory, place = model, str(next(model.any_model.parameters()).device)
    else:
        place = device_of(settings)
        directory, weights = read_model_directory(
            resolved(model, settings),
            place,
            takes_int8=True,
            adapter=settings.adapter,
            tasks=tasks,
        )
    check_task(directory.path, directory.config, tasks)
    directory = _for_languages(directory, settings)
    decoding = overridden(directory.decoding, settings.tell, **overrides)
    precision = choose_precision(directory, settings.precision, place)
    directory = in_precision(directory, precision, settings, may_change=weights is not None)
    torch_precision: Precision = "bfloat16" if precision == "bfloat16" else "float32"
    has_kernels = place == "cpu" and precision != "bfloat16" and settings.engine == "tformer"
    if has_kernels and settings.tell is not None:
        tell_if_slower(directory.config, directory.tokenizer.vocab_size, settings.tell)
    translator = Translator(
        _searched_model(directory, weights, place, precision, decoding, settings),
        directory.tokenizer,
        decoding,
        engines=search_engines(
            settings.engine, place, torch_precision, settings.tell, settings.threads
        ),
        too_long=settings.too_long,
        split_sentences=_splitter(directory, settings),
        seed=settings.seed,
        banned=settings.banned,
        scorers=[TorchEngine(place, torch_precision)],
        shortlist=chosen_shortlist(directory, settings.shortlist),
        seen_words=load_seen_words(directory.path),
    )
    if not directory.config.is_encoder_only:  # which never searches
        translator.check()
    return Opened(
        directory=directory,
        translator=translator,
        place=place,
        precision=precision,
        engine=settings.engine,
    )


def resolved(model: Path | str, settings: OpeningSettings) -> Path:
    """Finds a model's directory; a foreign model is imported, its integers kept if they will do."""
    is_float = settings.precision == "float32" or settings.adapter is not None
    return resolve_model(model, settings.tell, "float32" if is_float else None)


def _for_languages(directory: ModelDirectory, settings: OpeningSettings) -> ModelDirectory:
    """Chooses the languages of a model that has tokens for them.

    Raises:
        UsageError: if it does not know them, or must be told.
    """
    tokenizer = directory.tokenizer.for_languages(
        settings.source_language, settings.target_language
    )
    tokenizer.check_languages()
    if tokenizer is directory.tokenizer:
        return directory
    return replace(directory, tokenizer=tokenizer, load=lambda: directory.model)


def _splitter(
    directory: ModelDirectory, settings: OpeningSettings
) -> Callable[[str], list[str]] | None:
    """Makes what splits lines of the model's source language into sentences, if they are to be."""
    by_default: SentenceRule = "rule" if trained_on_sentences(directory) else "none"
    rule = settings.split_sentences or by_default
    return sentence_splitter(rule, directory.info.source_language)


def device_of(settings: OpeningSettings) -> str:
    """Resolves the name of the device, by torch where it may be a GPU.

    Raises:
        UsageError: if it is not there.
    """
    if is_cpu(settings.device):
        return "cpu"
    settings.prepare_torch()
    from tformer_cli.runtime import resolve_device

    try:
        return str(resolve_device(settings.device))
    except ValueError as error:
        raise UsageError(f"--device: {error}") from None


def _searched_model(
    directory: ModelDirectory,
    weights: StoredWeights | None,
    place: str,
    precision: PrecisionChoice,
    decoding: DecodingConfig,
    settings: OpeningSettings,
) -> SearchedModel:
    """Makes the model that is searched with: heads switched off, or joined with others.

    Args:
        directory: from `in_precision`.
        weights: of a directory whose model need not be made; None: it has been.
        place: the device.
        precision: from `choose_precision`.
        decoding: settings of the search.
        settings: the heads and the other models.
    """
    if settings.heads:
        from tformer_cli.heads.gates import keep_only
        from tformer_cli.heads.names import head_layout
        from tformer_cli.heads.selectors import select_heads

        keep_only(directory.model, select_heads(settings.heads, head_layout(directory.model)))
    if settings.ensemble:
        if decoding.coverage_penalty:
            raise UsageError("--coverage-penalty: needs a single model; omit it or --ensemble")
        from tformer_cli.kinds.opening.ensemble import join_models

        others = []
        for path in settings.ensemble:
            other, _ = read_model_directory(resolved(path, settings), place, takes_int8=True)
            other = _for_languages(other, settings)
            chosen = choose_precision(other, precision, place)
            others.append(in_precision(other, chosen, settings, may_change=True))
        return join_models([directory, *others], settings)
    is_labeled = directory.config.is_encoder_only  # a classifier, which is never searched
    if weights is None or (place != "cpu" and not is_labeled):
        return directory.any_model
    return DirectoryModel(directory, weights, in_integers=precision == "int8")


def overridden(
    config: DecodingConfig,
    tell: Callable[[str], None] | None = None,
    **overrides: Unpack[DecodingOverrides],
) -> DecodingConfig:
    """Replaces the fields that are given (not None) and checks the whole again.

    A given `n_best` raises the beam, or the candidates of sampling, where these are fewer.

    Args:
        config: a model's defaults.
        tell: is told of what was raised.
        **overrides: the fields.

    Raises:
        UsageError: naming the option that cannot be.
    """
    given: dict[str, Any] = {name: value for name, value in overrides.items() if value is not None}
    for name, kind in types_of(DecodingConfig).items():
        if name in given and (problem := type_problem(given[name], kind)):
            raise UsageError(f"--{name.replace('_', '-')}: {problem}")
    n_best = given.pop("n_best", None)
    try:
        chosen = replace(config, n_best=1, **given)
        chosen = (
            replace(chosen, n_best=config.n_best)
            if n_best is None
            else _with_n_best(chosen, n_best, tell)
        )
    except ValueError as error:
        name, _, reason = str(error).partition(": ")
        raise UsageError(f"--{name.replace('_', '-')}: {reason}") from None
    idle = next((name for name in OF_SAMPLING if name in given and not chosen.sampling), None)
    if idle is not None:
        raise UsageError(f"--{idle.replace('_', '-')}: needs sampling; add --sampling")
    return chosen


def _with_n_best(
    config: DecodingConfig, n_best: int, tell: Callable[[str], None] | None
) -> DecodingConfig:
    """Asks for some translations of each line, and for a search that can find as many."""
    name, multiple = (
        ("candidates", 1) if config.sampling else ("beam_size", config.diversity_groups)
    )
    before = getattr(config, name)
    is_enough = n_best <= before or (config.sampling and config.risk == "none")
    if is_enough or n_best > MOST_HYPOTHESES:
        return replace(config, n_best=n_best)
    after = -(-n_best // multiple) * multiple
    larger: dict[str, Any] = {name: after}
    raised = replace(config, n_best=n_best, **larger)
    if tell is not None:
        what = name.replace("_", " ")
        tell(f"{what} raised from {before} to {after}, to find {n_best} translations")
    return raised
