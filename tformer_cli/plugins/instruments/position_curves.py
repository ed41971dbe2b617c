"""Chosen dimensions of position vectors as curves over the positions, and their sum with a text.

The curves are those of the paper's sinusoids (Vaswani et al. 2017, section 3.5): dimension 2i is
sin(p / base^(2i/D)) and dimension 2i + 1 the cosine, with wavelengths from 2π to base·2π. Learned
vectors are drawn as they are. A model adds them to its embeddings: of a text the embedding, the
position and the sum are shown for every token.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree.ElementTree import SubElement

from tformer_cli.errors import UsageError
from tformer_cli.inspect.data import to_json
from tformer_cli.kinds import reads_names
from tformer_cli.model.methods import POSITIONS
from tformer_cli.plugins.instruments.chart import (
    Curve,
    Scale,
    render_curves,
    round_ticks,
    write_ticks,
)
from tformer_cli.show.document import BLANK, Block, Room, Table, Text, text
from tformer_cli.show.palette import LIGHT_LINES, TERMINAL_LINES, style_of_line
from tformer_cli.show.svg import MARGIN, draw_text, number
from tformer_cli.show.terminal import prose
from tformer_cli.wording import is_blank

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any
    from xml.etree.ElementTree import Element

    from torch import Tensor

    from tformer_cli.inspect.view import Subject
    from tformer_cli.model.config import ModelConfig
    from tformer_cli.model.embedding import PositionedEmbedding
    from tformer_cli.text.tokenizer import TokenizerSide

WIDEST, HEIGHT = 76, 7  # Columns and lines of a curve on a terminal
_LEFT, _PLOT_HEIGHT, _WIDTH = 44.0, 150.0, 720.0  # Pixels of a plot
_LEGEND = 240.0  # Pixels of a name in a legend


@dataclass(frozen=True, kw_only=True)
class DimensionCurve:
    """One dimension of the position vectors of a stack."""

    stack: str  # "encoder", "decoder", or "both" where they are the same
    dimension: int  # From 0
    formula: str  # Of the position p; empty of learned vectors
    wavelength: float | None  # Positions after which it repeats; None where there is no formula
    values: Tensor  # (P) float64

    @property
    def title(self) -> str:
        whose = "" if self.stack == "both" else f"{self.stack}, "
        if self.wavelength is None:
            return f"{whose}dimension {self.dimension}"
        repeats = f"repeats after {self.wavelength:,.1f} positions"
        return f"{whose}dimension {self.dimension}: {self.formula}, {repeats}"


@dataclass(frozen=True, kw_only=True)
class PositionSum:
    """The input of a stack for a text: embeddings, positions and their sum."""

    text: str
    stack: str  # "encoder" or "decoder"
    pieces: tuple[str, ...]  # (T) the tokens
    factor: float  # Of the embeddings, such as √D
    dimensions: tuple[int, ...]
    embedding: Tensor  # (T, dimensions) float64, times the factor
    position: Tensor  # (T, dimensions)
    is_normalized: bool  # True if a norm of the sum follows

    @property
    def sum(self) -> Tensor:
        """(T, dimensions) the embedding plus the position."""
        return self.embedding + self.position

    def series(self, place: int) -> list[tuple[str, list[float]]]:
        """The three numbers of each token in the dimension at a place, by their names."""
        parts = ("embedding", self.embedding), ("position", self.position), ("sum", self.sum)
        return [(name, values[:, place].tolist()) for name, values in parts]

    @property
    def data(self) -> dict[str, Any]:
        return to_json(self, "text stack pieces factor dimensions embedding position sum")


def read_curves(
    config: ModelConfig, tables: Sequence[tuple[str, Tensor, float]], dimensions: Sequence[int]
) -> tuple[DimensionCurve, ...]:
    """Reads dimensions of the position vectors of each stack.

    Args:
        config: of the model.
        tables: each stack, its vectors (P, D) and the base of its sinusoids.
        dimensions: which, from 0.

    Raises:
        UsageError: if the positions have no vectors, or fewer dimensions.
    """
    if not tables:
        raise UsageError.of(
            "{dimension}: {} positions have no vectors, so they have no curves; omit it, and see "
            "what they add to scores",
            config.positions,
        )
    width = tables[0][1].shape[1]
    if missing := [dimension for dimension in dimensions if dimension >= width]:
        raise UsageError.of(
            "{dimension}: the vectors have dimensions 0 to {}, but {} was asked for",
            *(width - 1, missing[0]),
        )
    is_formula = POSITIONS[config.positions].is_formula
    return tuple(
        DimensionCurve(
            stack=stack,
            dimension=dimension,
            formula=_formula(dimension, width, base) if is_formula else "",
            wavelength=2 * math.pi * base ** (dimension // 2 * 2 / width) if is_formula else None,
            values=table[:, dimension],
        )
        for stack, table, base in tables
        for dimension in dict.fromkeys(dimensions)
    )


def _formula(dimension: int, width: int, base: float) -> str:
    function = "cos" if dimension % 2 else "sin"
    even = dimension // 2 * 2
    return f"{function}(p / {base:g}^({even}/{width}))" if even else f"{function}(p)"


def read_sum(
    subject: Subject,
    words: str,
    dimensions: Sequence[int],
    stack_input: tuple[str, PositionedEmbedding],
) -> PositionSum:
    """Reads what the model computes from a text at the input of its first stack.

    Args:
        subject: the model.
        words: the text.
        dimensions: which, from 0.
        stack_input: the stack's name, and what embeds its tokens.

    Raises:
        UsageError: if the model reads no text, or positions add nothing to embeddings; of a blank
            or too long text.
    """
    import torch

    from tformer_cli.model.encoder_only import EncoderOnly
    from tformer_cli.plugins.instruments.observed import exact

    model, tokenizer = subject.model, subject.tokenizer
    config = model.config
    stack, embedding = stack_input
    if tokenizer is None or reads_names(config):
        raise UsageError.of("{text}: the model reads images; omit it")
    is_target = stack == "decoder"  # of a model without an encoder
    side = tokenizer.target if is_target else tokenizer.source
    ids = _read_ids(config, side, words, is_target=is_target)
    with torch.inference_mode():
        rows = embedding.positions.rows(0, len(ids), torch.device("cpu"))
    if rows is None:
        raise UsageError.of(
            "{text}: {} positions add nothing to embeddings, so there is no sum; omit it",
            config.positions,
        )
    chosen = tuple(dict.fromkeys(dimensions))
    if is_target and not isinstance(model, EncoderOnly):
        matrix: Tensor = model.target_matrix
    else:
        matrix = model.source_embedding.weight
    columns = list(chosen)
    return PositionSum(
        text=words,
        stack=stack,
        pieces=tuple(side.pieces(ids)),
        factor=embedding.scale,
        dimensions=chosen,
        embedding=embedding.scale * exact(matrix)[list(ids)][:, columns],
        position=exact(rows)[:, columns],
        is_normalized=embedding.norm is not None,
    )


def _read_ids(
    config: ModelConfig, side: TokenizerSide, words: str, *, is_target: bool
) -> tuple[int, ...]:
    """Returns the tokens that the first stack reads."""
    from tformer_cli.inspect.capture.maps import ids_read

    if is_blank(words):
        raise UsageError.of("{text}: is blank; give a sentence")
    encoded = side.encode(words)
    ids = ids_read(config, (), encoded)[1] if is_target else ids_read(config, encoded, ())[0]
    if len(ids) > config.n_positions:
        raise UsageError.of(
            "{text}: has {} tokens, but the model has {} positions; give a shorter one",
            *(len(ids), config.n_positions),
        )
    return tuple(ids)


def curve_blocks(curves: Sequence[DimensionCurve], room: Room) -> Iterator[Block]:
    """Draws curves with characters, each below its formula."""
    for curve in curves:
        values = curve.values.tolist()
        x, y = _position_scale(len(values)), _value_scale(values, 3)
        points = tuple(enumerate(map(float, values)))
        yield BLANK
        yield text((curve.title, "bold"))
        drawn = [Curve(run=0, points=points)]
        width = min(WIDEST, room.width)
        for line in render_curves(drawn, (x, y), width, HEIGHT, is_ascii=room.is_ascii):
            spans = (
                (piece, "dim" if run is None else TERMINAL_LINES[style_of_line(run)[0]])
                for piece, run in line
            )
            yield Text(tuple(spans), wraps=False)


def sum_blocks(summed: PositionSum, room: Room) -> Iterator[Block]:
    """Makes a table for each dimension: the tokens with embedding, position and sum."""
    scale = f"embedding: {summed.factor:.4g} · E[token]" if summed.factor != 1.0 else ""
    after = "a norm of the sum follows" if summed.is_normalized else ""
    for place, dimension in enumerate(summed.dimensions):
        names, values = zip(*summed.series(place), strict=True)
        rows = [
            [str(n), piece, *(f"{value:z.3f}" for value in numbers)]
            for n, (piece, *numbers) in enumerate(zip(summed.pieces, *values, strict=True))
        ]
        yield BLANK
        yield Table(
            title=f"dimension {dimension}: embedding + position = sum",
            head=("p", "token", *names),
            rows=rows,
            labels=(1,),
            note=prose("; ".join(filter(None, (scale, after))), room),
        )


def draw_curves(
    root: Element, curves: Sequence[DimensionCurve], sums: PositionSum | None, y: float
) -> float:
    """Draws all curves of a stack into one plot, and a plot of each sum; returns where they end."""
    for stack in dict.fromkeys(curve.stack for curve in curves):
        own = [curve for curve in curves if curve.stack == stack]
        title = "Curves" if stack == "both" else f"Curves, {stack}"
        series = [(curve.title.partition(", repeats")[0], curve.values.tolist()) for curve in own]
        scale = _position_scale(len(own[0].values))
        y = _plot(root, f"{title}: dimensions by position p", series, scale, y)
    if sums is not None:
        last = len(sums.pieces) - 1
        places = tuple(map(float, range(last + 1)))
        tokens = Scale(low=0.0, high=max(1.0, last), ticks=places, labels=sums.pieces)
        for place, dimension in enumerate(sums.dimensions):
            title = f"Dimension {dimension} of “{sums.text}”: embedding + position = sum"
            y = _plot(root, title, sums.series(place), tokens, y)
    return y


def _plot(
    root: Element, title: str, series: Sequence[tuple[str, list[float]]], x: Scale, y: float
) -> float:
    draw_text(root, title, MARGIN, y + 14, 13.0, weight="600")
    y += 20
    left, width = MARGIN + _LEFT, _WIDTH - _LEFT
    in_row = max(1, int(_WIDTH // _LEGEND))
    for place, (name, _) in enumerate(series):
        row, column = divmod(place, in_row)
        corner = MARGIN + column * _LEGEND, y + 14 + 16 * row
        _line(root, place, [(corner[0], corner[1] - 4), (corner[0] + 22, corner[1] - 4)])
        draw_text(root, name, corner[0] + 28, corner[1], 11.0)
    y += 16 * -(-len(series) // in_row) + 12
    values = _value_scale([value for _, numbers in series for value in numbers], 5)
    for tick, label in zip(values.ticks, values.labels, strict=True):
        height = y + _PLOT_HEIGHT * (1 - values.place(tick))
        grid = {"d": f"M{number(left)} {number(height)}h{number(width)}", "stroke": "#d9dde3"}
        SubElement(root, "path", grid)
        draw_text(root, label, left - 6, height + 4, 11.0, fill="#5c6370", anchor="end")
    for tick, label in zip(x.ticks, x.labels, strict=True):
        place_x = left + width * x.place(tick)
        anchor = "end" if x.place(tick) == 1 else "middle" if tick else "start"
        draw_text(root, label, place_x, y + _PLOT_HEIGHT + 16, 11.0, fill="#5c6370", anchor=anchor)
    for place, (_, numbers) in enumerate(series):
        points = [
            (left + width * x.place(n), y + _PLOT_HEIGHT * (1 - values.place(value)))
            for n, value in enumerate(numbers)
        ]
        _line(root, place, points)
    return y + _PLOT_HEIGHT + 36


def _line(root: Element, place: int, points: Sequence[tuple[float, float]]) -> None:
    color, dash = style_of_line(place)
    attributes = {"fill": "none", "stroke": LIGHT_LINES[color], "stroke-width": "2"}
    if dash:
        attributes["stroke-dasharray"] = dash
    d = "M" + "L".join(f"{number(a)} {number(b)}" for a, b in points)
    SubElement(root, "path", attributes | {"d": d})


def _position_scale(n_positions: int) -> Scale:
    last = float(n_positions - 1)
    ticks = tuple(tick for tick in round_ticks(0.0, last, 7) if tick <= last and tick == int(tick))
    labels = tuple(write_ticks(ticks))
    return Scale(low=0.0, high=last, ticks=ticks, labels=labels, name="p")


def _value_scale(values: Sequence[float], n_ticks: int) -> Scale:
    low, high = min(0.0, *values), max(0.0, *values)
    ticks = tuple(round_ticks(low, high if high > low else low + 1.0, n_ticks))
    return Scale(low=ticks[0], high=ticks[-1], ticks=ticks, labels=tuple(write_ticks(ticks)))
