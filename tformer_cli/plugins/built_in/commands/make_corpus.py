"""`tformer make-corpus`: the built-in corpora as files."""

from pathlib import Path
from typing import Literal

import typer

from tformer_cli.cli.options import QuietOption, argument, option_field
from tformer_cli.cli.progress import line_progress
from tformer_cli.cli.streams import note
from tformer_cli.text.config import MOST_PAIRS

# What a corpus is for: the names of `make_corpus.BUILT_IN`.
Task = Literal["translate", "rating", "copy", "reverse", "sort", "parity", "brackets", "image"]


def make_corpus(
    directory: Path = argument("DIR", "Directory to write the files to.", role="adds_files"),
    *,
    task: Task = option_field(
        "translate",
        "translate: English and French. rating: sentences with 1 to 5 stars. image: pictures of "
        "shapes. The others: strings with their answers.",
    ),
    pairs: int | None = option_field(
        None,
        "Number of training examples: sentence pairs, rated sentences, strings or pictures.",
        shown="50000; 8000 ratings; 4000 strings; 6000 pictures",
        min=1,
        max=MOST_PAIRS,
    ),
    seed: int = option_field(1, "Random seed; the same seed gives the same bytes.", min=0),
    quiet: QuietOption = False,
) -> None:
    """Write a built-in corpus to files: English and French, ratings, strings or pictures.

    DIR gets train, valid and test files. translate: .en and .fr (plain text), .tok.en and .tok.fr
    (words separated by spaces) and .align (gold alignments: Pharaoh links between those words).
    rating, parity (is the digit sum even or odd?) and brackets (balanced or not?): .txt, .label and
    .gold (positions of the deciding words, from 0). copy, reverse and sort: .source, .target and
    .align (which symbol comes from which). image: .images.idx, .label and .gold.idx (1 where the
    shape is), and some PNG files.

    Examples:
        tformer make-corpus corpus
        tformer make-corpus small --pairs 2000 --seed 7
        tformer make-corpus ratings --task rating
        tformer make-corpus sort --task sort
        tformer make-corpus shapes --task image
    """
    from tformer_cli.plugins.built_in.make_corpus import BUILT_IN
    from tformer_cli.plugins.built_in.make_corpus import make_corpus as workflow

    with line_progress(None, "writing", quiet=quiet) as progress:
        counts = workflow(directory, pairs, seed, progress.update, task=task)
    unit = BUILT_IN[task].unit
    note(", ".join(f"{n:,} {split}" for split, n in counts.items()) + f" {unit}", quiet=quiet)
    typer.echo(str(directory))
