"""Sources of each generated token: shares of the source and of the prefix, by two methods.

Of a language model all is prefix: the text so far. A classifier has one row, of the pooled state
that its label is chosen by: the mean of the rows of all tokens, or the first one, as it pools; of
images the tokens are patches. An encoder has that row for its vector, and a masked language model
a row for each gap. Of their heads it is also told which tokens each one reads: the norms
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

from rich.cells import cell_len
from rich.text import Text

from tformer_cli.inspection.figures.heat_map import map_lines
from tformer_cli.inspection.json_lines import packed, plain, rounded
from tformer_cli.inspection.view import (
    Rank,
    ReportOptions,
    SentenceView,
    Subject,
    check_gaps,
)
from tformer_cli.settings import Option
from tformer_cli.show.terminal import (
    GAP,
    NARROWEST_LABEL,
    Column,
    cut,
    is_ascii_only,
    isolated,
    print_lines,
    sentence_lines,
    shown,
    table_lines,
)

if TYPE_CHECKING:
    from rich.console import Console
    from torch import Tensor

    from tformer_cli.inspection.capture.forced import AttentionMaps
    from tformer_cli.inspection.capture.heads import HeadId, Inspected, Kind
    from tformer_cli.inspection.record import HeadsRecord
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
    """(T, T) shares of the tokens that the decoder has read; 0 of what comes later; (T, 0) of an
    encoder alone."""
    residual: float
    """By how much what was multiplied misses the model's own numbers; see `weighting`."""

    @property
    def source_shares(self) -> list[float]:
        """(T) share of the whole source at each position; the rest is the prefix's."""
        shares: list[float] = self.source.sum(dim=-1).tolist()
        return shares

    @property
    def source_share(self) -> float:
        """Mean share of the source over all positions."""
        return self.source.sum(dim=-1).mean().item()


@dataclass(frozen=True)
class HeadReading:
    """What a head reads in a text, all its rows together."""

    head: HeadId
    """The head."""
    shares: Tensor
    """(S) share of each token in the norms of what it reads; they sum to 1."""

    @property
    def first(self) -> int:
        """Position of the token that it reads most."""
        return int(self.shares.argmax())


@dataclass(frozen=True, kw_only=True)
class FlowRecord:
    """Sources of the tokens of one translation."""

    sentence: HeadsRecord
    """The sentence and its translation."""
    flows: dict[Method, Flow]
    """By each method; none for a blank line."""
    readings: tuple[HeadReading, ...] = ()
    """What each selected head of an encoder alone reads; none of other models."""
    grid: tuple[int, int] = (0, 0)
    """Rows and columns of patches of an image; zeros of a text."""

    @property
    def has_both_sides(self) -> bool:
        """True if there is a source and a prefix, and so a share of the whole source."""
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
        """Finds the tokens with the largest shares of a position.

        Returns:
            At most `n` of ("source" or "prefix", label, share), the largest first.
        """
        flow, sentence = self.flows[method], self.sentence
        sides = (
            ("source", sentence.source_pieces, flow.source),
            ("prefix", sentence.input_pieces[: position + 1], flow.prefix),
        )
        found = [
            (side, label, share)
            for side, labels, shares in sides
            for label, share in zip(labels, shares[position].tolist(), strict=False)
        ]
        return sorted(found, key=lambda one: -one[2])[:n]


def read_flow(model: Inspected, sentence: HeadsRecord) -> FlowRecord:
    """Reads what the tokens of a translation are made of.

    Args:
        model: the model, in evaluation mode.
        sentence: a sentence that was inspected; a blank one has no flow.
    """
    from tformer_cli.inspection.weighting.maps import weighted_maps

    if sentence.maps is None:
        return FlowRecord(sentence=sentence, flows={})
    maps = sentence.maps
    gaps = [gap.position for gap in sentence.gaps]
    flows = {
        method: _last_layer(weighted_maps(model, maps, method), model.config, gaps)
        for method in METHODS
    }
    readings: tuple[HeadReading, ...] = ()
    if model.config.is_encoder_only:
        norms = weighted_maps(model, maps, "norm")
        readings = tuple(_reading(head, norms.weights(head), gaps) for head in sentence.heads)
    grid = model.config.grid
    return FlowRecord(sentence=sentence, flows=flows, readings=readings, grid=grid)


