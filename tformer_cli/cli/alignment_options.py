"""Options of `inspect-align`: what is aligned, by which heads, and what becomes a link."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tformer_cli.cli.path_roles import PathRole


class ConventionChoice(StrEnum):
    """Values of `--convention`."""

    naive = "naive"
    shift = "shift"


class EosChoice(StrEnum):
    """Values of `--eos`."""

    drop = "drop"
    keep = "keep"


class MethodChoice(StrEnum):
    """Values of `--symmetrise`."""

    intersection = "intersection"
    union = "union"
    grow_diag = "grow-diag"
    grow_diag_final_and = "grow-diag-final-and"


TargetFileOption = Annotated[
    str | None,
    typer.Option(
        "--target-file",
        "--target",
        metavar="FILE",
        help="Align with these sentences, one for each, instead of the model's translations.",
    ),
    PathRole.reads_file,
]
SourceWordsOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="The sources with spaces between words, if links count others."
    ),
    PathRole.reads_file,
]
TargetWordsOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="The targets with spaces between words."),
    PathRole.reads_file,
]
HeadsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--heads",
        "--head",
        metavar="SELECTION",
        help="Cross-attention heads, of several the mean: cross.1.3, cross.2, cross.last "
        "[those stored, else the last layer but one].",
    ),
]
ConventionOption = Annotated[
    ConventionChoice | None,
    typer.Option(
        help="Which row is a target token's: the one that predicts it (naive), or the one that "
        "has read it (shift; SHIFT-ATT, Chen et al. 2020) [that of stored heads, else naive].",
        show_default=False,
    ),
]
ThresholdOption = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=1.0,
        help="Link all words from this weight on, not each target word with its heaviest.",
    ),
]
EosOption = Annotated[
    EosChoice,
    typer.Option(help="keep: a word that looks most at the end of sentence has no link."),
]
ReverseOption = Annotated[
    Path | None,
    typer.Option(metavar="MODEL", help="A model of the other direction, to align both ways."),
    PathRole.reads_directory,
]
MethodOption = Annotated[
    MethodChoice, typer.Option("--symmetrise", help="How to join both directions.")
]
