"""Knowledge of each encoder layer: translations by a decoder that reads it (DecoderLens)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tformer_cli.artifacts.config_file import TRANSLATORS
from tformer_cli.inspect.data import to_json
from tformer_cli.inspect.sentence_record import SentenceRecord
from tformer_cli.inspect.view import (
    NoOptions,
    ReportOptions,
    SentenceView,
    Subject,
    Untuned,
    View,
    describe,
)
from tformer_cli.plugins.instruments.views.logits import PositionLogits, lens_table, unread_layers
from tformer_cli.show.document import BLANK, Block, Map, Room, Row, Table, Text, Texts, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tformer_cli.inspect.record import HeadsRecord
    from tformer_cli.plugins.instruments.lens import FittedLayer, Lens

SCHEMA = "tformer.layers/1"
TITLE = "what the decoder writes from each encoder layer"
MOST_LINES = 5000
"""Lines that maps are fitted to: ids of all are held in memory, and 500 already give good maps."""


@dataclass(frozen=True, kw_only=True)
class LayerReading:
    """One encoder layer, read by the decoder in place of the last."""

    layer: int
    text: str  # The translation that is searched from it
    chrf: float  # Its chrF with the target
    agreement: float  # Share of the target's positions that it predicts as the model does
    log_probability: float  # Mean of the target's tokens
    rank: float  # Their mean place by probability, from 1


@dataclass(frozen=True, kw_only=True, repr=False)
class LayersRecord(SentenceRecord):
    """A sentence and its target as each encoder layer has them."""

    sentence: HeadsRecord
    lens: Lens
    has_norm: (
        bool  # True if the lens normalizes its input, as the encoder normalizes its last states
    )
    layers: tuple[LayerReading, ...] = ()  # None of a blank line
    positions: tuple[
        PositionLogits, ...
    ] = ()  # Positions of the target; `lens` has the encoder's layers

    @property
    def how(self) -> str:
        """Describes how a layer is read."""
        norm = ", then by the encoder's final norm" if self.has_norm else ""
        return ("by a fitted map" if self.lens.maps else "as it is") + norm


@dataclass(frozen=True, kw_only=True)
class LayersOptions:
    """Settings of the view."""

    untuned: Untuned = False


def _summary(record: LayersRecord) -> Table:
    rows: list[Row] = []
    for layer in record.layers:
        held_out = record.lens.agreement.get(f"enc.{layer.layer}")
        rows.append(
            [
                f"layer {layer.layer}",
                f"{100 * layer.agreement:.0f} %",
                "-" if held_out is None else f"{100 * held_out:.0f} %",
                *(f"{layer.chrf:.1f}", f"{layer.log_probability:.2f}", f"{layer.rank:,.1f}"),
            ]
        )
    head = ("layer", "agreement", "held out", "chrF", "log p", "rank")
    return Table(head=head, rows=rows)


LEGEND = (
    "agreement: share of tokens predicted as by the last layer, here and in held-out text; chrF "
    "with the translation below; log p, rank: means of its tokens"
)


class LayersView(SentenceView[LayersRecord]):
    """Shows how a decoder reads each encoder layer."""

    name = "layers"
    title = "Encoder layers read by the decoder"
    help = """Show what each encoder layer already knows about the translation.

    The decoder reads an earlier encoder layer in place of the last (DecoderLens): you see what it
    would write, and how probable it finds the translation. In a pre-norm model, the layer goes
    through the encoder's final norm. Layers of a post-norm model often give babble without the maps
    of --tune, which works with any model that predicts something; skipped layers are named.

    Examples:
        tformer inspect-layers runs/quickstart "The animal was too tired."
        tformer inspect-layers runs/quickstart --tune corpus/valid.en
        tformer inspect-layers runs/quickstart "It is old." --target "Il est vieux." --untuned
    """
    job = "tformer_cli.plugins.instruments.jobs.layers:LayersReader"
    Options = LayersOptions
    tasks = TRANSLATORS

    def read(self, subject: Subject, sentence: HeadsRecord, options: LayersOptions) -> LayersRecord:
        key = self.job, options.untuned
        if key not in subject.cached:
            subject.cached[key] = self.load_job()(subject, tuned=not options.untuned)
        record: LayersRecord = subject.cached[key].read(sentence)
        return record

    def report(self, subject: Subject, sentence: HeadsRecord, options: ReportOptions) -> None:
        """Reads nothing: a report does not translate again from each layer."""

    def line(self, record: LayersRecord) -> dict[str, Any]:
        return self.json(record)

    def json(self, record: LayersRecord) -> dict[str, Any]:
        described = describe(record.sentence)
        positions = [
            to_json(position, "position *chosen log_probability rank layers=lens")
            for position in record.positions
        ]
        return {
            **{name: described[name] for name in ("index", "model", "source", "target")},
            "schema": SCHEMA,
            "conventions": f"The decoder reads each encoder layer {record.how}; agreement is with "
            "the most probable tokens of the model; log_probability is natural, a mean over the "
            "target's tokens; ranks count from 1, layers from 0.",
            "lens": "tuned" if record.lens.maps else "untuned",
            "held_out": dict(record.lens.agreement),
            "layers": to_json(record, "layers")["layers"],
            "positions": positions,
        }

    def blocks(self, record: LayersRecord, options: object, room: Room) -> Iterator[Block]:
        texts = [(f"layer {layer.layer}", layer.text) for layer in record.layers[:-1]]
        yield Texts([*record.sentence.texts, *texts])
        if not record.layers:
            return
        yield BLANK
        yield text((TITLE, "bold"), f", {record.how}")
        yield _summary(record)
        yield text(LEGEND, style="dim")
        yield BLANK
        yield lens_table(record.sentence, record.positions, room)
        yield text(
            "number: the probability of that token; bold: the token of the translation; settled: "
            "the layer from which on it stays the most probable one",
            style="dim",
        )
        yield from unread_layers("enc", record.positions, record.lens)

    def figure_blocks(self, record: LayersRecord, options: object) -> Iterator[Block]:
        tokens = [position.chosen.piece for position in record.positions]
        yield Texts(record.sentence.texts)
        yield Map(
            kind="cross",
            title=f"probability of each token, {TITLE}, {record.how}",
            labels=(tokens, [f"layer {layer.layer}" for layer in record.layers]),
            values=[[reading.probability for reading in row.lens] for row in record.positions],
        )


VIEW = LayersView()


class TunedView(View["Sequence[FittedLayer]"]):
    """Shows how well fitted maps read each layer."""

    name = "tuned"
    title = "Maps of layers"
    formats = ("text", "jsonl")

    def lines(self, record: Sequence[FittedLayer], options: NoOptions) -> Iterator[dict[str, Any]]:
        names = "id=name untuned tuned explained"
        return ({"schema": "tformer.lens/1", **to_json(fit, names)} for fit in record)

    def blocks(
        self, record: Sequence[FittedLayer], options: NoOptions, room: Room
    ) -> Iterator[Block]:
        rows: list[Row] = [
            [fit.name, f"{100 * fit.untuned:.1f} %", f"{100 * fit.tuned:.1f} %", _share(fit)]
            for fit in record
        ]
        yield Table(head=("layer", "untuned", "tuned", "explained"), rows=rows)
        yield text(
            "held-out tokens that the layer predicts as the model does, without and with its map; "
            "explained: share of the variance of the last layer's states",
            style="dim",
        )


def _share(fit: FittedLayer) -> Text:
    return text(f"{fit.explained:.3f}")


TUNED_VIEW = TunedView()
