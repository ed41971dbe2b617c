"""Sources of each generated token: shares of the source and of the prefix, by two methods.

In a language model all is prefix: the text so far. A classifier has one row, of the pooled state
that its label is chosen by: the mean of the rows of all tokens, or the first one, as it pools; of
images the tokens are patches. An encoder has that row for its vector, and a masked language model
a row for each gap. Their heads also list the tokens that each one reads: the norms
‖A_ij f(x_j)‖ (Kobayashi et al. 2020) over all rows i, as shares.

The last decoder layer's rows of what `rollout` multiplies together: attention rollout (Abnar &
Zuidema 2020) and ALTI+ (Ferrando et al. 2022). Row i holds the shares, together 1, of every source
token and of every target token read so far in the state that predicts target token i + 1. The share
of the whole source against the prefix tells how far the model translates or continues by itself: by
ALTI+, that is. In rollout each cross-attention counts ½ whatever it does, so with L decoder layers
the source always has 1 − 2^−L; only how that is shared among the tokens says something.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tformer_cli.inspect.data import jsonable, pack_for_page, round6, to_json
from tformer_cli.inspect.sentence_record import SentenceRecord
from tformer_cli.inspect.view import (
    Rank,
    ReportOptions,
    SentenceView,
    Subject,
    check_gaps,
)
from tformer_cli.settings import Option
from tformer_cli.show.document import BLANK, Block, Map, Room, Row, Table, Text, Texts, text
from tformer_cli.show.terminal import GAP, NARROWEST_LABEL, Item, readable, whole_items, width_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from tformer_cli.heads.names import HeadId, Inspected
    from tformer_cli.inspect.capture.maps import AttentionMaps
    from tformer_cli.inspect.record import HeadsRecord
    from tformer_cli.model.config import ModelConfig

SCHEMA = "tformer.flow/1"
Method = Literal["alti", "rollout"]
METHODS: tuple[Method, ...] = ("alti", "rollout")
METHOD_NAMES: dict[Method, str] = {"alti": "ALTI+", "rollout": "attention rollout"}


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Shares of the tokens in the decoder's last states, of 1, by one method."""

    source: Tensor
    """(T, S) shares of the source tokens; (1, S) of a pooled state, (T, 0) of a language model. Of
    a masked language model T counts gaps."""
    prefix: Tensor
    """(T, T) shares of the tokens that the decoder has read; 0 for later ones; (T, 0) for an
    encoder without decoder."""
    residual: float  # Distance of the multiplied maps from the model's own numbers

    @property
    def source_shares(self) -> list[float]:
        """(T) share of the whole source at each position; the rest is the prefix's."""
        shares: list[float] = self.source.sum(dim=-1).tolist()
        return shares

    @property
    def source_share(self) -> float:
        return self.source.sum(dim=-1).mean().item()


@dataclass(frozen=True)
class HeadReading:
    """Tokens of a text that a head reads, all its rows together."""

    head: HeadId
    shares: Tensor  # (S) share of each token in the norms that the head reads; they sum to 1

    @property
    def first(self) -> int:
        """Position of the token that it reads most."""
        return int(self.shares.argmax())


@dataclass(frozen=True, kw_only=True, repr=False)
class FlowRecord(SentenceRecord):
    """Sources of the tokens of one translation."""

    sentence: HeadsRecord
    flows: dict[Method, Flow]  # By each method; none for a blank line
    readings: tuple[HeadReading, ...] = ()  # For each selected head of an encoder without decoder
    grid: tuple[int, int] = (0, 0)  # Rows and columns of patches of an image; zeros of a text

    @property
    def has_both_sides(self) -> bool:
        return self.sentence.has_both_sides

    @property
    def written(self) -> tuple[str, ...]:
        """(T) labels of the tokens whose states are looked at; of a classifier the label."""
        sentence = self.sentence
        if sentence.is_pooled:
            return (sentence.target if sentence.is_labeled else VECTOR,)
        return tuple(gap.piece for gap in sentence.gaps) or sentence.target_pieces

    @property
    def read(self) -> tuple[str, ...]:
        """(T) labels of the tokens that these states have read last."""
        gaps = self.sentence.gaps
        return tuple(self.sentence.source_pieces[gap.position] for gap in gaps) or (
            self.sentence.input_pieces
        )

    def largest(self, method: Method, position: int, n: int) -> list[tuple[str, str, float]]:
        flow, sentence = self.flows[method], self.sentence
        sides = (
            ("source", sentence.source_pieces, flow.source),
            ("prefix", sentence.input_pieces[: position + 1], flow.prefix),
        )
        label_shares = [
            (side, label, share)
            for side, labels, shares in sides
            for label, share in zip(labels, shares[position].tolist(), strict=False)
        ]
        return sorted(label_shares, key=lambda label_share: -label_share[2])[:n]

    def _repr_html_(self) -> str:
        from tformer_cli.inspect.pages import framed_view

        return framed_view(VIEW, [self])

    def _repr_svg_(self) -> str | None:
        return VIEW.figure(self) if self.flows else None


