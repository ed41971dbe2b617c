"""The worth of heads: the loss of a text, or of one sentence, without each of them.

A text is measured by ``inspect-ablate``: as JSON Lines one object with the whole, then one for each
head and curve point. The report measures each of its sentences.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tformer_cli.artifacts.config_file import DEFAULT_KIND, TASKS
from tformer_cli.errors import UsageError
from tformer_cli.heads.roles import head_grids
from tformer_cli.inspect.data import jsonable, to_json
from tformer_cli.inspect.sentence_record import SentenceRecord
from tformer_cli.inspect.view import (
    WITH_OUTPUT,
    NoOptions,
    ReportOptions,
    Selections,
    SentenceView,
    Subject,
    View,
)
from tformer_cli.metrics.choices import record_key
from tformer_cli.settings import Option
from tformer_cli.show.document import BLANK, Block, Room, Row, Table, Text, text
from tformer_cli.show.palette import color
from tformer_cli.show.terminal import on_ground, readable
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tformer_cli.artifacts.config_file import TaskKind
    from tformer_cli.heads.names import HeadId, Inspected
    from tformer_cli.inspect.record import HeadsRecord
    from tformer_cli.metrics.significance import PairedDifference

SCHEMA = "tformer.ablation/2"
LOSS = (
    "rise in loss",
    "Rise of the loss of a target token, in nats, when only this head is switched off",
)
"""Effect of switching a head off: its plain name and its meaning."""
CHANCE = "ci95=interval p=p_value"  # JSON fields next to every difference
LISTED = 10  # Heads in the list, the largest Δ loss first; the grid shows all
CURVE_POINTS = 9  # Points of the curve that are shown
SIGNIFICANT = 0.01  # Below this p-value a difference gets a star (Koehn 2004 uses 0.05 and 0.01)


@dataclass(frozen=True, kw_only=True)
class AblationSettings:
    """Measures of a text, and their settings."""

    heads: Selections = ()
    granularity: Annotated[
        Literal["sentence", "token"],
        Option(help="Take absolute values in the importance E |dL/dξ| per sentence or per token."),
    ] = "sentence"
    rank_by: Annotated[
        Literal["importance", "layer-importance", "delta"],
        Option(
            help=(
                "Measure that orders heads for the curve and --keep, least important first. "
                "layer-importance divides by the layer's norm; delta is the change in loss."
            )
        ),
    ] = "importance"
    curve: Annotated[
        bool, Option(help="Also remove heads cumulatively, the least important first.")
    ] = True
    scores: Annotated[
        int,
        Option(
            help="Also translate and score without each of the N heads with the largest Δ loss.",
            metavar="N",
            min=0,
        ),
    ] = 0
    curve_scores: Annotated[bool, Option(help="Also translate and score along the curve.")] = False
    n_resamples: int = 1000
    seed: int = 1

    @property
    def resampling(self) -> dict[str, int]:
        return {"n_resamples": self.n_resamples, "seed": self.seed}

    def __post_init__(self) -> None:
        if self.curve_scores and not self.curve:
            raise UsageError("--curve-scores: there is no curve; omit --no-curve")


@dataclass(frozen=True, kw_only=True, repr=False)
class SentenceAblation(SentenceRecord):
    """Loss of one sentence's target without each head."""

    sentence: HeadsRecord
    loss: float  # -ln p of a target token with all heads, the mean over the tokens
    n_tokens: int  # Target tokens with the end of sentence, a label, or filled gaps
    effects: Mapping[HeadId, float]  # Change of a token's loss with that head off


def ablate_sentence(
    model: Inspected, record: HeadsRecord, heads: tuple[HeadId, ...], labels: Sequence[str]
) -> SentenceAblation:
    from tformer_cli.plugins.instruments.ablation import (
        batch_of,
        batch_of_gaps,
        losses_without_each,
        to_device,
    )
    from tformer_cli.text.tokenizer import PAD_ID

    maps = record.captured
    if record.has_places:
        fills = {gap.position: gap.id + model.first_target for gap in record.gaps}
        batch = batch_of_gaps(maps.source_ids, fills)
    else:
        target = maps.target_input_ids[model.config.target_bos :]
        if record.is_labeled:
            target = (labels.index(record.target) + model.first_target,)
        batch = batch_of(model, [(maps.source_tokens, target)])
    n_tokens = int((batch.target_output != PAD_ID).sum())
    if not n_tokens:
        return SentenceAblation(sentence=record, loss=0.0, n_tokens=0, effects={})
    on_device = to_device(batch, next(model.parameters()).device)
    whole, without = losses_without_each(model, on_device, heads)
    differences = ((without[:, 0] - whole[0]) / n_tokens).tolist()
    return SentenceAblation(
        sentence=record,
        loss=whole[0].item() / n_tokens,
        n_tokens=n_tokens,
        effects=dict(zip(heads, differences, strict=True)),
    )