def _reading(head: HeadId, norms: Tensor, gaps: list[int]) -> HeadReading:
    """Sums the norms (Q, K) of a head over its rows, or over those of the gaps."""
    rows = norms[gaps] if gaps else norms
    read = rows.double().sum(dim=0)
    return HeadReading(head, read / read.sum().clamp(min=1e-30))


def _last_layer(maps: AttentionMaps, config: ModelConfig, gaps: list[int]) -> Flow:
    """Takes what the last states are made of: of encoders the pooled one, or those of the gaps."""
    if config.is_encoder_only:
        from tformer_cli.inspection.weighting.pooled import Pooled

        rows = maps.enc[-1][0]
        rows = rows[gaps] if gaps else Pooled(config).row(rows)[None]
        return Flow(source=rows, prefix=rows[:, :0], residual=maps.residual)
    prefix = maps.dec[-1][0]
    source = maps.cross[-1][0] if maps.cross else prefix[:, :0]
    return Flow(source=source, prefix=prefix, residual=maps.residual)


VECTOR = "the vector"
"""Stands for what an encoder makes of a text."""
OF_CLASSIFIERS = (
    "The only position is the pooled state that the label is chosen by. source[j] is the share of "
    "source.pieces[j]; they sum to 1."
)
OF_ENCODERS = (
    "The only position is the vector of the text. source[j] is the share of source.pieces[j]; they "
    "sum to 1."
)
OF_GAPS = (
    "Positions are those of the gaps in source.pieces. source[j] is the share of source.pieces[j]; "
    "they sum to 1."
)
OF_LANGUAGE_MODELS = (
    "Position i has read target.input_pieces[0] to [i] and predicts target.pieces[i]. prefix[j] is "
    "the share of target.input_pieces[j]; they sum to 1."
)
CONVENTIONS = (
    "Position i has read target.input_pieces[0] to [i] and predicts target.pieces[i]. "
    "source[j] is the share of source.pieces[j], prefix[j] of target.input_pieces[j]; together "
    "they sum to 1, and source_share is the sum of source."
)


def _position_data(record: FlowRecord, position: int) -> dict[str, Any]:
    sentence = record.sentence
    place = sentence.gaps[position].position if sentence.gaps else position
    data: dict[str, Any] = {"position": place, "piece": record.written[position]}
    if not sentence.is_pooled:
        data = data | {"read": record.read[position]}
    for method, flow in record.flows.items():
        shares: dict[str, Any] = {}
        if record.has_both_sides:
            shares["source_share"] = rounded(flow.source_shares[position])
        if flow.source.numel():
            shares["source"] = plain(flow.source[position])
        if flow.prefix.numel():
            shares["prefix"] = plain(flow.prefix[position, : position + 1])
        data[method] = shares
    return data


def _reading_data(record: FlowRecord, reading: HeadReading) -> dict[str, Any]:
    piece = record.sentence.source_pieces[reading.first]
    return {"id": str(reading.head), "reads": piece, "shares": plain(reading.shares)}


BAR, SHORT_BAR = 16, 8
"""Columns of a bar, and of one where there is little room."""
FULL, EMPTY, ASCII_FULL, ASCII_EMPTY = "█", "░", "#", "."
LABEL = 14
"""Most columns of the token written."""
N_LARGEST = 3
"""Tokens named for each position at most."""
ROOM_FOR_LARGEST = 36
"""Columns that a short bar leaves to them."""
SIDES = {"source": "cyan", "prefix": "yellow"}
"""Sides that a token may come from, and the color of each."""


def show_flow(console: Console, record: FlowRecord, method: Method) -> None:
    """Prints the share of the source at each position and where it comes from."""
    sentence = record.sentence
    console.print(sentence_lines(console, sentence.texts))
    if not record.flows:
        return
    flow = record.flows[method]
    facts = METHOD_NAMES[method]
    if record.has_both_sides:
        facts += f"   mean share of the source {flow.source_share:.2f}"
    console.print(Text(f"{facts}   residual {flow.residual:.1e}"))
    console.print()
    if sentence.is_pooled:
        lines = _patches if all(record.grid) else _words
        print_lines(console, lines(console, record, method))
        console.print()
        print_lines(console, _readings(console, record))
        return
    print_lines(console, _shares(console, record, method))
    labels, maps = record.written, (flow.source, flow.prefix)
    largest = max(shares.max().item() for shares in maps if shares.numel())
    console.print()
    says = f"row: token written; column: token read; shaded from 0 to {largest:.2f}"
    console.print(Text(says, style="dim"))
    kinds: tuple[Kind, ...] = ("cross", "dec")
    keys = sentence.source_pieces, sentence.input_pieces
    for shares, side, kind, columns in zip(maps, SIDES, kinds, keys, strict=True):
        if not shares.numel():
            continue
        console.print(Text(f"from the {_name(record, side)}", style="bold"))
        print_lines(console, map_lines(console, kind, (labels, columns), shares, largest))
    if record.readings:
        console.print()
        print_lines(console, _readings(console, record))


