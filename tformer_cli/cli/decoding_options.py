"""Options of the search, shared by the commands that translate."""

from enum import StrEnum
from typing import Annotated

import typer


class TooLongChoice(StrEnum):
    """Values of `--too-long`."""

    in_parts = "split"
    cut_off = "truncate"
    stop = "error"


BeamSizeOption = Annotated[
    int | None,
    typer.Option(min=1, help="Hypotheses kept for each line; 1 is greedy search [the model's]."),
]
LengthPenaltyOption = Annotated[
    float | None,
    typer.Option(
        min=0.0, help="Exponent A of ((5 + T)/6)^A, which divides log-probabilities [the model's]."
    ),
]
MaxLengthOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Most tokens of a translation [by the source's length, as the model's defaults say].",
    ),
]
BatchTokensOption = Annotated[
    int | None, typer.Option(min=1, help="Source tokens translated together [the model's].")
]
TooLongOption = Annotated[
    TooLongChoice,
    typer.Option(
        help="A line longer than the model takes: translate it in parts, cut it off, or stop."
    ),
]
