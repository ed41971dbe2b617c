"""`tformer fill`: candidates for the gaps in lines."""

from typing import Literal

from tformer_cli.cli.encoder_job import LineJob, TextsArgument
from tformer_cli.cli.options import ModelArgument, option_field
from tformer_cli.errors import UsageError


def fill(
    model: ModelArgument,
    text: TextsArgument = None,
    *,
    job: LineJob,
    output_format: Literal["text", "tsv", "jsonl"] = option_field(
        "text",
        "text: the line with each gap filled by the best token. tsv: index, text, then token and "
        "probability for each candidate of each gap. jsonl: one object per line.",
        "--format",
    ),
    top: int | None = option_field(
        None, "Candidates for each gap, for tsv and jsonl; 0: all tokens.", shown="5", min=0
    ),
) -> None:
    """Fill gaps in texts with a masked language model: one line out for each line in.

    A gap is written [MASK], or as the model's own files name it. If a line has several gaps, each
    is filled on its own. Lines without a gap stay as they are; a warning counts them. In float32 a
    line's candidates do not depend on its neighbors.

    Examples:
        tformer fill bert-base-uncased "Paris is the [MASK] of France."
        tformer fill bert-base-uncased -i gaps.txt --format jsonl --top 3
    """
    if top is not None and output_format == "text":
        raise UsageError("--top: text fills each gap once; add --format tsv or jsonl")
    # After the check: a wrong option is an error at once, not after the imports
    from tformer_cli.kinds.lines.fill import TOP, gap_names

    job.run(
        "fill",
        "filling",
        model,
        text,
        lambda result: result.line(output_format),
        gap_names=gap_names,
        top=1 if output_format == "text" else TOP if top is None else top,
        too_long=job.too_long,
    )
