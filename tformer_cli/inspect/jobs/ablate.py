"""Importance of heads: the loss and the scores without each of them, and without more and more."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Unpack

import numpy as np

from tformer_cli.artifacts.config_file import TASKS, task_kind
from tformer_cli.errors import DataError, UsageError
from tformer_cli.heads.names import HeadId, Inspected, head_layout
from tformer_cli.heads.selectors import select_heads
from tformer_cli.inspect.ablation.losses import (
    Measure,
    batch_of,
    heads_off,
    importance_sums,
    layer_normalized,
    losses_along,
    losses_and_hits,
    losses_of,
    losses_without_each,
    to_device,
)
from tformer_cli.inspect.ablation.record import Ablation, CurvePoint, HeadEffect, WithoutHeads
from tformer_cli.inspect.capture.forced import longest_read
from tformer_cli.inspect.jobs.reader import (
    InspectionOptions,
    inspected_model,
    open_for_inspection,
)
from tformer_cli.inspect.view import WITH_OUTPUT
from tformer_cli.inspect.views.ablation import AblationSettings
from tformer_cli.kinds import kind_of
from tformer_cli.kinds.masked import hidden_alike
from tformer_cli.kinds.opening.translator import Opened
from tformer_cli.kinds.texts import text_ids
from tformer_cli.metrics.scores import check_counts
from tformer_cli.metrics.significance import PairedDifference, PairedScores, compare_losses
from tformer_cli.search.text_windows import text_windows
from tformer_cli.text.batching import Batch, plan_batches
from tformer_cli.text.loading.encoded import joined
from tformer_cli.text.masking import masking_of
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from tformer_cli.artifacts.config_file import TaskKind
    from tformer_cli.artifacts.model_directory import ModelDirectory

    Observer = Callable[[str, int, int], None]
    """Is told what is done, how many lines are, and how many there are."""

ACCURACY = "accuracy"
"""Score of a classifier or of hidden tokens, in percent."""
POSITIONS_PER_BATCH = 2048
"""Positions of a batch, before its rows are repeated."""


MEASURED = WITH_OUTPUT
"""Tasks whose models can be measured."""


def inspect_ablate(
    model: Path | str | ModelDirectory | Opened,
    sources: Sequence[str],
    references: Sequence[Sequence[str]] = (),
    *,
    settings: AblationSettings | None = None,
    observe: Observer | None = None,
    **options: Unpack[InspectionOptions],
) -> Ablation:
    """Measures what the heads of a model are worth on a text."""
    names = [("the source", len(sources))]
    check_counts([*names, *((f"reference {i}", len(r)) for i, r in enumerate(references, 1))])
    opened = (
        model
        if isinstance(model, Opened)
        else open_for_inspection(model, tasks=MEASURED, **options)
    )
    chosen = AblationSettings() if settings is None else settings
    return Ablator(opened, sources, references, chosen, observe).run()


def translate_without(opened: Opened, text: str, heads: Sequence[str] = ()) -> WithoutHeads:
    """Translates a sentence without each head, and without all heads of each layer."""
    selected = select_heads(heads, head_layout(opened.directory.model))
    layers: dict[str, list[HeadId]] = {}
    for head in selected:
        layers.setdefault(f"{head.kind}.{head.layer}", []).append(head)
    without = {}
    for name, off in {**{str(head): [head] for head in selected}, **layers}.items():
        with heads_off(opened.directory.model, off):
            without[name] = opened.translator.translate([text])[0].text
    whole = opened.translator.translate([text])[0].text
    return WithoutHeads(source=text, whole=whole, without=without)


@dataclass(frozen=True)
class _Measured:
    """Sums over sentences, before they are compared."""

    losses: NDArray[np.float64]
    """(N) each sentence's loss with all heads."""
    without: NDArray[np.float64]
    """(R, N) without each head."""
    n_tokens: NDArray[np.int64]
    """(N) target tokens."""
    hits: NDArray[np.float64] | None
    """(1 + R, N) right labels or hidden tokens, with all heads and without each; else None."""
    importance: dict[HeadId, float]
    """I_h of every head of the model."""


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
        self._observe = observe or (lambda *_: None)
        self._heads = select_heads(settings.heads, head_layout(self._model))
        self._pairs = examples(opened.directory, sources, references)
        self._batches = self._make_batches()
        self._paired: PairedScores | None = None

    def run(self) -> Ablation:
        measured = self._measure()
        total = int(measured.n_tokens.sum())
        effects = self._ranked(self._effects(measured))
        settings = self._settings
        most_important = sorted(effects, key=lambda effect: effect.rank)
        order = [effect.head for effect in reversed(most_important)]
        curve = self._curve(order, measured.n_tokens) if settings.curve else ()
        scores = {} if self._paired is None else self._paired.baseline
        if measured.hits is not None:
            scores = {ACCURACY: 100.0 * float(measured.hits[0].sum()) / total}
        scored = {effect.head for effect in effects if effect.loss_rank < settings.scores}
        effects = [
            replace(effect, scores=self._scores_without([effect.head]))
            if effect.head in scored
            else effect
            for effect in effects
        ]
        return Ablation(
            model=self._opened.directory.path.resolve().name,
            n_lines=len(self._sources),
            n_tokens=total,
            loss=float(measured.losses.sum() / total),
            settings=settings,
            task=self._task,
            effects=tuple(effects),
            curve=curve,
            scores=scores if self._paired is None else self._paired.baseline,
            signatures={} if self._paired is None else self._paired.signatures,
        )

    def _measure(self) -> _Measured:
        """Runs the model forwards without each head, and once backwards."""
        n_pairs = len(self._pairs)
        n_tokens = np.zeros(n_pairs, dtype=np.int64)
        found = np.zeros((1 + len(self._heads), n_pairs, 2))
        sums = dict.fromkeys(head_layout(self._model), 0.0)
        for indices, batch in self.batches_on_device("switching heads off"):
            whole, ablated = losses_without_each(
                self._model, batch, self._heads, measure=self._measured_by
            )
            found[0, indices, : whole.shape[1]] = whole.numpy()
            found[1:, indices, : whole.shape[1]] = ablated.numpy()
            n_tokens[indices] = _tokens_of(batch)
            for head, value in importance_sums(
                self._model, batch, self._settings.granularity
            ).items():
                sums[head] += value
        importance = {head: value / int(n_tokens.sum()) for head, value in sums.items()}
        hits = found[..., 1] if self._has_hits else None
        return _Measured(found[0, :, 0], found[1:, :, 0], n_tokens, hits, importance)

    def _effects(self, measured: _Measured) -> list[HeadEffect]:
        differences = compare_losses(
            measured.losses,
            measured.without,
            measured.n_tokens,
            n_resamples=self._settings.n_resamples,
            seed=self._settings.seed,
        )
        within_layer = layer_normalized(measured.importance)
        accuracies: list[tuple[PairedDifference, ...]] = [()] * len(self._heads)
        if measured.hits is not None:
            found = self._accuracies(measured.hits, measured.n_tokens)
            accuracies = [(one,) for one in found[1:]]
        return [
            HeadEffect(
                head=head,
                rank=0,
                loss_rank=0,
                loss=difference,
                importance=measured.importance[head],
                layer_importance=within_layer[head],
                scores=accuracy,
            )
            for head, difference, accuracy in zip(self._heads, differences, accuracies, strict=True)
        ]

    def _accuracies(
        self, hits: NDArray[np.float64], n_tokens: NDArray[np.int64]
    ) -> list[PairedDifference]:
        """Compares rows of hits (R, N) among tokens (N) with the first of them."""
        return compare_losses(
            100.0 * hits[0],
            100.0 * hits,
            n_tokens,
            n_resamples=self._settings.n_resamples,
            seed=self._settings.seed,
            name=ACCURACY,
        )

    def _ranked(self, effects: list[HeadEffect]) -> list[HeadEffect]:
        """Gives each head its ranks, 0 the most important; equals stand in their order."""
        worth: dict[str, Callable[[HeadEffect], float]] = {
            "importance": lambda effect: effect.importance,
            "layer-importance": lambda effect: effect.layer_importance,
            "delta": lambda effect: effect.loss.difference,
        }
        ranks, loss_ranks = (
            {effect.head: rank for rank, effect in enumerate(ranked)}
            for ranked in (
                sorted(effects, key=worth[name], reverse=True)
                for name in (self._settings.rank_by, "delta")
            )
        )
        return [
            replace(effect, rank=ranks[effect.head], loss_rank=loss_ranks[effect.head])
            for effect in effects
        ]

    def _curve(self, order: list[HeadId], n_tokens: NDArray[np.int64]) -> tuple[CurvePoint, ...]:
        found = np.zeros((len(order) + 1, len(self._pairs), 2))
        for indices, batch in self.batches_on_device("removing heads one by one"):
            measured = losses_along(self._model, batch, order, self._measured_by)
            found[:, indices, : measured.shape[2]] = measured.numpy()
        losses = found[..., 0].sum(axis=1) / int(n_tokens.sum())
        scores: list[tuple[PairedDifference, ...]] = [()] * len(losses)
        if self._has_hits:
            scores = [(one,) for one in self._accuracies(found[..., 1], n_tokens)]
        elif self._settings.curve_scores:
            scores = [self._scores_without(order[:k]) for k in range(len(losses))]
        return tuple(
            CurvePoint(
                n_removed=k,
                head=order[k - 1] if k else None,
                loss=float(losses[k]),
                scores=scores[k],
            )
            for k in range(len(losses))
        )

    def _scores_without(self, heads: Sequence[HeadId]) -> tuple[PairedDifference, ...]:
        """Translates with heads off and compares with the translations by all heads."""
        if self._paired is None:
            self._paired = PairedScores(
                self._translate([]),
                self._references,
                n_resamples=self._settings.n_resamples,
                seed=self._settings.seed,
            )
        return tuple(self._paired.compare(self._translate(heads)))

    def _translate(self, heads: Sequence[HeadId]) -> list[str]:
        what = f"translating without {_few(heads)}" if heads else "translating"
        texts = []
        with heads_off(self._model, heads):
            for translation in self._opened.translator.stream(self._sources):
                texts.append(translation.text)
                self._observe(what, len(texts), len(self._sources))
        return texts

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
        ends = (
            self._task == "translate"
        )  # a text's windows have the end already, where there is one
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
    themselves or all of them as one. Blank texts are left out of a classifier's.
    """
    config, tokenizer = directory.config, directory.tokenizer
    longest = config.max_positions - 1
    pairs: list[tuple[Sequence[int], Sequence[int]]]
    if config.head == "tokens":
        found = text_ids(sources, tokenizer, longest, is_stream=False)
        pairs = [(ids, ids) for ids in found]
    elif config.is_decoder_only:
        texts = [joined(sources)]
        if config.target_eos:
            texts = [line for line in sources if line.strip()]
        window, begins = longest_read(config), config.target_bos
        pairs = [
            ((), one.predicted if begins else [one.read[0], *one.predicted])
            for number, ids in enumerate(tokenizer.target.encode_phrases(texts))
            for one in text_windows(number, ids, window, window, config)
        ]
    else:
        training = kind_of(config).training
        if training is not None:
            tokenizer = training.sides(tokenizer, directory.info.labels)
        encoded = tokenizer.encode_pairs(sources, references[0])
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
        raise UsageError(f"--reference: {row.one} predicts its own text; omit it")
    if row.reads != "texts" and not references:
        what = "the right labels" if row.has_labels else "the translations"
        raise UsageError(f"--reference: is missing; name the file of {what}")
    if row.has_labels and len(references) > 1:
        what = "an image" if row.reads == "images" else "a text"
        raise UsageError(f"--reference: {what} has one right label; name one file")
    if task != "translate":
        for option, is_given in (
            ("--scores", settings.scores > 0),
            ("--curve-scores", settings.curve_scores),
        ):
            if is_given:
                raise UsageError(f"{option}: translates, and so is of translation models; omit it")


def _losses(model: Inspected, hidden: Tensor, target_output: Tensor) -> Tensor:
    """Computes (R, 1) losses; see `losses_of`."""
    return losses_of(model, hidden, target_output)[:, None]


def heads_to_remove(ablation: Ablation, layout_heads: Sequence[HeadId], keep: int) -> list[HeadId]:
    """Finds the heads that go if the `keep` most important of those looked at stay."""
    if keep > len(ablation.effects):
        raise UsageError(
            f"--keep: {keep} heads are more than the {len(ablation.effects)} measured; keep fewer"
        )
    removed = {effect.head for effect in ablation.effects if effect.rank >= keep}
    return [head for head in layout_heads if head in removed]


def _tokens_of(batch: Batch) -> NDArray[np.int64]:
    """(B) target tokens of each pair, the end of sentence included."""
    from tformer_cli.text.tokenizer import PAD_ID

    counts: NDArray[np.int64] = (batch.target_output != PAD_ID).sum(dim=1).cpu().numpy()
    return counts


def _few(heads: Sequence[HeadId]) -> str:
    return str(heads[0]) if len(heads) == 1 else count_of(len(heads), "head")
