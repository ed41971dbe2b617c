"""Opening a model of any kind: its directory, and what computes with it, where and in what."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tformer_cli.acceleration import has_fast, require_fast
from tformer_cli.artifacts.config_file import MODELS, check_task, task_kind
from tformer_cli.artifacts.model_directory import ModelDirectory, read_model_directory
from tformer_cli.artifacts.shortlist_file import SHORTLIST, load_seen_words, read_shortlist
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.kinds import kinds_for
from tformer_cli.kinds.stored_model import DirectoryModel, choose_precision, in_precision, is_cpu
from tformer_cli.search.opening import generation_config, overridden, split_options
from tformer_cli.search.torch_engine import TorchEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence
    from typing import Unpack

    import torch

    from tformer_cli.artifacts.config_file import TaskKind, Verb
    from tformer_cli.artifacts.weights_file import StoredWeights
    from tformer_cli.fast.native_encoder import CompiledEncoder
    from tformer_cli.model.base import Model
    from tformer_cli.model.config import ModelConfig, Precision
    from tformer_cli.search.config import DecodingConfig, Engine, PrecisionChoice
    from tformer_cli.search.engine import SearchedModel, SearchEngine
    from tformer_cli.search.generator import Generator
    from tformer_cli.search.keywords import TranslatorOptions
    from tformer_cli.search.models import Ensemble
    from tformer_cli.search.opening import OpeningSettings
    from tformer_cli.search.pooled import LabelHead, TokenHead
    from tformer_cli.search.sentences import SentenceRule
    from tformer_cli.search.shortlist import Shortlist
    from tformer_cli.search.translator import Translator

NO_SHORTLIST = "none"
"""Value of `--shortlist` that leaves out the model's own."""
# Corpora of sentences have a tenth at most, as translators join and divide; documents have most
MOST_SEVERAL = 0.2
"""Share of training lines with several sentences up to which lines count as sentences."""
SENTENCE_KINDS = ("Bergamot", "Marian", "Argos", "Hugging Face Marian", "Hugging Face M2M-100")
"""Beginnings of the kinds of imported models that are trained on sentences."""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A model ready to compute, and where and how it does."""

    directory: ModelDirectory
    place: str
    """Name of the device."""
    precision: PrecisionChoice
    engine: Engine = "tformer"
    search: Translator | Generator | None = None
    """Translates, or continues prompts; None with an encoder."""
    compiled: CompiledEncoder | None = None
    """The kernels, where they compute an encoder's hidden states in place of torch."""
    head: LabelHead | TokenHead | None = None
    """Stands on the kernels' states, if the model has labels or predicts tokens."""

    @property
    def translator(self) -> Translator:
        return cast("Translator", self.search)

    @property
    def generator(self) -> Generator:
        return cast("Generator", self.search)

    @property
    def device(self) -> torch.device:
        """The device, as torch knows it."""
        import torch

        return torch.device(self.place)

    @property
    def products(self) -> Precision:
        """Precision of torch's own products; those of int8 are made by other code."""
        return "bfloat16" if self.precision == "bfloat16" else "float32"

    @property
    def config(self) -> ModelConfig:
        return self.directory.config


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

    Args:
        model: a model directory, or its path, or a foreign model.
        verb: the command whose models will do.
        inspected: kinds of models that are opened for inspection instead. They get a translator
            whatever they are, and layers that taps can listen to.
        stops: texts that end what a language model writes.
        by_kernels: False where only torch can compute what is wanted of an encoder.
        **options: fields of `OpeningSettings`; and fields of `DecodingConfig` that differ from the
            model's defaults, where None is as if it were not given. An `n_best` beyond the beam
            raises the beam; of a language model a beam size without `sampling` asks for a search.

    Raises:
        UsageError: if the device is not there, a setting is impossible, or the engine does not
            know a setting.
        ArtifactError: if the model directory cannot be used, or is of another kind.
    """
    # One set of keyword arguments for all kinds: `load` takes them before it knows the kind
    settings, overrides = split_options(options)
    takes = inspected or kinds_for(verb)
    weights: StoredWeights | None = None
    if isinstance(model, ModelDirectory) and settings.adapter is not None:
        model = model.path  # an adapter is added to the weights while they are read
    if isinstance(model, ModelDirectory):
        directory, place = model, str(next(model.any_model.parameters()).device)
        check_task(directory.path, directory.config, takes)
    else:
        place = device_of(settings)
        directory, weights = read_model_directory(
            resolved(model, settings), place, takes_int8=True, adapter=settings.adapter, tasks=takes
        )
    if directory.config.is_encoder_only and not inspected:
        return _encoder(directory, weights, place, settings, by_kernels=by_kernels)
    if directory.config.is_decoder_only and not inspected:
        decoding = generation_config(directory.decoding, settings.tell, **overrides)
    else:
        directory = _for_languages(directory, settings)
        decoding = overridden(directory.decoding, settings.tell, **overrides)
    precision = choose_precision(directory, settings.precision, place)
    # Who gives an opened directory may go on to use its model, so a copy is changed
    directory = in_precision(directory, precision, settings, may_change=weights is not None)
    opened = Opened(directory=directory, place=place, precision=precision, engine=settings.engine)
    # A user who asks for torch, a GPU or bfloat16 knows that the kernels do not search
    has_kernels = place == "cpu" and precision != "bfloat16" and settings.engine == "tformer"
    if has_kernels and settings.tell is not None:
        _tell_if_slower(directory, settings.tell)
    engines = search_engines(
        settings.engine, place, opened.products, settings.tell, settings.threads
    )
    searched = _searched_model(opened, weights, decoding, settings)
    if directory.config.is_decoder_only and not inspected:
        from tformer_cli.search.generator import Generator

        search = Generator(
            searched,
            directory.tokenizer,
            decoding,
            engines=engines,
            target_bos=directory.config.target_bos,
            target_eos=directory.config.target_eos,
            seed=settings.seed,
            stops=stops,
        )
        return replace(opened, search=search)
    from tformer_cli.search.translator import Translator

    translator = Translator(
        searched,
        directory.tokenizer,
        decoding,
        engines=engines,
        too_long=settings.too_long,
        split_sentences=_splitter(directory, settings),
        seed=settings.seed,
        banned=settings.banned,
        # Forced decoding by torch knows every model, even where `--engine` names the kernels
        scorers=[TorchEngine(place, opened.products)],
        shortlist=chosen_shortlist(directory, settings.shortlist),
        seen_words=load_seen_words(directory.path),
    )
    if not directory.config.is_encoder_only:  # which never searches
        translator.check()
    return replace(opened, search=translator)


def _encoder(
    stored: ModelDirectory,
    weights: StoredWeights | None,
    place: str,
    settings: OpeningSettings,
    *,
    by_kernels: bool,
) -> Opened:
    precision = settings.precision
    if precision not in ("auto", "float32", "bfloat16"):
        what = MODELS[task_kind(stored.config)]
        raise UsageError(f"--precision: {what} do not compute in {precision}; omit it")
    chosen: Precision = "bfloat16" if precision == "bfloat16" else "float32"
    choose_precision(stored, chosen, place)  # refuses weights in int8
    is_fast = place == "cpu" and chosen == "float32" and has_fast()

    def load() -> Model:
        settings.prepare_torch()
        encoder = stored.encoder
        if is_fast:  # packed matrices are multiplied faster, to the same bits
            from tformer_cli.fast.products import pack_layers

            pack_layers(encoder)
        return encoder

    opened = Opened(directory=replace(stored, load=load), place=place, precision=chosen)
    if not (is_fast and by_kernels) or weights is None:  # the kernels read stored weights
        return opened
    from tformer_cli.fast.native_encoder import compiled_encoder
    from tformer_cli.search.pooled import LabelHead, TokenHead

    on_cpu = DirectoryModel(opened.directory, weights, in_integers=False)
    compiled = compiled_encoder(on_cpu, settings.tell, settings.threads)
    if isinstance(compiled, str):  # the reason why they cannot
        return opened
    made: LabelHead | TokenHead | None = None
    if stored.config.n_outputs:
        made = LabelHead(stored.config, weights.arrays)
    elif stored.config.head == "tokens":
        made = TokenHead(stored.config, weights.arrays)
    return replace(opened, compiled=compiled, head=made)


def resolved(model: Path | str, settings: OpeningSettings) -> Path:
    """Finds a model's directory; a foreign model is imported, its integers kept if they will do."""
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
        raise UsageError(f"--device: {error}") from None


