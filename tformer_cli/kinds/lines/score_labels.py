"""Scoring given labels with a classifier: how probable each is, so that wrong ones can be found."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from tformer_cli.errors import DataError
from tformer_cli.kinds.opening.encoder import computed_by_buffer
from tformer_cli.search.formats import TSV_ENDS
from tformer_cli.text.images.named import short_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tformer_cli.kinds.lines.classify import LabeledText, OpenedClassifier
    from tformer_cli.kinds.lines.score import ScoreFormat
    from tformer_cli.kinds.opening.encoder import Damaged

_LEAST = 1e-300
"""Smallest probability: its logarithm is still a number."""


@dataclass(frozen=True, slots=True)
class ScoredLabel:
    """A text, or the name of an image, and the log-probability of a label that it was given."""

    index: int
    """Number of the line, from 0."""
    text: str
    label: str
    """The given one."""
    log_probability: float | None
    """ln p of it; None for a blank text, and an image that could not be read."""
    predicted: str
    """The most probable label; empty for a blank text."""
    is_truncated: bool
    """True if the text was longer than the model takes; its end was cut off."""
    error: str = ""
    """The problem with an image that could not be read."""


def check_labels(
    opened: OpenedClassifier,
    pairs: Sequence[tuple[str, str]],
    first: int = 0,
    *,
    takes_blank: bool = True,
) -> None:
    """Makes sure that a classifier has the labels of some examples.

    Args:
        opened: from `open_classifier`.
        pairs: texts or names of images, with a label each.
        first: number of the first one, from 0.
        takes_blank: whether a blank text will do.

    Raises:
        DataError: naming the line or image that has another label, or none to read.
    """
    for number, (text, label) in enumerate(pairs, first + 1):
        if text.strip() and label not in opened.directory.info.labels:
            problem = f'"{label}" is none of the labels of {opened.directory.path}'
        elif not text.strip() and not takes_blank:
            problem = "has no text"
        else:
            continue
        if opened.reads_images:
            raise DataError(f"{short_name(text)}: {problem}; correct it, or leave the image out")
        raise DataError(
            f"line {number} of texts and labels: {problem}; correct it, or remove the line from "
            "both"
        )


def score_label_pairs(
    opened: OpenedClassifier, pairs: Iterable[tuple[str, str]], damaged: Damaged = "error"
) -> Iterator[ScoredLabel]:
    """Scores a label of each text or image, some at a time.

    Args:
        opened: from `open_classifier`.
        pairs: texts or names of images, with a label each; a blank text has none.
        damaged: what becomes of images that cannot be read.

    Raises:
        DataError: naming the line whose label is none of the model's, or whose image cannot be
            read.
    """

    def compute(buffer: list[tuple[str, str]], first: int) -> list[ScoredLabel]:
        given = [(text, label.strip()) for text, label in buffer]
        check_labels(opened, given, first)
        labeled = opened.label([text for text, _ in given], first_index=first, damaged=damaged)
        return [_scored(one, label) for one, (_, label) in zip(labeled, given, strict=True)]

    yield from chain.from_iterable(computed_by_buffer(opened.directory, pairs, compute))


def _scored(found: LabeledText, label: str) -> ScoredLabel:
    share = dict(found.labels).get(label)
    return ScoredLabel(
        index=found.index,
        text=found.text,
        label=label,
        log_probability=None if share is None else math.log(max(share, _LEAST)),
        predicted=found.label,
        is_truncated=found.is_truncated,
        error=found.error,
    )


def format_label_score(scored: ScoredLabel, output_format: ScoreFormat) -> str:
    """Writes a scored label as a line, without its end.

    Args:
        scored: the label and its text.
        output_format: "text": the log-probability, nothing for a blank text; "tsv": index, text,
            label, log-probability, the most probable label; "jsonl": an object.
    """
    value = scored.log_probability
    shown = "" if value is None else f"{value:.6f}"
    if output_format == "text":
        return shown
    if output_format == "tsv":
        text, label, predicted = (
            one.translate(TSV_ENDS) for one in (scored.text, scored.label, scored.predicted)
        )
        return "\t".join((str(scored.index), text, label, shown, predicted))
    record: dict[str, Any] = {
        "index": scored.index,
        "text": scored.text,
        "label": scored.label,
        "log_probability": value,
        "predicted": scored.predicted or None,
    }
    if scored.is_truncated:
        record["truncated"] = True
    if scored.error:
        record["error"] = scored.error
    return json.dumps(record, ensure_ascii=False)
