"""Fits doubt to a model: held-out lines, lines broken on purpose, and their signals.

A line is wrong if the chrF of its translation with the reference is low, or if it was broken. Few
lines of a good model are wrong, too few to learn its ordinary mistakes from. So the fit has two
steps, and both are logistic regressions:

1. The signals are weighed to rank: a line's aim is its rank by chrF, from 0 for the best to 1 for
   the worst, and 1 for broken lines (fractional: Papke & Wooldridge 1996).
2. Platt's scaling turns that weighted sum into the probability that a line is wrong.

All numbers of the report come from lines outside the fit: the lines are divided into five parts,
and each is judged by a fit to the other four. Where the log-probability by itself tells more of
those lines apart than all signals together, only it is weighed (this choice is made on the same
lines).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan
from random import Random
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tformer_cli.artifacts.doubt_file import SCHEMA, Calibration, store_calibration
from tformer_cli.errors import DataError
from tformer_cli.inspect.doubt import (
    IS_TERM,
    SIGNALS,
    Part,
    parts_of,
    search_of,
    signals_of,
    terms_of,
)
from tformer_cli.metrics.calibration import (
    auroc,
    calibration_error,
    error_at,
    fit_logistic,
    logistic,
)
from tformer_cli.metrics.scores import sentence_score
from tformer_cli.wording import count_of, is_blank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tformer_cli.inspect.alignment import Numbers
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.search.translator import Translator

N_FOLDS = 5
LEAST_LINES, LEAST_OF_KIND = 50, 10
L2 = 20.0
"""Penalty of the fit; deviations are the unit."""
COVERAGES = (50, 80, 90)
NATURAL, LOWER_HALF = "chrF", "lower half"


def _scramble(text: str, share: float, random: Random, is_letter: Callable[[str], bool]) -> str:
    """Puts random letters in the place of a share of a text's letters."""
    return "".join(
        random.choice(ascii_lowercase) if is_letter(letter) and random.random() < share else letter
        for letter in text
    )


