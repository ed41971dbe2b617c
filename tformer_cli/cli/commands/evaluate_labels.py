"""The part of `tformer evaluate` for classifiers: scores of labels."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from tformer_cli.cli.console import utf8_line, write_line
from tformer_cli.cli.line_progress import line_progress
from tformer_cli.cli.process import torch_preparation
from tformer_cli.cli.text_io import note_choices, prompt_at_terminal, results, warn_of_bytes
from tformer_cli.data.lines import LineCounts
from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tformer_cli.cli.decoding_options import TranslatorOptions


def evaluate_labels(
    model: Path,
    files: "Sequence[Path]",
    output: Path | None,
    options: "TranslatorOptions",
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Scores the labels that a classifier gives.

    Args:
        model: its directory.
        files: the texts, and their right labels.
        output: where its labels go, too.
        options: device, precision and threads count.
        as_json: whether the scores are one JSON object instead of tables.
        quiet: whether progress is left out.

    Raises:
        UsageError: if there is not one file of labels.
    """
    if len(files) != 2:
        raise UsageError("--reference: a text has one right label; name one file")
    from tformer_cli.workflows import classify as workflow
    from tformer_cli.workflows.evaluate import read_texts

    read = LineCounts()
    prompt_at_terminal(files=files, quiet=quiet)
    sources, references = read_texts(files, read)
    with nullcontext() if output is None else results(output) as stream:
        opened = workflow.open_classifier(
            model,
            device=options.device,
            precision=options.precision.value,
            before_torch=torch_preparation(options.threads),
        )
        note_choices(opened, quiet=quiet)
        with line_progress(len(sources), "labelling", quiet=quiet) as progress:
            result = workflow.evaluate_classifier(opened, sources, references, progress.update)
        if stream is not None:
            stream.writelines(utf8_line(line) for line in result.predicted)
    warn_of_bytes(read)
    record = json.dumps(result.record(), ensure_ascii=False)
    for line in [record] if as_json else result.lines():
        write_line(line)
