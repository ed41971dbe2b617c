"""Options of commands that read lines with an encoder: long lines, buffers, and their progress."""

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from tformer_cli.cli.help import LARGE_JOBS
from tformer_cli.cli.options import option, option_field

TextsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="TEXT", help="Texts; without any, -i or stdin."),
]
EncoderPrecisionOption = Annotated[
    Literal["auto", "float32", "bfloat16"],
    option("Precision to compute in. auto is float32."),
]


@dataclass(frozen=True, kw_only=True)
class LineOptions:
    """Options of long lines and of buffers."""

    too_long: Literal["truncate", "error"] = option_field(
        "truncate", "Treatment of lines longer than the model takes."
    )
    buffer_lines: int | None = option_field(
        None,
        "Lines read before a buffer is computed; 1 answers line by line.",
        panel=LARGE_JOBS,
        shown="1024; 1 from a terminal",
        min=1,
    )
    max_wait: float | None = option_field(
        None,
        "Compute a buffer that is not full N seconds after its first line.",
        panel=LARGE_JOBS,
        shown="none",
        min=0.0,
    )

    def size(self, usual: int, *, is_typed: bool) -> int:
        """Lines of a buffer: one at a time where they are typed."""
        return self.buffer_lines or (1 if is_typed else usual)
