"""Fits doubt to a model: held-out lines, lines broken on purpose, and their signals.

A line is wrong if the chrF of its translation with the reference is low, or if it was broken. All
numbers of the report come from lines outside the fit: the lines are divided into five parts,
and each is judged by a fit to the other four. The probabilities need no second step of calibration:
the fit is a logistic regression, which is Platt's scaling of a weighted sum of signals.
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
    SIGNALS,
    Masses,
    Part,
    Usual,
    parts_of,
    search_of,
    signals_of,
    terms_of,
)
from tformer_cli.inspect.jobs.align import Aligner
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
MOST_MASSES = 256
"""Distributions of attention that are kept for Wass-to-Data."""
LEAST_LINES, LEAST_OF_KIND = 50, 10
L2 = 5.0
"""Penalty of the fit; deviations are the unit."""
COVERAGES = (50, 80, 90)
NATURAL = "chrF"


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
    is_wrong: bool
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

    def record(self) -> dict[str, Any]:
        columns = ("doubt", "probability")
        return {
            "schema": "tformer.calibration/1",
            "lines": self.lines,
            "wrong": self.wrong,
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
    heads = Aligner(opened.directory).heads
    # Sentences by themselves are judged by themselves, as lines of one sentence are here
    translator = opened.translator.listening(heads).of_sentences()
    pairs = _different_pairs(sources, references)
    scored = _score_lines(translator, opened, pairs, settings, progress)
    items = [*scored, *_break_lines(translator, opened, pairs, scored, settings, progress)]
    kept = [item for item in scored if not item.is_wrong]
    if len(kept) < LEAST_OF_KIND:
        n_wrong = f"{len(scored) - len(kept)}" if kept else "all"
        raise DataError(
            f"--below: {n_wrong} of {len(scored)} lines have a chrF below {settings.below:g}, but "
            f"at least {LEAST_OF_KIND} others are needed; choose a lower value, or another "
            "--reference"
        )
    kept = Random(settings.seed).sample(kept, min(MOST_MASSES, len(kept)))
    log_ratio = float(np.mean([item.part.log_ratio for item in kept]))
    x = _signals(items, kept, log_ratio, opened)
    y = np.array([item.is_wrong for item in items], np.float64)
    weights = _weights(items, settings.broken)
    is_given = np.array([item.kind == NATURAL for item in items])
    means, deviations, fitted = _fit(x, y, weights, is_given)
    report = _report(items, x, y, weights, fitted)
    store_calibration(
        opened.directory.path,
        Calibration(
            schema=SCHEMA,
            step=opened.directory.info.step,
            heads=heads,
            signals=tuple(signal.name for signal in SIGNALS),
            means=tuple(means.tolist()),
            deviations=tuple(deviations.tolist()),
            weights=tuple(fitted[:-1].tolist()),
            intercept=float(fitted[-1]),
            log_ratio=log_ratio,
            masses=tuple(tuple(np.round(item.part.mass, 5).tolist()) for item in kept),
            lengths=tuple(len(item.part.target_ids) for item in kept),
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
    settings: CalibrationSettings,
    progress: Callable[[int], None],
) -> list[Item]:
    """Translates the lines as they are, and compares the translations with the references."""
    chrf, items = sentence_score("chrf"), []
    translations = _translate(translator, opened, [source for source, _ in pairs])
    for line, (pair, (_, reference)) in enumerate(zip(translations, pairs, strict=True)):
        progress(line + 1)
        if pair is not None:
            is_bad = chrf(pair[0], reference) / 100 < settings.below
            items.append(Item(line, NATURAL, is_bad, pair[1]))
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
                yield Item(line, kind, True, pair[1])
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
        if (
            len(source) <= longest
            and len(target) <= longest
            and (source, target)
            != (
                own.source_ids,
                own.target_ids,
            )
        ):
            pairs.append((item.line, source, target, words))
    side = opened.directory.tokenizer.target
    scored = translator.score([pair[1] for pair in pairs], [pair[2] for pair in pairs])
    texts = side.decode_batch([pair[2] for pair in pairs])
    for (line, source, target, words), score, text in zip(pairs, scored, texts, strict=True):
        if score.attention is not None:
            part = Part(
                steps=np.array(score.token_log_probabilities),
                attention=score.attention.weights.astype(np.float64),
                source_ids=source,
                target_ids=target,
                source_words=words,
                target_words=tuple(text.split()),
            )
            yield Item(line, kind, True, part)


def _signals(
    items: Sequence[Item], kept: Sequence[Item], log_ratio: float, opened: Opened
) -> Numbers:
    """(N, D) the signals of items; a line is not compared with its own distribution."""
    from tformer_cli.artifacts.shortlist_file import load_seen_words

    seen = load_seen_words(opened.directory.path)

    def usual(rest: Sequence[Item]) -> Usual:
        masses = [item.part.mass.tolist() for item in rest]
        return Usual(log_ratio, Masses(masses, [len(item.part.target_ids) for item in rest]), seen)

    every, own = usual(kept), {item.line for item in kept}
    without = {line: usual([item for item in kept if item.line != line]) for line in own}
    return np.array([signals_of(item.part, without.get(item.line, every)) for item in items])


def _weights(items: Sequence[Item], broken: float) -> Numbers:
    """(N) what each item stands for, so that a share `broken` of all is broken on purpose."""
    is_broken = np.array([item.kind != NATURAL for item in items])
    weights: Numbers = np.where(
        is_broken, broken / is_broken.sum(), (1 - broken) / (~is_broken).sum()
    )
    return weights * len(items)


def _fit(
    x: Numbers, y: Numbers, weights: Numbers, is_given: NDArray[np.bool_]
) -> tuple[Numbers, Numbers, Numbers]:
    # By the given lines: next to those of other lines' translations, all others would look alike
    means, deviations = x[is_given].mean(axis=0), x[is_given].std(axis=0)
    for unit in (x.std(axis=0), 1.0):  # of what no given line has; of what says nothing
        deviations = np.where(deviations > 0, deviations, unit)
    return means, deviations, fit_logistic(terms_of(x, means, deviations), y, weights, L2)


def _cross_validate(
    x: Numbers, y: Numbers, weights: Numbers, is_given: NDArray[np.bool_], folds: Numbers
) -> tuple[Numbers, Numbers]:
    """(N) P(wrong) of each item by a fit to the lines of the other parts, and by the first signal.

    That one, the log-probability, has Platt's scaling, which keeps its order.
    """
    doubt, alone = np.zeros(len(y)), np.zeros(len(y))
    for fold in range(N_FOLDS):
        out = folds == fold
        means, deviations, fitted = _fit(x[~out], y[~out], weights[~out], is_given[~out])
        read, judged = (terms_of(x[fold_rows], means, deviations) for fold_rows in (~out, out))
        doubt[out] = logistic(judged @ fitted[:-1] + fitted[-1])
        weight, intercept = fit_logistic(read[:, :1], y[~out], weights[~out], L2)
        alone[out] = logistic(judged[:, 0] * weight + intercept)
    return doubt, alone


def _report(
    items: Sequence[Item], x: Numbers, y: Numbers, weights: Numbers, fitted: Numbers
) -> CalibrationReport:
    # By lines: a line and its broken copies are in one part
    folds = np.array([item.line % N_FOLDS for item in items])
    kinds = np.array([item.kind for item in items])
    is_given = kinds == NATURAL
    both = _cross_validate(x, y, weights, is_given, folds)
    rows = []
    for kind in dict.fromkeys(kinds.tolist()):
        rows_of_kind = is_given if kind == NATURAL else (is_given & (y == 0)) | (kinds == kind)
        doubt, probability = (auroc(p[rows_of_kind], y[rows_of_kind]) for p in both)
        rows.append(
            KindReport(
                kind=kind,
                lines=int((kinds == kind).sum()),
                auroc=doubt,
                auroc_of_probability=probability,
            )
        )

    def compare(measure: Callable[[Numbers], float]) -> tuple[float, float]:
        first, second = map(measure, both)
        return first, second

    measures = {
        "auroc": compare(lambda p: auroc(p, y, weights)),
        "calibration_error": compare(lambda p: calibration_error(p, y, weights)),
        "calibration_error_given": compare(lambda p: calibration_error(p[is_given], y[is_given])),
    } | {
        f"error_at_{percent}": compare(
            lambda p, share=percent / 100: error_at(share, p[is_given], y[is_given])  # type: ignore[misc]
        )
        for percent in COVERAGES
    }
    signals = {}
    for n, signal in enumerate(SIGNALS):
        own = auroc(x[:, n], y, weights)
        # Below a half where little of it is a sign of an error
        signals[signal.name] = (
            max(own, 1 - own),
            float(fitted[n]),
            float(fitted[len(SIGNALS) + n]),
        )
    return CalibrationReport(
        lines=int(is_given.sum()),
        wrong=int(y[is_given].sum()),
        kinds=tuple(rows),
        measures=measures,
        signals=signals,
    )