def search_engines(
    name: Engine,
    device: torch.device | str,
    precision: Precision,
    tell: Callable[[str], None] | None = None,
    threads: int = 0,
) -> list[SearchEngine]:
    """Makes the engines of a value of `--engine`, the preferred ones first."""
    plain = TorchEngine(device, precision)
    if name == "torch":
        return [plain]
    if name != "tformer":
        require_fast(f"--engine {name}")
    if not has_fast():
        return [plain]
    from tformer_cli.fast.native_search import CompiledEngine

    compiled = CompiledEngine(precision, tell, threads)
    # A named engine searches or refuses; only the default goes on to torch
    return [compiled] if name == "compiled" else [compiled, plain]


def _tell_if_slower(directory: ModelDirectory, tell: Callable[[str], None]) -> None:
    if not has_fast():  # torch is all there is
        return
    from tformer_cli.fast.native.weights import unsupported_shape

    vocab_size = directory.tokenizer.vocab_size
    reason = unsupported_shape(directory.config, vocab_size, in_integers=False)
    if reason is not None:
        tell(f"searching by torch, which is slower than the compiled kernels: {reason}")


def _for_languages(directory: ModelDirectory, settings: OpeningSettings) -> ModelDirectory:
    """Chooses the languages of a model that has tokens for them."""
    tokenizer = directory.tokenizer.for_languages(
        settings.source_language, settings.target_language
    )
    tokenizer.check_languages()
    if tokenizer is directory.tokenizer:
        return directory
    # The model is made once, by the directory that was read, whatever the languages
    return replace(directory, tokenizer=tokenizer, load=lambda: directory.model)


