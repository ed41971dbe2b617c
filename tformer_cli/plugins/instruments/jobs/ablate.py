"""Importance of heads: the loss and the scores without each of them, and without more and more."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Unpack

import numpy as np

from tformer_cli.artifacts.config_file import TASKS, WEIGHTS, task_kind
from tformer_cli.artifacts.model_directory import (
    ModelDirectory,
    load_model_directory,
    save_model_directory,
)
from tformer_cli.artifacts.shortlist_file import copy_shortlist
from tformer_cli.errors import DataError, UsageError
from tformer_cli.evaluate.evaluate import reference_loss
from tformer_cli.files.atomic import check_free, directory_aside
from tformer_cli.heads.gates import heads_off
from tformer_cli.heads.names import HeadId, Inspected, by_layer, head_layout
from tformer_cli.heads.selectors import select_heads
from tformer_cli.inspect.capture.maps import longest_read
from tformer_cli.inspect.jobs.reader import (
    InspectionOptions,
    inspected_model,
    open_for_inspection,
)
from tformer_cli.inspect.view import WITH_OUTPUT
from tformer_cli.kinds import kind_of
from tformer_cli.kinds.masked import hidden_alike
from tformer_cli.kinds.opening import open_model
from tformer_cli.kinds.texts import text_ids
from tformer_cli.metrics.scores import check_references
from tformer_cli.metrics.significance import PairedDifference, PairedScores, compare_losses
from tformer_cli.plugins.instruments.ablation import (
    Measure,
    batch_of,
    importance_sums,
    layer_normalized,
    losses_along,
    losses_and_hits,
    losses_of,
    losses_without_each,
    prune_heads,
    to_device,
)
from tformer_cli.plugins.instruments.views.ablation import (
    Ablation,
    AblationSettings,
    CurvePoint,
    HeadEffect,
    ModelCost,
    Pruning,
    WithoutHeads,
)
from tformer_cli.search.text_windows import text_windows
from tformer_cli.text.batching import Batch, plan_batches
from tformer_cli.text.blocks import join_lines
from tformer_cli.text.masking import masking_of
from tformer_cli.text.tokenizer import PAD_ID
from tformer_cli.wording import count_of, is_blank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from tformer_cli.artifacts.config_file import TaskKind
    from tformer_cli.kinds.stored_model import Opened

    Observer = Callable[[str, int, int], None]
    """Receives the activity, the number of lines done, and the total."""

ACCURACY = "accuracy"  # Score of a classifier or of hidden tokens, in percent
POSITIONS_PER_BATCH = 2048  # Positions of a batch, before its rows are repeated


MEASURED = WITH_OUTPUT  # Tasks whose models can be measured


def inspect_ablate(
    model: Path | str | ModelDirectory | Opened,
    sources: Sequence[str],
    references: Sequence[Sequence[str]] = (),
    *,
    settings: AblationSettings | None = None,
    observe: Observer | None = None,
    **options: Unpack[InspectionOptions],
) -> Ablation:
    check_references("the source", sources, references)
    opened = open_for_inspection(model, tasks=MEASURED, **options)
    return Ablator(opened, sources, references, settings or AblationSettings(), observe).run()


def translate_without(opened: Opened, text: str, heads: Sequence[str] = ()) -> WithoutHeads:
    selected = select_heads(heads, head_layout(opened.directory.model))
    without, switched = {}, {str(head): [head] for head in selected}
    for (kind, layer), numbers in by_layer(selected).items():
        switched[f"{kind}.{layer}"] = [HeadId(kind, layer, number) for number in numbers]
    for name, off in switched.items():
        with heads_off(opened.directory.model, off):
            without[name] = opened.translator.translate([text])[0].text
    whole = opened.translator.translate([text])[0].text
    return WithoutHeads(source=text, whole=whole, without=without)


class Ablator:
    """Measures step by step; see `inspect_ablate`."""

    def __init__(
        self,
        opened: Opened,
        sources: Sequence[str],
        references: Sequence[Sequence[str]],
        settings: AblationSettings,
        observe: Observer | None = None,
    ) -> None:
        self._opened = opened
        self._model = inspected_model(opened.directory)
        self._task = task_kind(opened.directory.config)
        self._sources, self._references = sources, references
        self._settings = settings
        _check(self._task, references, settings)
        # a language model's next token is open: only its loss says something
        self._has_hits = TASKS[self._task].has_labels or self._task == "masked"
        self._measured_by: Measure = losses_and_hits if self._has_hits else _losses
        self._observe = observe or _observe_nothing
        self._heads = select_heads(settings.heads, head_layout(self._model))
        self._pairs = examples(opened.directory, sources, references)
        self._batches = self._make_batches()
        self._paired: PairedScores | None = None

    def run(self) -> Ablation:
        settings = self._settings
        values, n_tokens, importance = self._measure()
        total = int(n_tokens.sum())
        effects = self._effects(values, n_tokens, importance)
        order = [effect.head for effect in sorted(effects, key=lambda e: e.rank, reverse=True)]
        curve = self._curve(order, n_tokens) if settings.curve else ()
        effects = [
            replace(effect, scores=self._scores_without([effect.head]))
            if effect.loss_rank <= settings.scores
            else effect
            for effect in effects
        ]
        scores, signatures = {}, {}
        if self._paired is not None:
            scores, signatures = self._paired.baseline, self._paired.signatures
        elif self._has_hits:
            scores = {ACCURACY: 100.0 * float(values[0, :, 1].sum()) / total}
        return Ablation(
            model=self._opened.directory.path.resolve().name,
            n_lines=len(self._sources),
            n_tokens=total,
            loss=float(values[0, :, 0].sum() / total),
            settings=settings,
            task=self._task,
            effects=tuple(effects),
            curve=curve,
            scores=scores,
            signatures=signatures,
        )

    def _measure(self) -> tuple[NDArray[np.float64], NDArray[np.int64], dict[HeadId, float]]:
        """Sums over sentences: (1 + R, N, 2) losses and hits, (N) tokens, and I_h of each head.

        Row 0 has all heads, the others lack one; hits are right labels or hidden tokens.
        """
        n_pairs = len(self._pairs)
        n_tokens = np.zeros(n_pairs, dtype=np.int64)
        values = np.zeros((1 + len(self._heads), n_pairs, 2))
        sums = dict.fromkeys(head_layout(self._model), 0.0)
        for indices, batch in self.batches_on_device("switching heads off"):
            whole, ablated = losses_without_each(
                self._model, batch, self._heads, measure=self._measured_by
            )
            values[0, indices, : whole.shape[1]] = whole.numpy()
            values[1:, indices, : whole.shape[1]] = ablated.numpy()
            n_tokens[indices] = (batch.target_output != PAD_ID).sum(dim=1).cpu().numpy()
            granularity = self._settings.granularity
            for head, value in importance_sums(self._model, batch, granularity).items():
                sums[head] += value
        return values, n_tokens, {head: value / int(n_tokens.sum()) for head, value in sums.items()}

    def _effects(
        self,
        values: NDArray[np.float64],
        n_tokens: NDArray[np.int64],
        importance: dict[HeadId, float],
    ) -> list[HeadEffect]:
        """Compares the results without each head with row 0; see `_measure`."""
        differences = compare_losses(
            values[0, :, 0], values[1:, :, 0], n_tokens, name="loss", **self._settings.resampling
        )
        within_layer = layer_normalized(importance)
        accuracies: list[tuple[PairedDifference, ...]] = [()] * len(self._heads)
        if self._has_hits:
            accuracies = [(row,) for row in self._accuracies(values[..., 1], n_tokens)[1:]]
        worth = {
            "importance": [importance[head] for head in self._heads],
            "layer-importance": [within_layer[head] for head in self._heads],
            "delta": [difference.difference for difference in differences],
        }
        ranks, loss_ranks = (_ranks(worth[name]) for name in (self._settings.rank_by, "delta"))
        return [
            HeadEffect(
                head=head,
                rank=ranks[place],
                loss_rank=loss_ranks[place],
                loss=differences[place],
                importance=importance[head],
                layer_importance=within_layer[head],
                scores=accuracies[place],
            )
            for place, head in enumerate(self._heads)
        ]

    def _accuracies(
        self, hits: NDArray[np.float64], n_tokens: NDArray[np.int64]
    ) -> list[PairedDifference]:
        """Compares rows of hits (R, N) among tokens (N) with the first of them."""
        resampling = self._settings.resampling
        return compare_losses(100.0 * hits[0], 100.0 * hits, n_tokens, name=ACCURACY, **resampling)

    def _curve(self, order: list[HeadId], n_tokens: NDArray[np.int64]) -> tuple[CurvePoint, ...]:
        sums = np.zeros((len(order) + 1, len(self._pairs), 2))
        for indices, batch in self.batches_on_device("removing heads one by one"):
            measured = losses_along(self._model, batch, order, self._measured_by)
            sums[:, indices, : measured.shape[2]] = measured.numpy()
        losses = sums[..., 0].sum(axis=1) / int(n_tokens.sum())
        scores: list[tuple[PairedDifference, ...]] = [()] * len(losses)
        if self._has_hits:
            scores = [(row,) for row in self._accuracies(sums[..., 1], n_tokens)]
        elif self._settings.curve_scores:
            scores = [self._scores_without(order[:k]) for k in range(len(losses))]
        return tuple(
            CurvePoint(n_removed=k, head=head, loss=float(losses[k]), scores=scores[k])
            for k, head in enumerate((None, *order))
        )

    def _scores_without(self, heads: Sequence[HeadId]) -> tuple[PairedDifference, ...]:
        if self._paired is None:
            whole = self._translate([])
            self._paired = PairedScores(whole, self._references, **self._settings.resampling)
        return tuple(self._paired.compare(self._translate(heads)))

    def _translate(self, heads: Sequence[HeadId]) -> list[str]:
        what = f"translating without {_few(heads)}" if heads else "translating"
        with heads_off(self._model, heads):
            return translate(self._opened, self._sources, what, self._observe)

    def batches_on_device(self, what: str) -> Iterator[tuple[NDArray[np.int64], Batch]]:
        """Yields the batches on the model's device and tells of the lines that are done."""
        done = 0
        for indices, batch in self._batches:
            yield indices, to_device(batch, self._opened.device)
            done += len(indices)
            self._observe(what, done, len(self._pairs))

    def _make_batches(self) -> list[tuple[NDArray[np.int64], Batch]]:
        lengths = [np.array([len(pair[side]) for pair in self._pairs]) for side in (0, 1)]
        lengths[0] //= self._model.config.ids_per_token
        plan = plan_batches(lengths[0], lengths[1], POSITIONS_PER_BATCH, 0, 0)
        if self._task == "masked":
            masking = masking_of(self._opened.directory.tokenizer)
            texts = [source for source, _ in self._pairs]
            return [
                (indices, hidden_alike([texts[i] for i in indices], indices.tolist(), masking))
                for indices in plan
            ]
        # a text's windows have the end already, where there is one
        ends = self._task == "translate"
        return [
            (indices, batch_of(self._model, [self._pairs[i] for i in indices], ends=ends))
            for indices in plan
        ]


