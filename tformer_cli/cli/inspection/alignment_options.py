"""Options of `inspect-align`: what is aligned, by which heads, and what becomes a link."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tformer_cli.cli.completion import complete_heads
from tformer_cli.cli.path_roles import PathRole

EXTRACTION = "Links"
"""The panel of options that decide what becomes a link."""


class ConventionChoice(StrEnum):
    """Values of `--convention`."""

    naive = "naive"
    shift = "shift"


class EosChoice(StrEnum):
    """Values of `--eos`."""

    drop = "drop"
    keep = "keep"


class MethodChoice(StrEnum):
    """Values of `--symmetrize`."""

    intersection = "intersection"
    union = "union"
    grow_diag = "grow-diag"
    grow_diag_final_and = "grow-diag-final-and"


TargetFileOption = Annotated[
    str | None,
    typer.Option(
        "--target-file",
        metavar="FILE",
        help="Target sentences, one per source line, to align with.",
        show_default="the model's translations",
    ),
    PathRole.reads_file,
]
SourceWordsOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="The source with spaces between words, if links should count these words.",
        show_default="the source's own spaces",
    ),
    PathRole.reads_file,
]
TargetWordsOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="The target with spaces between words, if links should count these words.",
        show_default="the target's own spaces",
    ),
    PathRole.reads_file,
]
HeadsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--heads",
        metavar="HEADS",
        help="Cross-attention heads to align with, such as cross.1.3, cross.2 or cross.last; "
        "several are averaged. Repeatable.",
        show_default="those stored by --save, else the last layer but one",
        rich_help_panel=EXTRACTION,
        autocompletion=complete_heads,
    ),
]
ConventionOption = Annotated[
    ConventionChoice | None,
    typer.Option(
        help="Which decoder position stands for a target token: the one that predicts it (naive), "
        "or the one that has read it (shift; SHIFT-ATT, Chen et al. 2020).",
        show_default="that of the stored heads, else naive",
        rich_help_panel=EXTRACTION,
    ),
]
ThresholdOption = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=1.0,
        metavar="X",
        help="Link all word pairs with at least this attention weight, from 0 to 1.",
        show_default="each target word's largest weight",
        rich_help_panel=EXTRACTION,
    ),
]
EosOption = Annotated[
    EosChoice,
    typer.Option(
        help="The weight on the end of sentence: ignore it (drop), or give a word that attends "
        "most to it no link (keep).",
        rich_help_panel=EXTRACTION,
    ),
]
ReverseOption = Annotated[
    Path | None,
    typer.Option(
        metavar="MODEL",
        help="A model of the reverse direction, to align both ways.",
        rich_help_panel=EXTRACTION,
    ),
    PathRole.reads_directory,
]
MethodOption = Annotated[
    MethodChoice,
    typer.Option(
        "--symmetrize",
        metavar="METHOD",
        help="How to join both directions of --reverse: intersection, union, grow-diag or "
        "grow-diag-final-and.",
        rich_help_panel=EXTRACTION,
    ),
]
