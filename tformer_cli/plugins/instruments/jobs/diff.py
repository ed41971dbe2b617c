"""Compares two models, or two checkpoints of a run, head by head on the same sentences."""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Unpack

import torch

from tformer_cli.artifacts.config_file import (
    CONFIG,
    FREQUENCIES,
    ONE_MODEL,
    TOKENIZER,
    TRANSLATORS,
    ModelInfo,
    TaskKind,
    check_task,
    read_config,
    task_kind,
)
from tformer_cli.artifacts.model_directory import (
    ModelDirectory,
    load_model_directory,
    make_model,
)
from tformer_cli.artifacts.weights_file import Arrays, read_weights
from tformer_cli.errors import ArtifactError, DataError, UsageError
from tformer_cli.foreign.import_model import resolve_model
from tformer_cli.heads.names import head_layout
from tformer_cli.heads.roles import NO_RARE_SENTENCE, TokenFrequencies, rare_positions
from tformer_cli.heads.selectors import HeadSelection
from tformer_cli.inspect.capture.forced import capture_batches, capture_maps
from tformer_cli.inspect.capture.maps import IdPair, longest_side
from tformer_cli.inspect.heads.metrics import HeadStatistics
from tformer_cli.inspect.jobs.heads import frequencies_of, source_labels, summary_of
from tformer_cli.inspect.jobs.reader import (
    InspectionOptions,
    ReadReport,
    corpus_pairs,
    inspected_model,
    open_for_inspection,
)
from tformer_cli.inspect.record import HeadsRecord
from tformer_cli.inspect.views.heads import VIEW as HEADS
from tformer_cli.kinds import training_of
from tformer_cli.kinds.stored_model import Opened
from tformer_cli.model.adapter_config import adapter_shapes
from tformer_cli.plugins.instruments.comparison import (
    HeadChange,
    HeadDiff,
    HeadDistances,
    Matching,
    Metrics,
    changes_of,
    default_matching,
)
from tformer_cli.recipe import RECIPE, Recipe, has_run, load_recipe
from tformer_cli.runtime import resolve_device
from tformer_cli.text.tokenizer import read_tokenizer
from tformer_cli.train.data import with_vocabularies
from tformer_cli.trainer.adapters import merged_weights
from tformer_cli.trainer.resuming.checkpoints import MODEL, STATE, Checkpoints


def open_model_or_checkpoint(
    path: Path, device: torch.device | str = "cpu", tasks: Container[TaskKind] = TRANSLATORS
) -> ModelDirectory:
    run = run_of_checkpoint(path)
    if run is None:
        return load_model_directory(resolve_model(path, weights="float32"), device, tasks=tasks)
    place = path.resolve()
    checkpoints = Checkpoints(run)
    steps = [step for step in checkpoints.steps() if checkpoints.path(step) == place]
    if not steps or not has_run(run):
        raise ArtifactError(
            f"{path}: is a checkpoint without its run; name it inside the run, as "
            "RUN/checkpoints/step-NNNNNN"
        )
    recipe = _complete_recipe(load_recipe(str(run / RECIPE)), run)
    check_task(path, recipe.model, tasks)
    tokenizer = read_tokenizer(run / TOKENIZER)
    recipe = with_vocabularies(recipe, tokenizer)
    checkpoints.check(steps[0])
    shapes = adapter_shapes(recipe.model, recipe.adapter)
    weights: Arrays = read_weights(
        place / MODEL, recipe.model, tokenizer.vocab_size, adapters=shapes
    )
    if shapes:
        tensors = {name: torch.from_numpy(array) for name, array in weights.items()}
        whole = merged_weights(tensors, recipe.model, recipe.adapter)
        weights = {name: tensor.numpy() for name, tensor in whole.items()}
    return ModelDirectory(
        path=path,
        config=recipe.model,
        load=partial(make_model, weights, recipe.model, tokenizer.vocab_size, device),
        tokenizer=tokenizer,
        decoding=recipe.decoding,
        info=ModelInfo(
            source_language=recipe.data.source_language,
            target_language=recipe.data.target_language,
            step=steps[0],
            labels=recipe.task.labels,
            several_sentences=read_config(run).several_sentences
            if (run / CONFIG).is_file()
            else None,
        ),
    )


