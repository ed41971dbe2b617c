"""Options of `translate`: what is read and written, and what joins in the search."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

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
    typer.Argument(metavar="TEXT", help="What to translate; without it, -i or stdin."),
]
InputOption = Annotated[
    str | None,
    typer.Option("--input", "-i", metavar="FILE", help="File to translate (- or nothing: stdin)."),
    PathRole.reads_file,
]
NBestOption = Annotated[
    int, typer.Option(min=1, help="Translations of each line (with tsv, jsonl or moses).")
]
BanOption = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help="Tokens no translation may hold in a row; repeatable."),
]
GlossaryOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Lines of source TAB target: where the source phrase stands, the translation "
        "must hold the target phrase; with TAB ban after them, must not.",
    ),
    PathRole.reads_file,
]
EnsembleOption = Annotated[
    list[Path] | None,
    typer.Option(metavar="MODEL", help="Another model, of one vocabulary, to join in; repeatable."),
    PathRole.reads_directory,
]
EnsembleWeightsOption = Annotated[
    str | None,
    typer.Option(metavar="W,W,…", help="How much the models count, MODEL's first [equally]."),
]
EnsembleSpaceOption = Annotated[
    EnsembleSpaceChoice, typer.Option(help="Average probabilities, or their logarithms.")
]
BufferLinesOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Lines read before they are translated together; 1 answers line by line "
        "[1024; from a terminal 1].",
    ),
]
MaxWaitOption = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        min=0.0,
        help="Translate a buffer so long after its first line although it is not full.",
    ),
]
ShardOption = Annotated[
    str | None,
    typer.Option(
        metavar="I/N",
        help="Translate the I-th of N parts of the input, from 0; `cat` joins the outputs.",
    ),
]
ResumeOption = Annotated[
    bool,
    typer.Option("--resume", help="Go on behind what an earlier run of this command has written."),
]
OutputFormatOption = Annotated[
    OutputFormatChoice,
    typer.Option(
        "--format",
        help="text: a line for a line. tsv: index, source, translation, score. jsonl: an "
        "object a line. moses: index ||| translation ||| features ||| score.",
    ),
]
InputFormatOption = Annotated[
    InputFormatChoice,
    typer.Option(
        help='jsonl: objects with the text under "source"; "target_prefix" begins the '
        'translation, which holds the phrases of the list "required" and none of "banned". '
        "All other fields are passed through to jsonl output."
    ),
]
AlignmentsOption = Annotated[
    AlignmentChoice | None,
    typer.Option(
        help="Add what each word comes from (tsv, jsonl or moses): links i-j of source and "
        "target words, or for each target word the weights of the source words and of the end "
        "of sentence. By the heads that `tformer inspect-align --save` stored.",
        show_default=False,
    ),
]
TokenScoresOption = Annotated[
    bool,
    typer.Option("--token-scores", help="jsonl: the tokens and their log-probabilities, too."),
]
FlagsOption = Annotated[
    bool,
    typer.Option("--flags", help="jsonl: name signs of endless repetition or hallucination, too."),
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
            f'--ensemble-weights: "{text}" is no list of numbers; write 2,1,1'
        ) from None
