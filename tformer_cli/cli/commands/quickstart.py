"""`tformer quickstart`: trains a model from nothing and shows its heads."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tformer_cli.cli.console import stdout_console
from tformer_cli.cli.options import (
    DeviceOption,
    QuietOption,
    ThreadsOption,
    TrainingSeedOption,
    option,
)
from tformer_cli.cli.path_roles import PathRole
from tformer_cli.cli.process import prepare_torch
from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from tformer_cli.workflows.quickstart import QuickstartResult
    from tformer_cli.workflows.quickstart_language_model import LanguageModelResult
    from tformer_cli.workflows.quickstart_ratings import RatingsResult
    from tformer_cli.workflows.quickstart_shapes import ShapesResult


Task = Literal["translate", "rating", "language-model", "image"]
"""What is trained: the names of `QUICKSTARTS`."""


def quickstart(
    *,
    output: Annotated[
        Path | None,
        option(
            "Run directory to write, which is a model directory.",
            "--output",
            "-o",
            shown="runs/quickstart; of other tasks runs/ratings, runs/sentences, runs/shapes",
            metavar="RUN",
        ),
        PathRole.writes_run,
    ] = None,
    task: Annotated[
        Task,
        option(
            "translate: English to French. rating: sentences to 1 to 5 stars. language-model: "
            "English sentences. image: pictures to the shapes in them."
        ),
    ] = "translate",
    seed: TrainingSeedOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Train a small model in minutes, and look inside it.

    It learns the built-in corpus, translates, is scored, and gets a page that shows every head.
    Nothing is downloaded. Training takes about three minutes on two CPU cores; after a second it
    says how long here. The same command again resumes. With --task rating a classifier learns the
    built-in ratings in a minute or two, and rates what it never saw; with --task language-model a
    decoder alone learns the English sentences, is scored in bits per byte, and writes some; with
    --task image a model of images tells shapes apart, and its page shows where each head looks.

    Examples:
        tformer quickstart
        tformer quickstart -o runs/other --seed 2
        tformer quickstart --task rating
        tformer quickstart --task language-model
        tformer quickstart --task image
    """
    from tformer_cli.cli.commands.training_progress import training_progress
    from tformer_cli.recipe import load_recipe
    from tformer_cli.training.processes.launch import launched, one_error_per_node

    with one_error_per_node():
        if launched().world_size > 1:
            raise UsageError("torchrun: quickstart runs in one process; use `train quickstart`")
    prepare_torch(threads)
    chosen = QUICKSTARTS[task]
    run = output or Path("runs", chosen.recipe)
    recipe = load_recipe(chosen.recipe, [] if seed is None else [f"training.seed={seed}"])
    module = import_module(f"tformer_cli.workflows.{chosen.workflow}")
    with training_progress(quiet=quiet) as view:
        result = getattr(module, chosen.workflow)(
            run, recipe=recipe, device=device, observers=[view], progress=view.prepare
        )
    show = chosen.show
    show(stdout_console(), result, run)


def show_ratings(console: "Console", result: "RatingsResult", run: Path) -> None:
    """Prints sentences with their stars, scores and the next commands."""
    from rich.table import Table
    from rich.text import Text

    from tformer_cli.terminal.labels import is_ascii_only

    full, empty = "*." if is_ascii_only(console) else "★☆"
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for text, stars, right in result.samples:
        shown = full * int(stars) + empty * (5 - int(stars))
        correction = "" if stars == right else f"  (right: {right})"
        table.add_row(shown, Text(f"{text}{correction}"))
    console.print(table)
    scores = result.evaluation.scores
    console.print(
        f"\n{scores.n_examples:,} sentences with combinations of words never seen: "
        f"[bold]accuracy {100 * scores.accuracy:.1f}, macro F1 {100 * scores.macro_f1:.1f}[/]\n"
    )
    for line in (
        f"Every head of the first two sentences: open {result.page} in a browser. Next, try:",
        f'  tformer classify {run} "The soup was not bad." --format jsonl --top 0',
        "  tformer make-corpus ratings --task rating --pairs 8000",
        f"  tformer evaluate {run} -i ratings/test.txt --reference ratings/test.label",
        "  tformer guide classifying   # your own texts and labels",
    ):
        console.print(Text(line), soft_wrap=True)


