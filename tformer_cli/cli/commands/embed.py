"""`tformer embed`: a vector for each line, a text or the name of an image."""

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from tformer_cli.artifacts.config_file import read_config
from tformer_cli.cli.commands.line_options import (
    EncoderPrecisionOption,
    LineOptions,
    TextsArgument,
)
from tformer_cli.cli.commands.parts_of_input import count_lines
from tformer_cli.cli.commands.translate_options import FileOptions
from tformer_cli.cli.format_choice import format_by_name
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
)
from tformer_cli.text.lines import LineCounts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tformer_cli.kinds.lines.embed import VectorFormat

FORMATS: tuple["VectorFormat", ...] = ("tsv", "jsonl", "npy", "safetensors")


@takes_groups
def embed(
    model: ModelArgument,
    text: TextsArgument = None,
    *,
    files: FileOptions,
    pictures: ReadImageOptions,
    output_format: Annotated[
        Literal["tsv", "jsonl", "npy", "safetensors"] | None,
        option(
            "tsv: numbers. jsonl: index, text, vector. npy, safetensors: one array.",
            "--format",
            shown="tsv; or by FILE's name",
        ),
    ] = None,
    pooling: Annotated[
        Literal["mean", "first", "first-and-mean"] | None,
        option(
            "Vector of a text or image: the mean of its tokens' states, or the first one's; of "
            "images also both.",
            shown="the model's",
        ),
    ] = None,
    normalize: Annotated[
        bool | None,
        option(
            "Divide vectors by their length, so that products of two are cosines.",
            "--normalize/--no-normalize",
            shown="the model's",
        ),
    ] = None,
    lines: LineOptions,
    device: DeviceOption = "auto",
    precision: EncoderPrecisionOption = "auto",
    threads: ThreadsOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Turn texts or images into vectors with an encoder: one row out for each line in.

    MODEL is an encoder such as BERT, DINOv2 or one of sentence-transformers, a masked language
    model, or a classifier. The order is kept. A blank line has an empty row, in arrays one of
    zeros. In float32 a line's vector does not depend on its neighbors. For a model of images a line
    is the name of one, as for `tformer classify`; --images takes all of a folder or file.

    Examples:
        tformer embed sentence-transformers/all-MiniLM-L6-v2 "not too terrible" --format jsonl
        tformer embed sentence-transformers/all-MiniLM-L6-v2 -i texts.txt -o vectors.npy
        tformer embed dinov2-small photos/*.jpg -o vectors.npy
    """
    pictures.check(has_texts=bool(text) or files.input_file is not None)
    chosen = format_by_name(output_format, files.output, FORMATS)
    counts = LineCounts()
    given: Iterator[str] = iter(())
    if pictures.images is None:
        names = read_config(model).model.reads_images
        given = input_lines(
            text, files.input_file, counts, "--input", quiet=quiet, takes_names=names
        )
    is_stdin = pictures.images is None and files.is_stdin(text)
    is_typed = is_stdin and stdin_is_terminal()
    from tformer_cli.kinds import kinds_for
    from tformer_cli.kinds.lines.embed import (
        array_writer,
        embed_lines,
        format_vector,
        vector_width,
    )
    from tformer_cli.kinds.opening.encoder import open_encoder

    n_truncated = n_damaged = n_done = 0
    with results(files.output) as stream, ExitStack() as stack:
        opened = open_encoder(
            model,
            kinds_for("embed"),
            device=device,
            precision=precision,
            threads=threads,
            tell=partial(note, quiet=quiet),
            before_torch=torch_preparation(threads),
        )
        note_choices(opened, quiet=quiet)
        add = None
        if chosen in ("npy", "safetensors"):
            width = vector_width(opened.directory.config, pooling)
            add = stack.enter_context(array_writer(stream, chosen, width))
        found = embed_lines(
            opened,
            pictures.names(opened) or given,
            lines.buffer_lines or (1 if is_typed else None),
            pooling=pooling,
            unit_length=normalize,
            too_long=lines.too_long,
            damaged=pictures.damaged,
            max_wait=lines.max_wait,
        )
        total = None if is_stdin else count_lines(files.input_file)
        with line_progress(
            total, "embedding", quiet=quiet or is_typed, output=files.output
        ) as progress:
            for buffer in found:
                for one in buffer:
                    n_truncated += one.is_truncated
                    n_damaged += bool(one.error)
                    if add is not None:
                        add(one)
                    else:
                        stream.write(utf8_line(format_vector(one, chosen)))
                stream.flush()
                n_done += len(buffer)
                progress.update(n_done)
    warn_of_bytes(counts)
    warn_of_damaged(n_damaged)
    if n_truncated:
        warn(f"{count_of_lines(n_truncated)} longer than the model takes; truncated")