def examples(
    directory: ModelDirectory, sources: Sequence[str], references: Sequence[Sequence[str]]
) -> list[tuple[Sequence[int], Sequence[int]]]:
    """Makes pairs of tokens whose targets are predicted; see `inspect_ablate`.

    Sentences that are longer than the model takes are cut off. A language model's text is read as
    `tformer evaluate --text` reads it: in windows of as many tokens as it takes, lines by
    themselves or all of them as one. Blank texts are left out of a classifier's, blank pairs of
    all.
    """
    config, tokenizer = directory.config, directory.tokenizer
    longest = config.max_positions - 1
    pairs: list[tuple[Sequence[int], Sequence[int]]]
    if config.head == "tokens":
        texts_ids = text_ids(sources, tokenizer, longest, is_stream=False)
        pairs = [(ids, ids) for ids in texts_ids]
    elif config.is_decoder_only:
        texts = [join_lines(sources)]
        if config.target_eos:
            texts = [line for line in sources if not is_blank(line)]
        window, begins = longest_read(config), config.target_bos
        pairs = [
            ((), text_window.predicted if begins else [text_window.read[0], *text_window.predicted])
            for number, ids in enumerate(tokenizer.target.encode_phrases(texts))
            for text_window in text_windows(number, ids, window, window, config)
        ]
    else:
        training = kind_of(config).training
        if training is not None:
            tokenizer = training.sides(tokenizer, directory.info.labels)
        # As in `tformer evaluate`, pairs that are blank on both sides predict nothing
        filled = [p for p in zip(sources, references[0], strict=True) if not all(map(is_blank, p))]
        encoded = tokenizer.encode_pairs([pair[0] for pair in filled], [pair[1] for pair in filled])
        pairs = [
            (source[: config.longest_source], target[:longest])
            for source, target in zip(*encoded, strict=True)
        ]
        if config.is_encoder_only:
            pairs = [pair for pair in pairs if pair[0] and pair[1]]
    if not pairs:
        raise DataError("--source: there is nothing to predict; give a text that is not blank")
    return pairs


