"""Scores of a model, or of given translations, by the metrics of its kind."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack

from tformer_cli.artifacts.config_file import TASKS
from tformer_cli.errors import ArtifactError, DataError, UsageError
from tformer_cli.kinds import kind_of
from tformer_cli.kinds.lines.generate import log_probabilities
from tformer_cli.kinds.lines.job import ResultCounts
from tformer_cli.kinds.opening import open_model
from tformer_cli.kinds.stored_model import Opened
from tformer_cli.kinds.texts import text_ids
from tformer_cli.metrics.choices import record_key
from tformer_cli.search.formats import TSV_ENDS
from tformer_cli.search.hypothesis import longest_source
from tformer_cli.search.text_windows import text_scores
from tformer_cli.show.notebook import html_table
from tformer_cli.text.blocks import join_lines
from tformer_cli.text.config import CorpusConfig
from tformer_cli.text.corpora import read_corpus
from tformer_cli.text.lines import (
    JSONL,
    TSV,
    LineCounts,
    check_lines,
    ending_of,
    given_lines,
    read_lines,
)
from tformer_cli.wording import is_blank

# sacrebleu, numpy and torch are imported where something is computed with them

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.kinds.lines.job import Damaged
    from tformer_cli.kinds.masked import MaskedScores
    from tformer_cli.metrics.labels import ClassificationScores
    from tformer_cli.metrics.scores import Score
    from tformer_cli.metrics.significance import PairedDifference, TestedMetric
    from tformer_cli.search.keywords import TranslatorOptions
    from tformer_cli.search.text_windows import TextScores

# exp of more than 709 overflows a float.
LARGEST_EXPONENT = 700.0
TextKind = Literal["lines", "stream"]
BLOCK = 128
"""Tokens of a stream that are drawn together: neighbors are not independent of each other."""
AnyScores = TypeVar("AnyScores", "TextScores", "MaskedScores")
Row = tuple[str, str, str]
"""A score to read: its name, its value, and how it was computed."""


class _Scored:
    """Scores that print as the command writes them into a pipe, and a notebook shows as a table."""

    rows: Callable[..., Iterator[Row]]

    def __str__(self) -> str:
        # A signature is one piece, to be copied and cut
        return "\n".join(f"{name:<12}{value:>9}  {how}" for name, value, how in self.rows())

    def _repr_html_(self) -> str:
        return html_table("", ("score", "value", "how it was computed"), [*self.rows()])


@dataclass(frozen=True, kw_only=True)
class Evaluation(_Scored):
    """Scores, with the hypotheses they were computed from."""

    scores: tuple[Score, ...]
    """BLEU, chrF2 and TER."""
    hypotheses: tuple[str, ...]
    tested: tuple[TestedMetric, ...] = ()
    """The same metrics with intervals, and tested against a baseline; see `with_tests`."""
    loss: float | None = None
    """With a model: mean -ln p of the tokens of the first reference, ends of sentence included."""

    @property
    def perplexity(self) -> float | None:
        return None if self.loss is None else math.exp(min(self.loss, LARGEST_EXPONENT))

    def record(self, *, has_intervals: bool = False) -> dict[str, Any]:
        record: dict[str, Any] = {"lines": len(self.hypotheses)}
        for score in self.scores:
            record[record_key(score.name)] = {"score": score.value, "signature": score.signature}
        for metric in self.tested:
            before, after = metric.scores[0], metric.scores[-1]
            more: dict[str, Any] = {"test": metric.signature}
            if has_intervals:
                more = {"mean": after.mean, "interval": after.interval} | more
            if len(metric.scores) > 1:
                more |= {
                    "baseline": before.value,
                    "p_value": after.p_value,
                    "equals_baseline": after.equals_baseline,
                    "untested": after.untested,
                }
            record[record_key(metric.name)] |= more
        if self.loss is not None:
            record |= {"loss": self.loss, "perplexity": self.perplexity}
        return record

    def rows(self, *, has_intervals: bool = False) -> Iterator[Row]:
        for score in self.scores:
            yield score.name, f"{score.value:.2f}", score.signature
        for metric in self.tested:
            before, after = metric.scores[0], metric.scores[-1]
            if has_intervals:
                ends = f"{after.mean - after.interval:.2f} to {after.mean + after.interval:.2f}"
                how = f"95 % of the scores of resampled texts: {ends}  {metric.signature}"
                yield f"{metric.name} mean", f"{after.mean:.2f}", how
            if len(metric.scores) > 1:
                change = f"{after.value - before.value:+.2f}"
                p = f"no p: {after.untested}" if after.untested else f"p = {after.p_value:.4f}"
                how = f"from {before.value:.2f}, {p}  {metric.signature}"
                yield f"{metric.name} change", change, how
        if self.loss is not None:
            yield "loss", f"{self.loss:.4f}", "nats per reference token"
            yield "perplexity", f"{self.perplexity:.2f}", "exp(loss)"


def with_tests(
    evaluation: Evaluation,
    references: Sequence[Sequence[str]],
    baseline: Sequence[str] | None = None,
    *,
    lowercase: bool = False,
    tokenize: str = "13a",
) -> Evaluation:
    """Adds confidence intervals by bootstrap, and tests against other translations if there are."""
    # It is the short form of `tformer compare`.
    from tformer_cli.metrics.scores import check_counts, make_metric
    from tformer_cli.metrics.significance import MeasuredMetric, TestSettings, paired_test

    systems = [evaluation.hypotheses]
    if baseline is not None:
        _check_texts(references, baseline=baseline)
        counts = [("the baseline", len(baseline)), ("the hypotheses", len(evaluation.hypotheses))]
        check_counts(counts)
        systems.insert(0, tuple(baseline))
    names = ("bleu", "chrf", "ter")
    metrics = [make_metric(name, lowercase=lowercase, tokenize=tokenize) for name in names]
    measured = [MeasuredMetric(metric, references) for metric in metrics]
    return replace(evaluation, tested=tuple(paired_test(systems, measured, TestSettings())))


def score_hypotheses(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    lowercase: bool = False,
    tokenize: str = "13a",
) -> Evaluation:
    """Scores translations against one or several references, raw and detokenized."""
    from tformer_cli.metrics.scores import bleu, chrf, ter

    _check_texts(references, hypotheses=hypotheses)
    scores = (
        bleu(hypotheses, references, lowercase=lowercase, tokenize=tokenize),
        chrf(hypotheses, references, lowercase=lowercase),
        ter(hypotheses, references),
    )
    return Evaluation(scores=scores, hypotheses=tuple(hypotheses))


def evaluate_model(
    model: Path | str | ModelDirectory | Opened,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    lowercase: bool = False,
    tokenize: str = "13a",
    counts: ResultCounts | None = None,
    progress: Callable[[int], None] | None = None,
    **options: Unpack[TranslatorOptions],
) -> Evaluation:
    """Translates the sources, scores the result and measures the loss of the first reference."""
    from tformer_cli.metrics.scores import check_references

    _check_texts(references, sources=sources)
    check_references("the source", sources, references)
    opened = model if isinstance(model, Opened) else open_model(model, **options)
    counts = counts if counts is not None else ResultCounts()
    # As `translate` would: splitting, shortlists and searches are part of what is measured
    hypotheses = []
    for translation in opened.translator.stream(sources):
        counts.add(translation)
        hypotheses.append(translation.text)
        if progress is not None:
            progress(counts.lines)
    scored = score_hypotheses(hypotheses, references, lowercase=lowercase, tokenize=tokenize)
    loss = reference_loss(opened, sources, references[0])
    return Evaluation(scores=scored.scores, hypotheses=scored.hypotheses, loss=loss)


def _check_texts(references: Sequence[Sequence[str]], **texts: Sequence[str]) -> None:
    """Checks that texts are lists of strings, and references lists of such lists."""
    check_lines(references, "references")
    streams = {f"references[{number}]": stream for number, stream in enumerate(references)}
    for name, lines in (texts | streams).items():
        for _ in given_lines(lines, name):
            pass


def reference_loss(opened: Opened, sources: Sequence[str], references: Sequence[str]) -> float:
    """Computes the mean -ln p of the references' tokens, each predicted from those before it."""
    # Every token counts once, the end of each sentence included; nothing is smoothed. Texts longer
    # than the model takes are cut off.
    # Blank pairs have no tokens, as their translations have none.
    tokenizer = opened.directory.tokenizer
    longest = longest_source(opened.directory.config.max_positions)
    pairs = [pair for pair in zip(sources, references, strict=True) if not all(map(is_blank, pair))]
    source_ids, target_ids = (
        [ids[:longest] for ids in side.encode_batch([pair[place] for pair in pairs])]
        for place, side in enumerate((tokenizer.source, tokenizer.target))
    )
    scored = opened.translator.score(source_ids, target_ids)
    total = math.fsum(pair.log_probability for pair in scored)
    return abs(total) / max(1, sum(pair.n_tokens for pair in scored))


