"""A walk-through on a terminal: steps, formulas and numbers, as many as fit the width."""

import math
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from tformer_cli.data.labels import visible

if TYPE_CHECKING:
    from tformer_cli.inspection.quiz import Quiz
    from tformer_cli.inspection.step import Step, StepRecord, Table

INDENT = 4
LABEL_WIDTH, NUMBER_WIDTH = 16, 8
"""Most columns of a row's label; columns of a number, the gap before it included."""
BAR_WIDTH = 24
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
"""How signs are written where the terminal is not UTF-8."""


def show_steps(console: Console, record: "StepRecord", quiz: "Quiz | None") -> None:
    """Prints a walk-through; on a worksheet the blanks are numbered gaps."""
    StepView(console, quiz).show(record)


class StepView:
    """Prints the steps of a walk-through on a console."""

    def __init__(self, console: Console, quiz: "Quiz | None") -> None:
        """Takes where to print, and the blanks of a worksheet."""
        self._console = console
        self._quiz = quiz
        self._is_ascii = not console.encoding.lower().startswith("utf")

    def show(self, record: "StepRecord") -> None:
        """Prints the heading, every step and what the checks found."""
        from tformer_cli.inspection.heads import KIND_NAMES

        sentence = record.sentence
        facts = Text.assemble(
            (sentence.model.name, "bold"),
            f"  {KIND_NAMES[record.head.kind]}, layer {record.head.layer}, head "
            f"{record.head.head} ({record.head}), {record.norm}-norm",
        )
        self._console.print(facts)
        grid = Grid.grid(padding=(0, 2))
        name = "given target" if sentence.is_forced else "translation"
        rows = (
            ("source", sentence.source),
            (name, sentence.target),
            ("token", record.where),
            ("worked out", record.example),
        )
        for label, text in rows:
            grid.add_row(Text(label, style="dim"), Text(self._plain(text)))
        self._console.print(grid)
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
            self._line(" " * INDENT + formula, "cyan")
        says = Padding(Text(self._plain(step.says), style="dim"), (0, 0, 0, INDENT), expand=False)
        self._console.print(says)
        for table in step.tables:
            if not table.is_detail:
                self._show_table(table)
        if step.worked:
            self._console.print(
                Padding(
                    Text(self._plain(f"e.g. {step.worked}"), style="italic"),
                    (0, 0, 0, INDENT),
                    expand=False,
                )
            )
        if step.difference is not None:
            names = ", ".join(check.what for check in step.checks)
            found = f"✓ as the model: {names}; max difference {step.difference:.1e}"
            self._console.print(
                Padding(Text(self._plain(found), style="green"), (0, 0, 0, INDENT), expand=False)
            )

    def _show_table(self, table: "Table") -> None:
        n_columns = table.values.shape[1]
        labels = [self._plain(row) for row in table.rows]
        label_width = min(LABEL_WIDTH, max(map(cell_len, labels)))
        heads = [self._plain(c) for c in table.columns] or [str(c) for c in range(n_columns)]
        widths = [self._column_width(table, head) for head in heads]
        room = self._console.width - INDENT - label_width - 2
        n_shown = sum(sum(widths[: c + 1]) <= room for c in range(n_columns)) or 1
        elided = f", first {n_shown} of {n_columns}" if n_shown < n_columns else ""
        caption = Text(" " * INDENT)
        caption.append(self._plain(table.caption) + elided, style="underline")
        header = Text(" " * (INDENT + label_width + 2), style="dim")
        for head, width in zip(heads[:n_shown], widths, strict=False):
            header.append(_right(head, width))
        self._print(caption)
        self._print(header)
        for place, (label, row) in enumerate(zip(labels, table.values.tolist(), strict=True)):
            is_marked = place == table.marked_row
            line = Text(" " * (INDENT - 2), style="bold" if is_marked else "")
            line.append(self._plain("→ ") if is_marked else "  ")
            line.append(_left(label, label_width) + "  ")
            for value, width in zip(row[:n_shown], widths, strict=False):
                line.append(_right(self._number(value), width))
            if table.share_column is not None and table.share_column < n_shown:
                line.append_text(self._bar(row[table.share_column]))
            self._print(line)

    def _column_width(self, table: "Table", head: str) -> int:
        """Named columns are as wide as their names; keys' names are cut instead."""
        return max(NUMBER_WIDTH, cell_len(head) + 2) if table.share_column is not None else 8

    def _number(self, value: float) -> str:
        blank = None if self._quiz is None else self._quiz.blank_of(value)
        if blank is not None:
            return f"({blank.number})__"
        if math.isinf(value):
            return self._plain("−∞")
        return self._plain(f"{value:z.3f}" if abs(value) < 1000 else f"{value:.3g}")

    def _bar(self, share: float) -> Text:
        if self._quiz is not None and self._quiz.blank_of(share) is not None:
            return Text()
        return Text("  " + self._plain("█") * round(BAR_WIDTH * share), style="cyan")

    def _plain(self, text: str) -> str:
        text = visible(text)
        return text.translate(ASCII) if self._is_ascii else text

    def _line(self, text: str, style: str) -> None:
        self._print(Text(self._plain(text), style=style))

    def _print(self, line: Text) -> None:
        self._console.print(line, no_wrap=True, overflow="ellipsis", crop=True)


def _right(text: str, width: int) -> str:
    """A text at the right of its column, with a gap before it."""
    shown = set_cell_size(text, width - 1) if cell_len(text) > width - 1 else text
    return " " * (width - cell_len(shown)) + shown


def _left(text: str, width: int) -> str:
    return set_cell_size(text, width)
