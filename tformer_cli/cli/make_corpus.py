"""`tformer make-corpus`: the built-in English-French corpus as files."""

from pathlib import Path
from typing import Annotated

import typer

from tformer_cli.cli.console import is_live, note, stderr_console
from tformer_cli.cli.options import QuietOption


def make_corpus(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write the files.")],
    *,
    pairs: Annotated[int, typer.Option(min=1, help="Training pairs to generate.")] = 50_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed; the same seed gives the same bytes.")] = 1,
    quiet: QuietOption = False,
) -> None:
    """Write the built-in English-French corpus with gold word alignments.

    The files are train, valid and test, each as .en and .fr (ordinary text), .tok.en and .tok.fr
    (words apart) and .align (Pharaoh links between those words).
    """
    from rich.progress import MofNCompleteColumn, Progress, TextColumn

    from tformer_cli.workflows.make_corpus import make_corpus as workflow

    columns = (TextColumn("writing pairs"), *Progress.get_default_columns()[1:2])
    shown = is_live() and not quiet
    with Progress(
        *columns, MofNCompleteColumn(), console=stderr_console(), transient=True, disable=not shown
    ) as progress:
        task = progress.add_task("", total=None)
        counts = workflow(directory, pairs, seed, lambda n: progress.update(task, completed=n))
    note(", ".join(f"{n:,} {split}" for split, n in counts.items()) + " pairs", quiet=quiet)
    typer.echo(str(directory))