def read_texts(paths: Sequence[Path], counts: LineCounts | None = None) -> list[list[str]]:
    """Reads files that belong together line by line."""
    from tformer_cli.metrics.scores import check_counts

    texts = [list(read_lines(path, counts)) for path in paths]
    check_counts([(str(path), len(text)) for path, text in zip(paths, texts, strict=True)])
    return texts


@dataclass(frozen=True, kw_only=True)
class LabelEvaluation:
    """Scores of a classifier on labeled texts, and its predictions."""

    scores: ClassificationScores
    loss: float
    """Mean -ln p of the right labels."""
    predicted: tuple[str, ...]
    """The labels of each text; empty for an image that could not be read."""
    right: tuple[str, ...]
    """The right ones."""
    of_words: bool = False
    """True if each word of a text is an example, with a label of its own."""

    def examples(self, lines: Sequence[str]) -> list[str]:
        """Returns the label of each example of lines of labels."""
        if self.of_words:
            return [label for line in lines for label in line.split()]
        return [line.strip() for line in lines]

    def record(self) -> dict[str, Any]:
        """Returns the scores; shares in percent."""
        scores = self.scores
        return {
            "words" if self.of_words else "lines": scores.n_examples,
            "accuracy": 100.0 * scores.accuracy,
            "macro_f1": 100.0 * scores.macro_f1,
            "loss": self.loss,
            "labels": [
                {
                    "label": score.label,
                    "precision": 100.0 * score.precision,
                    "recall": 100.0 * score.recall,
                    "f1": 100.0 * score.f1,
                    "examples": score.n_examples,
                }
                for score in scores.labels
            ],
            "confusion": [list(row) for row in scores.confusion],
        }

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        scores = self.scores
        rows = [(score.label, score.precision, score.recall, score.f1) for score in scores.labels]
        caption = f"accuracy {scores.accuracy:.4f}, macro F1 {scores.macro_f1:.4f}"
        return html_table(caption, ("label", "precision", "recall", "F1"), rows)

    def lines(self, room: int = 80) -> Iterator[str]:
        """Yields tables of all examples, of each label, and the confusion matrix."""
        from tformer_cli.show.terminal import Column, table_lines

        scores, unit = self.scores, "word" if self.of_words else "example"
        # a tab or a line end in a label would break its row
        names = [score.label.translate(TSV_ENDS) for score in scores.labels]
        width = max(map(len, (*names, "macro F1")))
        yield f"{'accuracy':<{width}}  {100 * scores.accuracy:>9.2f}"
        yield f"{'macro F1':<{width}}  {100 * scores.macro_f1:>9.2f}"
        yield f"{'loss':<{width}}  {self.loss:>9.4f}  nats per {unit}"
        yield f"{unit + 's':<{width}}  {scores.n_examples:>9,}"
        yield ""
        yield f"{'label':<{width}}  precision    recall        F1  {unit + 's':>8}"
        for name, score in zip(names, scores.labels, strict=True):
            shares = "".join(f"{100 * x:>9.2f} " for x in (score.precision, score.recall, score.f1))
            yield f"{name:<{width}}  {shares}{score.n_examples:>9,}"
        yield ""
        yield "confusion matrix: right labels in rows, given in columns"
        predictions = zip(names, zip(*scores.confusion, strict=True), strict=True)
        columns = [Column("", names, is_label=True)]
        columns += [Column(name, [f"{n:,}" for n in column]) for name, column in predictions]
        for line in table_lines(columns, room):
            yield line.plain