def _replace_words(source: str, _: str, random: Random) -> str:
    words = source.split()
    chosen = random.sample(range(len(words)), (len(words) + 1) // 2)
    for place in chosen:
        words[place] = _scramble(words[place], 1.0, random, str.isalpha)
    return " ".join(words)


def _noise(source: str, _: str, random: Random) -> str:
    return _scramble(source, 0.3, random, lambda letter: not letter.isspace())


def _shuffle_words(source: str, _: str, random: Random) -> str:
    words = source.split()
    return " ".join(random.sample(words, len(words)))


BROKEN_SOURCES: Mapping[str, Callable[[str, str, Random], str]] = {
    "unseen words": _replace_words,
    "wrong language": lambda _, reference, __: reference,
    "noise": _noise,
    "shuffled words": _shuffle_words,
}
"""Sources that no model can translate, made of a source and its reference."""
BROKEN_TARGETS = ("dropped sentence", "cut translation", "other translation")
"""Translations that the model would not have chosen; it is made to read them."""


class Item(NamedTuple):
    """A translation whose doubt is known."""

    line: int
    kind: str
    """`NATURAL`, or how it was broken."""
    chrf: float
    """chrF of a given line, from 0 to 1; 0 if it was broken."""
    part: Part


@dataclass(frozen=True, kw_only=True)
class CalibrationSettings:
    """Settings that decide which lines are wrong."""

    below: float = 0.3
    broken: float = 0.1
    seed: int = 1


@dataclass(frozen=True, kw_only=True)
class KindReport:
    """How well doubt tells broken lines of one kind from right ones."""

    kind: str
    lines: int
    auroc: float
    """NaN where nothing of the kind is wrong."""
    auroc_of_probability: float

    def record(self) -> dict[str, Any]:
        # JSON has no NaN
        scores = {"auroc": self.auroc, "auroc_of_probability": self.auroc_of_probability}
        values = {name: None if isnan(value) else value for name, value in scores.items()}
        return {"kind": self.kind, "lines": self.lines, **values}


@dataclass(frozen=True, kw_only=True)
class CalibrationReport:
    """Quality of doubt as a test for wrong lines, compared with the log-probability per token."""

    lines: int
    wrong: int
    """Lines as they were given whose chrF is low."""
    kinds: tuple[KindReport, ...]
    """The given lines first; `NATURAL` tells wrong ones among them from right ones."""
    measures: Mapping[str, tuple[float, float]]
    """Each measure of doubt and of the probability."""
    signals: Mapping[str, tuple[float, float, float]]
    """Each signal's own AUROC on all lines, and in the fit its weight and that of its square."""
    is_alone: bool
    """True if only the log-probability is weighed: all signals together tell fewer lines apart."""

    def record(self) -> dict[str, Any]:
        columns = ("doubt", "probability")
        return {
            "schema": "tformer.calibration/1",
            "lines": self.lines,
            "wrong": self.wrong,
            "weighed": "log-probability" if self.is_alone else "all signals",
            "kinds": [kind.record() for kind in self.kinds],
            "measures": {
                name: dict(zip(columns, values, strict=True))
                for name, values in self.measures.items()
            },
            "signals": {
                name: dict(zip(("auroc", "weight", "weight_of_square"), values, strict=True))
                for name, values in self.signals.items()
            },
        }


def calibrate(
    opened: Opened,
    sources: Sequence[str],
    references: Sequence[str],
    settings: CalibrationSettings | None = None,
    progress: Callable[[int], None] = lambda done: None,  # noqa: ARG005 - the default is silent
) -> CalibrationReport:
    """Fits doubt to held-out lines, and stores it in the model's directory."""
    settings = settings or CalibrationSettings()
    # Sentences by themselves are judged by themselves, as lines of one sentence are here
    translator = opened.translator.of_sentences()
    pairs = _different_pairs(sources, references)
    scored = _score_lines(translator, opened, pairs, progress)
    items = [*scored, *_break_lines(translator, opened, pairs, scored, settings, progress)]
    kept = [item for item in scored if item.chrf >= settings.below]
    if len(kept) < LEAST_OF_KIND:
        n_wrong = f"{len(scored) - len(kept)}" if kept else "all"
        raise DataError(
            f"--below: {n_wrong} of {len(scored)} lines have a chrF below {settings.below:g}, but "
            f"at least {LEAST_OF_KIND} others are needed; choose a lower value, or another "
            "--reference"
        )
    log_ratio = float(np.mean([item.part.log_ratio for item in kept]))
    lines = Lines.of(items, log_ratio, settings)
    fit, report = fit_lines(lines)
    store_calibration(
        opened.directory.path,
        Calibration(
            schema=SCHEMA,
            step=opened.directory.info.step,
            signals=tuple(signal.name for signal in SIGNALS),
            means=tuple(fit.means.tolist()),
            deviations=tuple(fit.deviations.tolist()),
            weights=tuple(fit.weights.tolist()),
            intercept=fit.intercept,
            log_ratio=log_ratio,
            lines=len(scored),
            below=settings.below,
            broken=settings.broken,
            scores={name: round(values[0], 6) for name, values in report.measures.items()},
            search=search_of(opened, translator),
        ),
    )
    return report


def _different_pairs(sources: Sequence[str], references: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the pairs with text on both sides, of equal sources the first."""
    # A line that recurs says nothing new, and would be in every part of the fit
    filled = [
        pair for pair in zip(sources, references, strict=True) if not any(map(is_blank, pair))
    ]
    reference_of: dict[str, tuple[str, str]] = {}
    for source, reference in filled:
        reference_of.setdefault(source.strip(), (source, reference))
    if len(reference_of) < LEAST_LINES:
        n_repeats = len(filled) - len(reference_of)
        repeats = f" ({count_of(n_repeats, 'repeat')} omitted)" if n_repeats else ""
        raise DataError(
            f"--source: has {count_of(len(reference_of), 'pair')} with text{repeats}, too few to "
            f"calibrate; give at least {LEAST_LINES}, better 1,000"
        )
    return [*reference_of.values()]


def _translate(
    translator: Translator, opened: Opened, lines: Sequence[str]
) -> Iterator[tuple[str, Part] | None]:
    """Translates lines; skips lines that are too long for the model."""
    for buffer in translator.buffers(lines):
        for line in buffer:
            parts = list(parts_of(line.hypotheses[0], line, opened.directory.tokenizer.target))
            yield (line.text, parts[0]) if len(parts) == 1 else None


def _score_lines(
    translator: Translator,
    opened: Opened,
    pairs: Sequence[tuple[str, str]],
    progress: Callable[[int], None],
) -> list[Item]:
    """Translates the lines as they are, and compares the translations with the references."""
    chrf, items = sentence_score("chrf"), []
    translations = _translate(translator, opened, [source for source, _ in pairs])
    for line, (pair, (_, reference)) in enumerate(zip(translations, pairs, strict=True)):
        progress(line + 1)
        if pair is not None:
            items.append(Item(line, NATURAL, chrf(pair[0], reference) / 100, pair[1]))
    return items


def _break_lines(
    translator: Translator,
    opened: Opened,
    pairs: Sequence[tuple[str, str]],
    scored: Sequence[Item],
    settings: CalibrationSettings,
    progress: Callable[[int], None],
) -> Iterator[Item]:
    """Breaks lines in each way, as many as make a quarter of all, and at least some."""
    random, done = Random(settings.seed), len(pairs)
    n_each = min(len(pairs), max(LEAST_OF_KIND, len(pairs) // len(BROKEN_SOURCES)))
    for kind, broken in BROKEN_SOURCES.items():
        chosen = sorted(random.sample(range(len(pairs)), n_each))
        lines = [broken(*pairs[line], random) for line in chosen]
        for line, pair in zip(chosen, _translate(translator, opened, lines), strict=True):
            done += 1
            progress(done)
            if pair is not None:
                yield Item(line, kind, 0.0, pair[1])
    # Forced scores are relative to all tokens, those of a search to its shortlist: the
    # difference alone would tell the two apart
    if not translator.has_shortlist:
        for kind in BROKEN_TARGETS:
            yield from _force_targets(
                translator, opened, kind, random.sample(scored, min(n_each, len(scored)))
            )


def _force_targets(
    translator: Translator, opened: Opened, kind: str, chosen: Sequence[Item]
) -> Iterator[Item]:
    """Scores translations that do not belong to their sources."""
    longest = opened.config.max_positions - 1
    pairs = []
    for item, other in zip(chosen, [*chosen[1:], *chosen[:1]], strict=True):
        own, theirs = item.part, other.part
        source, target, words = own.source_ids, own.target_ids, own.source_words
        if kind == "dropped sentence":
            source, words = (*source, *theirs.source_ids), (*words, *theirs.source_words)
        elif kind == "cut translation":
            target = target[: len(target) // 2]
        else:
            target = theirs.target_ids
        is_same = (source, target) == (own.source_ids, own.target_ids)
        if not is_same and max(len(source), len(target)) <= longest:
            pairs.append((item.line, source, target, words))
    side = opened.directory.tokenizer.target
    scored = translator.score([pair[1] for pair in pairs], [pair[2] for pair in pairs])
    texts = side.decode_batch([pair[2] for pair in pairs])
    for (line, source, target, words), score, text in zip(pairs, scored, texts, strict=True):
        part = Part(
            steps=score.token_log_probabilities,
            source_ids=source,
            target_ids=target,
            source_words=words,
            target_words=tuple(text.split()),
        )
        yield Item(line, kind, 0.0, part)


class Lines(NamedTuple):
    """Signals of N translations, which the fit reads."""

    number: Numbers
    """(N) the given line; broken copies have its number, too."""
    kind: NDArray[np.str_]
    signals: Numbers
    """(N, D)"""
    aim: Numbers
    """(N) 0 for the best given line, 1 for the worst and for broken ones."""
    is_wrong: Numbers
    weight: Numbers
    """(N) how many each stands for, so that the assumed share of all is broken."""

    @classmethod
    def of(cls, items: Sequence[Item], log_ratio: float, settings: CalibrationSettings) -> Lines:
        kind, chrf = (np.array(values) for values in zip(*((i.kind, i.chrf) for i in items)))
        is_given = kind == NATURAL
        weight = np.where(
            is_given,
            (1 - settings.broken) / is_given.sum(),
            settings.broken / (~is_given).sum(),
        )
        aim = np.ones(len(items))
        aim[is_given] = 1 - _mid_ranks(chrf[is_given])
        return cls(
            number=np.array([item.line for item in items]),
            kind=kind,
            signals=np.array([signals_of(item.part, log_ratio) for item in items]),
            aim=aim,
            is_wrong=(~is_given | (chrf < settings.below)).astype(np.float64),
            weight=weight * len(items),
        )

    def part(self, rows: NDArray[np.bool_]) -> Lines:
        columns: Any = (column[rows] for column in self)
        return Lines(*columns)


class Fit(NamedTuple):
    """Doubt as `Calibration` stores it."""

    means: Numbers
    deviations: Numbers
    weights: Numbers
    intercept: float

    def probabilities(self, signals: Numbers) -> Numbers:
        terms = terms_of(signals, self.means, self.deviations)
        return logistic(terms @ self.weights + self.intercept)


def _mid_ranks(values: Numbers) -> Numbers:
    """(N) the share of the values that are smaller, and half of those that are equal."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Numbers = (np.cumsum(counts) - counts / 2)[places] / len(values)
    return ranks


def _fit(lines: Lines, *, is_alone: bool) -> Fit:
    # By the given lines: next to those of other lines' translations, all others would look alike
    given = lines.signals[lines.kind == NATURAL]
    means, deviations = given.mean(axis=0), given.std(axis=0)
    for unit in (lines.signals.std(axis=0), 1.0):  # of what no given line has; of what says nothing
        deviations = np.where(deviations > 0, deviations, unit)
    terms = terms_of(lines.signals, means, deviations)
    if is_alone:  # the first signal is the log-probability
        ranking = np.eye(terms.shape[1])[0]
    else:
        ranking = fit_logistic(terms, lines.aim, lines.weight, L2)[:-1]
    scale, intercept = fit_logistic(terms @ ranking, lines.is_wrong, lines.weight)
    # A term that is always 0 has a weight of some rounding
    weights = np.where(IS_TERM, scale * ranking, 0.0)
    return Fit(means, deviations, weights, float(intercept))


def _cross_validate(lines: Lines) -> tuple[Numbers, Numbers]:
    """(N) P(wrong) of each item by all signals, and by the log-probability alone."""
    doubt, alone = np.zeros(len(lines.kind)), np.zeros(len(lines.kind))
    # By lines: a line and its broken copies are in one part
    for fold in range(N_FOLDS):
        is_held_out = lines.number % N_FOLDS == fold
        read, judged = lines.part(~is_held_out), lines.part(is_held_out)
        for probabilities, is_alone in ((doubt, False), (alone, True)):
            fit = _fit(read, is_alone=is_alone)
            probabilities[is_held_out] = fit.probabilities(judged.signals)
    return doubt, alone


def fit_lines(lines: Lines) -> tuple[Fit, CalibrationReport]:
    """Fits doubt to all signals, or to the log-probability alone where that is the better test."""
    doubt, alone = _cross_validate(lines)
    areas = [auroc(values, lines.is_wrong, lines.weight) for values in (doubt, alone)]
    is_alone = areas[1] > areas[0]
    fit = _fit(lines, is_alone=is_alone)
    both = (alone, alone) if is_alone else (doubt, alone)
    return fit, _report(lines, fit, both, is_alone=is_alone)


def _report(
    lines: Lines, fit: Fit, both: tuple[Numbers, Numbers], *, is_alone: bool
) -> CalibrationReport:
    wrong, weight = lines.is_wrong, lines.weight
    is_given = lines.kind == NATURAL
    is_lower = (lines.aim > 0.5).astype(np.float64)

    def compare(measure: Callable[[Numbers], float]) -> tuple[float, float]:
        first, second = map(measure, both)
        return first, second

    def report_kind(kind: str, wrong: Numbers, rows: NDArray[np.bool_], count: int) -> KindReport:
        doubt, alone = compare(lambda p: auroc(p[rows], wrong[rows]))
        return KindReport(kind=kind, lines=count, auroc=doubt, auroc_of_probability=alone)

    n_given, n_lower = int(is_given.sum()), int(is_lower[is_given].sum())
    kinds = [
        report_kind(NATURAL, wrong, is_given, n_given),
        report_kind(LOWER_HALF, is_lower, is_given, n_lower),
    ]
    for kind in dict.fromkeys(lines.kind[~is_given].tolist()):
        of_kind = lines.kind == kind
        rows = (is_given & (wrong == 0)) | of_kind
        kinds.append(report_kind(kind, wrong, rows, int(of_kind.sum())))
    measures = {
        "auroc": compare(lambda p: auroc(p, wrong, weight)),
        "calibration_error": compare(lambda p: calibration_error(p, wrong, weight)),
        "calibration_error_given": compare(
            lambda p: calibration_error(p[is_given], wrong[is_given])
        ),
    } | {
        f"error_at_{percent}": compare(
            lambda p, share=percent / 100: error_at(share, p[is_given], wrong[is_given])  # type: ignore[misc]
        )
        for percent in COVERAGES
    }
    signals = {}
    for n, signal in enumerate(SIGNALS):
        own = auroc(lines.signals[:, n], wrong, weight)
        # Below a half where little of it is a sign of an error
        weights = float(fit.weights[n]), float(fit.weights[len(SIGNALS) + n])
        signals[signal.name] = (max(own, 1 - own), *weights)
    return CalibrationReport(
        lines=n_given,
        wrong=int(wrong[is_given].sum()),
        kinds=tuple(kinds),
        measures=measures,
        signals=signals,
        is_alone=is_alone,
    )