def _name(record: FlowRecord, side: str) -> str:
    return side if record.has_both_sides else "text"


def _words(console: Console, record: FlowRecord, method: Method) -> list[Text]:
    """A line for each token of a labeled text: its share in the pooled state, with a bar."""
    is_ascii = is_ascii_only(console)
    shares = record.flows[method].source[0].tolist()
    pieces = [shown(piece, is_ascii=is_ascii) for piece in record.sentence.source_pieces]
    largest = max(shares)
    bars = [Text((ASCII_FULL if is_ascii else FULL) * round(BAR * s / largest)) for s in shares]
    columns = [
        Column("reads", pieces, is_label=True),
        Column("share", [f"{share:.3f}" for share in shares]),
        Column("", bars, at_left=True),
    ]
    return table_lines(columns, console.width, is_ascii=is_ascii)


def _patches(console: Console, record: FlowRecord, method: Method) -> list[Text]:
    """A map of the shares of an image's patches, below the share of the class token."""
    height, width = record.grid
    row = record.flows[method].source[0]
    shares = row[-height * width :].view(height, width)
    says = f"row and column: patches; shaded from 0 to {shares.max().item():.2f}"
    if len(row) > height * width:
        says += f"; the class token has {row[0].item():.2f}"
    labels = [str(number) for number in range(height)], [str(number) for number in range(width)]
    largest = max(shares.max().item(), 1e-12)
    return [Text(says, style="dim"), *map_lines(console, "enc", labels, shares, largest)]


def _readings(console: Console, record: FlowRecord) -> list[Text]:
    """A line for each head of an encoder alone: the token that it reads most."""
    is_ascii = is_ascii_only(console)
    pieces = record.sentence.source_pieces
    columns = [
        Column("head", [str(one.head) for one in record.readings], at_left=True),
        Column(
            "reads most",
            [shown(pieces[one.first], is_ascii=is_ascii) for one in record.readings],
            is_label=True,
        ),
        Column("share", [f"{one.shares[one.first]:.3f}" for one in record.readings]),
    ]
    return table_lines(columns, console.width, is_ascii=is_ascii)