def evaluate_classifier(
    opened: Opened,
    texts: Sequence[str],
    labels: Sequence[str],
    progress: Callable[[int], None] | None = None,
    damaged: Damaged = "error",
) -> LabelEvaluation:
    """Labels texts and compares the labels with the right ones."""
    from tformer_cli.metrics.labels import score_labels

    if len(texts) != len(labels):
        raise DataError(
            f"there are {len(texts):,} texts but {len(labels):,} labels; give files whose lines "
            "correspond"
        )
    kind, by_line = kind_of(opened.config), []
    for line in kind.scored_labels(opened, list(zip(texts, labels, strict=True)), damaged):
        by_line.append(line)
        if progress is not None:
            progress(len(by_line))
    predictions = [example for line in by_line for example in line]
    # An image that cannot be read has no prediction, and says nothing about the model
    read = [example for example in predictions if example.log_probability is not None]
    if predictions and not read:
        raise DataError(f"none of the {len(predictions):,} images can be read; name others")
    predicted, right = [example.predicted for example in read], [example.label for example in read]
    return LabelEvaluation(
        scores=score_labels(predicted, right, opened.directory.info.labels),
        loss=math.fsum(-(example.log_probability or 0.0) for example in read) / max(1, len(read)),
        predicted=tuple(" ".join(example.predicted for example in line) for line in by_line),
        right=tuple(" ".join(example.label for example in line) for line in by_line),
        of_words=TASKS[kind.name].at_places,
    )


