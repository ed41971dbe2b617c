"""Runs that differ only in their seed: their scores, mean, deviation and tests between them.

How much two seeds differ is how much of a result is luck: a change of a recipe that gains less than
the deviation has shown nothing.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, stdev

from tformer_cli.artifacts.config_file import WEIGHTS, read_config
from tformer_cli.files.atomic import write_text
from tformer_cli.files.regular_file import MIB, hash_file, read_regular
from tformer_cli.kinds import training_of
from tformer_cli.metrics.scores import make_metric
from tformer_cli.metrics.significance import (
    SIGNIFICANT,
    MeasuredMetric,
    TestSettings,
    p_text,
    paired_test,
)
from tformer_cli.plugins.corpora_tools.compare import LABELERS, label_texts, translate_texts
from tformer_cli.plugins.corpora_tools.comparison.labels import compare_labelings
from tformer_cli.plugins.corpora_tools.comparison.lengths import read_length, unequal_lengths
from tformer_cli.recipe import RECIPE, Recipe, has_run, load_recipe
from tformer_cli.show.document import Cell, Document, Section, Table
from tformer_cli.structure import StructureError, structure
from tformer_cli.text.config import CorpusConfig
from tformer_cli.text.corpora import SentencePair, read_corpus
from tformer_cli.train.data import completed_recipe, validation_pairs
from tformer_cli.wording import count_of

SCHEMA = "tformer.seeds/1"
REPORT = "seeds.json"
"""The report, in the directory that holds the runs."""
LEGEND = (
    "Deviation: standard deviation over the seeds (n - 1). p: probability of a difference from "
    "the first run at least this large if the runs were equally good, by paired bootstrap; * "
    "marks p ≤ 0.05."
)


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One score of every run."""

    name: str
    values: tuple[float, ...]
    p_values: tuple[float, ...] = ()
    """p against the first run, whose own is 1; empty: only the scores are known."""
    signature: str = ""

    @property
    def mean(self) -> float:
        return mean(self.values)

    @property
    def deviation(self) -> float:
        return stdev(self.values)

    def table(self, runs: Sequence[str], steps: Sequence[int]) -> Table:
        digits = 2 if self.p_values else 4
        # The first run is what the others are tested against, and a mean is tested against none
        marks = ["*" if p <= SIGNIFICANT else "" for p in self.p_values]
        tested = [f"{p_text(p)}{mark}" for p, mark in zip(self.p_values, marks, strict=True)]
        last = ["", *tested[1:], "", ""] if tested else [""] * (len(runs) + 2)
        names = (*runs, "mean", "deviation")
        values = (*self.values, self.mean, self.deviation)
        lengths = [*(f"{number:,}" for number in steps), "", ""]
        width = 4 if tested else 3
        return Table(
            title=self.name,
            head=("Run", "Steps", self.name, "p")[:width],
            rows=[
                (Cell(name), Cell(length), Cell(f"{value:.{digits}f}"), Cell(p_value))[:width]
                for name, length, value, p_value in zip(names, lengths, values, last, strict=True)
            ],
            note=self.signature,
        )


@dataclass(frozen=True, kw_only=True)
class SeedReport:
    """Scores of runs that differ in their seed."""

    schema: str = SCHEMA
    examples: str
    """The examples that the scores are of."""
    runs: tuple[str, ...]
    steps: tuple[int, ...]
    """Training steps of each run."""
    weights: tuple[str, ...]
    """SHA-256 of the weights of each run: with the same ones the report is the same."""
    measures: tuple[Measure, ...]

    def record(self) -> dict[str, object]:
        record = asdict(self)
        for row, measure in zip(record["measures"], self.measures, strict=True):
            row |= {"mean": measure.mean, "deviation": measure.deviation}
        return record

    def document(self) -> Document:
        tables = tuple(measure.table(self.runs, self.steps) for measure in self.measures)
        title = f"{count_of(len(self.runs), 'seed')}, {self.examples}"
        return Document(
            title="Seeds", sections=[Section(title=title, tables=tables, legend=LEGEND)]
        )


