"""`tformer fill`: what may stand in the gaps of lines."""

from functools import partial
from typing import Annotated, Literal

from tformer_cli.cli.commands.line_options import (
    EncoderPrecisionOption,
    LineOptions,
    TextsArgument,
)
from tformer_cli.cli.commands.parts_of_input import count_lines
from tformer_cli.cli.commands.translate_options import FileOptions
from tformer_cli.cli.options import (
    DeviceOption,
    ModelArgument,
    QuietOption,
    ThreadsOption,
    option,
    takes_groups,
    torch_preparation,
)
from tformer_cli.cli.progress import line_progress
from tformer_cli.cli.streams import (
    count_of_lines,
    input_lines,
    note,
    note_choices,
    results,
    stdin_is_terminal,
    utf8_line,
    warn,
    warn_of_bytes,
)
from tformer_cli.errors import UsageError
from tformer_cli.text.lines import LineCounts


@takes_groups
def fill(
    model: ModelArgument,
    text: TextsArgument = None,
    *,
    files: FileOptions,
    output_format: Annotated[
        Literal["text", "tsv", "jsonl"],
        option(
            "text: the line with each gap filled by the best token. tsv: index, text, then token "
            "and probability for each candidate of each gap. jsonl: one object per line.",
            "--format",
        ),
    ] = "text",
    top: Annotated[
        int | None,
        option("Candidates of each gap, for tsv and jsonl; 0: all tokens.", min=0, shown="5"),
    ] = None,
    lines: LineOptions,
    device: DeviceOption = "auto",
    precision: EncoderPrecisionOption = "auto",
    threads: ThreadsOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Fill gaps in texts with a masked language model: one line out for each line in.

    A gap is written [MASK], or as the model's own files name it. Several gaps of a line are filled
    each by itself. Lines without a gap stay as they are and are counted in a warning. In float32 a
    line's candidates do not depend on its neighbors.

    Examples:
        tformer fill google-bert/bert-base-uncased "Paris is the [MASK] of France."
        tformer fill google-bert/bert-base-uncased -i gaps.txt --format jsonl --top 3
    """
    if top is not None and output_format == "text":
        raise UsageError("--top: text fills each gap once; add --format tsv or jsonl")
    counts = LineCounts()
    given = input_lines(text, files.input_file, counts, "--input", quiet=quiet)
    is_stdin = files.is_stdin(text)
    is_typed = is_stdin and stdin_is_terminal()
    from tformer_cli.kinds.lines.fill import BUFFER_LINES, TOP, GapFiller, fill_lines, format_filled
    from tformer_cli.kinds.opening.encoder import open_encoder

    n_truncated = n_whole = n_done = 0
    with results(files.output) as stream:
        opened = open_encoder(
            model,
            ("masked",),
            device=device,
            precision=precision,
            threads=threads,
            tell=partial(note, quiet=quiet),
            before_torch=torch_preparation(threads),
        )
        note_choices(opened, quiet=quiet)
        filler = GapFiller(opened)
        found = fill_lines(
            filler,
            given,
            lines.size(BUFFER_LINES, is_typed=is_typed),
            top=1 if output_format == "text" else TOP if top is None else top,
            too_long=lines.too_long,
            max_wait=lines.max_wait,
        )
        total = None if is_stdin else count_lines(files.input_file)
        with line_progress(
            total, "filling", quiet=quiet or is_typed, output=files.output
        ) as progress:
            for buffer in found:
                for one in buffer:
                    n_truncated += one.is_truncated
                    n_whole += not one.gaps and bool(one.text.strip())
                    stream.write(utf8_line(format_filled(one, output_format)))
                stream.flush()
                n_done += len(buffer)
                progress.update(n_done)
    warn_of_bytes(counts)
    if n_whole:
        names = " or ".join(filler.names)
        warn(f"{count_of_lines(n_whole)} without a gap ({names}); unchanged")
    if n_truncated:
        warn(f"{count_of_lines(n_truncated)} longer than the model takes; truncated")
