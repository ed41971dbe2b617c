"""Labelling texts or images with a classifier."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from tformer_cli.artifacts.model_directory import ModelDirectory, read_model_directory
from tformer_cli.errors import DataError, UsageError
from tformer_cli.foreign.import_model import resolve_model
from tformer_cli.kinds.lines.score_labels import check_labels, score_label_pairs
from tformer_cli.kinds.opening.encoder import (
    Damaged,
    TooLong,
    computed_by_buffer,
    fitting,
    source_ids,
)
from tformer_cli.kinds.opening.label_scorer import LabelScorer, label_scorer
from tformer_cli.kinds.opening.translator import device_of
from tformer_cli.metrics.labels import ClassificationScores, score_labels
from tformer_cli.search.formats import TSV_ENDS
from tformer_cli.search.opening import OpeningSettings
from tformer_cli.text.lines import given_lines
from tformer_cli.text.tokenizer import UNK_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from tformer_cli.metrics.significance import PairedDifference
    from tformer_cli.model.config import Precision
    from tformer_cli.model.encoder_only import Classifier

LabelFormat = Literal["text", "tsv", "jsonl"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabeledText:
    """A text and its labels."""

    index: int
    """Number of the line, from 0."""
    text: str
    labels: tuple[tuple[str, float], ...]
    """Labels with their probabilities, the most probable first; none for a blank text."""
    is_truncated: bool = False
    """True if the text was longer than the model takes; its end was cut off."""
    error: str = ""
    """The problem with an image that could not be read."""
    n_unknown: int = 0
    """Words or characters that the model does not know; it reads `<unk>` in their place."""

    @property
    def label(self) -> str:
        """The most probable label; empty for a blank text."""
        return self.labels[0][0] if self.labels else ""


@dataclass(frozen=True, kw_only=True)
class OpenedClassifier:
    """A classifier ready to label texts, and where and how it computes."""

    directory: ModelDirectory
    place: str
    """Name of the device."""
    precision: Precision
    scorer: LabelScorer
    """What computes the probabilities of labels."""
    engine: str = "tformer"

    def label(
        self,
        texts: Sequence[str],
        too_long: TooLong = "truncate",
        first_index: int = 0,
        damaged: Damaged = "error",
    ) -> list[LabeledText]:
        """Labels texts; in float32 on a CPU what a text gets does not depend on the others.

        Args:
            texts: the texts; a blank one has no label.
            first_index: number of the first one.
            too_long: what becomes of texts longer than the model takes.
            damaged: what becomes of images that cannot be read.

        Raises:
            DataError: if one is too long and `too_long` is "error", or an image cannot be read.
        """
        ids, problems = source_ids(self.directory, texts, first_index, damaged)
        read = fitting(self.directory, ids, too_long, first_index)
        there = [number for number, one in enumerate(read) if one]
        rows = self.scorer([read[number] for number in there])
        found = dict(zip(there, rows, strict=True))
        return [
            LabeledText(
                index=first_index + number,
                text=text,
                labels=self._ranked(found.get(number, [])),
                is_truncated=len(ids[number]) > len(read[number]),
                error=problems.get(number, ""),
                # the ids of an image are its pixels
                n_unknown=0 if self.reads_images else ids[number].count(UNK_ID),
            )
            for number, text in enumerate(texts)
        ]

    @property
    def reads_images(self) -> bool:
        """True if it labels images, whose names stand in the place of texts."""
        return self.directory.config.reads_images

    def _ranked(self, row: Sequence[float]) -> tuple[tuple[str, float], ...]:
        """Pairs probabilities with labels, the most probable first; of equals the first named."""
        pairs = zip(self.directory.info.labels, row, strict=False)  # none of a blank
        return tuple(sorted(pairs, key=lambda pair: -pair[1]))


def open_classifier(
    model: Path | str,
    *,
    device: str = "auto",
    precision: str = "auto",
    threads: int = 0,
    tell: Callable[[str], None] | None = None,
    before_torch: Callable[[], None] | None = None,
) -> OpenedClassifier:
    """Reads the directory of a classifier.

    Args:
        model: the model directory.
        device: "auto", "cpu", "cuda" or "cuda:N".
        precision: "auto" and "float32" compute in float32, "bfloat16" products in that.
        threads: CPU threads of the compiled kernels (0: as many as torch would use).
        tell: told of what takes long.
        before_torch: called before torch computes.

    Raises:
        UsageError: if the device is not there, or the precision is of translation alone.
        ArtifactError: if the directory cannot be used, or the model is of another task.
    """
    if precision not in ("auto", "float32", "bfloat16"):
        raise UsageError(f"--precision: classifiers do not compute in {precision}; omit it")
    settings = OpeningSettings(device=device, threads=threads, tell=tell, before_torch=before_torch)
    place = device_of(settings)
    path = resolve_model(model, tell, "float32")
    stored, weights = read_model_directory(path, place, tasks=("classify", "image"))

    def load() -> Classifier:
        settings.prepare_torch()
        return stored.classifier

    directory = replace(stored, load=load)
    chosen: Precision = "bfloat16" if precision == "bfloat16" else "float32"
    return OpenedClassifier(
        directory=directory,
        place=place,
        precision=chosen,
        scorer=label_scorer(directory, weights, place, chosen, settings),
    )


def classify_lines(
    opened: OpenedClassifier,
    lines: Iterable[str],
    buffer_lines: int | None = None,
    *,
    too_long: TooLong = "truncate",
    damaged: Damaged = "error",
    max_wait: float | None = None,
) -> Iterator[list[LabeledText]]:
    """Labels lines as they come, in order, a buffer at a time.

    Args:
        opened: from `open_classifier`.
        lines: the texts.
        buffer_lines: lines that are batched together; 1 answers line by line; None: as many as
            usual, of large images only some.
        too_long: what becomes of lines longer than the model takes.
        damaged: what becomes of images that cannot be read.
        max_wait: seconds after which a buffer is labeled although it is not full.

    Raises:
        TypeError: if the lines are one string, or hold something else.
        DataError: if a line is too long and `too_long` is "error", or an image cannot be read.
    """

    def compute(buffer: list[str], first: int) -> list[LabeledText]:
        return opened.label(buffer, too_long, first, damaged)

    lines = given_lines(lines)
    yield from computed_by_buffer(opened.directory, lines, compute, buffer_lines, max_wait)


def format_label(labeled: LabeledText, output_format: LabelFormat, top: int = 1) -> str:
    """Writes a labeled text as a line, without its end.

    Args:
        labeled: what to write.
        output_format: "text": the label; "tsv": index, text, label, probability; "jsonl": an
            object.
        top: labels of "tsv" and "jsonl", each with its probability; "jsonl" lists them if that
            is not 1. 0: all.
    """
    if output_format == "text":
        return labeled.label.translate(TSV_ENDS)
    shown = labeled.labels[: top or None]
    if output_format == "tsv":
        cells = [str(labeled.index), labeled.text.translate(TSV_ENDS)]
        if not shown:
            cells += ["", ""]
        for label, probability in shown:
            cells += [label.translate(TSV_ENDS), f"{probability:.6f}"]
        return "\t".join(cells)
    record: dict[str, Any] = {"index": labeled.index, "text": labeled.text}
    record["label"] = labeled.label or None
    record["probability"] = labeled.labels[0][1] if labeled.labels else None
    if top != 1:
        record["probabilities"] = dict(shown)
    if labeled.is_truncated:
        record["truncated"] = True
    if labeled.error:
        record["error"] = labeled.error
    return json.dumps(record, ensure_ascii=False)


@dataclass(frozen=True, kw_only=True)
class LabelEvaluation:
    """Scores of a classifier on labeled texts, and its predictions."""

    scores: ClassificationScores
    loss: float
    """Mean -ln p of the right labels."""
    predicted: tuple[str, ...]
    """The label of each text; empty for an image that could not be read."""
    right: tuple[str, ...]
    """The right ones."""

    def record(self) -> dict[str, Any]:
        """Returns the scores as a JSON object; shares in percent."""
        scores = self.scores
        return {
            "lines": scores.n_examples,
            "accuracy": 100.0 * scores.accuracy,
            "macro_f1": 100.0 * scores.macro_f1,
            "loss": self.loss,
            "labels": [
                {
                    "label": one.label,
                    "precision": 100.0 * one.precision,
                    "recall": 100.0 * one.recall,
                    "f1": 100.0 * one.f1,
                    "examples": one.n_examples,
                }
                for one in scores.labels
            ],
            "confusion": [list(row) for row in scores.confusion],
        }

    def lines(self, room: int = 80) -> Iterator[str]:
        """Yields the scores as tables: of all examples, of each label, and the confusion matrix.

        Args:
            room: cells of a line; a matrix that is wider is continued below.
        """
        from tformer_cli.show.terminal import Column, table_lines

        scores = self.scores
        names = [one.label.translate(TSV_ENDS) for one in scores.labels]
        width = max(map(len, (*names, "macro F1")))
        yield f"{'accuracy':<{width}}  {100 * scores.accuracy:>9.2f}"
        yield f"{'macro F1':<{width}}  {100 * scores.macro_f1:>9.2f}"
        yield f"{'loss':<{width}}  {self.loss:>9.4f}  nats per example"
        yield f"{'examples':<{width}}  {scores.n_examples:>9,}"
        yield ""
        yield f"{'label':<{width}}  precision    recall        F1  examples"
        for name, one in zip(names, scores.labels, strict=True):
            shares = "".join(f"{100 * x:>9.2f} " for x in (one.precision, one.recall, one.f1))
            yield f"{name:<{width}}  {shares}{one.n_examples:>9,}"
        yield ""
        yield "confusion matrix: right labels in rows, given in columns"
        given = zip(names, zip(*scores.confusion, strict=True), strict=True)
        columns = [Column("", names, is_label=True)]
        columns += [Column(name, [f"{n:,}" for n in column]) for name, column in given]
        for line in table_lines(columns, room):
            yield line.plain


def evaluate_classifier(
    opened: OpenedClassifier,
    texts: Sequence[str],
    labels: Sequence[str],
    progress: Callable[[int], None] | None = None,
    damaged: Damaged = "error",
) -> LabelEvaluation:
    """Labels texts and compares the labels with the right ones.

    Args:
        opened: from `open_classifier`.
        texts: the texts, none blank.
        labels: the right label of each.
        progress: called with the number of texts labeled.
        damaged: whether an image that cannot be read is an error, or left out of the scores.

    Raises:
        DataError: if the numbers differ, a text is blank, or a label is none of the model's; or an
            image cannot be read and that is an error, or none can.
    """
    known = opened.directory.info.labels
    right = [label.strip() for label in labels]
    if len(texts) != len(right):
        raise DataError(
            f"there are {len(texts):,} texts but {len(right):,} labels; give files whose lines "
            "correspond"
        )
    check_labels(opened, list(zip(texts, right, strict=True)), takes_blank=False)
    predicted, losses = [], []
    for one in score_label_pairs(opened, zip(texts, right, strict=True), damaged):
        predicted.append(one.predicted)
        if one.log_probability is not None:
            losses.append(-one.log_probability)
        if progress is not None:
            progress(len(predicted))
    if predicted and not losses:
        raise DataError(f"none of the {len(predicted):,} images can be read; name others")
    read = [number for number, label in enumerate(predicted) if label]
    return LabelEvaluation(
        scores=score_labels([predicted[n] for n in read], [right[n] for n in read], known),
        loss=math.fsum(losses) / max(1, len(losses)),
        predicted=tuple(predicted),
        right=tuple(right),
    )


def compare_predictions(result: LabelEvaluation, baseline: Sequence[str]) -> list[PairedDifference]:
    """Compares a classifier with other labels of the same examples by paired bootstrap.

    Args:
        result: of the classifier.
        baseline: the other label of each example.

    Raises:
        DataError: if the numbers differ.
    """
    from tformer_cli.metrics.significance import compare_labels

    labels = [label.strip() for label in baseline]
    if len(labels) != len(result.right):
        raise DataError(
            f"--baseline: has {len(labels):,} labels, but there are {len(result.right):,} "
            "examples; give files whose lines correspond"
        )
    read = [number for number, label in enumerate(result.predicted) if label]
    return compare_labels(
        *([one[number] for number in read] for one in (labels, result.predicted, result.right))
    )
