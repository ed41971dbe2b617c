"""`tformer inspect-ablate`: what the model loses without each of its heads."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

import typer

from tformer_cli.cli.completion import complete_heads
from tformer_cli.cli.emit import emit
from tformer_cli.cli.format_choice import chosen_format, format_option
from tformer_cli.cli.inspection.options import (
    OpeningArguments,
    open_model,
    takes_opening_options,
)
from tformer_cli.cli.line_progress import LineProgress, line_progress
from tformer_cli.cli.option_groups import takes_groups
from tformer_cli.cli.options import ModelArgument, OutputOption, QuietOption
from tformer_cli.cli.path_roles import PathRole
from tformer_cli.cli.text_io import (
    STANDARD_STREAM,
    check_stdin_is_read_once,
    prompt_at_terminal,
    warn_of_bytes,
)
from tformer_cli.data.lines import LineCounts
from tformer_cli.errors import UsageError
from tformer_cli.inspection.views.ablation import (
    AblationSettings,
    render_ablation,
    show_ablation,
    show_pruning,
)

if TYPE_CHECKING:
    from rich.console import Console

    from tformer_cli.inspection.ablation.record import Ablation, Pruning
    from tformer_cli.inspection.capture.heads import HeadId
    from tformer_cli.workflows.open_translator import Opened


FORMATS = ("text", "jsonl")
PRUNING = "Pruning"
"""The panel of options that write a smaller model."""


@dataclass(frozen=True, kw_only=True)
class ReferenceOptions:
    """Sentences and their references."""

    source: Annotated[
        Path,
        typer.Option(
            "--source", "-i", metavar="FILE", help="Source sentences, one per line; - is stdin."
        ),
        PathRole.reads_file,
    ]
    reference: Annotated[
        list[Path],
        typer.Option(
            metavar="FILE",
            help="Reference translation. Repeat for several; the loss is the first's.",
        ),
        PathRole.reads_file,
    ]

    @property
    def files(self) -> list[Path]:
        """The source and the references."""
        return [self.source, *self.reference]


@dataclass(frozen=True, kw_only=True)
class PruningOptions:
    """A smaller model directory, and the heads it lacks."""

    write_pruned: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write a pruned model directory; needs --keep or --prune.",
            rich_help_panel=PRUNING,
        ),
        PathRole.writes_directory,
    ] = None
    keep: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Keep the N most important of --heads, by --rank-by; prune the others.",
            rich_help_panel=PRUNING,
        ),
    ] = None
    prune: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HEADS",
            help="Prune these heads. Repeatable.",
            rich_help_panel=PRUNING,
            autocompletion=complete_heads,
        ),
    ] = None

    def check(self) -> None:
        """Makes sure that a smaller model has a free place and heads to remove.

        Raises:
            UsageError: if not.
        """
        if self.write_pruned is None:
            if self.keep is not None or self.prune:
                option = "--prune" if self.keep is None else "--keep"
                raise UsageError(f"{option}: needs --write-pruned DIR; add it")
        elif (self.keep is None) == (not self.prune):
            raise UsageError(
                "--write-pruned: no heads to remove are named; add --keep N or --prune SELECTION"
            )

    def check_free(self) -> None:
        """Makes sure that the directory can be written, before the work begins."""
        from tformer_cli.workflows.inspection.write_pruned import check_free

        if self.write_pruned is not None:
            check_free(self.write_pruned)

    def named_heads(self, opened: "Opened") -> "list[HeadId]":
        """The heads of `--prune`; a wrong selection is an error before the work begins."""
        from tformer_cli.inspection.capture.heads import head_layout
        from tformer_cli.inspection.heads.selectors import select_heads

        if not self.prune:
            return []
        return select_heads(self.prune, head_layout(opened.directory.model), option="--prune")

    def heads_beyond_kept(self, opened: "Opened", ablation: "Ablation") -> "list[HeadId] | None":
        """All heads but those of `--keep`; None without it."""
        from tformer_cli.inspection.capture.heads import head_layout
        from tformer_cli.workflows.inspect_ablate import heads_to_remove

        if self.keep is None:
            return None
        return heads_to_remove(ablation, list(head_layout(opened.directory.model)), self.keep)


@takes_opening_options
@takes_groups
def inspect_ablate(
    model: ModelArgument,
    *,
    texts: ReferenceOptions,
    measured: AblationSettings,
    pruned: PruningOptions,
    output_format: Annotated[str | None, format_option(FORMATS, "jsonl")] = None,
    output: OutputOption = STANDARD_STREAM,
    quiet: QuietOption = False,
    **opening: Unpack[OpeningArguments],
) -> None:
    """Show what a model loses without each of its heads.

    Heads are switched off alone, and one after the other. Loss is per target token of the
    reference, in nats. Importance is E |dL/dξ|, ξ a factor on the head. Differences have p-values
    of the paired bootstrap (1,000 samples, --seed).

    Examples:
        tformer inspect-ablate runs/quickstart -i a.en --reference a.fr
        tformer inspect-ablate runs/quickstart -i a.en --reference a.fr --heads cross --no-curve
        tformer inspect-ablate runs/quickstart -i a.en --reference a.fr --write-pruned p --keep 12
    """
    pruned.check()
    chosen = chosen_format(output_format, output, FORMATS, "jsonl")
    check_stdin_is_read_once(texts.files)

    from tformer_cli.workflows.evaluate import read_texts
    from tformer_cli.workflows.inspect_ablate import inspect_ablate as ablate
    from tformer_cli.workflows.inspection.write_pruned import write_pruned

    pruned.check_free()
    counts = LineCounts()
    prompt_at_terminal(files=texts.files, quiet=quiet)
    sources, *references = read_texts(texts.files, counts)
    opened = open_model(model, opening, quiet=quiet)
    settings = replace(measured, seed=opening["seed"])
    pruning = None
    with _stages(quiet=quiet) as stages:
        observe = stages.observe
        named = pruned.named_heads(opened)
        ablation = ablate(opened, sources, references, settings=settings, observe=observe)
        if (place := pruned.write_pruned) is not None:
            beyond = pruned.heads_beyond_kept(opened, ablation)
            removed = named if beyond is None else beyond
            pruning = write_pruned(
                opened, removed, place, sources, references, settings=settings, observe=observe
            )
        stages.end()
    emit(
        output,
        chosen,
        show=partial(_show, ablation=ablation, pruning=pruning),
        others={"jsonl": partial(render_ablation, ablation, pruning)},
    )
    warn_of_bytes(counts)


class _Stages:
    """Shows the progress of one stage of the work after the other."""

    def __init__(self, stack: ExitStack, *, quiet: bool) -> None:
        self._stack = stack
        self._quiet = quiet
        self._what: str | None = None
        self._progress = LineProgress()

    def observe(self, what: str, n_done: int, n_lines: int) -> None:
        """Hears how many lines of a stage are done."""
        if what != self._what:
            self.end()
            self._what = what
            self._progress = self._stack.enter_context(
                line_progress(n_lines, what, quiet=self._quiet)
            )
        self._progress.update(n_done)

    def end(self) -> None:
        """Takes the display away; of a plain one the last line says that the stage is done."""
        self._stack.close()
        self._what = None


@contextmanager
def _stages(*, quiet: bool) -> Iterator[_Stages]:
    with ExitStack() as stack:
        yield _Stages(stack, quiet=quiet)


def _show(console: "Console", ablation: "Ablation", pruning: "Pruning | None") -> None:
    show_ablation(console, ablation)
    if pruning is not None:
        show_pruning(console, pruning)
