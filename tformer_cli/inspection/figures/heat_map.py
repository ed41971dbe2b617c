"""One attention head as a heat map on a terminal."""

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console, Group
from rich.style import Style
from rich.text import Text

from tformer_cli.show.palette import color
from tformer_cli.show.terminal import cut, is_ascii_only, left_aligned, right_aligned, shown
from tformer_cli.wording import SPACE_LABEL, count_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from tformer_cli.inspection.capture.heads import HeadId, Kind
    from tformer_cli.inspection.record import HeadsRecord

BLOCKS, ASCII_BLOCKS = " ░▒▓█", " .:*#"
"""Shades where there is no color, for weights below 0.1, 0.3, 0.5, 0.75 and up to 1."""
STEPS = (0.1, 0.3, 0.5, 0.75)
NARROWEST, WIDEST = 4, 9
"""Columns a key takes at least and at most, the gap to the next included."""


def heat_map(
    console: Console, record: "HeadsRecord", head: "HeadId", most_rows: int | None = None
) -> Group:
    """Draws one head: rows are queries, columns keys; see `map_lines`."""
    labels = record.row_labels(head.kind), record.column_labels(head.kind)
    shades = record.shades(head)
    n_hidden = 0 if most_rows is None else max(0, len(labels[0]) - most_rows)
    if n_hidden:
        labels, shades = (labels[0][:most_rows], labels[1]), shades[:most_rows]
    lines = map_lines(console, head.kind, labels, shades)
    if n_hidden:
        dots = "..." if is_ascii_only(console) else "…"
        lines.append(Text(f"{dots} {count_of(n_hidden, 'more row')}: --heads {head}", style="dim"))
    return Group(_title(record, head), *lines)


def map_lines(
    console: Console,
    kind: "Kind",
    labels: "tuple[Sequence[str], Sequence[str]]",
    shares: "Tensor",
    largest: float = 1.0,
) -> list[Text]:
    """Draws shares of 1, a line a row; columns that do not fit are counted.

    Where the terminal has colors a number is shaded and written in hundredths; elsewhere it is a
    block that is darker the larger it is.

    Args:
        console: where it will be printed.
        kind: whose colors it has.
        labels: of the Q rows and of the K columns.
        shares: (Q, K) the numbers.
        largest: the number that is shaded most.
    """
    is_ascii = is_ascii_only(console)
    rows, keys = ([shown(label, is_ascii=is_ascii) for label in side] for side in labels)
    label_width = min(max(map(cell_len, rows)), max(8, console.width // 4))
    room = max(NARROWEST, console.width - label_width - 2)
    n_shown = min(len(keys), room // NARROWEST)
    width = max(NARROWEST, min(WIDEST, room // n_shown, max(map(cell_len, keys)) + 1))
    header = Text(" " * (label_width + 2))
    if width == NARROWEST:  # of three cells none is spent on the sign of a space
        keys = [key.lstrip(shown(SPACE_LABEL, is_ascii=is_ascii)) or key for key in keys]
    for key in keys[:n_shown]:
        header.append(
            left_aligned(cut(key, width - 1, is_ascii=is_ascii), width - 1) + " ", style="dim"
        )
    lines = [header]
    for label, row in zip(rows, shares.tolist(), strict=True):
        line = Text(right_aligned(cut(label, label_width, is_ascii=is_ascii), label_width) + "  ")
        for weight in row[:n_shown]:
            line.append_text(_cell(console, kind, weight, width, largest))
        lines.append(line)
    if n_shown < len(keys):
        dots = "..." if is_ascii else "…"
        more = count_of(len(keys) - n_shown, "more column")
        hidden = f"{dots} {more}; use a wider terminal or --format html"
        lines.append(Text(hidden, style="dim"))
    for line in lines:
        line.no_wrap = True
    return lines


def ground(red: int, green: int, blue: int) -> Style:
    """A color (0 to 255) behind a text, which is black or white, whichever can be read on it."""
    is_bright = 0.3 * red + 0.59 * green + 0.11 * blue > 140
    ink = "#0c0f16" if is_bright else "#ffffff"
    return Style(color=ink, bgcolor=f"#{red:02x}{green:02x}{blue:02x}")


def _title(record: "HeadsRecord", head: "HeadId") -> Text:
    rows = "source token" if head.kind == "enc" else "token predicted"
    keys = "token read" if head.kind == "dec" else "source token"
    confidence = record.metrics[head].get("confidence")
    known = "" if confidence is None else f"   confidence {confidence:.2f}"
    weighting = record.weighting  # of attention weights the grid of roles names the kinds
    kind = "" if weighting.name == "alpha" else f"{weighting.kind_names[head.kind]}; "
    return Text.assemble((str(head), "bold"), f"  {kind}row: {rows}, column: {keys}{known}")


def _cell(console: Console, kind: "Kind", weight: float, width: int, largest: float) -> Text:
    """One weight, `width` columns wide."""
    shade = weight / largest
    if console.color_system is None or console.no_color:
        blocks = ASCII_BLOCKS if is_ascii_only(console) else BLOCKS
        block = blocks[sum(shade >= step for step in STEPS)]
        return Text(block * (width - 1) + " ")
    style = ground(*color(kind, shade, on_dark=True))
    hundredths = f"{round(100 * weight)}" if weight >= 0.005 else ""
    return Text.assemble((hundredths.rjust(2).center(width), style))
