"""The result of a study: one table of all variants, and a page with what `compare` finds."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from tformer_cli.artifacts.config_file import WEIGHTS, read_config
from tformer_cli.files.atomic import write_text
from tformer_cli.files.regular_file import MIB, hash_file, read_regular
from tformer_cli.kinds import training_of
from tformer_cli.metrics.choices import record_key
from tformer_cli.metrics.scores import make_bleu, make_metric
from tformer_cli.metrics.significance import SIGNIFICANT, PairedDifference, TestSettings, p_text
from tformer_cli.plugins.corpora_tools.compare import LABELERS, label_texts, translate_texts
from tformer_cli.plugins.corpora_tools.comparison.compare import TestSet, compare_systems
from tformer_cli.plugins.corpora_tools.comparison.groups import (
    Estimate,
    Sample,
    SeedScore,
    estimate,
)
from tformer_cli.plugins.corpora_tools.comparison.labels import (
    compare_labelings,
    sample_labels,
    tested_p,
)
from tformer_cli.plugins.corpora_tools.comparison.lengths import Run, read_length, unequal_lengths
from tformer_cli.plugins.corpora_tools.comparison.report import (
    comparison_document,
    mark_best,
    steps_of,
)
from tformer_cli.plugins.corpora_tools.seeds import scored_pairs
from tformer_cli.plugins.corpora_tools.study.plan import (
    Study,
    StudyRun,
    changed_keys,
    is_finished,
)
from tformer_cli.show.document import Cell, Document, Note, Section, Table
from tformer_cli.structure import StructureError, structure
from tformer_cli.text.corpora import SentencePair
from tformer_cli.train.data import completed_recipe
from tformer_cli.wording import count_of

SCHEMA = "tformer.study/1"
REPORT, PAGE = "study.json", "study.html"
LEGEND = (
    "Mean over the seeds ± half the width of its 95 % confidence interval over seeds and "
    "sentences; SD: standard deviation over the seeds (n - 1). p: probability of a change from "
    "the first variant at least this large if the two were equally good, by Welch's t-test over "
    "the seeds with the variance of resampled sentences (one seed: by paired bootstrap); * marks "
    "p ≤ 0.05. "
    "M: millions. Steps, target tokens and minutes are those of one run."
)


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """A run of a variant."""

    seed: int
    steps: int
    tokens: int
    minutes: float
    weights: str
    """SHA-256 of its weights: with the same ones the report is the same."""


@dataclass(frozen=True, kw_only=True)
class VariantMeasure:
    """One score of a variant."""

    name: str
    values: tuple[float, ...]
    """For each seed."""
    mean: float
    deviation: float | None
    interval: float | None
    """Half the width of the 95 % interval; None: not known, of one seed."""
    p_value: float | None
    """Against the first variant; None: it is that one, or the test says nothing."""

    @property
    def differs(self) -> bool:
        """True if it differs from the first variant by more than chance."""
        return self.p_value is not None and self.p_value <= SIGNIFICANT


@dataclass(frozen=True, kw_only=True)
class VariantRow:
    """A variant of the study."""

    name: str
    changes: Mapping[str, Any]
    """The recipe's keys that it changes, with their values."""
    parameters: int
    runs: tuple[RunFacts, ...]
    measures: tuple[VariantMeasure, ...]

    def cells(self, bests: Sequence[Cell]) -> Iterator[Cell]:
        steps = [Run(name="", steps=run.steps) for run in self.runs]
        yield from map(
            Cell,
            (
                self.name,
                f"{self.parameters / 1e6:.2f}",
                steps_of(steps),
                f"{fmean(run.tokens for run in self.runs) / 1e6:.2f}",
                f"{fmean(run.minutes for run in self.runs):.1f}",
            ),
        )
        for measure, best in zip(self.measures, bests, strict=True):
            shown = f"{measure.mean:.{digits_of(measure)}f}"
            spread = "" if measure.interval is None else f" ± {measure.interval:.2f}"
            yield Cell(f"{shown}{spread}", is_best=best.is_best)
            deviation = measure.deviation
            yield Cell("" if deviation is None else f"{deviation:.{digits_of(measure)}f}")
            p_value = measure.p_value
            mark = "*" if measure.differs else ""
            yield Cell("" if p_value is None else f"{p_text(p_value)}{mark}")


