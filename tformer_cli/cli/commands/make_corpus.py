"""`tformer make-corpus`: the built-in corpora as files."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from tformer_cli.cli.console import note
from tformer_cli.cli.line_progress import line_progress
from tformer_cli.cli.options import QuietOption, option
from tformer_cli.cli.path_roles import PathRole
from tformer_cli.data.config import MOST_PAIRS


def make_corpus(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Directory to write the files to."),
        PathRole.adds_files,
    ],
    *,
    task: Annotated[
        Literal["translate", "rating"],
        option("translate: English and French. rating: sentences with 1 to 5 stars."),
    ] = "translate",
    pairs: Annotated[
        int | None,
        option(
            "Sentence pairs, or sentences with stars, for training.",
            shown="50000; 8000 of ratings",
            min=1,
            max=MOST_PAIRS,
        ),
    ] = None,
    seed: Annotated[
        int,
        option("Random seed; the same seed gives the same bytes.", min=0),
    ] = 1,
    quiet: QuietOption = False,
) -> None:
    """Write the built-in English-French corpus, or ratings, to files.

    The files are train, valid and test, each as .en and .fr (ordinary text), .tok.en and .tok.fr
    (words separated by spaces) and .align (gold alignments: Pharaoh links between those words).
    Ratings are .txt, .label (the stars) and .gold (places of the words that decide, from 0).

    Examples:
        tformer make-corpus corpus
        tformer make-corpus small --pairs 2000 --seed 7
        tformer make-corpus ratings --task rating
    """
    from tformer_cli.workflows import make_corpus as workflow

    write, n_default, what = workflow.make_corpus, 50_000, "pairs"
    if task == "rating":
        write, n_default, what = workflow.make_ratings, 8000, "sentences"
    with line_progress(None, "writing", quiet=quiet) as progress:
        counts = write(directory, pairs or n_default, seed, progress.update)
    note(", ".join(f"{n:,} {split}" for split, n in counts.items()) + f" {what}", quiet=quiet)
    typer.echo(str(directory))