def _searched_model(
    opened: Opened,
    weights: StoredWeights | None,
    decoding: DecodingConfig,
    settings: OpeningSettings,
) -> SearchedModel:
    """Makes the model that is searched with: heads switched off, or joined with others."""
    directory, place = opened.directory, opened.place
    if settings.heads:
        from tformer_cli.heads.gates import keep_only
        from tformer_cli.heads.names import head_layout
        from tformer_cli.heads.selectors import select_heads

        keep_only(directory.model, select_heads(settings.heads, head_layout(directory.model)))
    if settings.ensemble:
        if decoding.coverage_penalty:  # it sums the attention weights of one model (Wu et al. 2016)
            raise UsageError("--coverage-penalty: needs a single model; omit it or --ensemble")
        others = []
        for path in settings.ensemble:
            other, _ = read_model_directory(resolved(path, settings), place, takes_int8=True)
            other = _for_languages(other, settings)
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
                f"{directory.path}: has another vocabulary than {first.path}; ensemble "
                "models that were trained with one tokenizer"
            )
        if directory.config.source_eos != first.config.source_eos:
            raise ArtifactError(
                f"{directory.path}: has another model.source_eos than {first.path}; ensemble "
                "models that read the same sources"
            )
    models = [directory.model for directory in directories]
    try:
        return Ensemble(models, settings.ensemble_weights, settings.ensemble_space)
    except ValueError as error:
        raise UsageError(f"--ensemble-weights: {error}") from None


def chosen_shortlist(directory: ModelDirectory, asked: str | None) -> Shortlist | None:
    """Reads the shortlist of a path, or the model's own if none is named; "none" has none."""
    path = directory.path / SHORTLIST if asked is None else Path(asked)
    if asked == NO_SHORTLIST or (asked is None and not path.exists()):
        return None
    if asked is not None and not path.exists():
        raise ArtifactError(f"--shortlist: {path}: no such file; name one, or none")
    n_targets = directory.tokenizer.vocab_size
    # 0: sources and targets share a vocabulary
    return read_shortlist(path, directory.config.source_vocab_size or n_targets, n_targets)


def _splitter(
    directory: ModelDirectory, settings: OpeningSettings
) -> Callable[[str], list[str]] | None:
    """Makes what splits lines of the model's source language into sentences, if they are to be."""
    from tformer_cli.search.sentences import sentence_splitter

    by_default: SentenceRule = "rule" if trained_on_sentences(directory) else "none"
    rule = settings.split_sentences or by_default
    return sentence_splitter(rule, directory.info.source_language)


def trained_on_sentences(directory: ModelDirectory) -> bool:
    """Returns whether a model drops text of lines with several sentences, as far as is known."""
    info = directory.info
    if task_kind(directory.config) != "translate":
        return False
    if info.several_sentences is not None:
        return info.several_sentences <= MOST_SEVERAL
    if info.origin is not None:
        # An import stores no share
        return info.origin.kind.startswith(SENTENCE_KINDS)
    # Models from before the share was stored: the built-in corpus is known to have sentences
    return _is_of_built_in_corpus(directory.path)


def _is_of_built_in_corpus(run: Path) -> bool:
    from tformer_cli.files.regular_file import read_regular

    try:
        recipe = tomllib.loads(read_regular(run / "recipe.toml", 1 << 20).decode())
        corpora = recipe["data"]["train"]
        return bool(corpora) and all(corpus["built_in"] for corpus in corpora)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return False  # nothing else needs the recipe
