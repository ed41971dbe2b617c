"""`tformer tag`: a label for each word of each line."""

from typing import Annotated, ClassVar, Literal

from tformer_cli.cli.encoder_job import LineJob, TextsArgument
from tformer_cli.cli.options import ModelArgument, option, takes_groups
from tformer_cli.settings import dataclass


@dataclass(frozen=True, kw_only=True)
class TagJob(LineJob):
    """The job of lines that are never too long: they are read in parts."""

    too_long: ClassVar[Literal["error"]] = "error"  # type: ignore[misc] # no option


@takes_groups
def tag(
    model: ModelArgument,
    text: TextsArgument = None,
    *,
    job: TagJob,
    output_format: Annotated[
        Literal["text", "jsonl"],
        option("text: a label for each word. jsonl: one object per line.", "--format"),
    ] = "text",
) -> None:
    """Label the words of texts: one line out for each line in.

    White space separates words, and each word gets a label. The order is kept. Blank lines stay
    blank. In float32 a line's labels and probabilities do not depend on its neighbors. Lines longer
    than the model takes are read in parts.

    Examples:
        tformer tag runs/names "Anna lives in Paris ."
        tformer tag runs/names -i words.txt -o labels.txt
        tformer tag runs/names -i words.txt --format jsonl
    """
    job.run("tag", "labeling", model, text, lambda result: result.line(output_format))
