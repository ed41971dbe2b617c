"""Importance of heads: the loss and the scores without each of them, and without more and more."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Unpack

import numpy as np

from tformer_cli.data.batching import Batch, collate, plan_batches
from tformer_cli.errors import UsageError
from tformer_cli.evaluation.scores import check_counts
from tformer_cli.evaluation.significance import PairedDifference, PairedScores, compare_losses
from tformer_cli.inspection.ablation.gates import heads_off
from tformer_cli.inspection.ablation.importance import importance_sums, layer_normalized
from tformer_cli.inspection.ablation.losses import losses_along, losses_without_each, to_device
from tformer_cli.inspection.ablation.record import Ablation, CurvePoint, HeadEffect
from tformer_cli.inspection.capture.heads import HeadId, head_layout
from tformer_cli.inspection.heads.selectors import select_heads
from tformer_cli.inspection.views.ablation import AblationSettings
from tformer_cli.wording import count_of
from tformer_cli.workflows.inspection.inspection_model import InspectionOptions, open_for_inspection
from tformer_cli.workflows.opening.translator import Opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tformer_cli.artifacts.model_directory import ModelDirectory

    Observer = Callable[[str, int, int], None]
    """Is told what is done, how many lines are, and how many there are."""

POSITIONS_PER_BATCH = 2048
"""Positions of a batch, before its rows are repeated."""


def inspect_ablate(
    model: Path | str | ModelDirectory | Opened,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    settings: AblationSettings | None = None,
    observe: Observer | None = None,
    **options: Unpack[InspectionOptions],
) -> Ablation:
    """Measures what the heads of a model are worth on a text.

    Args:
        model: a model directory, its path, or what `open_for_inspection` returned.
        sources: source sentences.
        references: one or several streams of references; the loss is that of the first.
        settings: what is measured; None: the defaults.
        observe: is told of progress.
        **options: of `open_for_inspection`.

    Raises:
        UsageError: if the selection names no head.
        DataError: if the texts differ in the number of lines.
    """
    names = [("the source", len(sources))]
    check_counts([*names, *((f"reference {i}", len(r)) for i, r in enumerate(references, 1))])
    opened = model if isinstance(model, Opened) else open_for_inspection(model, **options)
    chosen = AblationSettings() if settings is None else settings
    return Ablator(opened, sources, references, chosen, observe).run()


@dataclass(frozen=True)
class _Measured:
    """Sums over sentences, before they are compared."""

    losses: NDArray[np.float64]
    """(N) each sentence's loss with all heads."""
    without: NDArray[np.float64]
    """(R, N) without each head."""
    n_tokens: NDArray[np.int64]
    """(N) target tokens."""
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
        """Chooses the heads and makes the batches."""
        self._opened = opened
        self._model = opened.directory.model
        self._sources, self._references = sources, references
        self._settings = settings
        self._observe = observe or (lambda *_: None)
        self._heads = select_heads(settings.heads, head_layout(self._model))
        self._batches = self._make_batches()
        self._paired: PairedScores | None = None

    def run(self) -> Ablation:
        """Measures everything that the settings ask for."""
        measured = self._measure()
        total = int(measured.n_tokens.sum())
        effects = self._ranked(self._effects(measured))
        settings = self._settings
        most_important = sorted(effects, key=lambda effect: effect.rank)
        order = [effect.head for effect in reversed(most_important)]
        curve = self._curve(order, total) if settings.curve else ()
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
            effects=tuple(effects),
            curve=curve,
            scores={} if self._paired is None else self._paired.baseline,
            signatures={} if self._paired is None else self._paired.signatures,
        )

    def _measure(self) -> _Measured:
        """Runs the model forwards without each head, and once backwards."""
        n_lines = len(self._sources)
        losses, n_tokens = np.zeros(n_lines), np.zeros(n_lines, dtype=np.int64)
        without = np.zeros((len(self._heads), n_lines))
        sums = dict.fromkeys(head_layout(self._model), 0.0)
        for indices, batch in self.batches_on_device("switching heads off"):
            whole, ablated = losses_without_each(self._model, batch, self._heads)
            losses[indices], without[:, indices] = whole.numpy(), ablated.numpy()
            n_tokens[indices] = _tokens_of(batch)
            for head, value in importance_sums(
                self._model, batch, self._settings.granularity
            ).items():
                sums[head] += value
        importance = {head: value / int(n_tokens.sum()) for head, value in sums.items()}
        return _Measured(losses, without, n_tokens, importance)

    def _effects(self, measured: _Measured) -> list[HeadEffect]:
        differences = compare_losses(
            measured.losses,
            measured.without,
            measured.n_tokens,
            n_resamples=self._settings.n_resamples,
            seed=self._settings.seed,
        )
        within_layer = layer_normalized(measured.importance)
        return [
            HeadEffect(
                head=head,
                rank=0,
                loss_rank=0,
                loss=difference,
                importance=measured.importance[head],
                layer_importance=within_layer[head],
            )
            for head, difference in zip(self._heads, differences, strict=True)
        ]

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

    def _curve(self, order: list[HeadId], n_tokens: int) -> tuple[CurvePoint, ...]:
        sums = np.zeros(len(order) + 1)
        for _, batch in self.batches_on_device("removing heads one by one"):
            sums += losses_along(self._model, batch, order).sum(dim=1).numpy()
        return tuple(
            CurvePoint(
                n_removed=k,
                head=order[k - 1] if k else None,
                loss=float(sums[k] / n_tokens),
                scores=self._scores_without(order[:k]) if self._settings.curve_scores else (),
            )
            for k in range(len(order) + 1)
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
            self._observe(what, done, len(self._sources))

    def _make_batches(self) -> list[tuple[NDArray[np.int64], Batch]]:
        """Batches of the pairs; texts longer than the model takes are cut off."""
        longest = self._model.config.max_positions - 1
        tokenizer = self._opened.directory.tokenizer
        encoded = (
            tokenizer.source.encode_batch(self._sources),
            tokenizer.target.encode_batch(self._references[0]),
        )
        pairs = [[ids[:longest] for ids in side] for side in encoded]
        lengths = [np.array([len(ids) for ids in side]) for side in pairs]
        plan = plan_batches(lengths[0], lengths[1], POSITIONS_PER_BATCH, 0, 0)
        eos = self._model.source_eos
        return [
            (indices, collate(*([side[i] for i in indices] for side in pairs), source_eos=eos))
            for indices in plan
        ]


def heads_to_remove(ablation: Ablation, layout_heads: Sequence[HeadId], keep: int) -> list[HeadId]:
    """Finds the heads that go if the `keep` most important of those looked at stay.

    Raises:
        UsageError: if there are fewer.
    """
    if keep > len(ablation.effects):
        raise UsageError(
            f"--keep: {keep} heads are more than the {len(ablation.effects)} measured; keep fewer"
        )
    removed = {effect.head for effect in ablation.effects if effect.rank >= keep}
    return [head for head in layout_heads if head in removed]


def _tokens_of(batch: Batch) -> NDArray[np.int64]:
    """(B) target tokens of each pair, the end of sentence included."""
    from tformer_cli.data.tokenizer import PAD_ID

    counts: NDArray[np.int64] = (batch.target_output != PAD_ID).sum(dim=1).cpu().numpy()
    return counts


def _few(heads: Sequence[HeadId]) -> str:
    return str(heads[0]) if len(heads) == 1 else count_of(len(heads), "head")