def _check(task: TaskKind, references: Sequence[Sequence[str]], settings: AblationSettings) -> None:
    row = TASKS[task]
    if row.reads == "texts" and references:
        raise UsageError(f"--reference: {row.singular} predicts its own text; omit it")
    if row.reads != "texts" and not references:
        what = "the correct labels" if row.has_labels else "the translations"
        raise UsageError(f"--reference: is missing; name the file with {what}")
    if row.has_labels and len(references) > 1:
        what = "an image" if row.reads == "images" else "a text"
        raise UsageError(f"--reference: {what} has one correct label; name one file")
    if task != "translate":
        for option, is_given in (
            ("--scores", settings.scores > 0),
            ("--curve-scores", settings.curve_scores),
        ):
            if is_given:
                raise UsageError(f"{option}: only for translation models; omit it")


def _losses(model: Inspected, hidden: Tensor, target_output: Tensor) -> Tensor:
    return losses_of(model, hidden, target_output)[:, None]


def heads_to_remove(ablation: Ablation, layout_heads: Sequence[HeadId], keep: int) -> list[HeadId]:
    if keep > len(ablation.effects):
        raise UsageError(
            f"--keep: {keep} heads are more than the {len(ablation.effects)} measured; keep fewer"
        )
    removed = {effect.head for effect in ablation.effects if effect.rank > keep}
    return [head for head in layout_heads if head in removed]


