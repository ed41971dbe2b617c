"""The part of `tformer score` for classifiers: log-probabilities of given labels."""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tformer_cli.cli.console import note, utf8_line, warn
from tformer_cli.cli.line_progress import line_progress
from tformer_cli.cli.process import torch_preparation
from tformer_cli.cli.text_io import (
    check_stdin_is_read_once,
    count_of_lines,
    file_lines,
    note_choices,
    results,
    warn_of_bytes,
)
from tformer_cli.data.lines import LineCounts
from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    from tformer_cli.cli.commands.score import PairOptions
    from tformer_cli.cli.image_options import ImageOptions
    from tformer_cli.cli.options import DecodingPrecision


def score_labels(
    model: Path,
    pairs: "PairOptions",
    pictures: "ImageOptions",
    of_translations: Mapping[str, object],
    machine: tuple[str, "DecodingPrecision", Path | None, int],
    *,
    quiet: bool,
) -> None:
    """Writes the scores of the labels of texts or images.

    Args:
        model: the directory of a classifier.
        pairs: texts or names of images, their labels, and how scores are written and where.
        pictures: images with labels, in place of the texts.
        of_translations: options that only translations have, with their values.
        machine: device, precision, adapter and threads.
        quiet: whether progress is left out.

    Raises:
        UsageError: if one of those options is given, or there are no labels.
    """
    device, precision, adapter, threads = machine
    for name, value in {**of_translations, "--adapter": adapter}.items():
        if value is not None:
            raise UsageError(f"{name}: MODEL is a classifier; omit it")
    counts = LineCounts()
    given = _labelled(pairs, pictures, counts, quiet=quiet)
    from tformer_cli.workflows.classify import open_classifier
    from tformer_cli.workflows.score_labels import format_label_score, score_label_pairs

    n_truncated = 0
    with results(pairs.output) as stream:
        opened = open_classifier(
            model,
            device=device,
            precision=precision.value,
            threads=threads,
            tell=partial(note, quiet=quiet),
            before_torch=torch_preparation(threads),
        )
        note_choices(opened, quiet=quiet)
        with line_progress(None, "scoring", quiet=quiet) as progress:
            for scored in score_label_pairs(opened, given):
                n_truncated += scored.is_truncated
                stream.write(utf8_line(format_label_score(scored, pairs.output_format)))
                progress.update(scored.index + 1)
    warn_of_bytes(counts)
    if n_truncated:
        warn(f"{count_of_lines(n_truncated)} longer than the model takes; truncated")


def _labelled(
    pairs: "PairOptions", pictures: "ImageOptions", counts: LineCounts, *, quiet: bool
) -> Iterable[tuple[str, str]]:
    """Returns texts or names of images with their labels; a missing file is an error now."""
    labelled = pictures.labelled(pairs.target_file or "", "--target-file", counts)
    if labelled is not None:
        return labelled
    if pairs.source is None or pairs.target_file is None:
        missing = "--source" if pairs.source is None else "--target-file"
        what = "texts" if pairs.source is None else "labels"
        raise UsageError(
            f"{missing}: is missing; MODEL is a classifier, so name the file of the {what}"
        )
    files = (pairs.source, pairs.target_file)
    check_stdin_is_read_once(files)
    texts, labels = (file_lines(file, counts, quiet=quiet) for file in files)
    from tformer_cli.workflows.score import aligned_pairs

    return aligned_pairs(texts, labels)
