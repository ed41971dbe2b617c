"""`tformer inspect-ablate`: what the model loses without each of its heads."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

from tformer_cli.cli.encoder_job import ImageOptions
from tformer_cli.cli.inspect.inspect_view import (
    OpeningArguments,
    emit_view,
    open_model,
    takes_opening_options,
    view_format,
    view_format_option,
)
from tformer_cli.cli.options import (
    ModelArgument,
    OutputOption,
    QuietOption,
    option_field,
    refuse,
)
from tformer_cli.cli.progress import LineProgress, line_progress
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    argument_lines,
    check_stdin_is_read_once,
    prompt_at_terminal,
    warn_of_bytes,
)
from tformer_cli.errors import UsageError
from tformer_cli.files.atomic import check_free
from tformer_cli.plugins.instruments.views.ablation import CHANGES_VIEW, TEXT_VIEW, AblationSettings
from tformer_cli.text.lines import LineCounts, check_file

if TYPE_CHECKING:
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.plugins.instruments.views.ablation import Ablation

PRUNING = "Pruning"  # The panel of options that write a smaller model


@dataclass(frozen=True, kw_only=True)
class ReferenceOptions:
    """Sentences and their references."""

    source: Path | None = option_field(
        None,
        "Source sentences, names of images, or text for a language model, one per line; - is "
        "stdin.",
        "-i",
        shown="none, with --images",
        role="reads_file",
    )
    reference: list[Path] | None = option_field(
        None,
        "Reference translation, or correct labels. Repeat for several; the loss uses the first.",
        shown="none, of a language model",
        role="reads_file",
    )

    @property
    def files(self) -> list[Path]:
        source = [] if self.source is None else [self.source]
        return [*source, *(self.reference or ())]

    def read(self, pictures: ImageOptions, counts: LineCounts) -> tuple[list[str], list[list[str]]]:
        from tformer_cli.evaluate.evaluate import read_texts

        pictures.check(has_texts=self.source is not None)
        if pictures.images is not None and len(self.reference or ()) > 1:
            raise UsageError("--reference: an image has one correct label; name one file")
        labels = str(self.reference[0]) if self.reference else ""
        labeled = pictures.read_labeled_images(labels, "--reference", counts)
        if labeled is not None:
            pairs = list(labeled)
            return [name for name, _ in pairs], [[label for _, label in pairs]]
        if self.source is None:
            raise UsageError("--source: is missing; name the text, or --images for an image model")
        source, *references = read_texts(self.files, counts)
        return source, references


@dataclass(frozen=True, kw_only=True)
class PruningOptions:
    """A smaller model directory, and the heads it lacks."""

    write_pruned: Path | None = option_field(
        None,
        "Write a pruned model directory; needs --keep or --prune.",
        panel=PRUNING,
        role="writes_directory",
    )
    keep: int | None = option_field(
        None,
        "Keep the N most important of --heads, by --rank-by; prune the others.",
        panel=PRUNING,
        metavar="N",
        min=0,
    )
    prune: list[str] | None = option_field(
        None, "Prune these heads. Repeatable.", panel=PRUNING, metavar="HEADS"
    )

    def check(self) -> None:
        if self.write_pruned is None:
            values = {"keep": self.keep, "prune": self.prune or None}
            refuse(values, "needs --write-pruned DIR; add it")
        elif (self.keep is None) == (not self.prune):
            raise UsageError(
                "--write-pruned: no heads to remove are named; add --keep N or --prune SELECTION"
            )


@takes_opening_options
def inspect_ablate(
    model: ModelArgument,
    *,
    texts: ReferenceOptions,
    pictures: ImageOptions,
    measured: AblationSettings,
    pruned: PruningOptions,
    changes: str | None = option_field(
        None,
        "Instead translate TEXT without each head, and without each layer's heads, and show which "
        "of them change the translation. --heads limits them.",
        metavar="TEXT",
    ),
    output_format: Annotated[str | None, view_format_option(TEXT_VIEW)] = None,
    output: OutputOption = STANDARD_STREAM,
    quiet: QuietOption = False,
    **opening: Unpack[OpeningArguments],
) -> None:
    """Show what a model loses without each of its heads.

    Heads are switched off one at a time, and then cumulatively. Loss is in nats per target token of
    the reference; for a language model per token of the text, for a masked one per hidden token,
    for a classifier per label, for a tagger per word. Classifiers and taggers also get their
    accuracy. Importance is E |dL/dξ|, where ξ is a factor on the head. p-values of differences come
    from a paired bootstrap (1,000 samples, --seed).

    Examples:
        tformer inspect-ablate runs/quickstart --changes "The street was too wide."
        tformer inspect-ablate runs/quickstart -i a.en --reference a.fr
        tformer inspect-ablate runs/quickstart -i a.en --reference a.fr --heads cross --no-curve
        tformer inspect-ablate runs/ratings -i ratings/test.txt --reference ratings/test.label
        tformer inspect-ablate runs/shapes --images shapes/pictures
        tformer inspect-ablate runs/quickstart -i a.en --reference a.fr --write-pruned p --keep 12
    """
    pruned.check()
    chosen = view_format(TEXT_VIEW, output_format, output)
    check_stdin_is_read_once(texts.files)
    if changes is not None:
        given = texts.files, pictures.images, pruned.write_pruned
        if any(given) or measured != AblationSettings(heads=measured.heads):
            raise UsageError("--changes: looks at TEXT only; omit other options than --heads")
        _show_changes(model, changes, measured, opening, chosen, output, quiet=quiet)
        return
    # Now: the directory is written only after all heads are measured
    if pruned.write_pruned is not None:
        check_free(pruned.write_pruned, "--write-pruned")
    for file in texts.files:
        if str(file) != STANDARD_STREAM:
            check_file(file)

    from tformer_cli.artifacts.config_file import TRANSLATORS, task_kind
    from tformer_cli.plugins.instruments.jobs.ablate import MEASURED

    counts = LineCounts()
    prompt_at_terminal(files=texts.files, quiet=quiet)
    sources, references = texts.read(pictures, counts)
    opened = open_model(model, opening, quiet=quiet, tasks=MEASURED)
    pictures.check_model(opened.config)
    if pruned.write_pruned is not None and task_kind(opened.directory.config) not in TRANSLATORS:
        raise UsageError(
            "--write-pruned: only for translation models, since it translates with the smaller "
            "model; omit it"
        )
    settings = replace(measured, seed=opening["seed"])
    ablation = _measure_heads(opened, sources, references, settings, pruned, quiet=quiet)
    emit_view(TEXT_VIEW, [ablation], chosen, output, settings)
    warn_of_bytes(counts)


def _measure_heads(
    opened: "Opened",
    sources: list[str],
    references: list[list[str]],
    settings: AblationSettings,
    pruned: PruningOptions,
    *,
    quiet: bool,
) -> "Ablation":
    """Measures the loss without each head, and writes the smaller model that is asked for."""
    from tformer_cli.heads.names import head_layout
    from tformer_cli.heads.selectors import select_heads
    from tformer_cli.inspect.jobs.reader import inspected_model
    from tformer_cli.plugins.instruments.jobs.ablate import (
        heads_to_remove,
        inspect_ablate,
        write_pruned,
    )

    layout = head_layout(inspected_model(opened.directory))
    # Before the work begins: a wrong selection is an error
    removed = select_heads(pruned.prune, layout, option="--prune") if pruned.prune else []
    with _staged_progress(quiet=quiet) as observe:
        ablation = inspect_ablate(opened, sources, references, settings=settings, observe=observe)
        if pruned.keep is not None:
            removed = heads_to_remove(ablation, list(layout), pruned.keep)
        if (place := pruned.write_pruned) is not None:
            pruning = write_pruned(
                opened, removed, place, sources, references, settings=settings, observe=observe
            )
            ablation = replace(ablation, pruning=pruning)
    return ablation


def _show_changes(
    model: Path,
    changes: str,
    settings: AblationSettings,
    opening: OpeningArguments,
    chosen: str,
    output: str,
    *,
    quiet: bool,
) -> None:
    from tformer_cli.artifacts.config_file import TRANSLATORS
    from tformer_cli.plugins.instruments.jobs.ablate import translate_without

    counts = LineCounts()
    opened = open_model(model, opening, quiet=quiet, tasks=TRANSLATORS)
    (text,) = argument_lines([changes], counts)
    record = translate_without(opened, text, settings.heads)
    emit_view(CHANGES_VIEW, [record], chosen, output, settings)
    warn_of_bytes(counts)


@contextmanager
def _staged_progress(*, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Yields an observer that shows the progress of one stage of the work after the other."""
    with ExitStack() as stack:
        shown: dict[str, LineProgress] = {}

        def observe(stage: str, n_done: int, n_lines: int) -> None:
            if stage not in shown:
                stack.close()  # of a plain display the last line says that the stage is done
                shown.clear()
                shown[stage] = stack.enter_context(line_progress(n_lines, stage, quiet=quiet))
            shown[stage].update(n_done)

        yield observe