def _ranks(worth: Sequence[float]) -> list[int]:
    """Ranks numbers, 1 the largest; equals stand in their order."""
    order = sorted(range(len(worth)), key=lambda place: worth[place], reverse=True)
    return [order.index(place) + 1 for place in range(len(worth))]


def _few(heads: Sequence[HeadId]) -> str:
    return str(heads[0]) if len(heads) == 1 else count_of(len(heads), "head")


WARM_UP_LINES = 16


def write_pruned(
    opened: Opened,
    heads: Sequence[HeadId],
    directory: Path,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    settings: AblationSettings | None = None,
    observe: Observer | None = None,
) -> Pruning:
    check_free(directory, "--write-pruned")
    if not opened.directory.model.config.projections:
        raise UsageError(
            "--write-pruned: the model's heads have no projections, so there is nothing to "
            "take out; omit it"
        )
    _save(opened.directory, heads, directory)
    pruned = _opened_like(opened, directory)
    models = [opened, pruned]
    for model in models:
        model.translator.translate(sources[:WARM_UP_LINES])
    names = ("translating with all heads", "translating with the remaining heads")
    texts, seconds = [], []
    for model, name in zip(models, names, strict=True):
        start = perf_counter()
        texts.append(translate(model, sources, name, observe or _observe_nothing))
        seconds.append(perf_counter() - start)
    resampling = (settings or AblationSettings()).resampling
    paired = PairedScores(texts[0], references, **resampling)
    differences = paired.compare(texts[1])
    after_scores = {difference.name: difference.value for difference in differences}
    costs = [
        ModelCost(
            n_heads=len(list(head_layout(model.directory.model))),
            n_parameters=sum(part.numel() for part in model.directory.model.parameters()),
            n_bytes=(model.directory.path / WEIGHTS).stat().st_size,
            lines_per_second=len(sources) / taken,
            loss=reference_loss(model, sources, references[0]),
            scores=scores,
        )
        for model, taken, scores in zip(
            models, seconds, (paired.baseline, after_scores), strict=True
        )
    ]
    return Pruning(
        directory=str(directory),
        removed=tuple(heads),
        before=costs[0],
        after=costs[1],
        scores=tuple(differences),
    )


def _save(whole: ModelDirectory, heads: Sequence[HeadId], directory: Path) -> None:
    pruned = prune_heads(whole.model, heads)
    with directory_aside(directory) as aside:
        save_model_directory(
            aside,
            pruned.state_dict(),
            config=pruned.config,
            tokenizer=whole.tokenizer,
            decoding=whole.decoding,
            # Scores were the whole model's, and heads to align with have other numbers now.
            info=replace(whole.info, scores={}, alignment=None),
        )
        copy_shortlist(whole.path, aside)


def _opened_like(opened: Opened, directory: Path) -> Opened:
    config = opened.translator.config
    return open_model(
        load_model_directory(directory, opened.device),
        precision=opened.precision,
        beam_size=config.beam_size,
        length_penalty=config.length_penalty,
        n_best=config.n_best,
        batch_tokens=config.batch_tokens,
    )


def translate(opened: Opened, sources: Sequence[str], what: str, observe: Observer) -> list[str]:
    texts: list[str] = []
    for translation in opened.translator.stream(sources):
        texts.append(translation.text)
        observe(what, len(texts), len(sources))
    return texts


def _observe_nothing(what: str, n_done: int, n_lines: int) -> None:
    """Leaves progress unshown."""
