"""`tformer translate`: lines in, lines out."""

from collections.abc import Callable, Iterable
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, BinaryIO, Unpack

import typer

from tformer_cli.cli.commands.parts_of_input import chosen_lines, count_lines, opened_output
from tformer_cli.cli.commands.translate_options import (
    ConstraintOptions,
    EnsembleOptions,
    FileOptions,
    FormatOptions,
    LargeJobOptions,
    TextArgument,
)
from tformer_cli.cli.options import (
    ModelArgument,
    QuietOption,
    TranslatorOptions,
    takes_decoding_options,
    takes_groups,
)
from tformer_cli.cli.progress import line_progress, shares_terminal
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    check_stdin_is_read_once,
    count_of_lines,
    input_lines,
    note,
    stdin_is_terminal,
    telling_of_markup,
    utf8_line,
    warn_of_bytes,
    warn_of_lengths,
)
from tformer_cli.runtime import without_garbage_collection
from tformer_cli.text.lines import LineCounts

if TYPE_CHECKING:
    from tformer_cli.artifacts.resumable import ResumableFiles
    from tformer_cli.kinds.lines.translate import TranslationCounts
    from tformer_cli.search.keywords import SearchOverrides


WITHOUT_EFFECT = frozenset(
    {"quiet", "resume", "threads", "device", "buffer_lines", "max_wait", "batch_tokens", "output"}
)
"""Parameters that leave the results as they are: a run may be resumed under others."""


@takes_decoding_options
@takes_groups
def translate(
    ctx: typer.Context,
    model: ModelArgument,
    text: TextArgument = None,
    *,
    files: FileOptions,
    constraints: ConstraintOptions,
    ensemble: EnsembleOptions,
    job: LargeJobOptions,
    formats: FormatOptions,
    options: TranslatorOptions,
    quiet: QuietOption = False,
    **decoding: Unpack["SearchOverrides"],
) -> None:
    """Translate text: one line out for each line in.

    The order is kept. Blank lines stay blank. In float32 a line's translation does not depend on
    its neighbors.

    Examples:
        tformer translate runs/quickstart "The old house is green."
        tformer translate runs/quickstart -i a.en -o a.fr --beam-size 8
        cat a.en | tformer translate runs/quickstart --n-best 3 --format jsonl
    """
    formats.check()
    more = {**ensemble.arguments(), **constraints.arguments()}
    counts = LineCounts()
    lines = input_lines(text, files.input_file, counts, "--input", quiet=quiet)
    is_stdin = files.is_stdin(text)
    check_stdin_is_read_once([STANDARD_STREAM if is_stdin else "", constraints.glossary])
    is_typed = is_stdin and stdin_is_terminal()
    with without_garbage_collection():
        from tformer_cli.kinds.lines.translate import TranslationCounts, translated_text
        from tformer_cli.search.translator import BUFFER_LINES

    settings = {name: value for name, value in ctx.params.items() if name not in WITHOUT_EFFECT}
    chosen, lines = chosen_lines(lines, files.input_file, job.shard)
    translated, terms = TranslationCounts(), constraints.terms()
    # The output first: an unwritable one is an error at once, not after the model is loaded
    with opened_output(files, model, settings, resume=job.resume) as (stream, resumed):
        n_done = resumed.done if resumed is not None else 0
        opened = options.open(model, quiet=quiet, n_best=formats.n_best, **more, **decoding)
        buffers = translated_text(
            opened.translator,
            telling_of_markup(islice(lines, n_done, None), chosen.start + n_done),
            counts=translated,
            input_name="stdin" if is_stdin else files.input_file or "arguments",
            glossary=terms,
            buffer_lines=job.buffer_lines or (1 if is_typed else BUFFER_LINES),
            first_index=chosen.start + n_done,
            max_wait=job.max_wait,
            **formats.arguments(opened, quiet=quiet),
        )
        shows_bar = not (quiet or is_typed or shares_terminal(files.output))
        is_counted = shows_bar and not is_stdin
        total = (len(chosen) or count_lines(files.input_file)) if is_counted else None
        start = monotonic()
        with line_progress(total, quiet=not shows_bar) as progress:
            _write_all(buffers, stream, translated, progress.update, resumed)
    is_short = is_typed or bool(text)
    _report(counts, translated, monotonic() - start, is_short=is_short, quiet=quiet)


def _write_all(
    buffers: Iterable[list[str]],
    stream: BinaryIO,
    translated: "TranslationCounts",
    progress: Callable[[int], None],
    resumed: "ResumableFiles | None",
) -> None:
    """Writes lines as UTF-8 and flushes after each buffer."""
    n_before = resumed.done if resumed is not None else 0
    for lines in buffers:
        stream.writelines(map(utf8_line, lines))
        stream.flush()
        if resumed is not None:
            resumed.mark(n_before + translated.lines)
        progress(translated.lines)


def _report(
    read: LineCounts,
    translated: "TranslationCounts",
    seconds: float,
    *,
    is_short: bool,
    quiet: bool,
) -> None:
    """Notes the speed of a long job, and warns of lines that were replaced, split or cut off."""
    rate = translated.lines / max(seconds, 1e-9)
    done = f"{count_of_lines(translated.lines)} in {seconds:.1f} s"
    note(f"{done}, {rate:,.1f} lines/s", quiet=quiet or is_short)
    warn_of_bytes(read)
    warn_of_lengths(translated, quiet=quiet)