def ablation_lines(ablation: Ablation) -> Iterator[str]:
    """Yields the lines; each has `schema`, and its kind in `record`."""
    yield _line("ablation", _whole(ablation))
    for effect in ablation.effects:
        loss = to_json(effect.loss, f"loss=value delta_loss=difference {CHANCE}")
        data = {**to_json(effect, "*head.data rank loss_rank"), **loss}
        data |= to_json(effect, "importance layer_importance")
        yield _line("head", data | _scores(effect))
    for point in ablation.curve:
        data = to_json(point, "removed=n_removed id=head loss")
        yield _line("curve", data | {"delta_loss": point.loss - ablation.loss} | _scores(point))
    if (pruning := ablation.pruning) is not None:
        yield _line("pruned", vars(pruning) | _scores(pruning))


def _whole(ablation: Ablation) -> dict[str, Any]:
    reads_texts = TASKS[ablation.task].reads == "texts"
    names = "model lines=n_lines tokens=n_tokens loss" + " perplexity" * reads_texts
    return {
        **to_json(ablation, names),
        "scores": {record_key(name): value for name, value in ablation.scores.items()},
        "signatures": {record_key(name): text for name, text in ablation.signatures.items()},
        "importance": "E |dL/dxi| in nats a target token",
        **to_json(ablation.settings, "granularity rank_by resamples=n_resamples seed"),
    }


def _scores(measured: HeadEffect | CurvePoint | Pruning) -> dict[str, Any]:
    names = f"score=value delta=difference {CHANCE}"
    return {"scores": {record_key(score.name): to_json(score, names) for score in measured.scores}}


def _line(record: str, values: dict[str, Any]) -> str:
    whole = {"schema": SCHEMA, "record": record, **values}
    return json.dumps(jsonable(whole), ensure_ascii=False)


def _unit(task: TaskKind) -> str:
    """The unit of the loss of a model."""
    row = TASKS[task]
    if row.reads == "texts":
        return "hidden token" if row.head else "token"
    return "label" if row.has_labels else "target token"


def _legend(ablation: Ablation) -> str:
    unit = _unit(ablation.task)
    return (
        f"number: change of the loss per {unit} with the head off, in hundredths of a nat; "
        f"*: p < {SIGNIFICANT}"
    )


def _pruning(pruning: Pruning) -> Iterator[Block]:
    yield BLANK
    removed = count_of(len(pruning.removed), "head")
    yield text((f"{pruning.directory}: without {removed}", "bold"))
    rows = [["all heads", *_costs(pruning.before)], ["pruned", *_costs(pruning.after)]]
    heads = ("", "heads", "parameters", "MB", "lines/s", "loss", "BLEU", "chrF2")[: len(rows[0])]
    yield Table(head=heads, rows=rows, labels=(), texts=(0,))
    against = ", ".join(
        f"Δ{score.name} {_format(score)} (p = {score.p_value:.2g})" for score in pruning.scores
    )
    ratio = pruning.after.lines_per_second / pruning.before.lines_per_second
    size = pruning.after.n_parameters / pruning.before.n_parameters
    yield text(f"{size:.2f} × the size, {ratio:.2f} × the speed; {against}", style="dim")


def _heading(ablation: Ablation) -> Text:
    unit = _unit(ablation.task)
    facts = f"  {count_of(len(ablation.effects), 'head')}, one switched off at a time"
    facts += f"   {count_of(ablation.n_lines, 'line')}, {count_of(ablation.n_tokens, unit)}"
    facts += f"   loss {ablation.loss:.4f} nats per {unit.split()[-1]}"
    if TASKS[ablation.task].reads == "texts":
        facts += f"   perplexity {ablation.perplexity:.2f}"
    for name, value in ablation.scores.items():
        facts += f"   {name} {value:.2f}"
    return text((ablation.model, "bold"), facts)


