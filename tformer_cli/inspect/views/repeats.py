"""The heads of a language model on random tokens that come twice: induction and its like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tformer_cli.inspect.view import NoOptions, View, with_half
from tformer_cli.show.document import Block, Room, Row, Table, text
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tformer_cli.inspect.heads.repeats import Repeats

LEGEND = (
    "previous: weight on the token before; duplicate: on the same token in the first copy; "
    "induction: on the token after it there; first: on the first position. Means over the second "
    "copy, with half the width of their 95 % intervals; role: a score above 0.5"
)


class RepeatsView(View["Repeats"]):
    """Shows what heads look at by content."""

    name = "repeats"
    title = "Heads on repeated random tokens"
    formats = ("text", "jsonl")
    tasks = ("language-model",)

    def lines(self, record: Repeats, options: NoOptions) -> Iterator[dict[str, Any]]:
        return (record.describe(one) for one in record.heads)

    def blocks(self, record: Repeats, options: NoOptions, room: Room) -> Iterator[Block]:
        from tformer_cli.inspect.heads.repeats import SCORES

        yield text(
            (record.model, "bold"),
            f"  {count_of(record.n_blocks, 'block')} of {record.length} random tokens, twice   "
            f"loss {record.losses[0]:.3f} and {record.losses[1]:.3f} nats per token",
        )
        rows: list[Row] = [
            [
                *(str(one.head), one.role),
                *(with_half(one.scores[name], *one.intervals[name]) for name in SCORES),
            ]
            for one in record.heads
        ]
        yield Table(head=("head", "role", *SCORES), rows=rows, labels=(), texts=(0, 1))
        yield text(LEGEND, style="dim")


VIEW = RepeatsView()
