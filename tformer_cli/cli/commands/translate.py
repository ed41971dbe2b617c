"""`tformer translate`: lines in, lines out."""

from itertools import islice
from typing import TYPE_CHECKING, Unpack

import typer

from tformer_cli.cli.commands.translate_options import (
    ConstraintOptions,
    EnsembleOptions,
    FormatOptions,
    LargeJobOptions,
    TextArgument,
    chosen_lines,
    opened_output,
)
from tformer_cli.cli.line_job import FileOptions, write_lines
from tformer_cli.cli.options import (
    ModelArgument,
    QuietOption,
    TranslatorOptions,
    takes_decoding_options,
    takes_groups,
)
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    check_stdin_is_read_once,
    count_of_lines,
    input_lines,
    note,
    telling_of_markup,
    warn_of_bytes,
    warn_of_results,
)
from tformer_cli.runtime import without_garbage_collection
from tformer_cli.text.lines import LineCounts

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    read = LineCounts()
    lines = input_lines(text, files.input_file, read, "--input", quiet=quiet)
    is_stdin, is_typed = files.is_stdin(text), files.is_typed(text)
    check_stdin_is_read_once([STANDARD_STREAM if is_stdin else "", constraints.glossary])
    with without_garbage_collection():
        from tformer_cli.kinds.lines.job import ResultCounts
        from tformer_cli.kinds.lines.translate import translated_text
        from tformer_cli.search.translator import BUFFER_LINES

    settings = {name: value for name, value in ctx.params.items() if name not in WITHOUT_EFFECT}
    chosen, lines = chosen_lines(lines, files.input_file, job.shard)
    counts, terms = ResultCounts(), constraints.terms()
    # The output first: an unwritable one is an error at once, not after the model is loaded
    with opened_output(files, model, settings, resume=job.resume) as (stream, resumed):
        n_before = resumed.done if resumed is not None else 0
        opened = options.open(model, quiet=quiet, n_best=formats.n_best, **more, **decoding)
        buffers = translated_text(
            opened.translator,
            telling_of_markup(islice(lines, n_before, None), chosen.start + n_before),
            counts=counts,
            input_name="stdin" if is_stdin else files.input_file or "arguments",
            glossary=terms,
            buffer_lines=job.buffer_lines or (1 if is_typed else BUFFER_LINES),
            first_index=chosen.start + n_before,
            max_wait=job.max_wait,
            **formats.arguments(opened, quiet=quiet),
        )

        def marked() -> "Iterator[list[str]]":
            for buffer in buffers:
                yield buffer
                # Only now is the buffer written: what is marked is not translated again
                if resumed is not None:
                    resumed.mark(n_before + counts.lines)

        seconds = write_lines(
            stream,
            marked(),
            counts,
            output=files.output,
            total=lambda: len(chosen) or files.count(text),
            is_hidden=quiet or is_typed,
        )
    done = f"{count_of_lines(counts.lines)} in {seconds:.1f} s"
    rate = counts.lines / max(seconds, 1e-9)
    note(f"{done}, {rate:,.1f} lines/s", quiet=quiet or is_typed or bool(text))
    warn_of_bytes(read)
    warn_of_results(counts, quiet=quiet)
