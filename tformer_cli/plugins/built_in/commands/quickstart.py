"""`tformer quickstart`: trains a model from nothing and shows its heads."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from tformer_cli.cli.options import (
    DeviceOption,
    QuietOption,
    ThreadsOption,
    TrainingSeedOption,
    option_field,
    prepare_torch,
)
from tformer_cli.cli.streams import stdout_console
from tformer_cli.errors import UsageError
from tformer_cli.show.document import BLANK, Block, Facts, Text, text

if TYPE_CHECKING:
    from rich.console import Console

    from tformer_cli.plugins.built_in.quickstart import QuickstartResult

# What is trained: the names of `QUICKSTARTS`.
Task = Literal["translate", "rating", "language-model", "image"]
Samples = Sequence[tuple[str, ...]]


def quickstart(
    *,
    output: Path | None = option_field(
        None,
        "Run directory to write; it is also a model directory.",
        "-o",
        shown="runs/quickstart; of other tasks runs/ratings, runs/sentences, runs/shapes",
        role="writes_run",
    ),
    task: Task = option_field(
        "translate",
        "translate: English to French. rating: 1 to 5 stars for sentences. language-model: "
        "English sentences. image: shapes in pictures.",
    ),
    seed: TrainingSeedOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Train a small model in minutes and look inside it.

    The model learns the built-in corpus, translates and is scored, and two pages show every head:
    one holds the model and computes what you type, the other shows two sentences.
    Nothing is downloaded. Training takes about three minutes on two CPU cores; after a second you
    see an estimate for your machine. Run the same command again to resume. With --task rating, a
    classifier learns the built-in ratings in a minute or two and rates sentences it has never seen.
    With --task language-model, a decoder learns the English sentences, is scored in bits per byte,
    and writes new ones. With --task image, an image classifier learns to tell shapes apart, and the
    page shows where each head looks.

    Examples:
        tformer quickstart
        tformer quickstart -o runs/other --seed 2
        tformer quickstart --task rating
        tformer quickstart --task language-model
        tformer quickstart --task image
    """
    from tformer_cli.cli.commands.training_progress import training_progress
    from tformer_cli.kinds import training_of
    from tformer_cli.recipe import load_recipe
    from tformer_cli.trainer.processes.launch import one_error_per_node, read_launch

    with one_error_per_node():
        if read_launch().world_size > 1:
            raise UsageError("torchrun: quickstart runs in one process; use `train quickstart`")
    chosen = QUICKSTARTS[task]
    run = output or Path("runs", chosen.recipe)
    recipe = load_recipe(chosen.recipe, [] if seed is None else [f"training.seed={seed}"])
    with training_progress(training_of(recipe).examples, quiet=quiet) as view:
        view.prepare("loading PyTorch", 0)
        prepare_torch(threads)
        from tformer_cli.plugins.built_in.quickstart import quickstart as run_quickstart

        result = run_quickstart(
            run, recipe=recipe, device=device, observers=[view], progress=view.prepare
        )
    show_quickstart(stdout_console(), chosen, result, run)


LIVE = "tformer serve {} --open   # type, and see inside; needs the extra serve"
"""The last command that is worth typing next, whatever was trained."""


@dataclass(frozen=True, kw_only=True)
class Quickstart:
    """A quickstart: what trains, and how its result is shown."""

    recipe: str
    """Name of the recipe, and of the run below `runs`."""
    samples: Callable[[Samples, bool], Iterable[Block]]
    """Shows samples, given whether there is nothing but ASCII."""
    tested: str
    """Contents of the test set."""
    scores: Callable[[Any], tuple[str, str]]
    """The scores of an evaluation, with a remark on the test set."""
    page: str
    """Contents of the page."""
    commands: tuple[str, ...]
    """Worth typing next; {} is the run."""

    def next_commands(self, run: Path, page: Path, live_page: Path | None) -> list[str]:
        first = f"Every head of {self.page}: open {page} in a browser. Next, try:"
        lines = [first, *(f"  {command.format(run)}" for command in (*self.commands, LIVE))]
        if live_page is None:
            return lines
        return [f"Type sentences and see inside: open {live_page} in a browser.", *lines]


def show_quickstart(
    console: "Console", chosen: Quickstart, result: "QuickstartResult[Any]", run: Path
) -> None:
    """Prints samples, scores and the next commands."""
    from tformer_cli.cli.commands.train import describe_alignment
    from tformer_cli.show.terminal import is_ascii_only, show_blocks

    scores, rest = chosen.scores(result.evaluation)
    blocks = [*chosen.samples(result.samples, is_ascii_only(console)), BLANK]
    blocks.append(text(f"{result.n_test:,} {chosen.tested}: ", (scores, "bold"), rest))
    if result.training.aligned is not None:
        blocks.append(text(describe_alignment(result.training.aligned, run)))
    show_blocks(console, [*blocks, BLANK])
    show_commands(console, chosen.next_commands(run, result.page, result.live_page))


