"""Systems compared on one test set: scores, wins and losses, lengths, words, sentences."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sacrebleu.metrics.base import Metric

from tformer_cli.evaluate.comparison.paired_tests import (
    MeasuredMetric,
    TestedMetric,
    TestedScore,
    TestSettings,
    paired_test,
)
from tformer_cli.evaluate.comparison.words import (
    FREQUENCIES,
    LENGTHS,
    Tokenizer,
    bucket_labels,
    bucket_of,
    frequencies,
    word_f1,
    words_of,
)


@dataclass(frozen=True, kw_only=True)
class SystemTexts:
    """A system's translations of a test set."""

    name: str
    lines: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TestSet:
    """A test set with the translations of several systems."""

    __test__ = False

    name: str
    """The test set; empty if it is the only one."""
    references: tuple[tuple[str, ...], ...]
    """One or several streams, each one reference a sentence."""
    systems: tuple[SystemTexts, ...]
    source: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Wins:
    """Sentences on which a system is better or worse than the baseline."""

    better: int
    worse: int
    equal: int


@dataclass(frozen=True, kw_only=True)
class ComparedScore(TestedScore):
    """The score of a system, with its wins and losses by sentence."""

    wins: Wins | None
    """Against the baseline; None: it is the baseline."""


@dataclass(frozen=True, kw_only=True)
class ComparedMetric:
    """A metric's scores of all systems."""

    name: str
    signature: str
    """sacreBLEU's signature, with the test's seed and samples."""
    less_is_better: bool
    """True for an error rate."""
    scores: tuple[ComparedScore, ...]
    """Of each system, the baseline first."""


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """Sentences or words of a kind, and a score of every system on them."""

    label: str
    size: int
    """Sentences, or words of the reference."""
    values: tuple[float, ...]
    """Of each system: the first metric's score, or F1 from 0 to 100."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A sentence that a system translates much better or worse than the baseline."""

    line: int
    """Number of its line, from 1."""
    system: str
    value: float
    """Its score by the first metric …"""
    baseline_value: float
    """… and the baseline's."""
    source: str | None
    """The source sentence, if it is known."""
    references: tuple[str, ...]
    baseline_text: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All that is found of a test set."""

    test_set: str
    n_sentences: int
    systems: tuple[str, ...]
    metrics: tuple[ComparedMetric, ...]
    """Scores by each metric. By the first one the lengths and the sentences are compared."""
    lengths: tuple[Bucket, ...]
    """By words of the first reference; buckets without sentences are not listed."""
    words: tuple[Bucket, ...]
    """F1 of words by frequency; buckets without words are not listed."""
    differences: tuple[Difference, ...]
    """Of every other system first the sentences that it wins by most, then those it loses."""


def compare_systems(
    test_set: TestSet,
    metrics: Sequence[Metric],
    settings: TestSettings,
    *,
    tokenize: Tokenizer,
    lowercase: bool = False,
    train_lines: Callable[[], Iterable[str]] | None = None,
    n_examples: int = 3,
) -> Comparison:
    measured = [MeasuredMetric(one, test_set.references) for one in metrics]
    tested = paired_test([(one.name, one.lines) for one in test_set.systems], measured, settings)
    by_sentence = [
        [metric.sentence_scores(system.lines) for system in test_set.systems] for metric in measured
    ]
    reference = words_of(test_set.references[0], tokenize, lowercase=lowercase)
    return Comparison(
        test_set=test_set.name,
        n_sentences=len(reference),
        systems=tuple(one.name for one in test_set.systems),
        metrics=tuple(
            _with_wins(result, metric, scores)
            for result, metric, scores in zip(tested, measured, by_sentence, strict=True)
        ),
        lengths=_by_length(test_set, measured[0], [len(words) for words in reference]),
        words=_by_frequency(test_set, reference, tokenize, train_lines, lowercase=lowercase),
        differences=_differences(test_set, measured[0], by_sentence[0], n_examples),
    )


def _with_wins(
    tested: TestedMetric, metric: MeasuredMetric, by_sentence: Sequence[Sequence[float]]
) -> ComparedMetric:
    scores = tuple(
        ComparedScore(
            **vars(score), wins=wins_of(gains(metric, by_sentence, number)) if number else None
        )
        for number, score in enumerate(tested.scores)
    )
    return ComparedMetric(
        name=tested.name,
        signature=tested.signature,
        less_is_better=metric.less_is_better,
        scores=scores,
    )


def gains(
    metric: MeasuredMetric, by_sentence: Sequence[Sequence[float]], number: int
) -> list[float]:
    """How much better than the baseline a system is on each sentence; less than 0: worse."""
    sign = -1.0 if metric.less_is_better else 1.0
    pairs = zip(by_sentence[number], by_sentence[0], strict=True)
    return [sign * (ours - theirs) for ours, theirs in pairs]


def wins_of(gained: Sequence[float]) -> Wins:
    """Counts gains over the baseline, one a sentence, by their sign."""
    better, worse = sum(one > 0.0 for one in gained), sum(one < 0.0 for one in gained)
    return Wins(better=better, worse=worse, equal=len(gained) - better - worse)


def _by_length(
    test_set: TestSet, metric: MeasuredMetric, lengths: Sequence[int]
) -> tuple[Bucket, ...]:
    places: list[list[int]] = [[] for _ in range(len(LENGTHS) + 1)]
    for place, length in enumerate(lengths):
        places[bucket_of(length, LENGTHS)].append(place)
    return tuple(
        Bucket(
            label=label,
            size=len(chosen),
            values=tuple(metric.score(system.lines, chosen) for system in test_set.systems),
        )
        for label, chosen in zip(bucket_labels(LENGTHS), places, strict=True)
        if chosen
    )


def _by_frequency(
    test_set: TestSet,
    reference: list[list[str]],
    tokenize: Tokenizer,
    train_lines: Callable[[], Iterable[str]] | None,
    *,
    lowercase: bool,
) -> tuple[Bucket, ...]:
    texts = [words_of(one.lines, tokenize, lowercase=lowercase) for one in test_set.systems]
    lines = test_set.references[0] if train_lines is None else train_lines()
    counts = frequencies(lines, [reference, *texts], tokenize, lowercase=lowercase)
    found = [word_f1(text, reference, counts) for text in texts]
    sizes = found[0][1]
    return tuple(
        Bucket(label=label, size=size, values=values)
        for label, size, *values_of in zip(
            bucket_labels(FREQUENCIES), sizes, *(f1 for f1, _ in found), strict=True
        )
        if (values := tuple(values_of)) and size
    )


def _differences(
    test_set: TestSet,
    metric: MeasuredMetric,
    by_sentence: Sequence[Sequence[float]],
    n_examples: int,
) -> tuple[Difference, ...]:
    baseline, *others = test_set.systems
    found = []
    for number, system in enumerate(others, 1):
        gained = gains(metric, by_sentence, number)
        best = sorted((p for p, gain in enumerate(gained) if gain > 0.0), key=lambda p: -gained[p])
        worst = sorted((p for p, gain in enumerate(gained) if gain < 0.0), key=lambda p: gained[p])
        found += [
            Difference(
                line=place + 1,
                system=system.name,
                value=by_sentence[number][place],
                baseline_value=by_sentence[0][place],
                source=None if test_set.source is None else test_set.source[place],
                references=tuple(stream[place] for stream in test_set.references),
                baseline_text=baseline.lines[place],
                text=system.lines[place],
            )
            for place in [*best[:n_examples], *worst[:n_examples]]
        ]
    return tuple(found)
