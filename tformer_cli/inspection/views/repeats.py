"""The heads of a language model on random tokens that come twice: induction and its like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from tformer_cli.inspection.view import NoOptions, View
from tformer_cli.show.terminal import Column, is_ascii_only, print_lines, shown, table_lines
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from tformer_cli.inspection.heads.repeats import HeadRepeats, Repeats

LEGEND = (
    "previous: weight on the token before; duplicate: on the same token in the first copy; "
    "induction: on the token after it there; first: on the first position. Means over the second "
    "copy, with half the width of their 95 % intervals; role: a score above 0.5"
)


def show_repeats(console: Console, repeats: Repeats) -> None:
    """Prints the scores of every head, and the loss of both copies."""
    from tformer_cli.inspection.heads.repeats import SCORES

    is_ascii = is_ascii_only(console)
    facts = Text.assemble((shown(repeats.model, is_ascii=is_ascii), "bold"))
    facts.append(f"  {count_of(repeats.n_blocks, 'block')} of {repeats.length} random tokens, ")
    facts.append(f"twice   loss {repeats.losses[0]:.3f} and {repeats.losses[1]:.3f} nats per token")
    console.print(facts)
    columns = [
        Column("head", [str(one.head) for one in repeats.heads], at_left=True),
        Column("role", [one.role for one in repeats.heads], at_left=True),
    ]
    columns += [
        Column(name, [_cell(one, name, is_ascii) for one in repeats.heads]) for name in SCORES
    ]
    print_lines(console, table_lines(columns, console.width))
    console.print(Text(LEGEND, style="dim"))


def _cell(one: HeadRepeats, name: str, is_ascii: bool) -> Text:
    low, high = one.intervals[name]
    half = f"{(high - low) / 2:.2f}".removeprefix("0")
    return Text.assemble(f"{one.scores[name]:.2f}", (f"{'+-' if is_ascii else '±'}{half}", "dim"))


class RepeatsView(View["Repeats"]):
    """Shows what heads look at by content."""

    name = "repeats"
    title = "Heads on repeated random tokens"
    formats = ("text", "jsonl")
    tasks = ("language-model",)

    def lines(self, record: Repeats, options: NoOptions) -> Iterator[dict[str, Any]]:
        return (record.describe(one) for one in record.heads)

    def text(self, console: Console, record: Repeats, options: NoOptions) -> None:
        show_repeats(console, record)


VIEW = RepeatsView()