def compare_predictions(result: LabelEvaluation, baseline: Sequence[str]) -> list[PairedDifference]:
    """Compares a classifier with other labels of the same examples by paired bootstrap."""
    from tformer_cli.metrics.significance import compare_labels

    labels, predicted, right = map(result.examples, (baseline, result.predicted, result.right))
    if len(labels) != len(right):
        raise DataError(
            f"--baseline: has {len(labels):,} labels, but there are {len(right):,} "
            "examples; give files whose lines correspond"
        )
    kept = [n for n, label in enumerate(predicted) if label]
    return compare_labels(*([column[n] for n in kept] for column in (labels, predicted, right)))


@dataclass(frozen=True, kw_only=True)
class TextEvaluation(_Scored, Generic[AnyScores]):
    """Scores of a text, of all its tokens or of hidden ones, and how it was read."""

    scores: AnyScores
    kind: TextKind
    """Texts that were scored: each line, or all of them as one."""
    signature: str
    token_ids: tuple[tuple[int, ...], ...] = ()
    steps: tuple[tuple[float, ...], ...] = ()
    """ln p of the predicted tokens, for each text; none for hidden tokens."""
    sizes: tuple[int, ...] = ()
    """Bytes of each text; see `TextScores`."""

    def record(self) -> dict[str, Any]:
        names = {"tokens": "n_tokens", "bytes": "n_bytes"} | {
            name: name for name in ("loss", "perplexity", "bits_per_byte", "accuracy")
        }
        known = {name: getattr(self.scores, field, None) for name, field in names.items()}
        shown = {name: value for name, value in known.items() if value is not None}
        return shown | {"signature": self.signature}

    def rows(self) -> Iterator[Row]:
        """Yields the name of each score, its value and its unit."""
        record = self.record()
        what = "hidden token" if "accuracy" in record else "token"
        yield "loss", f"{record['loss']:.4f}", f"nats per {what} of {record['tokens']:,}"
        yield "perplexity", f"{record['perplexity']:.2f}", "exp(loss)"
        if "accuracy" in record:
            yield "accuracy", f"{record['accuracy']:.2f}", "of hidden tokens"
        else:
            yield "bits per byte", f"{record['bits_per_byte']:.4f}", f"of {record['bytes']:,} bytes"
        yield "signature", "", self.signature


def compare_evaluations(
    result: TextEvaluation[TextScores], baseline: TextEvaluation[TextScores]
) -> PairedDifference:
    """Compares two language models on the same text by paired bootstrap."""
    # Lines are drawn and compared by bits per byte, whatever the models' tokens are. A stream is
    # drawn in blocks of `BLOCK` tokens (Künsch 1989) and compared by loss; so both must have the
    # same tokens.
    import numpy as np

    from tformer_cli.metrics.significance import compare_losses

    has_ends = [len(side.steps[0]) - len(side.token_ids[0]) for side in (result, baseline)]
    if result.sizes != baseline.sizes or result.kind != baseline.kind:
        raise UsageError(
            "--baseline-model: one of the models predicts end-of-text, the other does not; add "
            "--text-kind stream"
        )
    if result.kind == "lines":
        bits = [
            np.array([-sum(steps) / math.log(2.0) for steps in side.steps])
            for side in (baseline, result)
        ]
        sizes = np.array(result.sizes)
        return compare_losses(bits[0], bits[1][None], sizes, name="bits per byte")[0]
    if result.token_ids != baseline.token_ids or has_ends[0] != has_ends[1]:
        raise UsageError(
            "--baseline-model: its tokens differ, so blocks of the text cannot be paired; add "
            "--text-kind lines"
        )
    losses = [
        -np.array([value for text in side.steps for value in text]) for side in (baseline, result)
    ]
    starts = np.arange(0, len(losses[0]), BLOCK)
    sums = [np.add.reduceat(values, starts) for values in losses]
    sizes = np.diff([*starts, len(losses[0])])
    return compare_losses(sums[0], sums[1][None], sizes)[0]


