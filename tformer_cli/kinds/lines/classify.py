"""Labeling texts or images with a classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from tformer_cli.kinds.lines.job import LineResult, each_read, results_of
from tformer_cli.search.formats import TSV_ENDS
from tformer_cli.text.lines import given_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tformer_cli.kinds.lines.job import Damaged, TooLong
    from tformer_cli.kinds.opening import Opened
    from tformer_cli.search.pooled import LabelHead

LabelFormat = Literal["text", "tsv", "jsonl"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabeledText(LineResult):
    """A text and its labels."""

    labels: tuple[tuple[str, float], ...]
    """Labels with their probabilities, the most probable first; none for a blank text."""

    @property
    def label(self) -> str:
        """The most probable label; empty for a blank text."""
        return self.labels[0][0] if self.labels else ""

    def line(self, output_format: LabelFormat, top: int = 1) -> str:
        """Writes it as a line, without its end, with so many labels; 0: all."""
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

    def ranked(row: Sequence[float] | None) -> tuple[tuple[str, float], ...]:
        # The sort is stable: of equals the first named comes first
        pairs = zip(names, row, strict=True) if row else ()
        return tuple(sorted(pairs, key=lambda pair: -pair[1]))

    found = each_read(
        opened.directory,
        texts,
        lambda ids: _probabilities(opened, ids),
        first_index=first_index,
        too_long=too_long,
        damaged=damaged,
    )
    return [LabeledText(**fields, labels=ranked(row)) for fields, row in found]


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
