"""Comparisons as documents: tables of scores and tests, and the sentences that differ most."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from tformer_cli.metrics.significance import TestedMetric, TestedScore, p_text
from tformer_cli.plugins.corpora_tools.comparison.compare import (
    Bucket,
    Comparison,
    Difference,
    SeedComparison,
)
from tformer_cli.plugins.corpora_tools.comparison.groups import SeedScore
from tformer_cli.plugins.corpora_tools.comparison.lengths import Run
from tformer_cli.show.document import Cell, Document, Section, Sentence, Sentences, Table

TITLE = "Comparison of systems"
LEGEND_OF_ONE = "Mean ± 95 %: mean and confidence interval of the scores of resampled texts."
LEGEND = (
    f"{LEGEND_OF_ONE} Change: from the baseline; p: probability of a change at least this large "
    "if the systems were equally good, * marks 0.05 and less. Bold: the best score, where it and "
    "the baseline's differ by more than chance. Better, worse, equal: sentences by their own "
    "score, against the baseline."
)


SEED_LEGEND = (
    "Mean and standard deviation (SD, n - 1) over the runs; ± 95 %: half the width of the mean's "
    "confidence interval over seeds and sentences. Change: from the baseline; p: probability of a "
    "change at least this large if the systems were equally good, by Welch's t-test over the runs "
    "with the variance of resampled sentences; * marks 0.05 and less. Better, worse: sentences by "
    "the mean of the runs' scores, against the baseline."
)


def comparison_document(comparisons: Sequence[Comparison], *, each_seed: bool = False) -> Document:
    return Document(title=TITLE, sections=sections_of(comparisons, each_seed=each_seed))


def sections_of(comparisons: Sequence[Comparison], *, each_seed: bool = False) -> list[Section]:
    sections = [_section(comparison, each_seed=each_seed) for comparison in comparisons]
    if len(comparisons) > 1:
        names = comparisons[0].systems
        head = ("System", *(comparison.test_set for comparison in comparisons), "Mean")
        tables = tuple(
            _overview(names, head, [comparison.metrics[number] for comparison in comparisons])
            for number in range(len(comparisons[0].metrics))
        )
        legend = sections[0].legend
        sections.insert(0, Section(title="All test sets", tables=tables, legend=legend))
    return sections


def _overview(
    names: Sequence[str], head: tuple[str, ...], metrics: Sequence[TestedMetric]
) -> Table:
    values = zip(*([score.value for score in metric.scores] for metric in metrics), strict=True)
    means = [Cell(f"{sum(row) / len(row):.2f}") for row in values]
    marked = [*map(_score_cells, metrics), means]
    return Table(
        title=_name_of(metrics[0]),
        head=head,
        rows=tuple(
            (Cell(name), *row) for name, row in zip(names, zip(*marked, strict=True), strict=True)
        ),
    )


def _section(comparison: Comparison, *, each_seed: bool) -> Section:
    first = comparison.metrics[0]
    tables = [_scores(comparison, metric, each_seed=each_seed) for metric in comparison.metrics]
    tables.append(
        _buckets(
            f"{_name_of(first)} by reference length",
            ("Words", "Sentences", *comparison.systems),
            comparison.lengths,
        )
    )
    tables.append(
        _buckets(
            "F1 of words by their frequency",
            ("Frequency", "Words", *comparison.systems),
            comparison.words,
        )
    )
    title = f"{comparison.test_set}: {comparison.n_sentences:,} sentences".removeprefix(": ")
    return Section(
        title=title,
        tables=tuple(tables),
        sentences=tuple(_sentences(comparison, first.name)),
        legend=SEED_LEGEND
        if isinstance(comparison, SeedComparison)
        else LEGEND
        if len(comparison.systems) > 1
        else LEGEND_OF_ONE,
    )


def _scores(comparison: Comparison, metric: TestedMetric, *, each_seed: bool) -> Table:
    baseline = metric.scores[0]
    values = _score_cells(metric)
    systems = comparison.systems
    is_alone = len(systems) == 1
    has_seeds = isinstance(comparison, SeedComparison)
    marked = "" if is_alone or has_seeds else " (baseline)"
    names = (f"{systems[0]}{marked}", *systems[1:])
    untested = [
        f"No p for {name}: {score.untested}."
        for name, score in zip(names, metric.scores, strict=True)
        if score.untested
    ]
    hint = [f"{metric.hint}."] if metric.hint else []
    head: tuple[str, ...]
    head = ("System", metric.name, "Mean ± 95 %", "Change", "p", "Better", "Worse", "Equal")
    # one system has nothing to be tested against
    n_columns = 3 if is_alone else len(head)
    rows = [
        (Cell(name), value, *map(Cell, _test_cells(score, baseline)))
        for name, value, score in zip(names, values, metric.scores, strict=True)
    ]
    if isinstance(comparison, SeedComparison):
        head = ("System", "Runs", "Steps", metric.name, "SD", "± 95 %", *head[3:-1])
        n_columns = 6 if is_alone else len(head)
        rows = list(_seed_rows(comparison.runs, metric.scores, rows, each_seed=each_seed))
    return Table(
        title=_name_of(metric),
        head=head[:n_columns],
        rows=tuple(row[:n_columns] for row in rows),
        note=metric.signature,
        remark=" ".join(untested + hint),
    )


def _seed_rows(
    runs: Sequence[Sequence[Run]],
    scores: Sequence[TestedScore],
    rows: Sequence[tuple[Cell, ...]],
    *,
    each_seed: bool,
) -> Iterator[tuple[Cell, ...]]:
    """Yields the rows of systems of several runs, if asked for with those of their runs."""
    for place, (own, score, row) in enumerate(zip(runs, scores, rows, strict=True)):
        assert isinstance(score, SeedScore)  # noqa: S101 - for mypy
        # "Equal" is the rest of the sentences, for which 80 columns have no room
        tested = row[3:-1] if place else (Cell("baseline"), *row[4:-1])
        yield seed_row(row[:2], own, score.deviation, score.interval, tested)
        if each_seed:
            yield from run_rows(own, score.values, len(tested))


def seed_row(
    named: tuple[Cell, ...],
    runs: Sequence[Run],
    deviation: float | None,
    interval: float,
    tested: tuple[Cell, ...],
) -> tuple[Cell, ...]:
    """Makes the row of a system: `named` is its name and score, `tested` its test's cells."""
    name, value = named
    spread = "" if deviation is None else f"{deviation:.2f}"
    about = f"{max(1, len(runs))}", steps_of(runs)
    return (name, *map(Cell, about), value, Cell(spread), Cell(f"{interval:.2f}"), *tested)