def _effect_cell(effect: HeadEffect, largest: float, room: Room) -> Text:
    star = "*" if effect.loss.p_value < SIGNIFICANT else " "
    # A small but sure change may round to 0, which has no sign
    words = f"{100 * effect.loss.difference:z.1f}{star}"
    if not room.has_color:
        return text(words)
    share = effect.loss.difference / largest
    return text(words, style=on_ground(*color(effect.head.kind, share, on_dark=True)))


def _list(ablation: Ablation) -> Table:
    n_listed = max(LISTED, ablation.settings.scores)
    most_important = sorted(ablation.effects, key=lambda effect: -effect.importance)
    by_importance = {effect.head: number for number, effect in enumerate(most_important, 1)}
    scored = [f"Δ{name}" for name in ablation.scores]
    columns = [name for score in scored for name in (score, "p")] or ["95 % interval"]
    rows = []
    for head_effect in ablation.by_loss:
        if head_effect.loss_rank > n_listed:
            continue
        row = [
            str(head_effect.head),
            f"{head_effect.loss.difference:+.4f}",
            f"{head_effect.loss.p_value:.2g}",
            f"{head_effect.importance:.4f} ({by_importance[head_effect.head]})",
        ]
        if not scored:
            row.append(f"{head_effect.loss.low:+.4f} … {head_effect.loss.high:+.4f}")
        for place in range(len(scored)):
            score = head_effect.scores[place] if head_effect.scores else None
            row += ["", ""] if score is None else [_format(score), f"{score.p_value:.2g}"]
        rows.append(row)
    head = ("head", "Δ loss", "p", "importance (rank)", *columns)
    return Table(head=head, rows=rows, labels=(), texts=(0,))


def _curve(ablation: Ablation) -> Table:
    """Loss, and scores if there are, at some points from no head removed to all."""
    last = len(ablation.curve) - 1
    n_shown = min(CURVE_POINTS, last + 1)
    chosen = sorted({round(i * last / max(1, n_shown - 1)) for i in range(n_shown)})
    points = [ablation.curve[i] for i in chosen]
    rows: list[Row] = [[text(("loss", "dim")), *(f"{point.loss:.3f}" for point in points)]]
    for place, score in enumerate(points[0].scores):
        values = (f"{point.scores[place].value:.1f}" for point in points)
        rows.append([text((score.name, "dim")), *values])
    head = ("heads removed", *(str(point.n_removed) for point in points))
    return Table(head=head, rows=rows, labels=(), texts=(0,))


def _costs(cost: ModelCost) -> list[str]:
    return [
        str(cost.n_heads),
        f"{cost.n_parameters:,}",
        f"{cost.n_bytes / 1e6:.2f}",
        f"{cost.lines_per_second:.1f}",
        f"{cost.loss:.4f}",
        *(f"{value:.2f}" for value in cost.scores.values()),
    ]


def _format(score: PairedDifference) -> str:
    return f"{score.difference:+.2f}"


class AblationView(SentenceView[SentenceAblation]):
    """Shows the loss of one sentence without each head."""

    name = "ablation"
    title = "Ablation"
    terms: ClassVar = {"loss": LOSS}
    tasks = WITH_OUTPUT

    def read(self, subject: Subject, sentence: HeadsRecord, options: NoOptions) -> SentenceAblation:
        return ablate_sentence(subject.model, sentence, sentence.heads, subject.labels)

    def report(
        self, subject: Subject, sentence: HeadsRecord, options: ReportOptions
    ) -> SentenceAblation | None:
        if not options.ablation:
            return None
        ablation = self.read(subject, sentence, NoOptions())
        return ablation if ablation.n_tokens else None

    def json(self, record: SentenceAblation) -> dict[str, Any]:
        effects = {str(head): jsonable(effect) for head, effect in record.effects.items()}
        return {**to_json(record, "loss n_tokens"), "effects": effects}


class TextAblationView(View["Ablation"]):
    """Shows the loss of a text without each head."""

    name = "ablate"
    title = "Ablation of a text"
    formats = ("text", "jsonl")

    def lines(self, record: Ablation, options: AblationSettings) -> Iterator[str]:
        return ablation_lines(record)

    def blocks(self, record: Ablation, options: AblationSettings, room: Room) -> Iterator[Block]:
        yield _heading(record)
        yield BLANK
        # In a good model all effects may be noise, which should not look like a finding
        largest = max([0.01, *(effect.loss.difference for effect in record.effects)])
        cells = {effect.head: _effect_cell(effect, largest, room) for effect in record.effects}
        yield head_grids(cells)
        yield text(_legend(record), style="dim")
        yield BLANK
        yield _list(record)
        if record.curve:
            yield BLANK
            yield _curve(record)
        if record.pruning is not None:
            yield from _pruning(record.pruning)


