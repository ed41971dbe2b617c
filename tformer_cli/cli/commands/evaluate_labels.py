"""The part of `tformer evaluate` for classifiers: scores of labels."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from tformer_cli.cli.commands.changes import change_lines, change_record, signature
from tformer_cli.cli.console import stdout_console, utf8_line, write_line
from tformer_cli.cli.image_options import warn_of_damaged
from tformer_cli.cli.line_progress import line_progress
from tformer_cli.cli.process import torch_preparation
from tformer_cli.cli.text_io import (
    check_stdin_is_read_once,
    file_lines,
    note_choices,
    prompt_at_terminal,
    results,
    warn_of_bytes,
)
from tformer_cli.data.lines import LineCounts
from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from tformer_cli.cli.commands.evaluate import TextOptions
    from tformer_cli.cli.decoding_options import TranslatorOptions
    from tformer_cli.cli.image_options import ReadImageOptions
    from tformer_cli.evaluation.significance import PairedDifference
    from tformer_cli.workflows.classify import LabelEvaluation


def evaluate_labels(
    model: Path,
    texts: "TextOptions",
    pictures: "ReadImageOptions",
    options: "TranslatorOptions",
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Scores the labels that a classifier gives."""
    references = texts.reference or ()
    if len(references) != 1 and not (pictures.images and not references):
        raise UsageError("--reference: an example has one right label; name one file")
    from tformer_cli.workflows import classify as workflow

    if texts.baseline is not None and texts.baseline_model is not None:
        raise UsageError("--baseline-model: --baseline has its labels; omit one of the two")
    read = LineCounts()
    given: list[list[str]] = []
    label = str(references[0]) if references else ""
    pairs = pictures.labeled(label, "--reference", read)
    if pairs is not None:
        sources, right = map(list, zip(*pairs, strict=True))
        if texts.baseline is not None:
            given = [list(file_lines(str(texts.baseline), read, quiet=quiet))]
    else:
        from tformer_cli.workflows.evaluate import read_texts

        check_stdin_is_read_once(texts.files)
        prompt_at_terminal(files=texts.files, quiet=quiet)
        sources, right, *given = read_texts(texts.files, read)
    with nullcontext() if texts.output is None else results(texts.output) as stream:
        opened = workflow.open_classifier(
            model,
            device=options.device,
            precision=options.precision,
            threads=options.threads,
            before_torch=torch_preparation(options.threads),
        )
        note_choices(opened, quiet=quiet)
        pictures.check_model(reads_images=opened.reads_images)
        damaged = pictures.damaged
        with line_progress(len(sources), "labeling", quiet=quiet) as progress:
            result = workflow.evaluate_classifier(opened, sources, right, progress.update, damaged)
        if stream is not None:
            stream.writelines(utf8_line(line) for line in result.predicted)
        if texts.baseline_model is not None:
            other = workflow.open_classifier(
                texts.baseline_model,
                device=options.device,
                precision=options.precision,
                threads=options.threads,
                before_torch=torch_preparation(options.threads),
            )
            compared = workflow.evaluate_classifier(other, sources, right, damaged=damaged)
            given = [list(compared.predicted)]
    warn_of_bytes(read)
    warn_of_damaged(result.predicted.count(""), "omitted from the scores")
    changes = [one for labels in given for one in workflow.compare_predictions(result, labels)]
    if as_json:
        more = change_record(changes, signature("examples")) if changes else {}
        write_line(json.dumps(result.record() | more, ensure_ascii=False))
        return
    show_scores(stdout_console(), result, changes)


def show_scores(
    console: "Console", result: "LabelEvaluation", changes: "Sequence[PairedDifference]"
) -> None:
    """Prints the scores of labels, and the changes from another classifier's."""
    from rich.text import Text

    compared = ["", *change_lines(changes, signature("examples"), 2)] if changes else []
    for line in (*result.lines(console.width), *compared):
        console.print(Text(line), soft_wrap=True)