def read_flow(model: Inspected, sentence: HeadsRecord) -> FlowRecord:
    import torch

    from tformer_cli.plugins.instruments.weighting import weighted_maps

    if sentence.maps is None:
        return FlowRecord(sentence=sentence, flows={})
    maps = sentence.maps
    gaps = [gap.position for gap in sentence.gaps]
    flows = {
        method: _last_layer(weighted_maps(model, maps, method), model.config, gaps)
        for method in METHODS
    }
    readings: tuple[HeadReading, ...] = ()
    if not model.config.n_decoder_layers:
        norms = weighted_maps(model, maps, "norm")
        readings = tuple(
            _reading(head, torch.from_numpy(norms.weights(head)), gaps) for head in sentence.heads
        )
    grid = model.config.grid
    return FlowRecord(sentence=sentence, flows=flows, readings=readings, grid=grid)


def _reading(head: HeadId, norms: Tensor, gaps: list[int]) -> HeadReading:
    """Sums the norms (Q, K) of a head over its rows, or over those of the gaps."""
    rows = norms[gaps] if gaps else norms
    read = rows.double().sum(dim=0)
    return HeadReading(head, read / read.sum().clamp(min=1e-30))


def _last_layer(maps: AttentionMaps, config: ModelConfig, gaps: list[int]) -> Flow:
    """Picks the rows of the last states: for encoders the pooled one, or those of the gaps."""
    import torch

    if not config.n_decoder_layers:
        from tformer_cli.plugins.instruments.weighting import Pooled

        rows = torch.from_numpy(maps.enc[-1][0])
        rows = rows[gaps] if gaps else Pooled(config).row(rows)[None]
        return Flow(source=rows, prefix=rows[:, :0], residual=maps.residual)
    prefix = torch.from_numpy(maps.dec[-1][0])
    source = torch.from_numpy(maps.cross[-1][0]) if maps.cross else prefix[:, :0]
    return Flow(source=source, prefix=prefix, residual=maps.residual)


VECTOR = "the vector"  # Stands for what an encoder makes of a text
SOURCE = "source[j] is the share of source.pieces[j]"


def _conventions(record: FlowRecord) -> str:
    sentence = record.sentence
    positions = "Position i has read target.input_pieces[0] to [i] and predicts target.pieces[i]."
    shares = f"{SOURCE}; they sum to 1."
    if sentence.has_places:
        places = "first tokens of words" if sentence.gives_labels else "gaps"
        positions = f"Positions are those of the {places} in source.pieces."
    elif sentence.is_pooled:
        state = "pooled state that decides the label"
        state = state if sentence.is_labeled else "vector of the text"
        positions = f"The only position is the {state}."
    elif record.has_both_sides:
        shares = f"{SOURCE}, prefix[j] of target.input_pieces[j]; together they sum to 1, and "
        shares += "source_share is the sum of source."
    else:
        shares = "prefix[j] is the share of target.input_pieces[j]; they sum to 1."
    return f"{positions} {shares}"


