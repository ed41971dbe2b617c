"""Opening a model of any kind: its directory, and what computes with it, where and in what."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tformer_cli.artifacts.config_file import check_task, may_be_ours
from tformer_cli.artifacts.model_directory import ModelDirectory, read_model_directory
from tformer_cli.errors import ArtifactError, Setting, UsageError
from tformer_cli.files.remote import remote_url
from tformer_cli.kinds import kind_named, kind_of, kinds_for
from tformer_cli.kinds.stored_model import (
    DirectoryModel,
    Opened,
    Opening,
    choose_precision,
    in_precision,
    is_cpu,
)
from tformer_cli.runtime import has_fast, require_fast
from tformer_cli.search.opening import split_options
from tformer_cli.search.torch_engine import TorchEngine
from tformer_cli.wording import given_name

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence
    from typing import Unpack

    import torch

    from tformer_cli.artifacts.config_file import TaskKind, Verb
    from tformer_cli.artifacts.weights_file import Arrays
    from tformer_cli.model.config import Precision
    from tformer_cli.search.config import DecodingConfig, Engine
    from tformer_cli.search.engine import SearchedModel, SearchEngine
    from tformer_cli.search.keywords import TranslatorOptions
    from tformer_cli.search.models import Ensemble
    from tformer_cli.search.opening import OpeningSettings


def open_model(
    model: Path | str | ModelDirectory,
    verb: Verb = "translate",
    *,
    inspected: Container[TaskKind] = (),
    stops: Sequence[str] = (),
    by_kernels: bool = True,
    **options: Unpack[TranslatorOptions],
) -> Opened:
    """Reads a model directory and connects it to what computes.

    Nothing that holds for the whole process is set: torch's threads and generators stay as they
    are. On the CPU torch is imported once something needs it.

    Kinds in `inspected` are opened for inspection: they get a translator whatever they are, and
    layers that taps can listen to. Without `by_kernels` only torch computes an encoder. Options are
    fields of `OpeningSettings`, and those of `DecodingConfig` that differ from the model's; None is
    as if one were not given.
    """
    # One set of keyword arguments for all kinds: `load` takes them before it knows the kind
    settings, overrides = split_options(options)
    takes = inspected or kinds_for(verb)
    weights: Arrays | None = None
    if isinstance(model, ModelDirectory) and settings.adapter is not None:
        model = model.path  # an adapter is added to the weights while they are read
    if isinstance(model, ModelDirectory):
        directory, place = model, str(next(model.any_model.parameters()).device)
        check_task(directory.path, directory.config, takes)
    else:
        place = device_of(settings)
        directory, weights = read_model_directory(
            resolve_directory(model, settings),
            place,
            takes_int8=True,
            adapter=settings.adapter,
            tasks=takes,
        )
    opening = Opening(
        directory=directory,
        weights=weights,
        place=place,
        settings=settings,
        overrides=overrides,
        stops=stops,
        by_kernels=by_kernels,
    )
    # Forced decoding, which inspection listens to, is a translator's
    return (kind_named("translate") if inspected else kind_of(directory.config)).open_model(opening)


def prepare_search(
    opening: Opening, decoding: DecodingConfig
) -> tuple[Opened, SearchedModel, list[SearchEngine]]:
    """Prepares a model that writes: in its precision, as the engines search with it."""
    settings, place, weights = opening.settings, opening.place, opening.weights
    directory = opening.directory
    precision = choose_precision(directory, settings.precision, place)
    # Who gives an opened directory may go on to use its model, so a copy is changed
    directory = in_precision(directory, precision, settings, may_change=weights is not None)
    opened = Opened(directory=directory, place=place, precision=precision, engine=settings.engine)
    # Users who choose torch, a GPU or bfloat16 know that the kernels do not search
    has_kernels = place == "cpu" and precision != "bfloat16" and settings.engine == "tformer"
    if has_kernels and settings.tell is not None:
        _tell_if_slower(directory, settings.tell)
    engines = search_engines(
        settings.engine, place, opened.products, settings.tell, settings.threads
    )
    return opened, _make_searched_model(opened, weights, decoding, settings), engines


def resolve_directory(model: Path | str, settings: OpeningSettings) -> Path:
    """Finds a model's directory; a foreign model is imported, its integers kept if they will do."""
    remote_url(model)  # refuses what `Path` would make another URL of
    model = Path(model)
    if may_be_ours(model):  # which needs none of the modules that import
        return model
    from tformer_cli.foreign.import_model import resolve_model

    # Integers cannot take the sum with an adapter
    is_float = settings.precision == "float32" or settings.adapter is not None
    return resolve_model(model, settings.tell, "float32" if is_float else None)