def show_commands(console: "Console", lines: Iterable[str]) -> None:
    """Prints sentences, and commands, which stand two cells in; both can be copied at any width."""
    from rich.text import Text

    from tformer_cli.cli.help import fold_line

    for line in lines:
        # A terminal breaks a long command inside a word, and a copy of it fails
        if line.startswith("  ") and console.is_terminal and len(line) > console.width:
            for piece in fold_line(line.strip(), console.width - 2):
                console.print(Text(f"  {piece}"), soft_wrap=True)
        else:
            # In a pipe or file a line stays a line, whatever the width
            is_sentence = console.is_terminal and not line.startswith("  ")
            console.print(Text(line), soft_wrap=not is_sentence)


def _translations(samples: Samples, is_ascii: bool) -> Iterable[Block]:  # noqa: ARG001
    rows: list[tuple[Text | str, Text | str]] = []
    for source, translation, reference in samples:
        is_right = translation == reference
        rows.append((text(("en", "dim")), source))
        rows.append((text(("fr", "green" if is_right else "yellow")), translation))
        if not is_right:
            rows.append((text(("ref", "dim")), text((reference, "dim"))))
    return [Facts(rows)]


def _stars(samples: Samples, is_ascii: bool) -> Iterable[Block]:
    full, empty = "*." if is_ascii else "★☆"
    rows = [
        (full * int(stars) + empty * (5 - int(stars)), rating + _correction(stars, right))
        for rating, stars, right in samples
    ]
    return [Facts(rows)]


def _texts(samples: Samples, is_ascii: bool) -> Iterable[Block]:  # noqa: ARG001
    return [text((prompt, "bold"), written) for prompt, written in samples]


def _pictures(samples: Samples, is_ascii: bool) -> Iterable[Block]:  # noqa: ARG001
    rows = [
        (text((label, "bold")), name + _correction(label, right)) for name, label, right in samples
    ]
    return [Facts(rows)]


def _correction(label: str, right: str) -> str:
    return "" if label == right else f"  (right: {right})"


def _label_scores(evaluation: Any) -> tuple[str, str]:  # noqa: ANN401
    scores = evaluation.scores
    return f"accuracy {100 * scores.accuracy:.1f}, macro F1 {100 * scores.macro_f1:.1f}", ""


def _text_scores(evaluation: Any) -> tuple[str, str]:  # noqa: ANN401
    scores = evaluation.scores
    bits = f"{scores.bits_per_byte:.3f} bits per byte"
    return f"{bits}, perplexity {scores.perplexity:.1f}", " a token"


def _translation_scores(evaluation: Any) -> tuple[str, str]:  # noqa: ANN401
    return ", ".join(f"{score.name} {score.value:.1f}" for score in evaluation.scores), ""


# The quickstarts by their tasks.
QUICKSTARTS: Mapping[str, Quickstart] = MappingProxyType(
    {
        "translate": Quickstart(
            recipe="quickstart",
            samples=_translations,
            tested="unseen test sentences",
            scores=_translation_scores,
            page="the first two sentences",
            commands=(
                'echo "The cat saw the old house." | tformer translate {}',
                'tformer translate {} --n-best 3 --format jsonl "My sister was tired."',
                'tformer inspect-heads {} "The animal was tired because it crossed the street."',
                "tformer make-corpus corpus --pairs 50000",
                "tformer evaluate {} --source corpus/test.en --reference corpus/test.fr",
                "tformer guide training   # your own data",
            ),
        ),
        "rating": Quickstart(
            recipe="ratings",
            samples=_stars,
            tested="sentences with combinations of words never seen",
            scores=_label_scores,
            page="the first two sentences",
            commands=(
                'tformer classify {} "The soup was not bad." --format jsonl --top 0',
                "tformer make-corpus ratings --task rating --pairs 8000",
                "tformer evaluate {} -i ratings/test.txt --reference ratings/test.label",
                "tformer guide classifying   # your own texts and labels",
            ),
        ),
        "language-model": Quickstart(
            recipe="sentences",
            samples=_texts,
            tested="unseen sentences",
            scores=_text_scores,
            page="two sentences",
            commands=(
                'tformer generate {} "The cat" --temperature 0.5',
                'tformer inspect-logits {} "The animal was tired." --lens',
                "tformer make-corpus corpus --pairs 20000",
                "tformer evaluate {} --text corpus/test.en",
                "tformer guide language-models   # your own texts",
            ),
        ),
        "image": Quickstart(
            recipe="shapes",
            samples=_pictures,
            tested="unseen pictures",
            scores=_label_scores,
            page="these pictures",
            commands=(
                "tformer inspect-image {} shapes:test:1#0",
                "tformer make-corpus shapes --task image",
                "tformer classify {} --images shapes/test.images.idx --format tsv",
                "tformer evaluate {} --images shapes/test.images.idx --reference shapes/test.label",
                "tformer guide images   # your own images",
            ),
        ),
    }
)
