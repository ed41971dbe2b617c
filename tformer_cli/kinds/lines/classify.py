"""Labeling texts or images with a classifier, and the probabilities of labels that are given."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from tformer_cli.errors import DataError
from tformer_cli.kinds.lines.job import LineResult, each_read, results_of
from tformer_cli.search.formats import TSV_ENDS
from tformer_cli.search.hypothesis import Several
from tformer_cli.show.notebook import html_table
from tformer_cli.text.images.named import short_name
from tformer_cli.text.lines import given_lines
from tformer_cli.wording import is_blank

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tformer_cli.kinds.lines.job import Damaged, TooLong
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.search.pooled import LabelHead

LabelFormat = Literal["text", "tsv", "jsonl"]
_LEAST = 1e-300
"""Smallest probability: its logarithm is still a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabeledText(LineResult, Several[tuple[str, float]]):
    """A text and its labels."""

    labels: tuple[tuple[str, float], ...]
    """Labels with their probabilities, the most probable first; none for a blank text."""

    @property
    def label(self) -> str:
        """The most probable label; empty for a blank text."""
        return self.labels[0][0] if self.labels else ""

    @property
    def _held(self) -> tuple[tuple[str, float], ...]:
        return self.labels

    def __str__(self) -> str:
        return self.line("text")

    def _repr_html_(self) -> str:
        return html_table(self.text, ("label", "probability"), self.labels)

    def line(self, output_format: LabelFormat, top: int = 1) -> str:
        """Writes it as a line, without its end, with the `top` best labels; 0: all."""
        if output_format == "text":
            return self.label.translate(TSV_ENDS)
        shown = self.labels[: top or None]
        if output_format == "tsv":
            cells = [str(self.index), self.text.translate(TSV_ENDS)]
            if not shown:  # as many columns as in other lines
                cells += ["", ""]
            for label, probability in shown:
                cells += [label.translate(TSV_ENDS), f"{probability:.6f}"]
            return "\t".join(cells)
        fields: dict[str, Any] = {
            "label": self.label or None,
            "probability": self.labels[0][1] if self.labels else None,
        }
        return self.object_line(fields | ({} if top == 1 else {"probabilities": dict(shown)}))


def label_texts(
    opened: Opened,
    texts: Sequence[str],
    first_index: int = 0,
    *,
    too_long: TooLong = "truncate",
    damaged: Damaged = "error",
) -> list[LabeledText]:
    """Labels texts; in float32 on a CPU what a text gets does not depend on the others."""
    names = opened.directory.info.labels

    def rank_labels(row: Sequence[float] | None) -> tuple[tuple[str, float], ...]:
        # The sort is stable: of equals the first named comes first
        pairs = zip(names, row, strict=True) if row else ()
        return tuple(sorted(pairs, key=lambda pair: -pair[1]))

    rows = each_read(
        opened.directory,
        texts,
        lambda ids: _probabilities(opened, ids),
        first_index=first_index,
        too_long=too_long,
        damaged=damaged,
    )
    return [LabeledText(**fields, labels=rank_labels(row)) for fields, row in rows]


def _probabilities(opened: Opened, texts: list[Sequence[int]]) -> list[list[float]]:
    """Computes the probability of every label for each of N lists of ids: (N, L)."""
    if opened.compiled is not None:
        head = cast("LabelHead", opened.head)
        return opened.compiled.each(texts, lambda _, hidden: head.probabilities(hidden))
    from tformer_cli.search.encoding import label_probabilities

    return label_probabilities(opened.directory.classifier, texts, opened.products)


def classify_lines(opened: Opened, lines: Iterable[str]) -> Iterator[LabeledText]:
    """Labels lines as they come, in order."""
    return results_of(
        opened.directory,
        given_lines(lines),
        lambda buffer, first: label_texts(opened, buffer, first),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredLabel(LineResult):
    """A text, or the name of an image, and the log-probability of a label that it was given."""

    label: str
    """The given one."""
    log_probability: float | None
    """ln p of it; None for a blank text, and an image that could not be read."""
    predicted: str
    """The most probable label; empty for a blank text."""

    def line(self, output_format: LabelFormat) -> str:
        """Writes it as a line, without its end."""
        value = self.log_probability
        shown = "" if value is None else f"{value:.6f}"
        if output_format == "text":
            return shown
        if output_format == "tsv":
            cells = (cell.translate(TSV_ENDS) for cell in (self.text, self.label))
            return "\t".join((str(self.index), *cells, shown, self.predicted.translate(TSV_ENDS)))
        return self.object_line(
            {"label": self.label, "log_probability": value, "predicted": self.predicted or None}
        )


def score_labels(
    opened: Opened,
    pairs: Sequence[tuple[str, str]],
    first_index: int = 0,
    damaged: Damaged = "error",
) -> list[ScoredLabel]:
    """Scores a label of each text or image; a blank text has none."""
    # Checked before any is computed: the answer to a wrong label comes at once
    examples = [(text, label.strip()) for text, label in pairs]
    check_labels(opened, examples, first_index)
    texts = [text for text, _ in examples]
    labeled = label_texts(opened, texts, first_index, damaged=damaged)
    scored = []
    for result, (_, label) in zip(labeled, examples, strict=True):
        share = dict(result.labels).get(label)
        scored.append(
            ScoredLabel(
                index=result.index,
                text=result.text,
                label=label,
                log_probability=None if share is None else math.log(max(share, _LEAST)),
                predicted=result.label,
                is_truncated=result.is_truncated,
                error=result.error,
            )
        )
    return scored


def check_labels(
    opened: Opened,
    pairs: Sequence[tuple[str, str]],
    first: int = 0,
    *,
    takes_blank: bool = True,
) -> None:
    """Checks that a classifier has the labels of examples, from number `first` on."""
    for number, (text, label) in enumerate(pairs, first + 1):
        if not is_blank(text) and label not in opened.directory.info.labels:
            problem = f'"{label}" is not a label of {opened.directory.path}'
        elif is_blank(text) and not takes_blank:
            problem = "has no text"
        else:
            continue
        if opened.config.reads_images:
            raise DataError(f"{short_name(text)}: {problem}; correct it, or leave the image out")
        raise DataError(
            f"line {number} of texts and labels: {problem}; correct it, or remove the line from "
            "both"
        )
