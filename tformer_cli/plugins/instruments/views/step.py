"""One head for one token, step by step: every number of every step, and a worksheet.

Masked cells, −∞, are null in JSON, which has no infinity; on a worksheet the blanks are null too,
and `quiz` says which they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from tformer_cli.errors import DataError, Setting, TformerError, UsageError
from tformer_cli.heads.names import KIND_NAMES
from tformer_cli.inspect.data import pack_for_page, round6, to_json
from tformer_cli.inspect.view import ReportOptions, SentenceView, describe
from tformer_cli.plugins.instruments.walkthrough.step import SCHEMA, StepRecord
from tformer_cli.settings import Option
from tformer_cli.show.document import BLANK, Block, Room, Span, Text, Texts, text
from tformer_cli.show.terminal import NARROWEST_LABEL, field, prose, width_of
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tformer_cli.heads.names import HeadId
    from tformer_cli.inspect import view
    from tformer_cli.inspect.record import HeadsRecord
    from tformer_cli.plugins.instruments.walkthrough.step import Quiz, Step, Subject, Table

TOLERANCE = 1e-4  # Float32 is within some 1e-6; a wrong formula misses by far more
COMPONENTS = 8  # Components of a vector that the report keeps
ROWS = 64  # Rows of a table that the report keeps
MAP_TABLES = ("attention",)  # Tables that the report omits, as its first tab has them as maps
DETAIL_CELLS = 8192  # Larger tables that are details are omitted of a page; the JSON has them
DIGITS = 6  # Decimal places on the page: it shows three, and of four one in twenty is rounded wrong
INDENT = 4
LABEL_WIDTH, NUMBER_WIDTH = 18, 8  # Most of a row's label; of a number with its gap
MASKED = "  masked"  # Follows the numbers of a key that the query may not see
BAR_WIDTH, SHORTEST_BAR = 24, 4  # Columns of a bar at most, and those below which there is none


def _step_data(step: Step, quiz: Quiz) -> dict[str, Any]:
    tables = [
        {
            **to_json(table, "name caption rows columns"),
            "values": [[_value_data(cell, quiz) for cell in row] for row in table.values.tolist()],
        }
        for table in step.tables
    ]
    return {**to_json(step, "number name title formulas says worked checks"), "tables": tables}


def _value_data(value: float, quiz: Quiz) -> float | None:
    if math.isinf(value) or quiz.blank_of(value) is not None:
        return None
    return round6(value)


def _step_blocks(step: Step, quiz: Quiz, room: Room) -> Iterator[Block]:
    yield BLANK
    yield text((f"{step.number:>2}  {step.title}", "bold"))
    for formula in step.formulas:
        yield _paragraph(formula, "cyan")
    yield _paragraph(step.says, "dim")
    for table in step.tables:
        if not table.is_detail:
            yield from _table_lines(table, quiz, room)
    if step.worked:
        yield _paragraph(f"e.g. {step.worked}", "italic")
    if step.difference is not None:
        names = ", ".join(check.what for check in step.checks)
        verdict = f"✓ as the model: {names}; max difference {step.difference:.1e}"
        yield _paragraph(verdict, "green")


def _paragraph(words: str, style: str) -> Text:
    return Text((words,), style, indent=INDENT)


def _table_lines(table: Table, quiz: Quiz, room: Room) -> Iterator[Text]:
    n_columns = table.values.shape[1]
    is_named = table.share_column is not None
    labels = [prose(row, room) for row in table.rows]
    heads = [prose(c, room) for c in table.columns] or [str(c) for c in range(n_columns)]
    widths = [max(NUMBER_WIDTH, width_of(head) + 2 if is_named else 0) for head in heads]
    left = room.width - INDENT - 2
    label_width = min(LABEL_WIDTH, max(map(width_of, labels)))
    if is_named:
        label_width = max(NARROWEST_LABEL, min(label_width, left - sum(widths)))
    left -= label_width
    n_shown = n_columns if is_named else max(1, min(n_columns, left // NUMBER_WIDTH))
    bar = min(BAR_WIDTH, left - sum(widths) - 2)
    elided = f", first {n_shown} of {n_columns}" if n_shown < n_columns else ""
    yield _paragraph(table.caption + elided, "underline")
    shown = list(zip(heads, widths, strict=True))[:n_shown]
    header: list[Span] = [" " * (INDENT + label_width + 2)]
    for head, width in shown:
        header += [" ", *field(head, width - 1, room, at_right=True)]
    yield Text(tuple(header), "dim", wraps=False)
    for place, (label, row) in enumerate(zip(labels, table.values.tolist(), strict=True)):
        is_marked = place == table.marked_row
        line: list[Span] = [" " * (INDENT - 2) + ("→ " if is_marked else "  ")]
        line += [*field(label, label_width, room), "  "]
        for value, (_, width) in zip(row, shown, strict=False):
            line += [" ", *field(_number(value, quiz, room), width - 1, room, at_right=True)]
        if -math.inf in row and left - sum(widths) >= width_of(MASKED):
            line.append((MASKED, "dim"))
        elif table.share_column is not None and bar >= SHORTEST_BAR:
            share = row[table.share_column]
            is_blank = quiz.blank_of(share) is not None
            line.append(("" if is_blank else "  " + "█" * round(bar * share), "cyan"))
        yield Text(tuple(line), "bold" if is_marked else "", wraps=False)


def _number(value: float, quiz: Quiz, room: Room) -> str:
    if (blank := quiz.blank_of(value)) is not None:
        return f"({blank.number})__"
    if math.isinf(value):
        return prose("−∞", room)
    return f"{value:z.3f}" if abs(value) < 1000 else f"{value:.3g}"


@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """Head and token that are worked through."""

    token: Annotated[
        str,
        Option(
            help="Query token: a word or piece of the source (enc), or one that the decoder "
            "predicts (dec, cross). it#2 is the second it; a number is a position, from 0.",
            metavar="TOKEN",
            shown_default="a good example",
        ),
    ] = ""
    head: Annotated[
        str,
        Option(
            help="One head, such as enc.0.3 or cross.last.0.",
            metavar="HEAD",
            shown_default="the one that inspect-heads shows first",
        ),
    ] = ""
    key: Annotated[
        str | None,
        Option(
            help="Key token to compute with, named like --token: from the source (enc, cross) or "
            "from the decoder's input (dec).",
            metavar="TOKEN",
            shown_default="the one with the largest weight",
        ),
    ] = None
    tolerance: Annotated[
        float,
        Option(
            help="Exit with status 1 if a step differs from the model's own number by more than X.",
            names=("--verify",),
            metavar="X",
            min=0.0,
        ),
    ] = TOLERANCE
    sheet: int | None = None  # Number of the worksheet that this is for, from 0
    row: int | None = None  # Position of the query token, in place of its name


class StepView(SentenceView[StepRecord]):
    """Works through the computation of one head for one token."""

    name = "step"
    title = "Step by step"
    Options = StepOptions
    formats = ("text", "json", "html")

    def read(
        self, subject: view.Subject, sentence: HeadsRecord, options: StepOptions
    ) -> StepRecord:
        from tformer_cli.plugins.instruments.walkthrough.step import example_row, find_token
        from tformer_cli.plugins.instruments.walkthrough.worksheet import worksheet_places

        named = one_head(subject, options.head) if options.head else None
        if sentence.maps is None:
            raise DataError("line 1: the sentence is blank; give one that is not")
        head = named or sentence.first_head()
        if options.sheet is not None:
            places = worksheet_places(sentence, named, options.token)
            head, row = places[options.sheet % len(places)]
        elif options.row is not None:
            row, last = options.row, len(sentence.row_labels(head.kind)) - 1
            if not 0 <= row <= last:
                raise UsageError.of("{token}: must be a position from 0 to {}", last)
        elif options.token:
            row = find_token(options.token, sentence.row_labels(head.kind))
        else:
            row = example_row(sentence, head)
        return _walk_head(subject, sentence, (head, row), options.tolerance, options.key)

    def report(
        self, subject: view.Subject, sentence: HeadsRecord, options: ReportOptions
    ) -> list[StepRecord]:
        from tformer_cli.plugins.instruments.walkthrough.step import (
            example_row,
            first_heads,
            row_of,
        )

        chosen = [(head, example_row(sentence, head)) for head in first_heads(sentence)]
        if options.steps:
            chosen = [
                (head, row)
                for head, token in options.steps
                if (row := row_of(token, sentence.row_labels(head.kind))) is not None
            ]
        return [_walk_head(subject, sentence, place, options.tolerance) for place in chosen]

    def json(self, record: StepRecord) -> dict[str, Any]:
        data: dict[str, Any] = {
            "schema": SCHEMA,
            **to_json(record, "head norm row token where key key_piece difference"),
            "steps": [_step_data(step, record.hidden) for step in record.steps],
        }
        if record.quiz is not None:
            names = "number step what value=answer" if record.with_answers else "number step what"
            data["quiz"] = [to_json(blank, names) for blank in record.quiz.blanks]
        return data

    def line(self, record: StepRecord) -> dict[str, Any]:
        return describe(record.sentence) | self.json(record)

    def blocks(self, record: StepRecord, options: StepOptions, room: Room) -> Iterator[Block]:
        sentence, head = record.sentence, record.head
        yield text(
            (sentence.model.name, "bold"),
            f"  {KIND_NAMES[head.kind]}, layer {head.layer}, head {head.head} ({head}), "
            f"{record.norm}-norm",
        )
        facts = ("token", record.where), ("example", record.example)
        yield Texts([*sentence.texts, *((name, prose(fact, room)) for name, fact in facts)])
        if record.quiz is not None:
            yield BLANK
            yield text(("Name: ____________________", "bold"))
            yield text(instruction(record.quiz))
        for step in record.steps:
            yield from _step_blocks(step, record.hidden, room)
        n_checks = sum(len(step.checks) for step in record.steps)
        yield BLANK
        yield text(
            f"✓ {n_checks} comparisons with the model's own numbers, largest difference "
            f"{record.difference:.1e}",
            style="bold green",
        )

    def tab(self, record: Any, options: Any, *, is_alone: bool) -> list[dict[str, Any]]:
        records = record if isinstance(record, list) else [record]
        return [self._tab_of(step_record, is_alone=is_alone) for step_record in records]

    def _tab_of(self, record: StepRecord, *, is_alone: bool) -> Any:
        data = self.json(record)
        for step, of_step in zip(record.steps, data["steps"], strict=True):
            of_step["tables"] = [
                _on_page(table, of_table, record.hidden, is_alone=is_alone)
                for table, of_table in zip(step.tables, of_step["tables"], strict=True)
                if _has_room(table, is_alone=is_alone)
            ]
        weight = record.sentence.captured.weights(record.head)[record.row, record.key].item()
        data |= {"weight": round6(weight), "is_whole": is_alone and record.quiz is None}
        if record.quiz is not None:
            data["instruction"] = instruction(record.quiz)
        return data if is_alone else pack_for_page(data, bits=24)


def instruction(quiz: Quiz) -> str:
    """Tells a student what to do with a worksheet."""
    return (
        f"Fill in the {count_of(len(quiz.blanks), 'numbered blank')}. Each follows from numbers "
        "that are printed: compute with these digits and round to three decimal places."
    )


def _walk_head(
    subject: view.Subject,
    sentence: HeadsRecord,
    place: tuple[HeadId, int],
    tolerance: float,
    key: str | None = None,
) -> StepRecord:
    """Walks through a head for the token in a row."""
    from tformer_cli.plugins.instruments.walkthrough.step import Subject
    from tformer_cli.plugins.instruments.walkthrough.walkthrough import walk_through

    (head, row), labels = place, tuple(subject.labels)
    walked = Subject(sentence=sentence, head=head, row=row, output_labels=labels)
    if key is not None:
        walked = replace(walked, key=_visible_key(key, walked))
    record = walk_through(subject.model, walked)
    check_steps(record, tolerance)
    return record


def one_head(subject: view.Subject, name: str, setting: str = "head") -> HeadId:
    from tformer_cli.heads.names import head_layout
    from tformer_cli.heads.selectors import select_heads

    selected = select_heads([name], head_layout(subject.model), setting=setting)
    if len(selected) > 1:
        raise UsageError.of(
            '{}: "{}" names {} heads, from {} to {}; name one',
            *(Setting(setting), name, len(selected), selected[0], selected[-1]),
        )
    return selected[0]


def _visible_key(wanted: str, subject: Subject) -> int:
    from tformer_cli.plugins.instruments.walkthrough.step import find_token

    key = find_token(wanted, subject.keys, "key")
    if key >= subject.n_visible:
        raise UsageError.of(
            '{key}: {} comes after "{}", which may not see it; name one of {}',
            subject.keys[key],
            subject.query,
            ", ".join(subject.keys[: subject.n_visible]),
        )
    return key


def check_steps(record: StepRecord, tolerance: float) -> None:
    for step in record.steps:
        for check in step.checks:
            if not check.difference <= tolerance:
                raise TformerError.of(
                    "step {}, {}: differs by {:.2g} "
                    "from the model's own, more than {verify} {:.2g}; the "
                    "steps would not show what it computes",
                    step.number,
                    check.what,
                    check.difference,
                    tolerance,
                )


def _has_room(table: Table, *, is_alone: bool) -> bool:
    """True if a page shows a table: a report omits details and tables that are also maps."""
    if is_alone:
        return not table.is_detail or table.values.numel() <= DETAIL_CELLS
    return not table.is_detail and table.name not in MAP_TABLES


def _on_page(table: Table, data: dict[str, Any], quiz: Quiz, *, is_alone: bool) -> dict[str, Any]:
    """Adds how a table is drawn; in a report its first rows and components are kept, rounded."""
    n_columns = table.values.shape[1]
    values = data["values"]
    if quiz.blanks:
        # of the numbers themselves, for the answers follow from these digits
        exact = table.values[:, :COMPONENTS].tolist()
        values = [
            [
                None if shown is None else float(f"{value:.3f}")
                for shown, value in zip(*row, strict=False)
            ]
            for row in zip(values, exact, strict=True)
        ]
        data["columns"] = data["columns"][:COMPONENTS]
    elif not is_alone:
        n_kept = n_columns if table.columns else min(n_columns, COMPONENTS)
        values = [row[:n_kept] for row in values[:ROWS]]
        data["rows"] = data["rows"][:ROWS]
    blanks = {
        f"{i},{j}": blank.number
        for i, row in enumerate(table.values.tolist())
        for j, value in enumerate(row)
        if (blank := quiz.blank_of(value)) is not None
    }
    return data | {
        "width": n_columns,
        "share": table.share_column,
        "marked": table.marked_row,
        "is_detail": table.is_detail,
        "values": [
            [None if value is None else round(value, DIGITS) + 0.0 for value in row]
            for row in values
        ],
        "blanks": blanks,
    }


VIEW = StepView()