def show_language_model(console: "Console", result: "LanguageModelResult", run: Path) -> None:
    """Prints what a language model has written, its scores and the next commands."""
    from rich.text import Text

    for prompt, text in result.samples:
        console.print(Text.assemble((prompt, "bold"), text, overflow="fold"))
    scores = result.evaluation.scores
    console.print(
        f"\n{result.n_test:,} unseen sentences: [bold]{scores.bits_per_byte:.3f} bits per byte, "
        f"perplexity {scores.perplexity:.1f}[/] a token\n"
    )
    for line in (
        f"Every head of two sentences: open {result.page} in a browser. Next, try:",
        f'  tformer generate {run} "The cat" --temperature 0.5',
        f'  tformer inspect-logits {run} "The animal was tired." --lens',
        "  tformer make-corpus corpus --pairs 20000",
        f"  tformer evaluate {run} --text corpus/test.en",
        "  tformer guide language-models   # your own texts",
    ):
        console.print(Text(line), soft_wrap=True)


def show_shapes(console: "Console", result: "ShapesResult", run: Path) -> None:
    """Prints pictures with their labels, scores and the next commands."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, label, right in result.samples:
        correction = "" if label == right else f"  (right: {right})"
        table.add_row(Text(label, style="bold"), Text(f"{name}{correction}"))
    console.print(table)
    scores = result.evaluation.scores
    console.print(
        f"\n{scores.n_examples:,} unseen pictures: [bold]accuracy {100 * scores.accuracy:.1f}, "
        f"macro F1 {100 * scores.macro_f1:.1f}[/]\n"
    )
    for line in (
        f"Every head of these pictures: open {result.page} in a browser. Next, try:",
        f"  tformer inspect-image {run} shapes:test:1#0",
        "  tformer make-corpus shapes --task image",
        f"  tformer classify {run} shapes/pictures/*/*.png --format tsv",
        f"  tformer evaluate {run} --images shapes/test.images.idx --reference shapes/test.label",
        "  tformer guide images   # your own images",
    ):
        console.print(Text(line), soft_wrap=True)


def show_quickstart(console: "Console", result: "QuickstartResult", run: Path) -> None:
    """Prints samples, scores and the next commands."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for sample in result.samples:
        is_right = sample.translation == sample.reference
        table.add_row(Text("en", style="dim"), Text(sample.source))
        table.add_row(Text("fr", style="green" if is_right else "yellow"), Text(sample.translation))
        if not is_right:
            table.add_row(Text("ref", style="dim"), Text(sample.reference, style="dim"))
    console.print(table)
    scores = ", ".join(f"{score.name} {score.value:.1f}" for score in result.evaluation.scores)
    console.print(f"\n{result.n_test:,} unseen test sentences: [bold]{scores}[/]\n")
    for line in next_commands(run, result.page):
        console.print(Text(line), soft_wrap=True)


def next_commands(run: Path, page: Path) -> list[str]:
    """Lists commands worth typing after the quickstart."""
    return [
        f"Every head of the first two sentences: open {page} in a browser. Next, try:",
        f'  echo "The cat saw the old house." | tformer translate {run}',
        f'  tformer translate {run} --n-best 3 --format jsonl "My sister was tired."',
        f'  tformer inspect-heads {run} "The animal was tired because it crossed the street."',
        "  tformer make-corpus corpus --pairs 50000",
        f"  tformer evaluate {run} --source corpus/test.en --reference corpus/test.fr",
        "  tformer guide training   # your own data",
    ]


@dataclass(frozen=True, kw_only=True)
class Quickstart:
    """A quickstart: what trains, and how its result is shown."""

    recipe: str
    """Name of the recipe, and of the run below `runs`."""
    workflow: str
    """Name of the workflow's function and of its module."""
    show: Callable[["Console", Any, Path], None]
    """Prints the result, given the run directory."""


QUICKSTARTS: Mapping[str, Quickstart] = MappingProxyType(
    {
        "translate": Quickstart(recipe="quickstart", workflow="quickstart", show=show_quickstart),
        "rating": Quickstart(recipe="ratings", workflow="quickstart_ratings", show=show_ratings),
        "language-model": Quickstart(
            recipe="sentences", workflow="quickstart_language_model", show=show_language_model
        ),
        "image": Quickstart(recipe="shapes", workflow="quickstart_shapes", show=show_shapes),
    }
)
"""The quickstarts by their tasks."""