def _shares(console: Console, record: FlowRecord, method: Method) -> list[Text]:
    """A line for each position: the source's share, with a bar, and the largest shares."""
    is_ascii = is_ascii_only(console)
    shares = record.flows[method].source_shares
    pieces = [shown(piece, is_ascii=is_ascii) for piece in record.written]
    width = min(LABEL, max(map(cell_len, pieces)), console.width // 5)
    head = "fills in" if record.sentence.gaps else "writes"
    labels = [cut(piece, max(width, len(head)), is_ascii=is_ascii) for piece in pieces]
    before = max(len(head), *map(cell_len, labels)) + len("source") + 3 * GAP
    bar = BAR if console.width - before - BAR >= ROOM_FOR_LARGEST else SHORT_BAR
    room = console.width - before - max(bar, len("source/prefix"))
    largest = [_largest(record, method, p, room, is_ascii) for p in range(len(pieces))]
    heads = ("source/prefix", "most from (in brackets: prefix)")
    sides = [
        Column(heads[0], [_bar(s, bar, is_ascii) for s in shares], at_left=True),
        Column("source", [f"{share:.2f}" for share in shares]),
    ]
    if not record.has_both_sides:
        sides, heads = [], ("", "most from")
    columns = [
        Column(head, labels, is_label=True),
        *sides,
        Column(heads[1] if room >= len(heads[1]) else "most from", largest, at_left=True),
    ]
    return table_lines(columns, console.width, is_ascii=is_ascii)


def _bar(share: float, width: int, is_ascii: bool) -> Text:
    n_full = round(width * share)
    full, empty = (ASCII_FULL, ASCII_EMPTY) if is_ascii else (FULL, EMPTY)
    return Text.assemble(
        (full * n_full, SIDES["source"]), (empty * (width - n_full), SIDES["prefix"])
    )


def _largest(record: FlowRecord, method: Method, position: int, room: int, is_ascii: bool) -> Text:
    """The largest shares that have room, the first one in any case."""
    line = Text()
    for side, label, share in record.largest(method, position, N_LARGEST):
        is_bracketed = side == "prefix" and record.has_both_sides
        number, brackets = f" {share:.2f}", 2 if is_bracketed else 0
        name = shown(label, is_ascii=is_ascii)
        if not line:
            most = max(NARROWEST_LABEL, room - len(number) - brackets)
            name = cut(name, most, is_ascii=is_ascii)
        name = f"({isolated(name)})" if brackets else isolated(name)
        gap = " " * GAP if line else ""
        if line and line.cell_len + cell_len(gap + name + number) > room:
            break
        line.append(gap).append(name, SIDES[side]).append(number)
    return line


@dataclass(frozen=True, kw_only=True)
class FlowOptions:
    """Settings of the view."""

    rank: Rank = 1
    method: Annotated[
        Method,
        Option(
            help="Method to draw: ALTI+ contributions, or attention rollout; jsonl always has both."
        ),
    ] = "alti"


class FlowView(SentenceView[FlowRecord]):
    """Shows what each written token is made of."""

    name = "flow"
    title = "Flow"
    help = """Show how much source and prefix contribute to each token.

    By ALTI+ contributions (Ferrando et al. 2022) and attention rollout (Abnar & Zuidema 2020),
    through all layers of encoder and decoder. The shares of a token sum to 1. The larger the
    source's share, the more the model translates rather than continues its own text. Of a language
    model the shares are of the text so far; of a classifier or an encoder, which tokens, or patches
    of an image, its label or vector comes from; of a masked language model, what each [MASK] reads.

    Examples:
        tformer inspect-flow runs/quickstart "The animal was tired."
        tformer inspect-flow runs/quickstart "It is old." --method rollout -o flow.html
    """
    Options = FlowOptions

    def read(self, subject: Subject, sentence: HeadsRecord, options: FlowOptions) -> FlowRecord:
        """Reads the shares of a sentence by both methods.

        Raises:
            DataError: if it is a text without gaps, of a masked language model.
        """
        check_gaps(sentence)
        return read_flow(subject.model, sentence)

    def report(
        self, subject: Subject, sentence: HeadsRecord, options: ReportOptions
    ) -> FlowRecord | None:
        """Reads a sentence for the report; None of a recurrent decoder, or where no gap is."""
        from tformer_cli.inspection.weighting.maps import can_roll_out

        if sentence.lacks_gaps or not can_roll_out(subject.model):
            return None
        return self.read(subject, sentence, FlowOptions())

    def json(self, record: FlowRecord) -> dict[str, Any]:
        """Makes the data of schema `tformer.flow/1`."""
        from tformer_cli.inspection.weighting.weighting import WEIGHTINGS

        n_positions = len(record.written) if record.flows else 0
        conventions = {
            "masked": OF_GAPS,
            "embed": OF_ENCODERS,
            "language-model": OF_LANGUAGE_MODELS,
        }.get(record.sentence.model.task, OF_CLASSIFIERS)
        return {
            "schema": SCHEMA,
            "conventions": CONVENTIONS if record.has_both_sides else conventions,
            "methods": {
                method: {
                    "meaning": WEIGHTINGS[method].meaning,
                    "source": WEIGHTINGS[method].source,
                    "residual": rounded(flow.residual),
                    **(
                        {"source_share": rounded(flow.source_share)}
                        if record.has_both_sides
                        else {}
                    ),
                }
                for method, flow in record.flows.items()
            },
            "positions": [_position_data(record, position) for position in range(n_positions)],
            **(
                {"heads": [_reading_data(record, one) for one in record.readings]}
                if record.readings
                else {}
            ),
        }

    def text(self, console: Console, record: FlowRecord, options: FlowOptions) -> None:
        """Prints the shares by one method."""
        show_flow(console, record, options.method)

    def tab(
        self, record: FlowRecord, options: FlowOptions | None, *, is_alone: bool
    ) -> dict[str, Any]:
        """Makes the data of the tab, the method that was asked for shown first."""
        data: dict[str, Any] = packed(self.json(record), bits=8)
        return data | {
            "names": METHOD_NAMES,
            "first": "alti" if options is None else options.method,
        }


VIEW = FlowView()
