"""`tformer make-corpus`: the built-in English-French corpus as files."""

from pathlib import Path
from typing import Annotated

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
    pairs: Annotated[
        int,
        option("Sentence pairs for training.", min=1, max=MOST_PAIRS),
    ] = 50_000,
    seed: Annotated[
        int,
        option("Random seed; the same seed gives the same bytes.", min=0),
    ] = 1,
    quiet: QuietOption = False,
) -> None:
    """Write the built-in English-French corpus to files.

    The files are train, valid and test, each as .en and .fr (ordinary text), .tok.en and .tok.fr
    (words separated by spaces) and .align (gold alignments: Pharaoh links between those words).

    Examples:
        tformer make-corpus corpus
        tformer make-corpus small --pairs 2000 --seed 7
    """
    from tformer_cli.workflows.make_corpus import make_corpus as workflow

    with line_progress(None, "writing", quiet=quiet) as progress:
        counts = workflow(directory, pairs, seed, progress.update)
    note(", ".join(f"{n:,} {split}" for split, n in counts.items()) + " pairs", quiet=quiet)
    typer.echo(str(directory))
