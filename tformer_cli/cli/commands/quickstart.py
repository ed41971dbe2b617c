"""`tformer quickstart`: trains a model from nothing and shows its heads."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tformer_cli.cli.options import (
    DeviceOption,
    PathRole,
    QuietOption,
    ThreadsOption,
    TrainingSeedOption,
    option,
    prepare_torch,
)
from tformer_cli.cli.streams import stdout_console
from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from tformer_cli.evaluate.evaluate import Evaluation, LabelEvaluation, TextEvaluation
    from tformer_cli.quickstart import QuickstartResult


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
    from tformer_cli.kinds import training_of
    from tformer_cli.quickstart import quickstart as run_quickstart
    from tformer_cli.recipe import load_recipe
    from tformer_cli.trainer.processes.launch import launched, one_error_per_node

    with one_error_per_node():
        if launched().world_size > 1:
            raise UsageError("torchrun: quickstart runs in one process; use `train quickstart`")
    prepare_torch(threads)
    chosen = QUICKSTARTS[task]
    run = output or Path("runs", chosen.recipe)
    recipe = load_recipe(chosen.recipe, [] if seed is None else [f"training.seed={seed}"])
    with training_progress(training_of(recipe).examples, quiet=quiet) as view:
        result = run_quickstart(
            run, recipe=recipe, device=device, observers=[view], progress=view.prepare
        )
    show = chosen.show
    show(stdout_console(), result, run)


def show_quickstart(console: "Console", result: "QuickstartResult[Evaluation]", run: Path) -> None:
    """Prints samples, scores and the next commands."""
    from rich.text import Text

    from tformer_cli.cli.commands.train import aligned_said

    rows = []
    for source, translation, reference in result.samples:
        is_right = translation == reference
        rows.append((Text("en", style="dim"), Text(source)))
        rows.append((Text("fr", style="green" if is_right else "yellow"), Text(translation)))
        if not is_right:
            rows.append((Text("ref", style="dim"), Text(reference, style="dim")))
    _print_rows(console, rows)
    scores = ", ".join(f"{score.name} {score.value:.1f}" for score in result.evaluation.scores)
    console.print(f"\n{result.n_test:,} unseen test sentences: [bold]{scores}[/]")
    if result.training.aligned is not None:
        console.print(Text(aligned_said(result.training.aligned, run)))
    console.print()
    _print_commands(console, next_commands(run, result.page))


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


def show_ratings(
    console: "Console", result: "QuickstartResult[LabelEvaluation]", run: Path
) -> None:
    """Prints sentences with their stars, scores and the next commands."""
    from rich.text import Text

    from tformer_cli.show.terminal import is_ascii_only

    full, empty = "*." if is_ascii_only(console) else "★☆"
    _print_rows(
        console,
        [
            (full * int(stars) + empty * (5 - int(stars)), Text(text + _correction(stars, right)))
            for text, stars, right in result.samples
        ],
    )
    _print_accuracy(console, result, "sentences with combinations of words never seen")
    _print_commands(
        console,
        (
            f"Every head of the first two sentences: open {result.page} in a browser. Next, try:",
            f'  tformer classify {run} "The soup was not bad." --format jsonl --top 0',
            "  tformer make-corpus ratings --task rating --pairs 8000",
            f"  tformer evaluate {run} -i ratings/test.txt --reference ratings/test.label",
            "  tformer guide classifying   # your own texts and labels",
        ),
    )


def show_language_model(
    console: "Console", result: "QuickstartResult[TextEvaluation[Any]]", run: Path
) -> None:
    """Prints what a language model has written, its scores and the next commands."""
    from rich.text import Text

    for prompt, text in result.samples:
        console.print(Text.assemble((prompt, "bold"), text, overflow="fold"))
    scores = result.evaluation.scores
    console.print(
        f"\n{result.n_test:,} unseen sentences: [bold]{scores.bits_per_byte:.3f} bits per byte, "
        f"perplexity {scores.perplexity:.1f}[/] a token\n"
    )
    _print_commands(
        console,
        (
            f"Every head of two sentences: open {result.page} in a browser. Next, try:",
            f'  tformer generate {run} "The cat" --temperature 0.5',
            f'  tformer inspect-logits {run} "The animal was tired." --lens',
            "  tformer make-corpus corpus --pairs 20000",
            f"  tformer evaluate {run} --text corpus/test.en",
            "  tformer guide language-models   # your own texts",
        ),
    )


def show_shapes(console: "Console", result: "QuickstartResult[LabelEvaluation]", run: Path) -> None:
    """Prints pictures with their labels, scores and the next commands."""
    from rich.text import Text

    _print_rows(
        console,
        [
            (Text(label, style="bold"), Text(name + _correction(label, right)))
            for name, label, right in result.samples
        ],
    )
    _print_accuracy(console, result, "unseen pictures")
    evaluated = "--images shapes/test.images.idx --reference shapes/test.label"
    _print_commands(
        console,
        (
            f"Every head of these pictures: open {result.page} in a browser. Next, try:",
            f"  tformer inspect-image {run} shapes:test:1#0",
            "  tformer make-corpus shapes --task image",
            f"  tformer classify {run} shapes/pictures/*/*.png --format tsv",
            f"  tformer evaluate {run} {evaluated}",
            "  tformer guide images   # your own images",
        ),
    )


def _correction(label: str, right: str) -> str:
    return "" if label == right else f"  (right: {right})"


def _print_rows(
    console: "Console", rows: "Iterable[tuple[RenderableType, RenderableType]]"
) -> None:
    """Prints samples, each with what stands before it."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _print_accuracy(
    console: "Console", result: "QuickstartResult[LabelEvaluation]", examples: str
) -> None:
    scores = result.evaluation.scores
    console.print(
        f"\n{scores.n_examples:,} {examples}: [bold]accuracy {100 * scores.accuracy:.1f}, "
        f"macro F1 {100 * scores.macro_f1:.1f}[/]\n"
    )


def _print_commands(console: "Console", lines: Iterable[str]) -> None:
    """Prints sentences, and commands, which stand two cells in; both can be copied at any width."""
    from rich.text import Text

    from tformer_cli.cli.help import folded

    for line in lines:
        if line.startswith("  ") and console.is_terminal and len(line) > console.width:
            for piece in folded(line.strip(), console.width - 2):
                console.print(Text(f"  {piece}"), soft_wrap=True)
        else:
            is_sentence = console.is_terminal and not line.startswith("  ")
            console.print(Text(line), soft_wrap=not is_sentence)


@dataclass(frozen=True, kw_only=True)
class Quickstart:
    """A quickstart: what trains, and how its result is shown."""

    recipe: str
    """Name of the recipe, and of the run below `runs`."""
    show: Callable[["Console", "QuickstartResult[Any]", Path], None]
    """Prints the result, given the run directory."""


QUICKSTARTS: Mapping[str, Quickstart] = MappingProxyType(
    {
        "translate": Quickstart(recipe="quickstart", show=show_quickstart),
        "rating": Quickstart(recipe="ratings", show=show_ratings),
        "language-model": Quickstart(recipe="sentences", show=show_language_model),
        "image": Quickstart(recipe="shapes", show=show_shapes),
    }
)
"""The quickstarts by their tasks."""
