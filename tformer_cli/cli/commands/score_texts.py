"""The part of `tformer score` for other tasks: log-probabilities of texts, and of given labels."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tformer_cli.cli.image_options import warn_of_damaged
from tformer_cli.cli.options import torch_preparation
from tformer_cli.cli.progress import line_progress
from tformer_cli.cli.streams import (
    check_stdin_is_read_once,
    count_of_lines,
    file_lines,
    note,
    note_choices,
    results,
    utf8_line,
    warn,
    warn_of_bytes,
)
from tformer_cli.errors import UsageError
from tformer_cli.text.lines import LineCounts

if TYPE_CHECKING:
    from tformer_cli.cli.commands.score import PairOptions
    from tformer_cli.cli.image_options import ReadImageOptions
    from tformer_cli.cli.options import DecodingPrecision

Machine = tuple[str, "DecodingPrecision", Path | None, int]
"""Device, precision, adapter and threads."""
Opening = dict[str, Any]
"""The same, without the adapter, by the names that functions have for them."""


def score_texts(
    model: Path,
    pairs: "PairOptions",
    of_translations: Mapping[str, object],
    machine: Machine,
    *,
    is_masked: bool,
    quiet: bool,
) -> None:
    """Writes the scores of the lines of a text, of a masked language model pseudo-log-likelihoods.

    Args:
        model: the directory of a language model, or a masked one.
        pairs: the text, and how scores are written and where.
        of_translations: options that only translations have, with their values.
        machine: see `Machine`.
        is_masked: whether it is a masked one.
        quiet: whether progress is left out.

    Raises:
        UsageError: if one of those options is given, or the file of texts is not named.
    """
    if pairs.source is None:
        raise UsageError("--source: is missing; name the file of the texts")
    _refuse(
        {"--target-file": pairs.target_file, **of_translations},
        "MODEL is a language model, without a source; omit it",
    )
    adapter = machine[2]
    if is_masked:
        _refuse({"--adapter": adapter}, "is of other models; omit it")
    counts = LineCounts()
    lines = file_lines(pairs.source, counts, quiet=quiet)
    from tformer_cli.kinds.lines.score_texts import (
        format_text_score,
        score_masked_lines,
        score_text_lines,
    )

    def begin(opening: Opening) -> tuple[Any, Iterator[Any]]:
        if is_masked:
            from tformer_cli.kinds.opening.encoder import open_encoder

            encoder = open_encoder(model, ("masked",), **opening)
            return encoder, score_masked_lines(encoder, lines)
        from tformer_cli.kinds.opening.generator import open_generator

        generator = open_generator(model, adapter=adapter, **opening)
        return generator, score_text_lines(generator, lines)

    _write(begin, format_text_score, pairs, machine, counts, quiet=quiet)


def score_labels(
    model: Path,
    pairs: "PairOptions",
    pictures: "ReadImageOptions",
    of_translations: Mapping[str, object],
    machine: Machine,
    *,
    quiet: bool,
) -> None:
    """Writes the scores of the labels of texts or images.

    Args:
        model: the directory of a classifier.
        pairs: texts or names of images, their labels, and how scores are written and where.
        pictures: images with labels, in place of the texts.
        of_translations: options that only translations have, with their values.
        machine: see `Machine`.
        quiet: whether progress is left out.

    Raises:
        UsageError: if one of those options is given, or there are no labels.
    """
    _refuse({**of_translations, "--adapter": machine[2]}, "MODEL is a classifier; omit it")
    counts = LineCounts()
    given = _labeled(pairs, pictures, counts, quiet=quiet)
    from tformer_cli.kinds.lines.classify import open_classifier
    from tformer_cli.kinds.lines.score_labels import format_label_score, score_label_pairs

    def begin(opening: Opening) -> tuple[Any, Iterator[Any]]:
        classifier = open_classifier(model, **opening)
        return classifier, score_label_pairs(classifier, given, pictures.damaged)

    _write(begin, format_label_score, pairs, machine, counts, quiet=quiet)


def _refuse(options: Mapping[str, object], why: str) -> None:
    """Refuses options that are given.

    Raises:
        UsageError: naming the first of them.
    """
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"{name}: {why}")


def _labeled(
    pairs: "PairOptions", pictures: "ReadImageOptions", counts: LineCounts, *, quiet: bool
) -> Iterable[tuple[str, str]]:
    """Returns texts or names of images with their labels; a missing file is an error now."""
    labeled = pictures.labeled(pairs.target_file or "", "--target-file", counts)
    if labeled is not None:
        return labeled
    if pairs.source is None or pairs.target_file is None:
        missing = "--source" if pairs.source is None else "--target-file"
        what = "texts" if pairs.source is None else "labels"
        raise UsageError(
            f"{missing}: is missing; MODEL is a classifier, so name the file of the {what}"
        )
    files = (pairs.source, pairs.target_file)
    check_stdin_is_read_once(files)
    texts, labels = (file_lines(file, counts, quiet=quiet) for file in files)
    from tformer_cli.kinds.lines.score import aligned_pairs

    return aligned_pairs(texts, labels)


def _write(
    begin: Callable[[Opening], tuple[Any, Iterator[Any]]],
    format_score: Callable[[Any, Any], str],
    pairs: "PairOptions",
    machine: Machine,
    counts: LineCounts,
    *,
    quiet: bool,
) -> None:
    """Opens a model and writes what it scores, line by line."""
    device, precision, _, threads = machine
    n_truncated = n_damaged = 0
    with results(pairs.output) as stream:
        opened, found = begin(
            {
                "device": device,
                "precision": precision.value,
                "threads": threads,
                "tell": partial(note, quiet=quiet),
                "before_torch": torch_preparation(threads),
            }
        )
        note_choices(opened, quiet=quiet)
        with line_progress(None, "scoring", quiet=quiet, output=pairs.output) as progress:
            for scored in found:
                n_truncated += scored.is_truncated
                n_damaged += bool(getattr(scored, "error", ""))
                stream.write(utf8_line(format_score(scored, pairs.output_format)))
                progress.update(scored.index + 1)
    warn_of_bytes(counts)
    warn_of_damaged(n_damaged)
    if n_truncated:
        warn(f"{count_of_lines(n_truncated)} longer than the model takes; truncated")
