"""Two models compared: whose counterpart every head is, and the maps of what changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.cells import cell_len
from rich.console import Group
from rich.text import Text

from tformer_cli.inspection.capture.heads import KIND_NAMES, KINDS
from tformer_cli.inspection.figures.heat_map import ground
from tformer_cli.inspection.figures.role_grid import sign_of
from tformer_cli.inspection.json_lines import plain
from tformer_cli.inspection.view import View
from tformer_cli.settings import Option
from tformer_cli.show.palette import signed_color
from tformer_cli.show.terminal import (
    GAP,
    Column,
    cut,
    is_ascii_only,
    left_aligned,
    print_lines,
    right_aligned,
    sentence_lines,
    shown,
    table_lines,
)
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from tformer_cli.inspection.comparison.diff import HeadChange, HeadDiff
    from tformer_cli.inspection.record import ModelSummary

SCHEMA = "tformer.headdiff/1"
CELL = 5
"""Columns of a cell of the signed map: a sign, up to three digits and a gap."""
BAR, SHORTEST_BAR = 12, 4
"""Columns of the bar of the largest divergence, and those below which there is none."""


def change_data(diff: HeadDiff, change: HeadChange, *, with_map: bool = False) -> dict[str, Any]:
    """Makes the data of a pair of heads, schema `tformer.headdiff/1`.

    Args:
        diff: the comparison it is of.
        change: the pair, or a head without a counterpart, whose other side is null.
        with_map: whether to add the shown sentence's difference B − A, a list of rows.
    """
    match = change.match
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": change.kind,
        "a": None if match.first is None else str(match.first),
        "b": None if match.second is None else str(match.second),
        "divergence": plain(match.divergence),
        "divergence_in_place": plain(match.divergence_in_place),
        "role_a": change.first_role,
        "role_b": change.second_role,
        "has_moved": match.has_moved,
        "has_changed_role": change.has_changed_role,
        "matching": diff.matching,
        "n_sentences": diff.n_sentences,
        "models": {"a": vars(diff.first), "b": vars(diff.second)},
    }
    if with_map and match.divergence is not None:
        record = diff.shown[0]
        data["source"], data["target"] = record.source, record.target
        data["rows"] = list(record.row_labels(change.kind))
        data["columns"] = list(record.column_labels(change.kind))
        data["difference"] = plain(diff.difference(change))
    return data


def show_diff(console: Console, diff: HeadDiff) -> None:
    """Prints both models, a table of their heads, and the map of the pair that changed most."""
    from tformer_cli.inspection.comparison.diff import summary_of

    is_ascii = is_ascii_only(console)
    for name, model in (("A", diff.first), ("B", diff.second)):
        console.print(_model(name, model, is_ascii))
    says = (
        "divergence: mean Jensen-Shannon divergence of a pair's maps in nats, 0 (the same) to 0.693"
    )
    console.print(Text(f"{summary_of(diff)}\n{says}", style="dim"))
    for kind in KINDS:
        changes = [change for change in diff.changes if change.kind == kind]
        if changes:
            console.print()
            console.print(Text(KIND_NAMES[kind], style="bold"))
            print_lines(console, _table(changes, console.width, is_ascii))
    change = diff.most_changed
    if change is not None:
        console.print()
        console.print(signed_map(console, diff, change))


def signed_map(console: Console, diff: HeadDiff, change: HeadChange) -> Group:
    """Draws B − A of a pair in hundredths, signs written out; what does not fit is counted."""
    is_ascii = is_ascii_only(console)
    record = diff.shown[0]
    labels = record.row_labels(change.kind), record.column_labels(change.kind)
    rows, keys = ([shown(label, is_ascii=is_ascii) for label in side] for side in labels)
    difference = diff.difference(change)
    largest = difference.abs().max().item()
    label_width = min(max(map(cell_len, rows)), max(8, console.width // 4))
    n_shown = min(len(keys), max(1, (console.width - label_width - 2) // CELL))
    header = Text(" " * (label_width + 2))
    for key in keys[:n_shown]:
        label = cut(key, CELL - 1, is_ascii=is_ascii)
        header.append(left_aligned(label, CELL - 1) + " ", style="dim")
    sides = [("source", record.source), ("target", record.target)]
    sentences = sentence_lines(console, sides if record.has_both_sides else record.texts)
    lines = [header]
    for label, row in zip(rows, difference.tolist(), strict=True):
        label = cut(label, label_width, is_ascii=is_ascii)
        line = Text(right_aligned(label, label_width) + "  ")
        for value in row[:n_shown]:
            line.append_text(_cell(console, value, largest))
        lines.append(line)
    if n_shown < len(keys):
        more = f"{count_of(len(keys) - n_shown, 'more column')}; a wider terminal or --format svg"
        lines.append(Text(more, style="dim"))
    for line in lines:
        line.no_wrap = True
    return Group(_title(change, largest, is_ascii), sentences, *lines)


def _model(name: str, model: ModelSummary, is_ascii: bool) -> Text:
    facts = Text.assemble((f"{name}  ", "dim"), (shown(model.name, is_ascii=is_ascii), "bold"))
    layers = f"{model.n_encoder_layers}+{model.n_decoder_layers} layers"
    times = "x" if is_ascii else "×"
    return facts.append(
        f"  {layers} {times} {count_of(model.n_heads, 'head')}, step {model.step:,}"
    )


def _table(changes: list[HeadChange], width: int, is_ascii: bool) -> list[Text]:
    """A row for each pair; the bar is as long as there is room, and gone where there is none."""
    from tformer_cli.inspection.comparison.matching import LARGEST

    matches = [change.match for change in changes]
    seconds = [
        Text(str(match.second or "-"), style="bold" if match.has_moved else "") for match in matches
    ]
    columns = [
        Column("A", [str(match.first or "-") for match in matches], at_left=True),
        Column("B", seconds, at_left=True),
        Column("divergence", [_number(match.divergence) for match in matches]),
        Column(
            "in place", [_number(m.divergence_in_place) if m.has_moved else "" for m in matches]
        ),
        Column("role", [_roles(change, is_ascii) for change in changes], at_left=True),
    ]
    longest = min(BAR, width - sum(column.natural + GAP for column in columns))
    if longest >= SHORTEST_BAR:
        shares = [(match.divergence or 0.0) / LARGEST for match in matches]
        block = "#" if is_ascii else "█"
        bars = [Text(block * round(longest * share), style="dim") for share in shares]
        columns.insert(3, Column("", bars, at_left=True))
    return table_lines(columns, width)


def _number(divergence: float | None) -> str:
    return "-" if divergence is None else f"{divergence:.4f}"


def _roles(change: HeadChange, is_ascii: bool) -> Text:
    """The role of a pair, or that of A and that of B where they differ."""
    roles = [change.first_role, change.second_role] if change.has_changed_role else []
    named = [
        Text.assemble(sign_of(role, is_ascii=is_ascii), f" {role}")
        for role in roles or [change.first_role or change.second_role]
        if role is not None
    ]
    return Text(" -> " if is_ascii else " → ").join(named)


def _title(change: HeadChange, largest: float, is_ascii: bool) -> Text:
    rows = "source token" if change.kind == "enc" else "position that predicts"
    keys = "token read" if change.kind == "dec" else "source token"
    minus = "-" if is_ascii else "−"
    match = change.match
    return Text.assemble(
        (f"B:{match.second} {minus} A:{match.first}", "bold"),
        f"  in hundredths, at most {100 * largest:.0f}; row: {rows}, column: {keys}",
    )


def _cell(console: Console, value: float, largest: float) -> Text:
    """One difference with its sign; the color says the same, relative to the largest."""
    number = f"{100 * value:+.0f}" if abs(value) >= 0.005 else ""
    if console.color_system is None or console.no_color:
        return Text(number.rjust(CELL - 1) + " ")
    style = ground(*signed_color(value / max(largest, 1e-30), on_dark=True))
    return Text(number.rjust(3).center(CELL), style=style)


@dataclass(frozen=True, kw_only=True)
class DiffOptions:
    """Settings of the view."""

    heads: Annotated[
        tuple[str, ...],
        Option(
            help="Heads of A to compare, as `tformer inspect-heads` takes them; metrics are A's. "
            "Repeatable.",
            metavar="HEADS",
            shown_default="all heads",
        ),
    ] = ()
    match: Annotated[
        Literal["layer", "kind"] | None,
        Option(
            help="Match heads within their layer, or across all layers of their kind. Swapping "
            "heads within a layer does not change a model; swapping across layers does.",
            shown_default="layer if A and B have the same layers and heads, else kind",
        ),
    ] = None
    maps: Annotated[
        bool, Option(help="Add the map B - A of each pair, on the first sentence, to jsonl.")
    ] = False


class DiffView(View["HeadDiff"]):
    """Shows the heads of two models beside each other."""

    name = "diff"
    title = "Heads of two models"
    Options = DiffOptions
    formats = ("text", "jsonl", "svg", "png", "html")

    def json(self, record: HeadDiff) -> dict[str, Any]:
        """Makes the data of all pairs, with a figure of those that changed most."""
        from tformer_cli.inspection.comparison.diff import summary_of
        from tformer_cli.inspection.comparison.matching import LARGEST

        return {
            "models": {"a": vars(record.first), "b": vars(record.second)},
            "summary": summary_of(record),
            "largest": LARGEST,
            "changes": [change_data(record, change) for change in record.changes],
            "figure": self.figure(record),
        }

    def lines(self, record: HeadDiff, options: DiffOptions) -> Iterator[dict[str, Any]]:
        """Makes a line for each pair, schema `tformer.headdiff/1`."""
        return (change_data(record, one, with_map=options.maps) for one in record.changes)

    def text(self, console: Console, record: HeadDiff, options: DiffOptions) -> None:
        """Prints the pairs and the map of the one that changed most."""
        show_diff(console, record)

    def figure(self, record: HeadDiff) -> str:
        """Draws the maps of A, of B and B − A, of the pairs that changed most."""
        from tformer_cli.inspection.figures.diff_svg import render_diff_svg

        return render_diff_svg(record)


VIEW = DiffView()
