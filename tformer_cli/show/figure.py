"""Blocks as one SVG figure: texts, tables and maps below each other, on white ground."""

from __future__ import annotations

import re
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement

from tformer_cli.show.document import (
    BLANK,
    Block,
    Cell,
    Document,
    Facts,
    Field,
    Map,
    SideBySide,
    Table,
    Text,
    Texts,
    styled_spans,
    text,
)
from tformer_cli.show.palette import hex_color, signed_hex_color
from tformer_cli.show.svg import (
    MARGIN,
    clean,
    display_width,
    draw_labels,
    draw_map,
    draw_scale,
    draw_text,
    new_svg,
    number,
    room_of_labels,
    svg_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Corner = tuple[float, float]

SIZE, LINE, GAP = 12.0, 18.0, 20.0
"""Pixels of the letters, of a line, and between two columns or two maps."""
CHARACTER = 0.58  # Width of a character of a proportional font, as a share of its size
MONOSPACE = "ui-monospace,'DejaVu Sans Mono',monospace"
COLUMNS = 120  # Characters of a line of text
WIDEST = 960.0  # Pixels that blocks side by side take together
FIELD = 720.0  # Pixels across a field
FEW_ROWS = 16  # Up to as many rows of a field are high enough for the eye
STYLES = {
    "bold": {"font-weight": "600"},
    "italic": {"font-style": "italic"},
    "underline": {"text-decoration": "underline"},
    "dim": {"fill": "#5c6370"},
    "green": {"fill": "#1d7a46"},
    "yellow": {"fill": "#8a6100"},
    "cyan": {"fill": "#0b6b7f"},
    "red": {"fill": "#b3261e"},
    "blue": {"fill": signed_hex_color(-1.0)},
    "orange": {"fill": signed_hex_color(1.0)},
}
"""Attributes for the words of a style; others are ignored."""
BARS = {"█": "1", "░": "0.3"}
"""Characters of bars, and how opaque they are."""
_WORD = re.compile(r"\n|[^\S\n]+|\S+")
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"

Run = tuple[str, str]  # A text and its style


def render_figure(title: str, blocks: Iterable[Block]) -> str:
    """Renders blocks below their title."""
    root = new_svg(title)
    draw_text(root, title, MARGIN, MARGIN + 12, 15.0, weight="600")
    right, y = draw_blocks(root, blocks, (MARGIN, MARGIN + LINE + 4))
    right = max(right, MARGIN + display_width(title) * 15 * CHARACTER)
    return svg_text(root, right + MARGIN, y + MARGIN)


def render_document(document: Document) -> str:
    """Renders the sections of a document below each other, and its legend at the end."""
    parts = [block for section in document.sections for block in (*section.blocks(), BLANK)]
    return render_figure(document.title, [*parts, text((document.legend, "dim"))])


def render_field(block: Field) -> str:
    """Renders a field without anything around it."""
    root = new_svg()
    return svg_text(root, *_draw_field(root, block, (0.0, 0.0)))


def draw_blocks(root: Element, blocks: Iterable[Block], corner: Corner) -> Corner:
    """Draws blocks below each other; returns their right and their lower edge."""
    left, y = corner
    right = left
    for block in blocks:
        edge, y = _draw_block(root, block, (left, y))
        right = max(right, edge)
    return right, y


def _draw_block(root: Element, block: Block, corner: Corner) -> Corner:
    if isinstance(block, Text):
        return _draw_rows(root, [[block]], corner)
    if isinstance(block, Texts):
        block = Facts([[text((name, "dim")), sentence] for name, sentence in block.sentences])
    if isinstance(block, Facts):
        return _draw_rows(root, block.rows, corner)
    if isinstance(block, Table):
        return _draw_table(root, block, corner)
    if isinstance(block, SideBySide):
        return _draw_beside(root, block.blocks, corner)
    draw = _draw_heat_map if isinstance(block, Map) else _draw_field
    return draw(root, block, corner)  # type: ignore[arg-type]


def _draw_table(root: Element, table: Table, corner: Corner) -> Corner:
    left, y = corner
    right = other = left
    if table.title:
        right, y = draw_blocks(root, [text((table.title, "bold"))], corner)
    at_left = [place in (*table.labels, *table.texts) for place in range(len(table.head))]
    styles = ["dim", *(table.row_styles or [""] * len(table.rows))]
    edge, y = _draw_rows(root, [table.head, *table.rows], (left, y), at_left, styles)
    for words, style in ((table.note, "dim"), (table.remark, "")):
        if words:
            other, y = draw_blocks(root, [text((words, style))], (left, y))
    return max(right, edge, other), y


def _draw_rows(
    root: Element,
    rows: Sequence[Sequence[Cell | Text | str]],
    corner: Corner,
    at_left: Sequence[bool] = (),
    styles: Sequence[str] = (),
) -> Corner:
    """Draws rows of cells in columns; only the last cell of a row takes several lines."""
    left, y = corner
    lines = [[break_lines(cell) for cell in row] for row in rows]
    edges = []
    for column in range(max(map(len, rows), default=0)):
        cells = [row[column] for row in lines if column < len(row)]
        width = max((_width(line) for cell in cells for line in cell), default=0.0)
        edges.append((left, left + width))
        left += width + GAP
    for place, row in enumerate(lines):
        style = styles[place] if styles else ""
        first = rows[place][0]
        font = MONOSPACE if isinstance(first, Text) and not first.wraps else ""
        for (start, end), cell, is_at_left in zip(
            edges, row, at_left or [True] * len(row), strict=False
        ):
            for n, runs in enumerate(cell):
                x, anchor = (start, "") if is_at_left else (end, "end")
                _draw_line(
                    root, [(words, f"{style} {own}") for words, own in runs], x, y + LINE * n + 13,
                    anchor=anchor, font=font,
                )  # fmt: skip
        y += LINE * max(1, *map(len, row))
    return left - GAP if edges else left, y


def break_lines(cell: Cell | Text | str, columns: int = COLUMNS) -> list[list[Run]]:
    """Breaks a text at its line ends, and at spaces where a line would be too long."""
    lines: list[list[Run]] = [[]]
    taken = 0
    for words, style in styled_spans(cell):
        for word in [words] if isinstance(cell, Text) and not cell.wraps else _WORD.findall(words):
            width = display_width(word)
            if word == "\n" or (taken and taken + width > columns and not word.isspace()):
                lines.append([])
                taken = 0
            if word != "\n":
                lines[-1].append((word, style))
                taken += width
    return lines


def _width(runs: Sequence[Run]) -> float:
    return sum(display_width(words) for words, _ in runs) * SIZE * CHARACTER


def _draw_line(
    root: Element, runs: Sequence[Run], x: float, y: float, *, anchor: str, font: str
) -> None:
    if not any(words.strip() for words, _ in runs):
        return
    if not {*"".join(words for words, _ in runs)} - BARS.keys():
        _draw_bar(root, runs, x - (_width(runs) if anchor else 0.0), y)
        return
    attributes = {"x": number(x), "y": number(y), "font-size": number(SIZE), "fill": "#16181d"}
    options = {"text-anchor": anchor, "font-family": font, _SPACE: "preserve"}
    attributes |= {name: value for name, value in options.items() if value}
    line = SubElement(root, "text", attributes)
    for style, parts in groupby(runs, key=itemgetter(1)):
        words = clean("".join(words for words, _ in parts))
        SubElement(line, "tspan", _attributes(style)).text = words


def _attributes(style: str) -> dict[str, str]:
    return {k: v for word in style.split() for k, v in STYLES.get(word, {}).items()}


def _draw_bar(root: Element, runs: Sequence[Run], x: float, y: float) -> None:
    """Draws a bar of block characters, whose width differs from font to font."""
    for words, style in runs:
        fill = _attributes(style).get("fill", "#5c6370")
        for character, group in groupby(words):
            width = len([*group]) * SIZE * CHARACTER
            place = {"x": number(x), "y": number(y - 10), "width": number(width), "height": "12"}
            SubElement(root, "rect", {**place, "fill": fill, "fill-opacity": BARS[character]})
            x += width


def _draw_beside(root: Element, blocks: Sequence[Table | Map], corner: Corner) -> Corner:
    """Draws blocks next to each other, and below where they have no room."""
    x, top = corner
    right = lowest = 0.0
    for block in blocks:
        edge, bottom = _draw_block(new_svg(), block, (x, top))
        if edge > WIDEST and x > corner[0]:
            x, top = corner[0], lowest + GAP
        edge, bottom = _draw_block(root, block, (x, top))
        right, lowest, x = max(right, edge), max(lowest, bottom), edge + GAP
    return max(right, corner[0]), max(lowest, corner[1])


def _draw_heat_map(root: Element, block: Map, corner: Corner) -> Corner:
    left, y = corner
    right = left
    if block.title:
        right, y = draw_blocks(root, [text((block.title, "dim"))], corner)
    if not block.values:
        return right, y
    cell = min(22.0, max(7.0, 420 / max(map(len, block.labels))))
    font = min(SIZE, cell * 0.9)
    beside, above = room_of_labels(block.labels, font)
    x, y = left + beside, y + above
    draw_labels(root, block.labels, (x, y), cell, font)
    color_of = signed_hex_color if block.is_signed else partial(hex_color, block.kind)
    shades = [[value / (block.largest or 1.0) for value in row] for row in block.values]
    draw_map(root, shades, color_of, (x, y), (cell, cell))
    bottom = y + cell * len(shades) + GAP / 2
    largest = f"{block.largest:.4g}"
    ends = (f"−{largest}" if block.is_signed else "0", largest)
    edge = draw_scale(root, color_of, (x, bottom), ends, is_signed=block.is_signed)
    return max(right, edge, x + cell * len(shades[0])), bottom + GAP


def _draw_field(root: Element, block: Field, corner: Corner) -> Corner:
    """Draws a field over its full width."""
    left, y = corner
    width = FIELD / len(block.values[0])
    height = min(14.0, max(6.0, width, FEW_ROWS * 14 / len(block.values)))
    draw_map(root, block.values, partial(hex_color, block.kind), corner, (width, height))
    return left + FIELD, y + height * len(block.values) + GAP / 2