@dataclass(frozen=True, kw_only=True)
class StudyReport:
    """Scores and costs of all variants."""

    schema: str = SCHEMA
    recipe: str
    examples: str
    """The examples that the scores are of."""
    seeds: tuple[int, ...]
    variants: tuple[VariantRow, ...]

    @property
    def basis(self) -> tuple[str, dict[str, tuple[RunFacts, ...]]]:
        """The origin of the scores: with the same, they are the same."""
        return self.examples, {row.name: row.runs for row in self.variants}

    def record(self) -> dict[str, Any]:
        return asdict(self)

    def table(self) -> Table:
        names = [measure.name for measure in self.variants[0].measures]
        columns = list(zip(*(row.measures for row in self.variants), strict=True))
        # Of validation scores nobody says which is better, the larger or the smaller
        bests = [
            mark_best([measure.mean for measure in column], [measure.differs for measure in column])
            if column[0].interval is not None
            else [Cell("")] * len(column)
            for column in columns
        ]
        return Table(
            title=f"Variants of {self.recipe}",
            head=(
                *("Variant", "Parameters, M", "Steps", "Tokens, M", "Minutes"),
                *(text for name in names for text in (name, "SD", "p")),
            ),
            rows=[
                tuple(row.cells(marks))
                for row, marks in zip(self.variants, zip(*bests, strict=True), strict=True)
            ],
        )

    def rows(self) -> Iterator[Sequence[object]]:
        """Yields a header and a row for each variant, with each number whole and by itself."""
        names = [record_key(measure.name) for measure in self.variants[0].measures]
        parts = ("", "_sd", "_ci95", "_p")
        yield (
            *("variant", "parameters", "seeds", "steps", "tokens", "minutes"),
            *(f"{name}{part}" for name in names for part in parts),
        )
        for row in self.variants:
            lengths = [(run.steps, run.tokens, run.minutes) for run in row.runs]
            scores = [(m.mean, m.deviation, m.interval, m.p_value) for m in row.measures]
            means = map(fmean, zip(*lengths, strict=True))
            yield row.name, row.parameters, len(row.runs), *means, *chain.from_iterable(scores)

    def document(self) -> Document:
        changes = tuple(
            f"{row.name}: {', '.join(f'{k} = {json.dumps(v)}' for k, v in row.changes.items())}"
            for row in self.variants
            if row.changes
        )
        title = f"{count_of(len(self.seeds), 'seed')}, {self.examples}"
        notes = [Note(title="Changes of the recipe", lines=changes)] if changes else []
        if missing := tuple(self._missing_seeds()):
            notes.append(Note(title="Seeds without a finished run", lines=missing))
        section = Section(title=title, tables=(self.table(),), notes=tuple(notes), legend=LEGEND)
        return Document(title="Study", sections=[section])

    def _missing_seeds(self) -> Iterator[str]:
        for row in self.variants:
            finished = {run.seed for run in row.runs}
            if seeds := [str(seed) for seed in self.seeds if seed not in finished]:
                yield f"{row.name}: {', '.join(seeds)}"


def digits_of(measure: VariantMeasure) -> int:
    return 4 if measure.interval is None else 2


def report_study(
    study: Study,
    *,
    device: str,
    tell: Callable[[str], None],
    warn: Callable[[str], None],
) -> tuple[StudyReport, Document | None]:
    """Scores all finished runs; the second result is the page, None: the report is an earlier one.

    Variants without a finished run are omitted; there must be one that has.
    """
    by_variant = {name: [*filter(is_finished, study.runs_of(name))] for name in study.recipes}
    runs = {name: own for name, own in by_variant.items() if own}
    first, tested = next(iter(study.recipes)), next(iter(runs))
    if tested != first:
        warn(f"{first} has no finished run; the others are tested against {tested}")
    facts = {name: tuple(map(_facts, own)) for name, own in runs.items()}
    steps = {name: [run.steps for run in own] for name, own in facts.items()}
    if doubt := unequal_lengths(steps):
        warn(doubt)
    recipe = completed_recipe(next(iter(study.recipes.values())))
    pairs, examples = scored_pairs(recipe, study.file.test, recipe.data.directory)
    earlier = _earlier(study.directory / REPORT)
    if earlier is not None and (examples, facts) == earlier.basis:
        return earlier, None
    tell(f"scoring {count_of(sum(map(len, runs.values())), 'run')} on {examples}")
    measures, page = _measure(study, runs, pairs, device)
    report = StudyReport(
        recipe=study.file.recipe,
        examples=examples,
        seeds=study.file.seeds,
        variants=tuple(
            VariantRow(
                name=name,
                changes=dict(changed_keys(study.file.variants[name])),
                parameters=_parameters(own[0].directory),
                runs=facts[name],
                measures=tuple(measures[name]),
            )
            for name, own in runs.items()
        ),
    )
    if not study.is_part:
        write_text(study.directory / REPORT, json.dumps(report.record(), indent=1) + "\n")
    sections = [*report.document().sections, *([] if page is None else page.sections)]
    return report, Document(title=f"Study: {study.path.stem}", sections=sections)