def _complete_recipe(recipe: Recipe, run: Path) -> Recipe:
    """Adds the settings that depend on the task and its data; a run with a model has the labels."""
    if (run / CONFIG).is_file():
        recipe = replace(recipe, task=replace(recipe.task, labels=read_config(run).labels))
    return training_of(recipe).complete_recipe(recipe, None)


def run_of_checkpoint(path: Path) -> Path | None:
    if not (path / STATE).is_file() or (path / CONFIG).exists():
        return None
    return path.resolve().parent.parent


TASKS = HEADS.tasks  # Tasks whose models can be compared: those with maps of heads


def inspect_diff(
    first: Path | str | ModelDirectory,
    second: Path | str | ModelDirectory,
    lines: Iterable[str],
    *,
    targets: Iterable[str] | None = None,
    heads: Sequence[str] = (),
    matching: Matching | None = None,
    **options: Unpack[InspectionOptions],
) -> HeadDiff:
    comparer = ModelComparer(*open_models(first, second, **options), heads, matching)
    for _ in comparer.read(lines, targets):
        pass
    return comparer.diff()


def open_models(
    first: Path | str | ModelDirectory,
    second: Path | str | ModelDirectory,
    **options: Unpack[InspectionOptions],
) -> tuple[Opened, ModelDirectory]:
    """Opens the first model with its search, then the second; see `inspect_diff`."""
    try:
        place = resolve_device(options.get("device", "auto"))
    except ValueError as error:
        raise UsageError(f"--device: {error}") from None
    before, after = (
        model
        if isinstance(model, ModelDirectory)
        else open_model_or_checkpoint(Path(model), place, TASKS)
        for model in (first, second)
    )
    return open_for_inspection(before, tasks=TASKS, **options), after