class ChangesView(View["WithoutHeads"]):
    """Shows which heads the translation of a sentence depends on."""

    name = "changes"
    title = "Translations without each head"
    formats = ("text", "jsonl")

    def lines(self, record: WithoutHeads, options: object) -> Iterator[str]:
        yield _line("translation", {"source": record.source, "translation": record.whole})
        for name, line in record.without.items():
            changes = line != record.whole
            yield _line("without", {"id": name, "translation": line, "changes": changes})

    def blocks(self, record: WithoutHeads, options: object, room: Room) -> Iterator[Block]:
        rows = [("all heads", record.whole)]
        others = [(f"!{name}", line) for name, line in record.without.items()]
        rows += [row for row in others if row[1] != record.whole]
        n_same = len(record.without) + 1 - len(rows)
        indent = max(len(name) for name, _ in rows) + 2
        before = set(record.whole.split())
        for name, line in rows:
            words = readable(line, room).split()
            styled = [(f"{w} ", "not dim" if w in before else "not dim bold") for w in words]
            yield text(f"{name:{indent}}", *styled, style="dim")
        what = "heads and layers change" if n_same != 1 else "head or layer changes"
        yield text(f"{n_same} other {what} nothing", style="dim")


VIEW, TEXT_VIEW, CHANGES_VIEW = AblationView(), TextAblationView(), ChangesView()


@dataclass(frozen=True, kw_only=True)
class HeadEffect:
    """Effect of removing a head."""

    head: HeadId
    rank: int  # By what heads are removed by; 1: the most important, which is removed last
    loss_rank: int  # By the loss without it; 1: the largest
    loss: PairedDifference  # Loss per target token without it, against that with all heads
    importance: float  # I_h = E |∂L/∂ξ_h|, in nats a target token
    layer_importance: float  # I_h divided by the ℓ₂ norm of its layer's
    scores: tuple[PairedDifference, ...] = ()
    """BLEU and chrF2 without it, if they were measured; of a classifier the accuracy."""


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """The model without its k least important heads."""

    n_removed: int
    head: HeadId | None  # The head that was removed last; None at k = 0
    loss: float
    scores: tuple[PairedDifference, ...] = ()
    """BLEU and chrF2, if they were measured; of a classifier the accuracy."""


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """The effects of the heads of a model on a text."""

    model: str
    n_lines: int
    n_tokens: int  # Target tokens, ends of sentence included; of a classifier labels
    loss: float
    settings: AblationSettings
    task: TaskKind = DEFAULT_KIND
    effects: tuple[HeadEffect, ...]
    curve: tuple[CurvePoint, ...] = ()  # k = 0, 1, … all the heads looked at
    scores: dict[str, float] = field(default_factory=dict)
    """BLEU and chrF2 with all heads, if they were measured; of a classifier the accuracy."""
    signatures: dict[str, str] = field(default_factory=dict)

    pruning: Pruning | None = None  # Without the least important heads

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss)

    @property
    def by_loss(self) -> list[HeadEffect]:
        return sorted(self.effects, key=lambda effect: effect.loss_rank)


@dataclass(frozen=True, kw_only=True)
class WithoutHeads:
    """Translations of one sentence without each head, and without each layer's heads."""

    source: str
    whole: str
    without: dict[str, str]  # By the names of heads and layers: cross.0.1, cross.0


@dataclass(frozen=True, kw_only=True)
class ModelCost:
    """A model's size, speed and quality, measured on the same text as another's."""

    n_heads: int
    n_parameters: int
    n_bytes: int
    lines_per_second: float  # Lines translated in a second, in the same run as the other's
    loss: float
    scores: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """A model directory with fewer heads, compared with its original."""

    directory: str
    removed: tuple[HeadId, ...]  # The heads that were taken out, by their names in the whole model
    before: ModelCost
    after: ModelCost
    scores: tuple[PairedDifference, ...]
    """The pruned model's BLEU and chrF2 against the whole model's."""
