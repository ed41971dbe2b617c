"""Attention heads on a terminal: the role of each of them, and heat maps of some."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group
from rich.style import Style
from rich.table import Table
from rich.text import Text

from tformer_cli.cli.role_grid import role_grid

if TYPE_CHECKING:
    from torch import Tensor

    from tformer_cli.inspection.heads import HeadId, Kind
    from tformer_cli.inspection.record import HeadsRecord

BLOCKS, ASCII_BLOCKS = " ░▒▓█", " .:*#"
"""Shades where there is no colour, for weights below 0.1, 0.3, 0.5, 0.75 and up to 1."""
STEPS = (0.1, 0.3, 0.5, 0.75)
NARROWEST, WIDEST = 4, 9
"""Columns a key takes at least and at most, the gap to the next included."""


def show_record(console: Console, record: "HeadsRecord", shown: Sequence["HeadId"]) -> None:
    """Prints a sentence, the roles of its heads, and the maps of the heads in `shown`."""
    console.print(_heading(record))
    if not record.heads:
        if record.maps is not None:
            console.print("no head meets the conditions of --heads", style="dim")
        return
    roles = {head: role for head in record.heads if (role := record.role(head)) is not None}
    if roles:
        console.print()
        is_ascii = not console.encoding.lower().startswith("utf")
        console.print(role_grid(roles, is_ascii=is_ascii))
    for head in shown:
        console.print()
        console.print(heat_map(console, record, head))


def heat_map(console: Console, record: "HeadsRecord", head: "HeadId") -> Group:
    """Draws one head: rows are queries, columns keys; see `map_lines`."""
    labels = record.row_labels(head.kind), record.column_labels(head.kind)
    lines = map_lines(console, head.kind, labels, record.shades(head))
    return Group(_title(record, head), *lines)


def map_lines(
    console: Console,
    kind: "Kind",
    labels: tuple[Sequence[str], Sequence[str]],
    shares: "Tensor",
    largest: float = 1.0,
) -> list[Text]:
    """Draws shares of 1, a line a row; columns that do not fit are counted.

    Where the terminal has colours a number is shaded and written in hundredths; elsewhere it is a
    block that is darker the larger it is.

    Args:
        console: where it will be printed.
        kind: whose colours it has.
        labels: of the Q rows and of the K columns.
        shares: (Q, K) the numbers.
        largest: the number that is shaded most.
    """
    rows, keys = labels
    label_width = min(max(map(cell_len, rows)), max(8, console.width // 4))
    room = max(1, (console.width - label_width - 2) // NARROWEST)
    n_shown = min(len(keys), room)
    width = min(WIDEST, (console.width - label_width - 2) // n_shown, _widest(keys) + 1)
    width = max(NARROWEST, width)
    header = Text(" " * (label_width + 2))
    for key in keys[:n_shown]:
        header.append(_fitted(key, width - 1) + " ", style="dim")
    lines = [header]
    for label, row in zip(rows, shares.tolist(), strict=True):
        line = Text(_right_aligned(label, label_width) + "  ")
        for weight in row[:n_shown]:
            line.append_text(_cell(console, kind, weight, width, largest))
        lines.append(line)
    if n_shown < len(keys):
        hidden = f"… {len(keys) - n_shown} more columns; a wider terminal or --format html"
        lines.append(Text(hidden, style="dim"))
    for line in lines:
        line.no_wrap = True
    return lines


def _heading(record: "HeadsRecord") -> Group:
    model = record.model
    facts = Text.assemble((model.name, "bold"))
    facts.append(f"  {model.n_encoder_layers}+{model.n_decoder_layers} layers")
    facts.append(f" × {model.n_heads} heads")
    if record.score is not None:
        facts.append(f"   score {record.score:.3f}")
    if record.maps is not None:
        way = "of the search" if record.mode == "live" else "from a forced pass"
        facts.append(f"   maps {way}, residual {record.captured.residual:.1e}")
    sentence = Table.grid(padding=(0, 2))
    sentence.add_row(Text("source", style="dim"), Text(record.source))
    name = "given target" if record.is_forced else "translation"
    if (record.rank or 1) > 1:
        name = f"translation {record.rank}"
    sentence.add_row(Text(name, style="dim"), Text(record.target))
    weighting = record.weighting
    if weighting.name == "alpha":
        return Group(facts, sentence)
    measure = f"{weighting.name}: {weighting.meaning} ({weighting.source})"
    if not weighting.is_share:
        measure += f"; shaded from 0 to the largest, {record.largest:.4g}"
    return Group(facts, sentence, Text(measure, style="dim"))


def _title(record: "HeadsRecord", head: "HeadId") -> Text:
    rows = "source token" if head.kind == "enc" else "position that predicts"
    keys = "token read" if head.kind == "dec" else "source token"
    confidence = record.metrics[head].get("confidence")
    known = "" if confidence is None else f", confidence {confidence:.2f}"
    return Text.assemble(
        (str(head), "bold"),
        f"  {record.weighting.kind_names[head.kind]}; row: {rows}, column: {keys}{known}",
    )


def _cell(console: Console, kind: "Kind", weight: float, width: int, largest: float) -> Text:
    """One weight, `width` columns wide."""
    shade = weight / largest
    if console.color_system is None or console.no_color:
        blocks = BLOCKS if console.encoding.lower().startswith("utf") else ASCII_BLOCKS
        block = blocks[sum(shade >= step for step in STEPS)]
        return Text(block * (width - 1) + " ")
    from tformer_cli.inspection.palette import colour

    red, green, blue = colour(kind, shade, on_dark=True)
    is_bright = 0.3 * red + 0.59 * green + 0.11 * blue > 140
    ink = "#0c0f16" if is_bright else "#ffffff"
    style = Style(color=ink, bgcolor=f"#{red:02x}{green:02x}{blue:02x}")
    shown = f"{round(100 * weight)}" if weight >= 0.005 else ""
    return Text.assemble((shown.center(width), style))


def _widest(labels: Sequence[str]) -> int:
    return max(map(cell_len, labels))


def _fitted(label: str, width: int) -> str:
    """Cuts or fills a label to a number of columns, wide characters counted as two."""
    return set_cell_size(label, width)


def _right_aligned(label: str, width: int) -> str:
    if cell_len(label) > width:
        return set_cell_size(label, width)
    return " " * (width - cell_len(label)) + label
