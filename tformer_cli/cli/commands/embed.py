"""`tformer embed`: a vector for each line, a text or the name of an image."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from tformer_cli.cli.encoder_job import LineJob, ReadImageOptions, TextsArgument
from tformer_cli.cli.format_choice import format_by_name
from tformer_cli.cli.options import ModelArgument, option_field

if TYPE_CHECKING:
    from tformer_cli.kinds.lines.embed import VectorFormat
    from tformer_cli.kinds.stored_model import Opened

FORMATS: tuple["VectorFormat", ...] = ("tsv", "jsonl", "npy", "safetensors")


def embed(
    model: ModelArgument,
    text: TextsArgument = None,
    *,
    job: LineJob,
    pictures: ReadImageOptions,
    output_format: Literal["tsv", "jsonl", "npy", "safetensors"] | None = option_field(
        None,
        "tsv: numbers. jsonl: index, text, vector. npy, safetensors: one array.",
        "--format",
        shown="tsv; or by FILE's name",
    ),
    pooling: Literal["mean", "first", "first-and-mean"] | None = option_field(
        None,
        "Vector of a text or image: the mean of its token states, or the first token's state; for "
        "images, also both.",
        shown="the model's",
    ),
    normalize: bool | None = option_field(
        None,
        "Scale vectors to length 1, so that their dot products are cosines.",
        "--normalize/--no-normalize",
        shown="the model's",
    ),
) -> None:
    """Turn texts or images into vectors with an encoder: one row out for each line in.

    MODEL is an encoder such as BERT, DINOv2 or a sentence-transformers model, a masked language
    model, or a classifier. The order is kept. A blank line becomes an empty row, or in arrays a row
    of zeros. In float32 a line's vector does not depend on its neighbors. For an image model, each
    line names an image, as for `tformer classify`; --images reads a whole folder or file.

    Examples:
        tformer embed all-MiniLM-L6-v2 "not too terrible" --format jsonl
        tformer embed all-MiniLM-L6-v2 -i texts.txt -o vectors.npy
        tformer embed dinov2-small photos/*.jpg -o vectors.npy
    """
    chosen = format_by_name(output_format, job.output, FORMATS)
    is_array = chosen in ("npy", "safetensors")
    from tformer_cli.kinds.lines.embed import array_writer, vector_width

    def write_array(
        opened: "Opened", stream: BinaryIO, buffers: Iterable[list[Any]]
    ) -> Iterator[list[Any]]:
        # The header of an array has the number of rows: it is written when all are there
        with array_writer(stream, chosen, vector_width(opened.config, pooling)) as add:
            for buffer in buffers:
                for result in buffer:
                    add(result)
                yield buffer

    job.run(
        "embed",
        "embedding",
        model,
        text,
        # The array has its own writer: additional lines would damage the file
        lambda result: None if is_array else result.line(chosen),
        pictures=pictures,
        write=write_array if is_array else None,
        pooling=pooling,
        unit_length=normalize,
        too_long=job.too_long,
    )
