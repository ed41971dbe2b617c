"""`tformer classify`: a label for each line, a text or the name of an image."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tformer_cli.artifacts.config_file import read_config
from tformer_cli.cli.commands.parts_of_input import count_lines
from tformer_cli.cli.commands.translate_options import FileOptions
from tformer_cli.cli.help import LARGE_JOBS
from tformer_cli.cli.image_options import ReadImageOptions, warn_of_damaged
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
    warn_of_unknown,
)
from tformer_cli.errors import UsageError
from tformer_cli.text.lines import LineCounts

if TYPE_CHECKING:
    from collections.abc import Iterator

ClassifiedArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="TEXT", help="Texts to label; without any, -i or stdin."),
]


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """Options of what is written, and of long lines."""

    output_format: Annotated[
        Literal["text", "tsv", "jsonl"],
        option(
            "text: the label. tsv: index, text, label, probability. jsonl: one object per line.",
            "--format",
        ),
    ] = "text"
    top: Annotated[
        int,
        option("Labels per line with their probabilities, for tsv and jsonl; 0: all.", min=0),
    ] = 1
    too_long: Annotated[
        Literal["truncate", "error"],
        option("Treatment of lines longer than the model takes."),
    ] = "truncate"
    buffer_lines: Annotated[
        int | None,
        option(
            "Lines read before a buffer is labeled; 1 answers line by line.",
            panel=LARGE_JOBS,
            shown="1024; 1 from a terminal",
            min=1,
        ),
    ] = None
    max_wait: Annotated[
        float | None,
        option(
            "Label a buffer that is not full N seconds after its first line.",
            panel=LARGE_JOBS,
            shown="none",
            min=0.0,
        ),
    ] = None

    def check(self) -> None:
        """Refuses several labels where there is room for one.

        Raises:
            UsageError: if they are asked for.
        """
        if self.top != 1 and self.output_format == "text":
            raise UsageError("--top: text is one label per line; add --format tsv or jsonl")


@takes_groups
def classify(
    model: ModelArgument,
    text: ClassifiedArgument = None,
    *,
    files: FileOptions,
    pictures: ReadImageOptions,
    labels: LabelOptions,
    device: DeviceOption = "auto",
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        option("Precision to compute in. auto is float32."),
    ] = "auto",
    threads: ThreadsOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Label texts or images: one line out for each line in.

    The order is kept. Blank lines stay blank. In float32 a line's label and probability do not
    depend on its neighbors. For a model of images a line is the path of a picture, FILE#NUMBER of
    an idx file, or the values of an image's pixels; --images takes all of a folder or file.

    Examples:
        tformer classify runs/ratings "The soup was not too terrible."
        tformer classify runs/ratings -i reviews.txt | sort | uniq -c
        tformer classify runs/ratings -i reviews.txt --format jsonl --top 0
        tformer classify runs/shapes shapes/pictures/ring/*.png --format tsv
        tformer classify runs/shapes --images shapes/test.images.idx
    """
    labels.check()
    pictures.check(has_texts=bool(text) or files.input_file is not None)
    from tformer_cli.kinds.lines.classify import (
        classify_lines,
        format_label,
        open_classifier,
    )

    counts = LineCounts()
    lines: Iterator[str] = iter(())
    is_stdin = pictures.images is None and files.is_stdin(text)
    if pictures.images is None:
        names = read_config(model).model.reads_images
        lines = input_lines(
            text, files.input_file, counts, "--input", quiet=quiet, takes_names=names
        )
    is_typed = is_stdin and stdin_is_terminal()
    n_truncated = n_damaged = n_unknown = n_done = 0
    with results(files.output) as stream:
        opened = open_classifier(
            model,
            device=device,
            precision=precision,
            threads=threads,
            tell=partial(note, quiet=quiet),
            before_torch=torch_preparation(threads),
        )
        note_choices(opened, quiet=quiet)
        found = classify_lines(
            opened,
            pictures.names(opened) or lines,
            labels.buffer_lines or (1 if is_typed else None),
            too_long=labels.too_long,
            damaged=pictures.damaged,
            max_wait=labels.max_wait,
        )
        total = None if is_stdin else count_lines(files.input_file)
        with line_progress(
            total, "labeling", quiet=quiet or is_typed, output=files.output
        ) as progress:
            for buffer in found:
                for one in buffer:
                    n_truncated += one.is_truncated
                    n_damaged += bool(one.error)
                    n_unknown += one.n_unknown
                    stream.write(utf8_line(format_label(one, labels.output_format, labels.top)))
                stream.flush()
                n_done += len(buffer)
                progress.update(n_done)
    warn_of_bytes(counts)
    warn_of_damaged(n_damaged)
    if n_truncated:
        warn(f"{count_of_lines(n_truncated)} longer than the model takes; truncated")
    warn_of_unknown(n_unknown)