def _position_data(record: FlowRecord, position: int) -> dict[str, Any]:
    sentence = record.sentence
    place = sentence.gaps[position].position if sentence.gaps else position
    data: dict[str, Any] = {"position": place, "piece": record.written[position]}
    if not sentence.is_pooled:
        data = data | {"read": record.read[position]}
    for method, flow in record.flows.items():
        shares: dict[str, Any] = {}
        if record.has_both_sides:
            shares["source_share"] = round6(flow.source_shares[position])
        if flow.source.numel():
            shares["source"] = jsonable(flow.source[position])
        if flow.prefix.numel():
            shares["prefix"] = jsonable(flow.prefix[position, : position + 1])
        data[method] = shares
    return data


def _reading_data(record: FlowRecord, reading: HeadReading) -> dict[str, Any]:
    piece = record.sentence.source_pieces[reading.first]
    return {"id": str(reading.head), "reads": piece, "shares": jsonable(reading.shares)}


BAR, SHORT_BAR = 16, 8  # Columns of a bar, and of one where there is little room
LABEL = 14  # Most columns of the token written
N_LARGEST = 3  # Tokens named for each position at most
ROOM_FOR_LARGEST = 36  # Columns that a short bar leaves to them
SIDES = {"source": "cyan", "prefix": "yellow"}  # Where a token may come from


def _words(record: FlowRecord, method: Method) -> Table:
    shares = record.flows[method].source[0].tolist()
    largest = max(shares)
    rows: list[Row] = [
        [piece, f"{share:.3f}", text("█" * round(BAR * share / largest))]
        for piece, share in zip(record.sentence.source_pieces, shares, strict=True)
    ]
    return Table(head=("reads", "share", ""), rows=rows, texts=(2,))


def _patches(record: FlowRecord, method: Method) -> Iterator[Block]:
    """A map of the shares of an image's patches, below the share of the class token."""
    height, width = record.grid
    row = record.flows[method].source[0]
    shares = row[-height * width :].view(height, width)
    says = f"row and column: patches; shaded from 0 to {shares.max().item():.2f}"
    if len(row) > height * width:
        says += f"; the class token has {row[0].item():.2f}"
    yield text(says, style="dim")
    labels = [str(number) for number in range(height)], [str(number) for number in range(width)]
    largest = max(shares.max().item(), 1e-12)
    yield Map(kind="enc", labels=labels, values=shares.tolist(), largest=largest, wraps=True)


def _readings(record: FlowRecord) -> Table:
    pieces = record.sentence.source_pieces
    rows = [
        [str(reading.head), pieces[reading.first], f"{reading.shares[reading.first]:.3f}"]
        for reading in record.readings
    ]
    return Table(head=("head", "reads most", "share"), rows=rows, labels=(1,), texts=(0,))


