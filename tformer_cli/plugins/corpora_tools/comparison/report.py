"""Comparisons as documents: tables of scores and tests, and the sentences that differ most."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from tformer_cli.metrics.significance import TestedMetric, TestedScore
from tformer_cli.plugins.corpora_tools.comparison.compare import Bucket, Comparison, Difference
from tformer_cli.show.document import Cell, Document, Section, Sentence, Sentences, Table

TITLE = "Comparison of systems"
LEGEND_OF_ONE = "Mean ± 95 %: mean and confidence interval of the scores of resampled texts."
LEGEND = (
    f"{LEGEND_OF_ONE} Change: from the baseline; p: probability of a change at least this large "
    "if the systems were equally good, * marks 0.05 and less. Bold: the best score, where it and "
    "the baseline's differ by more than chance. Better, worse, equal: sentences by their own "
    "score, against the baseline."
)


def comparison_document(comparisons: Sequence[Comparison]) -> Document:
    return Document(title=TITLE, sections=sections_of(comparisons))


def sections_of(comparisons: Sequence[Comparison]) -> list[Section]:
    sections = [_section(comparison) for comparison in comparisons]
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


def _section(comparison: Comparison) -> Section:
    first = comparison.metrics[0]
    tables = [_scores(comparison, metric) for metric in comparison.metrics]
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
        legend=LEGEND if len(comparison.systems) > 1 else LEGEND_OF_ONE,
    )


def _scores(comparison: Comparison, metric: TestedMetric) -> Table:
    baseline = metric.scores[0]
    values = _score_cells(metric)
    systems = comparison.systems
    is_alone = len(systems) == 1
    names = systems if is_alone else (f"{systems[0]} (baseline)", *systems[1:])
    untested = [
        f"No p for {name}: {score.untested}."
        for name, score in zip(names, metric.scores, strict=True)
        if score.untested
    ]
    hint = [f"{metric.hint}."] if metric.hint else []
    head = ("System", metric.name, "Mean ± 95 %", "Change", "p", "Better", "Worse", "Equal")
    rows = [
        (Cell(name), value, *map(Cell, _test_cells(score, baseline)))
        for name, value, score in zip(names, values, metric.scores, strict=True)
    ]
    # one system has nothing to be tested against
    n_columns = 3 if is_alone else len(head)
    return Table(
        title=_name_of(metric),
        head=head[:n_columns],
        rows=tuple(row[:n_columns] for row in rows),
        note=metric.signature,
        remark=" ".join(untested + hint),
    )


def _test_cells(score: TestedScore, baseline: TestedScore) -> Iterator[str]:
    yield f"{score.mean:.2f} ± {score.interval:.2f}"
    if score.wins is None:
        yield from [""] * 5
        return
    yield f"{score.value - baseline.value:+.2f}"
    p_value = "–" if score.p_value is None else f"{score.p_value:.4f}"
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
    # of each system the sentences that it wins stand first
    for system, differences in groupby(comparison.differences, key=lambda item: item.system):
        yield Sentences(
            heading=f"{system} and {baseline}: sentences that differ most by {metric}",
            sentences=tuple(_sentence(item, baseline) for item in differences),
        )


def _sentence(item: Difference, baseline: str) -> Sentence:
    many = len(item.references) > 1
    references = [
        (f"reference {number}" if many else "reference", text)
        for number, text in enumerate(item.references, 1)
    ]
    source = [] if item.source is None else [("source", item.source)]
    return Sentence(
        heading=f"line {item.line:,}: {item.system} {item.value:.2f}, "
        f"{baseline} {item.baseline_value:.2f}",
        texts=(*source, *references, (baseline, item.baseline_text), (item.system, item.text)),
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
