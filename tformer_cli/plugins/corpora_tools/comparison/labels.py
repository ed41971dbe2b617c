"""Comparison of several classifiers by their labels of the same examples."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tformer_cli.errors import DataError
from tformer_cli.metrics.choices import record_key
from tformer_cli.metrics.resampling import RESAMPLES
from tformer_cli.metrics.significance import SIGNIFICANT, PairedDifference, Wins, compare_labels
from tformer_cli.plugins.corpora_tools.comparison.compare import wins_of
from tformer_cli.plugins.corpora_tools.comparison.report import TITLE, mark_best
from tformer_cli.show.document import Cell, Document, Section, Table

LEGEND = (
    "Change: from the baseline, with the interval that holds 95 % of the changes of resampled "
    "examples; p: probability of a change at least this large if the systems were equally good, "
    "* marks 0.05 and less. Bold: the best score, where it and the baseline's differ by more than "
    "chance. Better, worse: examples that only the system, or only the baseline, labels right."
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

    def record(self) -> dict[str, Any]:
        return {
            "test": "paired-bootstrap",
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
                            "p_value": measure.p_value if number else None,
                        }
                        for measure in system.measures
                    ],
                    "wins": asdict(system.wins) if number else None,
                }
                for number, system in enumerate(self.systems)
            ],
        }

    def document(self) -> Document:
        tables = [
            Table(
                title=measure.name,
                head=("System", measure.name, "Change", "95 %", "p", "Better", "Worse", "Equal"),
                rows=tuple(self._rows(number)),
                note=f"paired-bootstrap|units:examples|resamples:{self.samples}|seed:{self.seed}",
            )
            for number, measure in enumerate(self.systems[0].measures)
        ]
        title = f"{self.n_examples:,} examples"
        section = Section(title=title, tables=tuple(tables), legend=LEGEND)
        return Document(title=TITLE, sections=[section])

    def _rows(self, number: int) -> Iterator[tuple[Cell, ...]]:
        measures = [system.measures[number] for system in self.systems]
        differs = [False, *(measure.p_value <= SIGNIFICANT for measure in measures[1:])]
        values = mark_best([measure.value for measure in measures], differs)
        for place, (system, measure, value) in enumerate(
            zip(self.systems, measures, values, strict=True)
        ):
            if not place:
                yield (Cell(system.name), value, Cell("baseline"), *[Cell("")] * 5)
                continue
            mark = "*" if measure.p_value <= SIGNIFICANT else ""
            tested = (
                f"{measure.difference:+.2f}",
                f"{measure.low:+.2f} to {measure.high:+.2f}",
                f"{measure.p_value:.4f}{mark}",
                *(f"{n:,}" for n in (system.wins.better, system.wins.worse, system.wins.equal)),
            )
            yield (Cell(system.name), value, *map(Cell, tested))


def compare_labelings(
    systems: Sequence[tuple[str, Sequence[str]]],
    right: Sequence[str],
    *,
    samples: int = 0,
    seed: int = 1,
) -> LabelComparison:
    """Compares classifiers by paired bootstrap over the examples."""
    # training strips white space around a label, too
    right = [label.strip() for label in right]
    blank = next((number for number, label in enumerate(right, 1) if not label), None)
    if blank is not None or not right:
        where = "the reference" if blank is None else f"line {blank} of the reference"
        raise DataError(f"{where}: has no label; correct it, or remove the line from all files")
    labelings = [(name, [label.strip() for label in labels]) for name, labels in systems]
    baseline = labelings[0][1]
    n_samples = samples or RESAMPLES
    draws = [1, *[n_samples] * (len(labelings) - 1)]  # the baseline does not differ from itself
    return LabelComparison(
        n_examples=len(right),
        systems=tuple(
            LabeledSystem(
                name=name,
                measures=tuple(
                    compare_labels(baseline, labels, right, n_resamples=n_drawn, seed=seed)
                ),
                wins=wins_of(_gains(baseline, labels, right)),
            )
            for (name, labels), n_drawn in zip(labelings, draws, strict=True)
        ),
        samples=n_samples,
        seed=seed,
    )


def _gains(baseline: Sequence[str], labels: Sequence[str], right: Sequence[str]) -> list[int]:
    """1 for each example that only the system labels right, -1 where only the baseline does."""
    examples = zip(labels, baseline, right, strict=True)
    return [(label == answer) - (other == answer) for label, other, answer in examples]
