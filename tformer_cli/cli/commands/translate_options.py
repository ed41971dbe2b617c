"""Options of `translate`: what is read and written, and what joins in the search."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tformer_cli.cli.help_screen import CONSTRAINTS, ENSEMBLES, FORMATS, LARGE_JOBS
from tformer_cli.cli.path_roles import PathRole
from tformer_cli.errors import UsageError


class OutputFormatChoice(StrEnum):
    """Values of `--format`."""

    text = "text"
    tsv = "tsv"
    jsonl = "jsonl"
    moses = "moses"


class AlignmentChoice(StrEnum):
    """Values of `--alignments`."""

    pharaoh = "pharaoh"
    soft = "soft"


class InputFormatChoice(StrEnum):
    """Values of `--input-format`."""

    text = "text"
    jsonl = "jsonl"


class EnsembleSpaceChoice(StrEnum):
    """Values of `--ensemble-space`."""

    probability = "probability"
    log = "log"


TextArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="TEXT", help="Sentences to translate; without any, -i or stdin."),
]
InputOption = Annotated[
    str | None,
    typer.Option(
        "--input",
        "-i",
        metavar="FILE",
        help="Input file, one sentence per line; - is stdin.",
        show_default="stdin",
    ),
    PathRole.reads_file,
]
NBestOption = Annotated[
    int,
    typer.Option(
        min=1,
        metavar="N",
        help="Translations per line, an n-best list; needs --format tsv, jsonl or moses. Beyond "
        "the beam size it raises the beam.",
    ),
]
BanOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TEXT",
        help="Phrase that must not occur in a translation. Repeatable.",
        rich_help_panel=CONSTRAINTS,
    ),
]
GlossaryOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Glossary for constrained decoding. Each line is SOURCE TAB TARGET: if the source "
        "phrase occurs, the translation must contain the target phrase. With TAB ban at the end, "
        "it must not.",
        rich_help_panel=CONSTRAINTS,
    ),
    PathRole.reads_file,
]
EnsembleOption = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="MODEL",
        help="Another model to decode with; it must have the same vocabulary. Repeatable.",
        rich_help_panel=ENSEMBLES,
    ),
    PathRole.reads_directory,
]
EnsembleWeightsOption = Annotated[
    str | None,
    typer.Option(
        metavar="W,W,…",
        help="Weights of the models, MODEL's first.",
        show_default="equal",
        rich_help_panel=ENSEMBLES,
    ),
]
EnsembleSpaceOption = Annotated[
    EnsembleSpaceChoice,
    typer.Option(
        help="Average the models' probabilities, or their log-probabilities.",
        rich_help_panel=ENSEMBLES,
    ),
]
BufferLinesOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Lines read before a buffer is translated; 1 answers line by line.",
        show_default="1024; 1 from a terminal",
        rich_help_panel=LARGE_JOBS,
    ),
]
MaxWaitOption = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        min=0.0,
        help="Translate a buffer this long after its first line, even if it is not full.",
        show_default="no limit",
        rich_help_panel=LARGE_JOBS,
    ),
]
ShardOption = Annotated[
    str | None,
    typer.Option(
        metavar="I/N",
        help="Translate only part I of N of the input, I from 0. `cat` joins the outputs.",
        show_default="all",
        rich_help_panel=LARGE_JOBS,
    ),
]
ResumeOption = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Continue an interrupted translation; needs -i and -o.",
        rich_help_panel=LARGE_JOBS,
    ),
]
OutputFormatOption = Annotated[
    OutputFormatChoice,
    typer.Option(
        "--format",
        help="text: one translation per line. tsv: index, source, translation, score. jsonl: one "
        "object per line. moses: index ||| translation ||| features ||| score.",
    ),
]
InputFormatOption = Annotated[
    InputFormatChoice,
    typer.Option(
        help='jsonl: one object per line, with the text in "source". Optional: "target_prefix" '
        'begins the translation, phrases in "required" must occur in it, phrases in "banned" must '
        "not. Other fields are passed through to jsonl output.",
        rich_help_panel=FORMATS,
    ),
]
AlignmentsOption = Annotated[
    AlignmentChoice | None,
    typer.Option(
        help="Add word alignments to tsv, jsonl or moses. pharaoh: links i-j of source and target "
        "words. soft: for each target word, the attention weights of the source words and the end "
        "of sentence. `tformer inspect-align --save` finds and stores the best heads first.",
        rich_help_panel=FORMATS,
    ),
]
TokenScoresOption = Annotated[
    bool,
    typer.Option(
        "--token-scores",
        help="Add tokens and their log-probabilities to jsonl.",
        rich_help_panel=FORMATS,
    ),
]
FlagsOption = Annotated[
    bool,
    typer.Option(
        "--flags",
        help="Add flags for endless repetition and signs of hallucination to jsonl.",
        rich_help_panel=FORMATS,
    ),
]


def weights_of(text: str | None) -> list[float] | None:
    """Reads the numbers of `--ensemble-weights`.

    Raises:
        UsageError: if one is none.
    """
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(
            f'--ensemble-weights: "{text}" is not a list of numbers; write 2,1,1'
        ) from None
