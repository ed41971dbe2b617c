"""Systems compared on one test set: scores, wins and losses, lengths, words, sentences."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from statistics import fmean

import numpy as np
from sacrebleu.metrics.base import Metric

from tformer_cli.metrics.significance import MeasuredMetric, TestedMetric, TestSettings, Wins
from tformer_cli.plugins.corpora_tools.comparison.groups import Lines, test_systems
from tformer_cli.plugins.corpora_tools.comparison.lengths import Run

LENGTHS = (10, 20, 30, 40, 50, 60)
"""Edges of buckets of lengths, in words."""
# Edges of buckets of word frequencies. Both are compare-mt's (Neubig et al. 2019).
FREQUENCIES = (1, 2, 3, 4, 5, 10, 100, 1000)
Words = list[list[str]]
Tokenizer = Callable[[str], str]


@dataclass(frozen=True, kw_only=True)
class TestSet:
    """A test set with the translations of several systems."""

    __test__ = False

    name: str
    """The test set; empty if it is the only one."""
    references: tuple[tuple[str, ...], ...]
    """One or several streams, each one reference a sentence."""
    systems: Mapping[str, tuple[Lines, ...]]
    """The translations of each system, the baseline first: one text, or one by each of its runs."""
    source: tuple[str, ...] | None = None
    runs: Mapping[str, tuple[Run, ...]] = field(default_factory=dict)
    """The runs of each system; empty: no system has several."""


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """Sentences or words of a kind, and a score of every system on them."""

    label: str
    size: int
    """Sentences, or words of the reference."""
    values: tuple[float, ...]
    """For each system, the first metric's score, or F1 from 0 to 100."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A sentence that a system translates much better or worse than the baseline."""

    line: int
    system: str
    value: float
    """Its score by the first metric …"""
    baseline_value: float
    """… and the baseline's."""
    source: str | None
    references: tuple[str, ...]
    baseline_text: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Findings on a test set."""

    test_set: str
    n_sentences: int
    systems: tuple[str, ...]
    metrics: tuple[TestedMetric, ...]
    """Scores by each metric. By the first one the lengths and the sentences are compared."""
    lengths: tuple[Bucket, ...]
    """By words of the first reference; buckets without sentences are not listed."""
    words: tuple[Bucket, ...]
    """F1 of words by frequency; buckets without words are not listed."""
    differences: tuple[Difference, ...]
    """For every other system, the sentences that it wins by most, then those it loses. The texts of
    a system of several runs are those of the first."""


@dataclass(frozen=True, kw_only=True)
class SeedComparison(Comparison):
    """Findings on systems of several runs: all numbers of a system are means over them."""

    runs: tuple[tuple[Run, ...], ...]
    """The runs of each system; none: it is a file."""


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
    measured = [MeasuredMetric(metric, test_set.references) for metric in metrics]
    tested = test_systems([*test_set.systems.values()], measured, settings)
    by_sentence = [
        [
            _means([metric.sentence_scores(lines) for lines in runs])
            for runs in test_set.systems.values()
        ]
        for metric in measured
    ]
    # lengths and words count one reference: others would count a sentence twice
    reference = words_of(test_set.references[0], tokenize, lowercase=lowercase)
    comparison = Comparison(
        test_set=test_set.name,
        n_sentences=len(reference),
        systems=tuple(test_set.systems),
        metrics=tuple(
            _with_wins(result, metric, scores)
            for result, metric, scores in zip(tested, measured, by_sentence, strict=True)
        ),
        lengths=_by_length(test_set, measured[0], [len(words) for words in reference]),
        words=_by_frequency(test_set, reference, tokenize, train_lines, lowercase=lowercase),
        differences=_differences(test_set, measured[0], by_sentence[0], n_examples),
    )
    if not test_set.runs:
        return comparison
    runs = tuple(test_set.runs[system] for system in test_set.systems)
    return SeedComparison(**vars(comparison), runs=runs)


def _means(rows: Sequence[Sequence[float]]) -> list[float]:
    """Averages the numbers of several runs, column by column."""
    return [sum(column) / len(column) for column in zip(*rows, strict=True)]


def _with_wins(
    tested: TestedMetric, metric: MeasuredMetric, by_sentence: Sequence[Sequence[float]]
) -> TestedMetric:
    baseline, *others = tested.scores
    wins = (wins_of(gains(metric, by_sentence, number)) for number in range(1, len(by_sentence)))
    compared = (replace(score, wins=own) for score, own in zip(others, wins, strict=True))
    return replace(tested, scores=(baseline, *compared))


def gains(
    metric: MeasuredMetric, by_sentence: Sequence[Sequence[float]], number: int
) -> list[float]:
    """The gain of a system over the baseline on each sentence; less than 0: worse."""
    # of TER less is better
    sign = -1.0 if metric.less_is_better else 1.0
    pairs = zip(by_sentence[number], by_sentence[0], strict=True)
    return [sign * (ours - theirs) for ours, theirs in pairs]


def wins_of(gained: Sequence[float]) -> Wins:
    """Counts gains over the baseline, one a sentence, by their sign."""
    better, worse = sum(gain > 0.0 for gain in gained), sum(gain < 0.0 for gain in gained)
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
            values=tuple(
                fmean(metric.score(lines, chosen) for lines in runs)
                for runs in test_set.systems.values()
            ),
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
    systems = [
        [words_of(lines, tokenize, lowercase=lowercase) for lines in runs]
        for runs in test_set.systems.values()
    ]
    lines = test_set.references[0] if train_lines is None else train_lines()
    texts = chain.from_iterable(systems)
    counts = frequencies(lines, [reference, *texts], tokenize, lowercase=lowercase)
    scores = [[word_f1(text, reference, counts) for text in runs] for runs in systems]
    sizes = scores[0][0][1]
    return tuple(
        Bucket(label=label, size=size, values=values)
        for label, size, *values_of in zip(
            bucket_labels(FREQUENCIES),
            sizes,
            *(_means([f1 for f1, _ in runs]) for runs in scores),
            strict=True,
        )
        if (values := tuple(values_of)) and size
    )


def _differences(
    test_set: TestSet,
    metric: MeasuredMetric,
    by_sentence: Sequence[Sequence[float]],
    n_examples: int,
) -> tuple[Difference, ...]:
    (_, baseline), *others = test_set.systems.items()
    differences = []
    for number, (system, runs) in enumerate(others, 1):
        gained = gains(metric, by_sentence, number)
        best = sorted((p for p, gain in enumerate(gained) if gain > 0.0), key=lambda p: -gained[p])
        worst = sorted((p for p, gain in enumerate(gained) if gain < 0.0), key=lambda p: gained[p])
        differences += [
            Difference(
                line=place + 1,
                system=system,
                value=by_sentence[number][place],
                baseline_value=by_sentence[0][place],
                source=None if test_set.source is None else test_set.source[place],
                references=tuple(stream[place] for stream in test_set.references),
                baseline_text=baseline[0][place],
                text=runs[0][place],
            )
            for place in [*best[:n_examples], *worst[:n_examples]]
        ]
    return tuple(differences)


def bucket_of(value: int, edges: Sequence[int]) -> int:
    """Finds the bucket of a number: 0 below the first edge, then [edge, next edge)."""
    return bisect_right(edges, value)


def bucket_labels(edges: Sequence[int]) -> list[str]:
    """Names the buckets: "<10", "10–19", "60+"; of a single number "3"."""
    inner = [str(low) if high == low + 1 else f"{low}–{high - 1}" for low, high in pairwise(edges)]
    first = "0" if edges[0] == 1 else f"<{edges[0]}"
    return [first, *inner, f"{edges[-1]}+"]


def words_of(lines: Iterable[str], tokenize: Tokenizer, *, lowercase: bool = False) -> Words:
    return [tokenize(line.lower() if lowercase else line).split() for line in lines]


def frequencies(
    lines: Iterable[str],
    wanted: Iterable[Words],
    tokenize: Tokenizer,
    *,
    lowercase: bool = False,
) -> Counter[str]:
    """Counts in a text, such as that of the training, the words that other texts have."""
    # a training text has millions of words that no translation has
    counts = dict.fromkeys(chain.from_iterable(chain.from_iterable(wanted)), 0)
    for line in lines:
        for word in tokenize(line.lower() if lowercase else line).split():
            if word in counts:
                counts[word] += 1
    return Counter(counts)


def word_f1(
    hypotheses: Words,
    references: Words,
    counts: Counter[str],
    edges: Sequence[int] = FREQUENCIES,
) -> tuple[list[float], list[int]]:
    """Computes the F1 of the words in each bucket, 0 to 100, and the references' words in it."""
    # As compare-mt does (Neubig et al. 2019): a word of a translation is matched by the same word
    # of its reference, each once. With m matches, h words of the translations and r of the
    # references, precision is m/h, recall m/r and F1 = 2·m / (h + r).
    # rows: matches, words of translations, words of references
    sums = np.zeros((3, len(edges) + 1), np.int64)
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        ours, theirs = Counter(hypothesis), Counter(reference)
        for row, counter in enumerate((ours & theirs, ours, theirs)):
            for word, number in counter.items():
                sums[row, bucket_of(counts[word], edges)] += number
    matches, n_ours, n_theirs = sums
    f1 = 200.0 * matches / np.maximum(n_ours + n_theirs, 1)
    return f1.tolist(), n_theirs.tolist()