def _earlier(path: Path) -> StudyReport | None:
    """The report of an earlier command; None: there is none, or one of another version."""
    try:
        return structure(StudyReport, json.loads(read_regular(path, 16 * MIB)))
    except (OSError, ValueError, TypeError, RecursionError, StructureError):
        return None


def _facts(run: StudyRun) -> RunFacts:
    length = read_length(run.directory)
    return RunFacts(
        seed=run.seed,
        steps=0 if length is None else length.steps,
        tokens=0 if length is None else length.tokens,
        minutes=0.0 if length is None else length.seconds / 60.0,
        weights=hash_file(run.directory / WEIGHTS),
    )


def _parameters(run: Path) -> int:
    from tformer_cli.model.weight_shapes import parameter_count

    config = read_config(run)
    return parameter_count(config.model, config.vocab_size)


def _measure(
    study: Study,
    runs: Mapping[str, Sequence[StudyRun]],
    pairs: Sequence[SentencePair],
    device: str,
) -> tuple[dict[str, list[VariantMeasure]], Document | None]:
    """Scores each variant by its kind, and makes the pages of the comparison."""
    recipe = next(iter(study.recipes.values()))
    sources, right = [pair.source for pair in pairs], [pair.target for pair in pairs]
    kind, how = training_of(recipe).examples, {"device": device}
    names = {
        name: tuple(Run(name=run.directory.name, steps=_facts(run).steps) for run in own)
        for name, own in runs.items()
    }
    several = names if any(len(own) > 1 for own in runs.values()) else {}
    if kind.are_translated:
        test_set = TestSet(
            name="",
            references=(tuple(right),),
            source=tuple(sources),
            systems={
                name: tuple(tuple(translate_texts(run.directory, sources, how)) for run in own)
                for name, own in runs.items()
            },
            runs=several,
        )
        metrics = [make_metric("bleu"), make_metric("chrf")]
        tokenize = make_bleu().tokenizer
        comparison = compare_systems(test_set, metrics, TestSettings(), tokenize=tokenize)
        measures = {
            name: [_score_measure(metric.name, metric.scores[n]) for metric in comparison.metrics]
            for n, name in enumerate(runs)
        }
        return measures, comparison_document([comparison])
    if recipe.task.kind in LABELERS and kind.are_texts:
        labelings = {
            name: [[*label_texts(run.directory, sources, how)] for run in own]
            for name, own in runs.items()
        }
        compared = compare_labelings(labelings, right, runs=several)
        samples = sample_labels([*labelings.values()], [label.strip() for label in right])
        return {
            system.name: [
                _label_measure(measure, sample, tested_p(measure) if number else None)
                for measure, sample in zip(system.measures, own, strict=True)
            ]
            for number, (system, own) in enumerate(zip(compared.systems, samples, strict=True))
        }, compared.document()
    return _validation_measures(runs), None


def _score_measure(name: str, score: Any) -> VariantMeasure:  # noqa: ANN401 - of one run or several
    values = score.values if isinstance(score, SeedScore) else (score.value,)
    return VariantMeasure(
        name=name,
        values=values,
        mean=score.value,
        deviation=getattr(score, "deviation", None),
        interval=score.interval,
        p_value=score.p_value,
    )


def _label_measure(
    measure: PairedDifference, sample: Sample, p_value: float | None
) -> VariantMeasure:
    return VariantMeasure(
        name=measure.name,
        values=tuple(sample.values),
        mean=sample.mean,
        deviation=sample.deviation,
        interval=estimate(sample).interval,
        p_value=p_value,
    )


def _validation_measures(
    runs: Mapping[str, Sequence[StudyRun]],
) -> dict[str, list[VariantMeasure]]:
    """Compares what training has validated: only the seeds vary."""
    scores = {
        name: [read_config(run.directory).scores for run in own] for name, own in runs.items()
    }
    first = next(iter(scores))
    samples = {
        name: {key: Sample(values=[row[key] for row in own]) for key in scores[first][0]}
        for name, own in scores.items()
    }

    def measure(name: str, key: str) -> VariantMeasure:
        sample = samples[name][key]
        test: Estimate | None = None if name == first else estimate(sample, samples[first][key])
        return VariantMeasure(
            name=key,
            values=tuple(sample.values),
            mean=sample.mean,
            deviation=sample.deviation,
            interval=None,
            p_value=None if test is None else test.p_value,
        )

    return {name: [measure(name, key) for key in own] for name, own in samples.items()}