class ModelComparer:
    """Compares the heads of two opened models over sentences, in memory that does not grow."""

    def __init__(
        self,
        opened: Opened,
        other: ModelDirectory,
        heads: Sequence[str] = (),
        matching: Matching | None = None,
    ) -> None:
        self._opened, self._directories = opened, (opened.directory, other)
        _check_tasks(*self._directories)
        _check_vocabularies(*self._directories)
        self._models = inspected_model(opened.directory), inspected_model(other)
        self._layouts = head_layout(self._models[0]), head_layout(self._models[1])
        self._matching = matching or default_matching(*self._layouts)
        self._selection = HeadSelection(heads, self._layouts[0])
        self._is_selected = bool(heads)
        self._kinds = self._selection.kinds
        self._distances = HeadDistances(*self._layouts, self._kinds)
        self._statistics = [
            HeadStatistics(layout, self._kinds, resamples=0) for layout in self._layouts
        ]
        self._frequencies = _frequencies(self._directories)
        self._has_rare = False
        self._shown: IdPair | None = None
        self._n_sentences = 0
        self.report = ReadReport()

    def read(self, lines: Iterable[str], targets: Iterable[str] | None = None) -> Iterator[int]:
        """Compares on sentences with A's translations or with given targets."""
        limit = min(longest_side(model.config) for model in self._models)
        for buffer in corpus_pairs(self._opened, lines, targets):
            _, pairs = self.report.fitting(buffer, self._models[0].config, limit)
            if pairs and self._shown is None:
                self._shown = pairs[0]
            self._add(pairs)
            self.report.lines += len(buffer)
            yield self.report.lines

    def _add(self, pairs: Sequence[IdPair]) -> None:
        captured = [capture_batches(model, pairs, self._kinds) for model in self._models]
        # Both take the pairs in one order, which their lengths decide.
        for (indices, before), (_, after) in zip(*captured, strict=True):
            for maps in zip(before.maps(), after.maps(), strict=True):
                self._distances.add(*maps)
            rare = [rare_positions(self._frequencies, ids) for ids in before.sources]
            self._has_rare = self._has_rare or any(rare)
            for statistics, batch in zip(self._statistics, (before, after), strict=True):
                statistics.add_batch(indices, batch, rare)
        self._n_sentences += len(pairs)

    def diff(self) -> HeadDiff:
        if self._shown is None:
            if self.report.too_long:
                raise DataError("the input: no sentence fits both models; give a shorter one")
            raise DataError("the input: has no sentence to compare; give one that is not blank")
        first, second = (statistics.means() for statistics in self._statistics)
        changes = changes_of(
            self._layouts, self._distances, (first, second), self._kinds, self._matching
        )
        return HeadDiff(
            first=summary_of(self._directories[0]),
            second=summary_of(self._directories[1]),
            matching=self._matching,
            n_sentences=self._n_sentences,
            changes=tuple(self._select_changes(changes, first)),
            rare_reason=self._rare_reason(),
            shown=(self._record(self._shown, 0), self._record(self._shown, 1)),
        )

    def _rare_reason(self) -> str:
        """Reason why rare-word heads cannot be recognized; empty if they can."""
        if self._frequencies is None:
            return f"no {FREQUENCIES} in A or B"
        return "" if self._has_rare else NO_RARE_SENTENCE

    def _select_changes(self, changes: list[HeadChange], means: Metrics) -> list[HeadChange]:
        """The changes of the heads that are asked for, chosen by A's own means."""
        if not self._is_selected:
            return changes
        chosen = set(self._selection.select(means))
        return [change for change in changes if change.first in chosen]

    def _record(self, pair: IdPair, number: int) -> HeadsRecord:
        tokenizer = self._directories[0].tokenizer
        maps = capture_maps(self._models[number], *pair)
        return HeadsRecord(
            index=0,
            model=summary_of(self._directories[number]),
            source=tokenizer.source.decode(pair[0]),
            target=tokenizer.target.decode(pair[1]),
            is_forced=True,
            source_pieces=source_labels(tokenizer, self._directories[number].config, maps),
            target_pieces=tuple(tokenizer.target.pieces(maps.target_ids)),
            input_pieces=tuple(tokenizer.target.pieces(maps.target_input_ids)),
            maps=maps,
        )


def _frequencies(directories: Iterable[ModelDirectory]) -> TokenFrequencies | None:
    """Frequencies of source tokens in the training of A, or else of B.

    Both models are judged by the same tokens, so that a changed role is the heads' own change.
    """
    counts = (frequencies_of(model, run_of_checkpoint(model.path)) for model in directories)
    return next((frequencies for frequencies in counts if frequencies is not None), None)


def _check_tasks(first: ModelDirectory, second: ModelDirectory) -> None:
    kinds = [task_kind(directory.config) for directory in (first, second)]
    if kinds[0] != kinds[1]:
        raise DataError(
            f"{second.path}: is {ONE_MODEL[kinds[1]]}, but {first.path} is {ONE_MODEL[kinds[0]]}; "
            "compare models of one kind"
        )
    for name in ("image_size", "patch_size", "class_token"):
        values = [getattr(directory.config, name) for directory in (first, second)]
        if values[0] != values[1]:
            raise DataError(
                f"{first.path}, {second.path}: differ in {name}, and so in the patches that heads "
                "look at; compare models of the same"
            )


def _check_vocabularies(first: ModelDirectory, second: ModelDirectory) -> None:
    sizes = [directory.tokenizer.vocab_size for directory in (first, second)]
    pieces = [
        directory.tokenizer.target.pieces(range(size))
        for directory, size in zip((first, second), sizes, strict=True)
    ]
    if pieces[0] == pieces[1]:
        return
    place = next(
        (i for i, pair in enumerate(zip(*pieces, strict=False)) if pair[0] != pair[1]), min(sizes)
    )
    raise DataError(
        f"{first.path}, {second.path}: their tokenizers differ, from token {place} on; "
        "compare models of one vocabulary, such as two checkpoints of a run"
    )