def texts_in_field(
    name: str, field: str, split: str = "train", counts: LineCounts | None = None
) -> list[str]:
    """Reads the texts in a field of JSONL, of a dataset, or in a column of a TSV file."""
    ending = ending_of(name)
    if ending in JSONL:
        corpus = CorpusConfig(jsonl=name, text_field=field)
    elif ending in TSV:
        corpus = CorpusConfig(tsv=name, text_field=field)
    else:
        corpus = CorpusConfig(dataset=name, text_field=field, split=split)
    return [pair.target for pair in read_corpus(corpus, "", counts)]


def evaluate_texts(
    opened: Opened,
    lines: Sequence[str],
    *,
    kind: TextKind | None = None,
    window: int = 0,
    stride: int = 0,
    progress: Callable[[], None] | None = None,
) -> TextEvaluation[TextScores]:
    """Scores lines of text without the blank ones, or all of them as one text."""
    directory = opened.directory
    config = directory.config
    longest = config.max_positions
    window = window or longest
    stride = stride or window
    if not 2 <= window <= longest:
        raise UsageError(
            f"--window: must be 2 to {longest}, which the model takes, but is {window}"
        )
    if not 1 <= stride <= window:
        raise UsageError(f"--stride: must be 1 to --window = {window}, but is {stride}")
    if config.memory and stride != window:
        raise UsageError(
            f"--stride: MODEL remembers {config.memory} tokens before each window, and reads each "
            "token once; omit it"
        )
    lines = list(given_lines(lines))
    kind = kind or ("lines" if config.target_eos else "stream")
    texts = (
        [join_lines(lines)] if kind == "stream" else [line for line in lines if not is_blank(line)]
    )
    encoded = directory.tokenizer.target.encode_phrases(texts)
    steps = log_probabilities(opened, encoded, window, stride, progress)
    if not any(steps):
        raise DataError.of("{lines}: has nothing to predict; give a text of two tokens or more")
    # Bytes, not tokens: models with other vocabularies are compared by bits per byte
    sizes = [len(text.encode("utf-8", "replace")) + config.target_eos for text in texts]
    remembered = f"|memory:{config.memory}" if config.memory else ""
    return TextEvaluation(
        scores=text_scores(steps, sum(sizes)),
        kind=kind,
        signature=f"text:{kind}|window:{window}|stride:{stride}{remembered}",
        token_ids=tuple(map(tuple, encoded)),
        steps=tuple(map(tuple, steps)),
        sizes=tuple(sizes),
    )


def evaluate_masked(
    opened: Opened, lines: Iterable[str], kind: TextKind = "lines"
) -> TextEvaluation[MaskedScores]:
    import torch

    from tformer_cli.kinds.masked import masked_scores
    from tformer_cli.runtime import autocast
    from tformer_cli.text.batching import compute_all
    from tformer_cli.text.masking import masking_of

    directory = opened.directory
    try:
        masking = masking_of(directory.tokenizer)
    except DataError as error:
        raise ArtifactError(f"{directory.path}: {error}") from None
    texts = text_ids(
        list(given_lines(lines)),
        directory.tokenizer,
        opened.config.longest_source,
        is_stream=kind == "stream",
    )
    if not texts:
        raise DataError.of("{lines}: has nothing to predict; give a text")
    device = opened.device
    with torch.inference_mode(), autocast(device, opened.products):
        scores = masked_scores(
            directory.masked_model, texts, masking, device, lambda: None, compute_all
        )
    window = f"{opened.config.longest_source}|masked:{masking.share:g}|draw:by text"
    return TextEvaluation(scores=scores, kind=kind, signature=f"text:{kind}|window:{window}")