def run_rows(
    runs: Sequence[Run], values: Sequence[float], n_tested: int
) -> Iterator[tuple[Cell, ...]]:
    """Yields a row for each of several runs of a system."""
    for run, value in zip(runs, values, strict=False) if len(runs) > 1 else ():
        cells = f"  {run.name}", "", steps_of([run]), f"{value:.2f}", *[""] * (2 + n_tested)
        yield tuple(map(Cell, cells))


def steps_of(runs: Sequence[Run]) -> str:
    """Writes the steps of runs: 800, or 780–800; empty: they are not known."""
    steps = sorted({run.steps for run in runs if run.steps is not None})
    return "–".join(f"{number:,}" for number in steps[:: max(1, len(steps) - 1)])


def _test_cells(score: TestedScore, baseline: TestedScore) -> Iterator[str]:
    yield f"{score.mean:.2f} ± {score.interval:.2f}"
    if score.wins is None:
        yield from [""] * 5
        return
    yield f"{score.value - baseline.value:+.2f}"
    p_value = "–" if score.p_value is None else p_text(score.p_value)
    yield f"{p_value}{'*' if score.is_significant else ''}"
    yield from (str(number) for number in (score.wins.better, score.wins.worse, score.wins.equal))


def _buckets(title: str, head: tuple[str, ...], buckets: Sequence[Bucket]) -> Table:
    rows = tuple(
        (row.label, f"{row.size:,}", *(f"{value:.2f}" for value in row.values)) for row in buckets
    )
    return Table(title=title, head=head, rows=rows)


def _sentences(comparison: Comparison, metric: str) -> Iterator[Sentences]:
    """Groups sentences by system, and by which of it and the baseline is better."""
    baseline = comparison.systems[0]
    texts = _text_names(comparison)
    # of each system the sentences that it wins stand first
    for system, differences in groupby(comparison.differences, key=lambda item: item.system):
        yield Sentences(
            heading=f"{system} and {baseline}: sentences that differ most by {metric}",
            sentences=tuple(_sentence(item, baseline, texts) for item in differences),
        )


def _text_names(comparison: Comparison) -> dict[str, str]:
    """Names whose text is shown for each system: that of the first of its runs."""
    names = {system: system for system in comparison.systems}
    if isinstance(comparison, SeedComparison):
        for system, runs in zip(comparison.systems, comparison.runs, strict=True):
            names[system] += f" {runs[0].name}" if len(runs) > 1 else ""
    return names


def _sentence(item: Difference, baseline: str, names: Mapping[str, str]) -> Sentence:
    many = len(item.references) > 1
    references = [
        (f"reference {number}" if many else "reference", text)
        for number, text in enumerate(item.references, 1)
    ]
    source = [] if item.source is None else [("source", item.source)]
    return Sentence(
        heading=f"line {item.line:,}: {item.system} {item.value:.2f}, "
        f"{baseline} {item.baseline_value:.2f}",
        texts=(
            *source,
            *references,
            (names[baseline], item.baseline_text),
            (names[item.system], item.text),
        ),
    )


def _name_of(metric: TestedMetric) -> str:
    return f"{metric.name}, less is better" if metric.less_is_better else metric.name


def _score_cells(metric: TestedMetric) -> list[Cell]:
    values = [score.value for score in metric.scores]
    differs = [score.is_significant for score in metric.scores]
    return mark_best(values, differs, less=metric.less_is_better)


def mark_best(
    values: Sequence[float], differs: Sequence[bool], *, less: bool = False
) -> list[Cell]:
    """Writes scores, the baseline's first, and marks the best if the test tells it apart.

    Args:
        values: Scores.
        differs: True for each system that differs from the baseline by more than chance.
        less: True if less is better.

    Returns:
        Cells. The baseline is marked only if all others are worse by more than chance.
    """
    # compared as they are written: a reader could not tell two that look alike
    texts = [f"{value:.2f}" for value in values]
    best = values.index((min if less else max)(values))
    others = differs[1:] or [False]
    is_marked = texts.count(texts[best]) == 1 and (differs[best] if best else all(others))
    return [Cell(text, is_marked and place == best) for place, text in enumerate(texts)]
