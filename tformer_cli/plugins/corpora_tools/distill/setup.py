"""A distillation's recipe, places and inputs, checked before anything is done."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

from tformer_cli.artifacts.config_file import (
    CONFIG,
    SHORTLIST,
    TOKENIZER,
    TRANSLATORS,
    WEIGHTS,
    check_task,
    read_config,
)
from tformer_cli.artifacts.job_file import Spent
from tformer_cli.artifacts.overwriting import NamedPath, Output, Writes, check_outputs
from tformer_cli.errors import RecipeError, UsageError
from tformer_cli.files.regular_file import hash_file
from tformer_cli.foreign.import_model import resolve_model
from tformer_cli.kinds.kind import Progress
from tformer_cli.plugins.corpora_tools.distill.stages import MANIFEST, Stage, State
from tformer_cli.recipe import Recipe
from tformer_cli.runtime import Stopwatch, require_fast
from tformer_cli.search.keywords import TranslatorOptions
from tformer_cli.text.config import CorpusConfig
from tformer_cli.text.corpora import corpus_file, format_of
from tformer_cli.text.tokenizer import read_tokenizer
from tformer_cli.train.checking import check_files, check_files_of
from tformer_cli.train.data import named_inputs
from tformer_cli.trainer.distillation import DistillationConfig
from tformer_cli.trainer.events import TrainingObserver


class Display(Protocol):
    """Shows how far a distillation is; by itself nothing."""

    def stage(self, stage: Stage, state: State) -> None:
        """Receives each stage before anything is done."""

    def say(self, text: str) -> None:
        """Receives a line about slow work."""

    @contextmanager
    def lines(self, what: str, total: int | None) -> Iterator[Callable[[int], None]]:  # noqa: ARG002
        """Yields a function that takes the number of lines done, of a total if it is known."""
        yield lambda n_lines: None  # noqa: ARG005

    @contextmanager
    def training(
        self, recipe: Recipe
    ) -> Iterator[tuple[Sequence[TrainingObserver], Progress | None]]:
        """Yields observers of a training, and a function for the progress of its data."""
        del recipe
        yield (), None

    def times(self, spent: Sequence[Spent]) -> None:
        """Receives where the time went, at the end."""


class Silent(Display):
    """Shows nothing."""


TRANSLATIONS, CORPORA = "translations", "corpora"
STUDENT, PLAIN, INT8, REPORT = "student", "plain-student", "int8", "report"
PLACES = (TRANSLATIONS, CORPORA, STUDENT, PLAIN, INT8, REPORT)
"""Directories that the stages write, each in the distillation's own."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """All that the stages share."""

    recipe: Recipe
    directory: Path
    device: str = "auto"
    threads: int = 0
    display: Display = field(default_factory=Silent)
    before_torch: Callable[[], None] | None = None
    """Called before torch computes; a function of a module, for other processes call it, too."""
    watch: Stopwatch = field(default_factory=Stopwatch)
    """Where the time of the current stage goes."""

    @property
    def config(self) -> DistillationConfig:
        return self.recipe.distillation

    @cached_property
    def place(self) -> Path:
        """The directory's path from the root, which the student's recipe names."""
        return self.directory.resolve()

    def file(self, name: str) -> Path:
        """Path of a file that the recipe names: relative ones start at `data.directory`."""
        return Path(self.recipe.data.directory) / Path(name).expanduser()

    @cached_property
    def teachers(self) -> tuple[Path, ...]:
        return tuple(map(self._resolve, self.config.teachers))

    @cached_property
    def reverse_models(self) -> tuple[Path, ...]:
        return (self._resolve(self.config.reverse_model),) if self.config.reverse_model else ()

    def _resolve(self, model: str) -> Path:
        # an import stores the weights as the teacher computes
        is_float = self.config.teacher_precision == "float32"
        return resolve_model(model, self.display.say, "float32" if is_float else None)

    @property
    def test_sets(self) -> tuple[CorpusConfig, ...]:
        return self.config.test or self.recipe.data.valid

    def content(self, corpus: CorpusConfig) -> str:
        """Hash of all that decides the pairs of a corpus."""
        parts = format_of(corpus).content(corpus, self.recipe.data.directory)
        return hash_of([*parts, corpus.source_field, corpus.target_field])

    def options(self, models: Sequence[Path], *, is_reverse: bool = False) -> TranslatorOptions:
        codes = self.config.teacher_source_language, self.config.teacher_target_language
        options = self._make_options(models[0], *(reversed(codes) if is_reverse else codes))
        options["precision"] = self.config.teacher_precision
        options["ensemble"] = tuple(models[1:])
        return options

    def student_options(self, student: Path) -> TranslatorOptions:
        data = self.recipe.data
        return self._make_options(student, data.source_language, data.target_language)

    def _make_options(self, model: Path, source: str, target: str) -> TranslatorOptions:
        """Options of opening a model; the languages are only of those with tokens for them."""
        options = TranslatorOptions(
            device=self.device, threads=self.threads, before_torch=self.before_torch
        )
        if read_tokenizer(model / TOKENIZER).language_codes:
            options["source_language"], options["target_language"] = source or None, target or None
        return options

    def prepare_torch(self) -> None:
        if self.before_torch is not None:
            self.before_torch()


