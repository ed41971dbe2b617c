"""Comparison of several classifiers by their labels of the same examples."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from tformer_cli.errors import DataError
from tformer_cli.metrics.choices import record_key
from tformer_cli.metrics.resampling import RESAMPLES
from tformer_cli.metrics.significance import (
    LABEL_MEASURES,
    SIGNIFICANT,
    PairedDifference,
    Wins,
    compare_labels,
    label_draws,
    p_text,
)
from tformer_cli.plugins.corpora_tools.comparison.compare import wins_of
from tformer_cli.plugins.corpora_tools.comparison.groups import (
    TEST,
    Sample,
    SeedDifference,
    estimate,
)
from tformer_cli.plugins.corpora_tools.comparison.lengths import Run
from tformer_cli.plugins.corpora_tools.comparison.report import (
    TITLE,
    mark_best,
    run_rows,
    steps_of,
)
from tformer_cli.show.document import Cell, Document, Section, Table

LEGEND = (
    "Change: from the baseline, with the interval that holds 95 % of the changes of resampled "
    "examples; p: probability of a change at least this large if the systems were equally good, "
    "* marks 0.05 and less. Bold: the best score, where it and the baseline's differ by more than "
    "chance. Better, worse: examples that only the system, or only the baseline, labels right."
)
SEED_LEGEND = (
    "Mean and standard deviation (SD, n - 1) over the runs. Change: from the baseline, with its "
    "95 % confidence interval over seeds and examples; p: probability of a change at least this "
    "large if the systems were equally good, by Welch's t-test over the runs with the variance of "
    "resampled examples, * marks 0.05 and less. Better, worse: examples that more, or fewer, of "
    "the system's runs label right than of the baseline's."
)


@dataclass(frozen=True, kw_only=True)
class LabeledSystem:
    """A classifier, compared with the baseline."""

    name: str
    measures: tuple[PairedDifference, ...]
    """Accuracy and macro F1 in percent, with the change from the baseline."""
    wins: Wins
    """Number of examples that only it, or only the baseline, labels right."""


@dataclass(frozen=True, kw_only=True)
class LabelComparison:
    """Several classifiers on the same examples."""

    n_examples: int
    systems: tuple[LabeledSystem, ...]
    """The systems, the baseline first: its changes are 0."""
    samples: int
    seed: int
    runs: tuple[tuple[Run, ...], ...] = ()
    """The runs of each system; empty: no system has several."""

    def record(self) -> dict[str, Any]:
        return {
            "test": TEST if self.runs else "paired-bootstrap",
            "samples": self.samples,
            "seed": self.seed,
            "examples": self.n_examples,
            "systems": [
                {
                    "name": system.name,
                    "measures": [
                        {
                            "measure": record_key(measure.name),
                            "value": measure.value,
                            "difference": measure.difference if number else None,
                            "ci95": [measure.low, measure.high] if number else None,
                            "p_value": tested_p(measure) if number else None,
                            **spread_of(measure),
                        }
                        for measure in system.measures
                    ],
                    "wins": asdict(system.wins) if number else None,
                    **({"runs": [asdict(run) for run in self.runs[number]]} if self.runs else {}),
                }
                for number, system in enumerate(self.systems)
            ],
        }

    def document(self, *, each_seed: bool = False) -> Document:
        head = ("Change", "95 %", "p", "Better", "Worse", "Equal")
        tables = [
            Table(
                title=measure.name,
                head=(
                    "System",
                    *(("Runs", "Steps", measure.name, "SD") if self.runs else (measure.name,)),
                    *head,
                ),
                rows=tuple(self._rows(number, each_seed=each_seed)),
                note=f"paired-bootstrap|units:examples|resamples:{self.samples}|seed:{self.seed}",
            )
            for number, measure in enumerate(self.systems[0].measures)
        ]
        title = f"{self.n_examples:,} examples"
        legend = SEED_LEGEND if self.runs else LEGEND
        section = Section(title=title, tables=tuple(tables), legend=legend)
        return Document(title=TITLE, sections=[section])

    def _rows(self, number: int, *, each_seed: bool) -> Iterator[tuple[Cell, ...]]:
        measures = [system.measures[number] for system in self.systems]
        differs = [False, *map(is_significant, measures[1:])]
        values = mark_best([measure.value for measure in measures], differs)
        for place, (system, measure, value) in enumerate(
            zip(self.systems, measures, values, strict=True)
        ):
            tested = [Cell("baseline"), *[Cell("")] * 5]
            if place:
                p_value = tested_p(measure)
                mark = "*" if is_significant(measure) else ""
                texts = (
                    f"{measure.difference:+.2f}",
                    f"{measure.low:+.2f} to {measure.high:+.2f}",
                    "–" if p_value is None else f"{p_text(p_value)}{mark}",
                    *(f"{n:,}" for n in (system.wins.better, system.wins.worse, system.wins.equal)),
                )
                tested = list(map(Cell, texts))
            if not self.runs:
                yield (Cell(system.name), value, *tested)
                continue
            assert isinstance(measure, SeedDifference)  # noqa: S101 - for mypy
            runs, spread = self.runs[place], measure.deviation
            about = f"{max(1, len(runs))}", steps_of(runs)
            deviation = "" if spread is None else f"{spread:.2f}"
            yield (Cell(system.name), *map(Cell, about), value, Cell(deviation), *tested)
            if each_seed:
                yield from run_rows(runs, measure.values, len(tested) - 1)


def tested_p(measure: PairedDifference) -> float | None:
    """The p-value of a change; None: the test says nothing about it."""
    return None if isinstance(measure, SeedDifference) and measure.untested else measure.p_value


def is_significant(measure: PairedDifference) -> bool:
    """Returns whether a change is more than chance at the 5 % level, by a test that says so."""
    p_value = tested_p(measure)
    return p_value is not None and p_value <= SIGNIFICANT


def spread_of(measure: PairedDifference) -> dict[str, Any]:
    """Scores of the runs and their deviation, of a system compared with systems of several runs."""
    if not isinstance(measure, SeedDifference):
        return {}
    return {"values": measure.values, "deviation": measure.deviation, "untested": measure.untested}


def compare_labelings(
    systems: Mapping[str, Sequence[Sequence[str]]],
    right: Sequence[str],
    *,
    samples: int = 0,
    seed: int = 1,
    runs: Mapping[str, tuple[Run, ...]] = MappingProxyType({}),
) -> LabelComparison:
    """Compares classifiers by resampled examples, and by their seeds if one has several runs.

    systems: for each the labels by each of its runs, the baseline first.
    """
    # training strips white space around a label, too
    right = [label.strip() for label in right]
    blank = next((number for number, label in enumerate(right, 1) if not label), None)
    if blank is not None or not right:
        where = "the reference" if blank is None else f"line {blank} of the reference"
        raise DataError(f"{where}: has no label; correct it, or remove the line from all files")
    labelings = {
        name: [[label.strip() for label in labels] for labels in own]
        for name, own in systems.items()
    }
    n_samples = samples or RESAMPLES
    measured: Iterator[Sequence[PairedDifference]]
    if any(len(own) > 1 for own in labelings.values()):
        measured = _compare_seeds([*labelings.values()], right, n_samples, seed)
    else:
        baseline, *_ = (own[0] for own in labelings.values())
        draws = [1, *[n_samples] * (len(labelings) - 1)]  # the baseline does not differ from itself
        measured = (
            compare_labels(baseline, labels, right, n_resamples=n_drawn, seed=seed)
            for ([labels], n_drawn) in zip(labelings.values(), draws, strict=True)
        )
    shares = [_shares(own, right) for own in labelings.values()]
    return LabelComparison(
        n_examples=len(right),
        systems=tuple(
            LabeledSystem(
                name=name,
                measures=tuple(measures),
                wins=wins_of([a - b for a, b in zip(own, shares[0], strict=True)]),
            )
            for name, measures, own in zip(labelings, measured, shares, strict=True)
        ),
        samples=n_samples,
        seed=seed,
        runs=tuple(runs[name] for name in labelings) if runs else (),
    )


def _shares(labelings: Sequence[Sequence[str]], right: Sequence[str]) -> list[float]:
    """Computes the share of the runs that label each example right."""
    return [
        sum(label == answer for label in labels) / len(labels)
        for *labels, answer in zip(*labelings, right, strict=True)
    ]


def sample_labels(
    labelings: Sequence[Sequence[Sequence[str]]],
    right: Sequence[str],
    n_samples: int = RESAMPLES,
    seed: int = 1,
) -> list[list[Sample]]:
    """Measures each system's labels by each of its runs, and on resampled examples."""
    # (1 + R, runs of all systems, measures)
    drawn = label_draws([run for own in labelings for run in own], right, n_samples, seed)
    ends = np.cumsum([len(own) for own in labelings])
    return [
        [
            Sample(
                values=scores[0, :, measure].tolist(),
                drawn=scores[1:, :, measure].mean(axis=1),
                n_sentences=len(right),
            )
            for measure in range(len(LABEL_MEASURES))
        ]
        for scores in np.split(drawn, ends[:-1], axis=1)
    ]


def _compare_seeds(
    labelings: Sequence[Sequence[Sequence[str]]],
    right: Sequence[str],
    n_samples: int,
    seed: int,
) -> Iterator[list[SeedDifference]]:
    """Yields for each system its mean measures with their changes from the first system."""
    samples = sample_labels(labelings, right, n_samples, seed)
    for own in samples:
        measures = []
        for name, sample, baseline in zip(LABEL_MEASURES, own, samples[0], strict=True):
            change = estimate(sample, baseline)
            p_value = 1.0 if change.p_value is None else change.p_value
            measures.append(
                SeedDifference(
                    name=name,
                    baseline=baseline.mean,
                    value=sample.mean,
                    low=change.value - change.interval,
                    high=change.value + change.interval,
                    p_value=p_value,
                    values=tuple(sample.values),
                    deviation=sample.deviation,
                    untested=change.untested,
                )
            )
        yield measures
