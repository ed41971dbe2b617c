"""A walk-through on a terminal: steps, formulas and numbers, as many as fit the width."""

import math
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from tformer_cli.cli.fitted_table import NARROWEST_LABEL
from tformer_cli.cli.labels import (
    cut,
    is_ascii_only,
    left_aligned,
    right_aligned,
    sentence_lines,
    shown,
)

if TYPE_CHECKING:
    from tformer_cli.inspection.walkthrough.quiz import Quiz
    from tformer_cli.inspection.walkthrough.step import Step, StepRecord, Table

INDENT = 4
LABEL_WIDTH, NUMBER_WIDTH = 18, 8
"""Most columns of a row's label; columns of a number, the gap before it included."""
BAR_WIDTH, SHORTEST_BAR = 24, 4
"""Columns of a bar at most, and those below which there is none."""
ASCII = str.maketrans(
    {
        "√": "sqrt ",
        "·": "*",
        "Σ": "sum",
        "−": "-",
        "∞": "inf",
        "÷": "/",
        "…": "..",
        "ᵀ": "^T",
        "μ": "mu",
        "σ": "sigma",
        "²": "^2",
        "ε": "eps",
        "γ": "gamma",
        "β": "beta",
        "✓": "ok",
        "█": "#",
        "→": ">",
        "▁": "_",
    }
)
"""ASCII forms of signs for terminals that are not UTF-8."""


def show_steps(console: Console, record: "StepRecord", quiz: "Quiz | None") -> None:
    """Prints a walk-through; on a worksheet the blanks are numbered gaps."""
    StepView(console, quiz).show(record)


class StepView:
    """Prints the steps of a walk-through on a console."""

    def __init__(self, console: Console, quiz: "Quiz | None") -> None:
        """Takes where to print, and the blanks of a worksheet."""
        self._console = console
        self._quiz = quiz
        self._is_ascii = is_ascii_only(console)

    def show(self, record: "StepRecord") -> None:
        """Prints the heading, every step and what the checks found."""
        from tformer_cli.inspection.capture.heads import KIND_NAMES

        sentence = record.sentence
        facts = Text.assemble(
            (self._plain(sentence.model.name), "bold"),
            f"  {KIND_NAMES[record.head.kind]}, layer {record.head.layer}, head "
            f"{record.head.head} ({record.head}), {record.norm}-norm",
        )
        self._console.print(facts)
        name = "given target" if sentence.is_forced else "translation"
        rows = [
            ("source", sentence.source),
            (name, sentence.target),
            ("token", self._plain(record.where)),
            ("example", self._plain(record.example)),
        ]
        self._console.print(sentence_lines(self._console, rows))
        for step in record.steps:
            self._show_step(step)
        checks = [check for step in record.steps for check in step.checks]
        self._console.print()
        self._line(
            f"✓ {len(checks)} comparisons with the model's own numbers, largest difference "
            f"{record.difference:.1e}",
            "bold green",
        )

    def _show_step(self, step: "Step") -> None:
        self._console.print()
        self._line(f"{step.number:>2}  {step.title}", "bold")
        for formula in step.formulas:
            self._paragraph(formula, "cyan")
        self._paragraph(step.says, "dim")
        for table in step.tables:
            if not table.is_detail:
                self._show_table(table)
        if step.worked:
            self._paragraph(f"e.g. {step.worked}", "italic")
        if step.difference is not None:
            names = ", ".join(check.what for check in step.checks)
            found = f"✓ as the model: {names}; max difference {step.difference:.1e}"
            self._paragraph(found, "green")

    def _show_table(self, table: "Table") -> None:
        """Prints a table; of many components or keys the first ones, of named columns all."""
        n_columns = table.values.shape[1]
        is_named = table.share_column is not None
        labels = [self._plain(row) for row in table.rows]
        heads = [self._plain(c) for c in table.columns] or [str(c) for c in range(n_columns)]
        widths = [max(NUMBER_WIDTH, cell_len(head) + 2 if is_named else 0) for head in heads]
        room = self._console.width - INDENT - 2
        label_width = min(LABEL_WIDTH, max(map(cell_len, labels)))
        if is_named:
            label_width = max(NARROWEST_LABEL, min(label_width, room - sum(widths)))
        room -= label_width
        n_shown = n_columns if is_named else max(1, min(n_columns, room // NUMBER_WIDTH))
        bar = min(BAR_WIDTH, room - sum(widths) - 2)
        elided = f", first {n_shown} of {n_columns}" if n_shown < n_columns else ""
        self._paragraph(table.caption + elided, "underline")
        header = Text(" " * (INDENT + label_width + 2), style="dim")
        for head, width in zip(heads[:n_shown], widths, strict=False):
            header.append(self._right(head, width))
        self._print(header)
        for place, (label, row) in enumerate(zip(labels, table.values.tolist(), strict=True)):
            is_marked = place == table.marked_row
            line = Text(" " * (INDENT - 2), style="bold" if is_marked else "")
            line.append(self._plain("→ ") if is_marked else "  ")
            kept = cut(label, label_width, is_ascii=self._is_ascii)
            line.append(left_aligned(kept, label_width) + "  ")
            for value, width in zip(row[:n_shown], widths, strict=False):
                line.append(self._right(self._number(value), width))
            if table.share_column is not None:
                line.append_text(self._bar(row[table.share_column], bar))
            self._print(line)

    def _right(self, text: str, width: int) -> str:
        """A text at the right of its column, with a gap before it."""
        return " " + right_aligned(cut(text, width - 1, is_ascii=self._is_ascii), width - 1)

    def _number(self, value: float) -> str:
        blank = None if self._quiz is None else self._quiz.blank_of(value)
        if blank is not None:
            return f"({blank.number})__"
        if math.isinf(value):
            return self._plain("−∞")
        return self._plain(f"{value:z.3f}" if abs(value) < 1000 else f"{value:.3g}")

    def _bar(self, share: float, width: int) -> Text:
        if width < SHORTEST_BAR:
            return Text()
        if self._quiz is not None and self._quiz.blank_of(share) is not None:
            return Text()
        return Text("  " + self._plain("█") * round(width * share), style="cyan")

    def _plain(self, text: str) -> str:
        signs = text.translate(ASCII) if self._is_ascii else text
        return shown(signs, is_ascii=self._is_ascii)

    def _line(self, text: str, style: str) -> None:
        self._console.print(Text(self._plain(text), style=style))

    def _paragraph(self, text: str, style: str) -> None:
        """Prints a text behind the indent, in as many lines as it takes."""
        padded = Padding(Text(self._plain(text), style), (0, 0, 0, INDENT), expand=False)
        self._console.print(padded)

    def _print(self, line: Text) -> None:
        self._console.print(line, no_wrap=True, overflow="crop", crop=True)