def check(setup: Setup) -> None:
    """Checks that all inputs exist, and that none would be overwritten."""
    recipe, config = setup.recipe, setup.config
    if not (config.teachers or config.translations or config.back_translation):
        raise RecipeError(
            "distillation.teachers: is missing; name a model directory, or files of translations"
        )
    if config.translations and len(config.translations) != len(recipe.data.train):
        raise RecipeError(
            f"distillation.translations: has {len(config.translations)} files for "
            f"{len(recipe.data.train)} corpora of data.train; give one for each"
        )
    if not setup.test_sets:
        raise RecipeError("distillation.test: is missing; name a test set, or data.valid")
    if len(config.test_translations) not in (0, len(setup.test_sets)):
        raise RecipeError(
            f"distillation.test_translations: has {len(config.test_translations)} files for "
            f"{len(setup.test_sets)} test sets; give one for each"
        )
    if not any(_weights(config)):
        raise RecipeError("distillation.distilled_weight: nothing is left to learn; raise a weight")
    # an hour of training would end in an error
    if config.int8:
        require_fast("distillation.int8")
    check_files(recipe)
    check_files_of("distillation.test", config.test, recipe.data)
    for name in _texts_of(config):
        corpus_file(name, recipe.data.directory)
    _check_places(setup)
    for models in (setup.teachers, setup.reverse_models):
        for model in models:
            check_task(model, read_config(model).model, TRANSLATORS)
        if models:
            _check_languages(setup, models, is_reverse=models is setup.reverse_models)


def _weights(config: DistillationConfig) -> Iterator[float]:
    yield config.original_weight
    if config.teachers or config.translations:
        yield config.distilled_weight
    if config.monolingual:
        yield config.monolingual_weight
    if config.back_translation:
        yield config.back_translation_weight


def _texts_of(config: DistillationConfig) -> list[str]:
    """The files that the table names, apart from test sets."""
    return [
        *config.translations,
        *config.monolingual,
        *config.back_translation,
        *config.test_translations,
    ]


def _check_languages(setup: Setup, models: Sequence[Path], *, is_reverse: bool) -> None:
    """Checks that a multilingual model knows the languages of the recipe."""
    options = setup.options(models, is_reverse=is_reverse)
    tokenizer = read_tokenizer(models[0] / TOKENIZER)
    try:
        tokenizer.for_languages(
            options.get("source_language"), options.get("target_language")
        ).check_languages()
    except UsageError as error:
        # the recipe has keys where the command line has options; back-translation goes the other
        # way
        option, _, problem = str(error).partition(": ")
        is_target = ("target" in option) != is_reverse
        key = f"distillation.teacher_{'target' if is_target else 'source'}_language"
        raise RecipeError(f"{key}: {problem}") from None


def _check_places(setup: Setup) -> None:
    """Checks that no stage writes over an input, or into a directory of something else."""
    directory, config = setup.directory, setup.config
    # test sets are inputs like the corpora, and must not be written over
    data = replace(setup.recipe.data, valid=(*setup.recipe.data.valid, *config.test))
    models = [*config.teachers, *([config.reverse_model] if config.reverse_model else [])]
    inputs = [
        *named_inputs(replace(setup.recipe, data=data)),
        *(NamedPath(name="distillation", path=setup.file(file)) for file in _texts_of(config)),
        *(NamedPath(name="distillation.teachers", path=Path(m), is_model=True) for m in models),
    ]
    outputs = [
        Output(name="--output", path=directory / place, writes=Writes.DIRECTORY) for place in PLACES
    ]
    check_outputs([Output(name="--output", path=directory, writes=Writes.FILES)], inputs)
    check_outputs(outputs, inputs)
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"--output: {directory} is a file; name a directory")
    if directory.is_dir() and not (directory / MANIFEST).exists():
        # a run that was killed before its first record leaves only its lock
        others = [path.name for path in directory.iterdir() if path.name != ".lock"]
        if others:
            raise UsageError(
                f"--output: {directory} holds other files ({min(others)}); name a new directory"
            )


def model_hash(model: Path) -> str:
    """Hash of all files that decide a model's translations."""
    files = [model / name for name in (CONFIG, TOKENIZER, WEIGHTS, SHORTLIST)]
    return hash_of([hash_file(file) if file.is_file() else "" for file in files])


def hash_of(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