def device_of(settings: OpeningSettings) -> str:
    """Resolves the name of the device, by torch where it may be a GPU."""
    if is_cpu(settings.device):  # without torch, whose import takes longer than most lines
        return "cpu"
    settings.prepare_torch()
    from tformer_cli.runtime import resolve_device

    try:
        return str(resolve_device(settings.device))
    except ValueError as error:
        raise UsageError.of("{device}: {}", error) from None


def search_engines(
    name: Engine,
    device: torch.device | str,
    precision: Precision,
    tell: Callable[[str], None] | None = None,
    threads: int = 0,
) -> list[SearchEngine]:
    """Returns the engines for a value of `--engine`, preferred ones first."""
    plain = TorchEngine(device, precision)
    if name == "torch":
        return [plain]
    if name != "tformer":
        require_fast(Setting(f"engine {name}"))
    if not has_fast():
        return [plain]
    from tformer_cli.fast.native_search import CompiledEngine

    compiled = CompiledEngine(precision, tell, threads)
    # A named engine searches or refuses; only the default falls back to torch
    return [compiled] if name == "compiled" else [compiled, plain]


def _tell_if_slower(directory: ModelDirectory, tell: Callable[[str], None]) -> None:
    if not has_fast():  # torch is all there is
        return
    from tformer_cli.fast.native.weights import unsupported_shape

    vocab_size = directory.tokenizer.vocab_size
    reason = unsupported_shape(directory.config, vocab_size, in_integers=False)
    if reason is not None:
        tell(f"searching by torch, which is slower than the compiled kernels: {reason}")


def for_languages(directory: ModelDirectory, settings: OpeningSettings) -> ModelDirectory:
    """Chooses the languages of a model that has tokens for them; a pair that named it says them."""
    source, target = settings.source_language, settings.target_language
    if name := given_name(directory.path):
        from tformer_cli.foreign.known_models import languages_of

        languages = languages_of(name) or (None, None)
        source, target = source or languages[0], target or languages[1]
    tokenizer = directory.tokenizer.for_languages(source, target)
    tokenizer.check_languages()
    if tokenizer is directory.tokenizer:
        return directory
    # The model is made once, by the directory that was read, whatever the languages
    return replace(directory, tokenizer=tokenizer, load=lambda: directory.model)


def _make_searched_model(
    opened: Opened,
    weights: Arrays | None,
    decoding: DecodingConfig,
    settings: OpeningSettings,
) -> SearchedModel:
    """Returns the model to search with: with heads switched off, or as an ensemble."""
    directory, place = opened.directory, opened.place
    if settings.heads:
        from tformer_cli.heads.gates import keep_only
        from tformer_cli.heads.names import head_layout
        from tformer_cli.heads.selectors import select_heads

        keep_only(directory.model, select_heads(settings.heads, head_layout(directory.model)))
    if settings.ensemble:
        if decoding.coverage_penalty:  # it sums the attention weights of one model (Wu et al. 2016)
            raise UsageError.of("{coverage_penalty}: needs a single model; omit it or {ensemble}")
        others = []
        for path in settings.ensemble:
            other, _ = read_model_directory(
                resolve_directory(path, settings), place, takes_int8=True
            )
            other = for_languages(other, settings)
            chosen = choose_precision(other, opened.precision, place)  # one for all, to be averaged
            others.append(in_precision(other, chosen, settings, may_change=True))
        return _ensemble([directory, *others], settings)
    is_encoder = directory.config.is_encoder_only  # one for inspection, which is never searched
    if weights is None or (place != "cpu" and not is_encoder):  # kernels compute stored weights
        return directory.any_model
    return DirectoryModel(directory, weights, in_integers=opened.precision == "int8")


def _ensemble(directories: Sequence[ModelDirectory], settings: OpeningSettings) -> Ensemble:
    """Joins models of one vocabulary, on one device."""
    from tformer_cli.search.models import Ensemble

    # Their distributions are averaged token by token, so a token must mean the same to all
    first = directories[0]
    for directory in directories:
        if directory.tokenizer.to_json() != first.tokenizer.to_json():
            raise ArtifactError(
                f"{directory.path}: does not have the vocabulary of {first.path}; ensemble models "
                "trained with the same tokenizer"
            )
        if directory.config.source_eos != first.config.source_eos:
            raise ArtifactError(
                f"{directory.path}: does not have the model.source_eos of {first.path}; ensemble "
                "models that read the same sources"
            )
    models = [directory.model for directory in directories]
    try:
        return Ensemble(models, settings.ensemble_weights, settings.ensemble_space)
    except ValueError as error:
        raise UsageError.of("{ensemble_weights}: {}", error) from None