def _shares(record: FlowRecord, method: Method, room: Room) -> Table:
    shares = record.flows[method].source_shares
    pieces = [readable(piece, room) for piece in record.written]
    width = min(LABEL, max(map(width_of, pieces)), room.width // 5)
    head = "fills in" if record.sentence.gaps else "writes"
    head = "label" if record.sentence.gives_labels else head
    labels = [readable(piece, room, max(width, len(head))) for piece in pieces]
    before = max(len(head), *map(width_of, labels)) + len("source") + 3 * GAP
    bar = BAR if room.width - before - BAR >= ROOM_FOR_LARGEST else SHORT_BAR
    left = room.width - before - max(bar, len("source/prefix"))
    rows: list[Row] = [[label] for label in labels]
    for place, (row, share) in enumerate(zip(rows, shares, strict=True)):
        if record.has_both_sides:
            n_full = round(bar * share)
            both = ("█" * n_full, SIDES["source"]), ("░" * (bar - n_full), SIDES["prefix"])
            row += [text(*both), f"{share:.2f}"]
        row.append(_largest(record, method, place, left, room))
    if not record.has_both_sides:
        return Table(head=(head, "most from"), rows=rows, texts=(1,))
    last = "most from (in brackets: prefix)"
    heads = (head, "source/prefix", "source", last if left >= len(last) else "most from")
    return Table(head=heads, rows=rows, texts=(1, 3))


def _largest(record: FlowRecord, method: Method, position: int, left: int, room: Room) -> Text:
    items = [
        Item(label, f" {share:.2f}", SIDES[side], "", side == "prefix" and record.has_both_sides)
        for side, label, share in record.largest(method, position, N_LARGEST)
    ]
    return whole_items(items, left, room, least=NARROWEST_LABEL)[0]


@dataclass(frozen=True, kw_only=True)
class FlowOptions:
    """Settings of the view."""

    rank: Rank = 1
    method: Annotated[
        Method,
        Option(
            help="Method to show: ALTI+ contributions or attention rollout; jsonl always has both."
        ),
    ] = "alti"


class FlowView(SentenceView[FlowRecord]):
    """Shows how much source and prefix contribute to each token."""

    name = "flow"
    title = "Flow"
    help = """Show how much the source and the prefix contribute to each token.

    Computed as ALTI+ contributions (Ferrando et al. 2022) and attention rollout (Abnar & Zuidema
    2020), through all encoder and decoder layers. The shares of a token sum to 1. The larger the
    source's share, the more the model translates rather than continues its own text. For a language
    model, shares are those of the text so far; for a classifier or an encoder, of the tokens or
    image patches behind its label or vector; for a masked language model, of what each [MASK]
    reads; for a tagger, of what each word reads.

    Examples:
        tformer inspect-flow runs/quickstart "The animal was tired."
        tformer inspect-flow runs/quickstart "It is old." --method rollout -o flow.html
    """
    Options = FlowOptions

    def read(self, subject: Subject, sentence: HeadsRecord, options: FlowOptions) -> FlowRecord:
        check_gaps(sentence)
        return read_flow(subject.model, sentence)

    def report(
        self, subject: Subject, sentence: HeadsRecord, options: ReportOptions
    ) -> FlowRecord | None:
        from tformer_cli.plugins.instruments.weighting import can_roll_out

        if sentence.lacks_gaps or not can_roll_out(subject.model):
            return None
        return self.read(subject, sentence, FlowOptions())

    def json(self, record: FlowRecord) -> dict[str, Any]:
        from tformer_cli.inspect.weighting import WEIGHTINGS

        n_positions = len(record.written) if record.flows else 0
        measured = "residual source_share" if record.has_both_sides else "residual"
        readings = [_reading_data(record, reading) for reading in record.readings]
        return {
            "schema": SCHEMA,
            "conventions": _conventions(record),
            "methods": {
                method: {**to_json(WEIGHTINGS[method], "meaning source"), **to_json(flow, measured)}
                for method, flow in record.flows.items()
            },
            "positions": [_position_data(record, position) for position in range(n_positions)],
            **({"heads": readings} if readings else {}),
        }

    def blocks(self, record: FlowRecord, options: FlowOptions, room: Room) -> Iterator[Block]:
        sentence, method = record.sentence, options.method
        yield Texts(sentence.texts)
        if not record.flows:
            return
        flow = record.flows[method]
        facts = METHOD_NAMES[method]
        if record.has_both_sides:
            facts += f"   mean share of the source {flow.source_share:.2f}"
        yield text(f"{facts}   residual {flow.residual:.1e}")
        yield BLANK
        if sentence.is_pooled:
            if all(record.grid):
                yield from _patches(record, method)
            else:
                yield _words(record, method)
            yield BLANK
            yield _readings(record)
            return
        yield _shares(record, method, room)
        maps = flow.source, flow.prefix
        largest = max(shares.max().item() for shares in maps if shares.numel())
        yield BLANK
        says = f"row: token written; column: token read; shaded from 0 to {largest:.2f}"
        yield text(says, style="dim")
        keys = sentence.source_pieces, sentence.input_pieces
        for shares, side, kind, columns in zip(maps, SIDES, ("cross", "dec"), keys, strict=True):
            if shares.numel():
                yield text((f"from the {side if record.has_both_sides else 'text'}", "bold"))
                labels = record.written, columns
                yield Map(
                    kind=kind, labels=labels, values=shares.tolist(), largest=largest, wraps=True
                )
        if record.readings:
            yield BLANK
            yield _readings(record)

    def tab(
        self, record: FlowRecord, options: FlowOptions | None, *, is_alone: bool
    ) -> dict[str, Any]:
        data: dict[str, Any] = pack_for_page(self.json(record), bits=8)
        return data | {
            "names": METHOD_NAMES,
            "first": "alti" if options is None else options.method,
        }


VIEW = FlowView()