def limit_steps(recipe: Recipe, run: Path, first: Path) -> Recipe:
    """Gives another seed's run the number of steps of the first one, if time ended that.

    A machine that is busy with something else makes fewer steps in the same time, and a test
    would take the difference for luck of the seed.
    """
    config, length = recipe.training, read_length(first)
    if length is None or not (config.max_minutes and length.reason.startswith("max_minutes")):
        return recipe
    # Begun by a version that gave each run its own time; the report names the lengths
    if has_run(run) and load_recipe(str(run / RECIPE)).training.max_minutes:
        return recipe
    # A limit of time also bounds the warm-up, by its share of all steps
    warmup = min(config.warmup_steps, round(config.warmup_share * length.steps))
    limited = replace(config, max_minutes=0.0, max_steps=length.steps, warmup_steps=warmup)
    return replace(recipe, training=limited)


def report_seeds(
    recipe: Recipe,
    runs: Sequence[Path],
    place: Path,
    test: CorpusConfig | None,
    *,
    tell: Callable[[str], None],
    warn: Callable[[str], None],
    device: str = "auto",
) -> SeedReport:
    """Scores finished runs on a test set, else on validation pairs, and writes the report."""
    lengths = [read_length(run) for run in runs]
    steps = tuple(0 if length is None else length.steps for length in lengths)
    if doubt := unequal_lengths({run.name: [n] for run, n in zip(runs, steps, strict=True)}):
        warn(doubt)
    weights = tuple(hash_file(run / WEIGHTS) for run in runs)
    earlier = _earlier(place / REPORT)
    if earlier is not None and earlier.weights == weights:
        return earlier
    recipe = completed_recipe(recipe)
    pairs, examples = scored_pairs(recipe, test)
    tell(f"scoring {count_of(len(runs), 'run')} on {examples}")
    report = SeedReport(
        examples=examples,
        runs=tuple(run.name for run in runs),
        steps=steps,
        weights=weights,
        measures=tuple(_measures(recipe, runs, pairs, device)),
    )
    write_text(place / REPORT, json.dumps(report.record(), indent=1) + "\n")
    return report


def scored_pairs(
    recipe: Recipe, test: CorpusConfig | None, directory: str = ""
) -> tuple[list[SentencePair], str]:
    """Reads the test set, else the validation pairs of a complete recipe, and says how many."""
    # What training validated on may be a part of the pairs; a test wants all of them
    everything = replace(recipe, validation=replace(recipe.validation, max_sentences=0))
    pairs = validation_pairs(everything) if test is None else list(read_corpus(test, directory))
    return pairs, f"{len(pairs):,} {'validation' if test is None else 'test'} examples"


def _earlier(path: Path) -> SeedReport | None:
    """The report of an earlier command; None: there is none, or one of another version."""
    # Whatever is wrong with it, scoring again makes a new one
    try:
        record = json.loads(read_regular(path, MIB))
        for measure in record["measures"]:
            del measure["mean"], measure["deviation"]
        return structure(SeedReport, record)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, StructureError):
        return None


def _measures(
    recipe: Recipe, runs: Sequence[Path], pairs: Sequence[SentencePair], device: str
) -> Iterator[Measure]:
    sources, right = [pair.source for pair in pairs], [pair.target for pair in pairs]
    examples, how = training_of(recipe).examples, {"device": device}
    if examples.are_translated:
        translated = [[*translate_texts(run, sources, how)] for run in runs]
        metrics = [MeasuredMetric(make_metric(name), [right]) for name in ("bleu", "chrf")]
        for tested in paired_test(translated, metrics, TestSettings()):
            yield Measure(
                name=tested.name,
                values=tuple(score.value for score in tested.scores),
                p_values=tuple(
                    1.0 if score.p_value is None else score.p_value for score in tested.scores
                ),
                signature=tested.signature,
            )
    elif recipe.task.kind in LABELERS and examples.are_texts:
        labeled = {run.name: [[*label_texts(run, sources, how)]] for run in runs}
        systems = compare_labelings(labeled, right).systems
        for number, measure in enumerate(systems[0].measures):
            yield Measure(
                name=measure.name,
                values=tuple(system.measures[number].value for system in systems),
                p_values=(1.0, *(system.measures[number].p_value for system in systems[1:])),
            )
    else:  # what validation has measured; the first examples of it, as the recipe says
        scores = [read_config(run).scores for run in runs]
        for name in scores[0]:
            yield Measure(name=name, values=tuple(row[name] for row in scores))
