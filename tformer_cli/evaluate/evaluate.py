"""Scoring translations, or a model by its translations and by its loss on the references."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Unpack

from tformer_cli.evaluate.comparison.paired_tests import (
    MeasuredMetric,
    TestedMetric,
    TestSettings,
    paired_test,
)
from tformer_cli.kinds.lines.translate import TranslationCounts
from tformer_cli.kinds.opening.translator import Opened, open_translator
from tformer_cli.metrics.scores import Score, bleu, check_counts, chrf, make_metric, ter
from tformer_cli.search.hypothesis import longest_source
from tformer_cli.text.lines import LineCounts, check_lines, given_lines, read_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.search.keywords import TranslatorOptions

LARGEST_EXPONENT = 700.0


@dataclass(frozen=True, kw_only=True)
class Evaluation:
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


def with_tests(
    evaluation: Evaluation,
    references: Sequence[Sequence[str]],
    baseline: Sequence[str] | None = None,
    *,
    lowercase: bool = False,
    tokenize: str = "13a",
) -> Evaluation:
    """Adds confidence intervals by bootstrap, and tests against other translations if there are."""
    # It is the short form of `tformer_cli.evaluate.compare`.
    systems = [("hypothesis", evaluation.hypotheses)]
    if baseline is not None:
        _check_texts(references, baseline=baseline)
        counts = [("the baseline", len(baseline)), ("the hypotheses", len(evaluation.hypotheses))]
        check_counts(counts)
        systems.insert(0, ("baseline", tuple(baseline)))
    names = ("bleu", "chrf", "ter")
    metrics = [make_metric(one, lowercase=lowercase, tokenize=tokenize) for one in names]
    measured = [MeasuredMetric(one, references) for one in metrics]
    return replace(evaluation, tested=tuple(paired_test(systems, measured, TestSettings())))


def score_hypotheses(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    lowercase: bool = False,
    tokenize: str = "13a",
) -> Evaluation:
    """Scores translations against one or several references, raw and detokenized."""
    _check_texts(references, hypotheses=hypotheses)
    scores = (
        bleu(hypotheses, references, lowercase=lowercase, tokenize=tokenize),
        chrf(hypotheses, references, lowercase=lowercase),
        ter(hypotheses, references, lowercase=lowercase),
    )
    return Evaluation(scores=scores, hypotheses=tuple(hypotheses))


def evaluate_model(
    model: Path | str | ModelDirectory | Opened,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    lowercase: bool = False,
    tokenize: str = "13a",
    counts: TranslationCounts | None = None,
    progress: Callable[[int], None] | None = None,
    **options: Unpack[TranslatorOptions],
) -> Evaluation:
    """Translates the sources, scores the result and measures the loss of the first reference.

    Args:
        model: a model directory, its path, or an opened model of `open_translator`.
        sources: source sentences.
        references: one or several streams of reference translations.
        lowercase: score in lower case.
        tokenize: sacreBLEU's tokenizer for BLEU.
        counts: counts every translation.
        progress: called with the number of lines translated.
        **options: of `open_translator`.

    Raises:
        DataError: if the texts differ in the number of lines.
    """
    _check_texts(references, sources=sources)
    names = [("the source", len(sources))]
    check_counts([*names, *((f"reference {i}", len(r)) for i, r in enumerate(references, 1))])
    opened = model if isinstance(model, Opened) else open_translator(model, **options)
    counts = counts if counts is not None else TranslationCounts()
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
    tokenizer = opened.directory.tokenizer
    longest = longest_source(opened.directory.config.max_positions)
    source_ids = [ids[:longest] for ids in tokenizer.source.encode_batch(sources)]
    target_ids = [ids[:longest] for ids in tokenizer.target.encode_batch(references)]
    scored = opened.translator.score(source_ids, target_ids)
    total = math.fsum(pair.log_probability for pair in scored)
    return -total / max(1, sum(pair.n_tokens for pair in scored))


def read_texts(paths: Sequence[Path], counts: LineCounts | None = None) -> list[list[str]]:
    """Reads files that belong together line by line."""
    texts = [list(read_lines(path, counts)) for path in paths]
    check_counts([(str(path), len(text)) for path, text in zip(paths, texts, strict=True)])
    return texts
