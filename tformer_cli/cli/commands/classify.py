"""`tformer classify`: a label for each line, a text or the name of an image."""

from dataclasses import dataclass
from typing import Literal

from tformer_cli.cli.encoder_job import LineJob, ReadImageOptions
from tformer_cli.cli.options import ModelArgument, argument, option_field
from tformer_cli.errors import UsageError

CLASSIFIED = argument("TEXT", "Texts to label; without any, reads -i or stdin.", default=None)


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """The output."""

    output_format: Literal["text", "tsv", "jsonl"] = option_field(
        "text",
        "text: the label. tsv: index, text, label, probability. jsonl: one object per line.",
        "--format",
    )
    top: int = option_field(
        1, "Labels per line, with their probabilities, for tsv and jsonl; 0: all.", min=0
    )


def classify(
    model: ModelArgument,
    text: list[str] | None = CLASSIFIED,
    *,
    job: LineJob,
    pictures: ReadImageOptions,
    labels: LabelOptions,
) -> None:
    """Label texts or images: one line out for each line in.

    The order is kept. Blank lines stay blank. In float32 a line's label and probability do not
    depend on its neighbors. For an image model, each line is the path of a picture, FILE#NUMBER for
    an image in an idx file, or the image's pixel values; --images reads a whole folder or file.

    Examples:
        tformer classify runs/ratings "The soup was not too terrible."
        tformer classify runs/ratings -i reviews.txt | sort | uniq -c
        tformer classify runs/ratings -i reviews.txt --format jsonl --top 0
        tformer classify runs/shapes shapes/pictures/ring/*.png --format tsv
        tformer classify runs/shapes --images shapes/test.images.idx
    """
    if labels.top != 1 and labels.output_format == "text":
        raise UsageError("--top: text is one label per line; add --format tsv or jsonl")
    job.run(
        "classify",
        "labeling",
        model,
        text,
        lambda result: result.line(labels.output_format, labels.top),
        pictures=pictures,
        too_long=job.too_long,
    )
