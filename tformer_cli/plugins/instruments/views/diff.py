"""Two models compared: whose counterpart every head is, and the maps of what changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tformer_cli.heads.names import KIND_NAMES, KINDS
from tformer_cli.heads.roles import signed_role
from tformer_cli.inspect.data import jsonable, to_json
from tformer_cli.inspect.view import View
from tformer_cli.settings import Option
from tformer_cli.show.document import (
    BLANK,
    Block,
    Map,
    Room,
    Row,
    SideBySide,
    Span,
    Table,
    Text,
    Texts,
    text,
)
from tformer_cli.show.figure_files import FIGURES
from tformer_cli.show.terminal import natural_width
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tformer_cli.inspect.record import ModelSummary
    from tformer_cli.plugins.instruments.comparison import HeadChange, HeadDiff

SCHEMA = "tformer.headdiff/1"
CHANGE = (
    "kind a=first b=second divergence divergence_in_place role_a=first_role role_b=second_role "
    "has_moved has_changed_role"
)
BAR, SHORTEST_BAR = 12, 4  # The largest bar; below the shortest there is none


def change_data(diff: HeadDiff, change: HeadChange, *, with_map: bool = False) -> dict[str, Any]:
    data = {
        "schema": SCHEMA,
        **to_json(change, CHANGE),
        **to_json(diff, "matching n_sentences"),
        "models": to_json(diff, "a=first b=second"),
    }
    if with_map and change.divergence is not None:
        record = diff.shown[0]
        data["source"], data["target"] = record.source, record.target
        data["rows"] = list(record.row_labels(change.kind))
        data["columns"] = list(record.column_labels(change.kind))
        data["difference"] = jsonable(diff.difference(change))
    return data


def signed_map(diff: HeadDiff, change: HeadChange) -> Iterator[Block]:
    record, kind = diff.shown[0], change.kind
    difference = diff.difference(change)
    largest = float(abs(difference).max())
    rows = "source token" if kind == "enc" else "position that predicts"
    keys = "token read" if kind == "dec" else "source token"
    yield text(
        (f"B:{change.second} − A:{change.first}", "bold"),
        f"  in hundredths, at most {100 * largest:.0f}; row: {rows}, column: {keys}",
    )
    sides = [("source", record.source), ("target", record.target)]
    yield Texts(sides if record.has_both_sides else record.texts)
    yield Map(
        kind=kind,
        labels=(record.row_labels(kind), record.column_labels(kind)),
        values=difference.tolist(),
        largest=largest,
        is_signed=True,
        wider="a wider terminal or --format svg",
    )


def _model(name: str, model: ModelSummary) -> Text:
    layers = f"{model.n_encoder_layers}+{model.n_decoder_layers} layers"
    size = f"  {layers} × {count_of(model.n_heads, 'head')}, step {model.step:,}"
    return text((f"{name}  ", "dim"), (model.name, "bold"), size)


def _table(title: str, changes: list[HeadChange], room: Room) -> Table:
    """A row for each pair; the bar is as long as there is room, and gone where there is none."""
    from tformer_cli.plugins.instruments.comparison import LARGEST

    rows: list[Row] = [
        [
            str(change.first or "-"),
            text((str(change.second or "-"), "bold" if change.has_moved else "")),
            _number(change.divergence),
            _number(change.divergence_in_place) if change.has_moved else "",
            _roles(change, room),
        ]
        for change in changes
    ]
    table = Table(
        title=title,
        head=("A", "B", "divergence", "in place", "role"),
        rows=rows,
        labels=(),
        texts=(0, 1, 4),
    )
    longest = min(BAR, room.width - natural_width(table, room) - table.gap)
    if longest < SHORTEST_BAR:
        return table
    for row, change in zip(rows, changes, strict=True):
        share = (change.divergence or 0.0) / LARGEST
        row.insert(3, text(("█" * round(longest * share), "dim")))
    head = ("A", "B", "divergence", "", "in place", "role")
    return replace(table, head=head, texts=(0, 1, 3, 5))


def _number(divergence: float | None) -> str:
    return "-" if divergence is None else f"{divergence:.4f}"


def _roles(change: HeadChange, room: Room) -> Text:
    roles = [change.first_role, change.second_role] if change.has_changed_role else []
    arrow = " -> " if room.is_ascii else " → "
    spans: list[Span] = []
    for role in roles or [change.first_role or change.second_role]:
        if role is not None:
            spans += [*([arrow] if spans else []), *signed_role(role, room).spans]
    return text(*spans)


@dataclass(frozen=True, kw_only=True)
class DiffOptions:
    """Settings of the view."""

    heads: Annotated[
        tuple[str, ...],
        Option(
            help="Heads of A to compare, in the syntax of `tformer inspect-heads`; metrics are "
            "A's. Repeatable.",
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
    """Shows the heads of two models side by side."""

    name = "diff"
    title = "Heads of two models"
    Options = DiffOptions
    formats = ("text", "jsonl", *FIGURES, "html")

    def lines(self, record: HeadDiff, options: DiffOptions) -> Iterator[dict[str, Any]]:
        return (change_data(record, change, with_map=options.maps) for change in record.changes)

    def blocks(self, record: HeadDiff, options: DiffOptions, room: Room) -> Iterator[Block]:
        from tformer_cli.plugins.instruments.comparison import summary_of

        yield _model("A", record.first)
        yield _model("B", record.second)
        yield text(
            f"{summary_of(record)}\ndivergence: mean Jensen-Shannon divergence of a pair's maps in "
            "nats, 0 (the same) to 0.693",
            style="dim",
        )
        for kind in KINDS:
            changes = [change for change in record.changes if change.kind == kind]
            if changes:
                yield BLANK
                yield _table(KIND_NAMES[kind], changes, room)
        if record.most_changed is not None:
            yield BLANK
            yield from signed_map(record, record.most_changed)

    def figure_blocks(self, record: HeadDiff, options: DiffOptions) -> Iterator[Block]:
        from tformer_cli.plugins.instruments.comparison import choose_drawn_changes

        yield Texts(record.shown[0].texts)
        for change in choose_drawn_changes(record):
            yield BLANK
            yield from _three_maps(record, change)


def _three_maps(diff: HeadDiff, change: HeadChange) -> Iterator[Block]:
    before, after = diff.shown
    if change.first is None or change.second is None:
        raise ValueError("a head without a counterpart has no difference")
    kind = change.kind
    name = f"{KIND_NAMES[kind].capitalize()}: {change.first} in A, {change.second} in B"
    yield text((f"{name}, divergence {change.divergence:.4f}", "bold"))
    labels = before.row_labels(kind), before.column_labels(kind)
    difference = diff.difference(change)
    largest = float(abs(difference).max())
    sides = (
        ("A", before.captured.weights(change.first), False),
        ("B", after.captured.weights(change.second), False),
        (f"B − A: orange more, blue less, up to {largest:.2f}", difference, True),
    )
    maps = [
        Map(
            kind=kind,
            title=title,
            labels=labels,
            values=values.tolist(),
            largest=largest if is_signed else 1.0,
            is_signed=is_signed,
        )
        for title, values, is_signed in sides
    ]
    yield SideBySide(maps)


VIEW = DiffView()
