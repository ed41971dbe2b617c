"""The report of a distillation: teacher and student in size, speed and quality."""

import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tformer_cli.artifacts.config_file import CONFIG, SHORTLIST, TOKENIZER, WEIGHTS, read_config
from tformer_cli.errors import ArtifactError, DataError
from tformer_cli.files.atomic import directory_aside
from tformer_cli.files.regular_file import MIB, hash_file, read_regular
from tformer_cli.metrics.scores import check_counts, make_bleu, make_metric
from tformer_cli.metrics.significance import TestSettings
from tformer_cli.model.weight_shapes import parameter_count
from tformer_cli.plugins.corpora_tools.benchmark import System, measure_in_turns, percentile
from tformer_cli.plugins.corpora_tools.comparison.compare import (
    Comparison,
    TestSet,
    compare_systems,
)
from tformer_cli.plugins.corpora_tools.comparison.report import LEGEND, sections_of
from tformer_cli.plugins.corpora_tools.distill.setup import (
    CORPORA,
    INT8,
    PLAIN,
    REPORT,
    STUDENT,
    Setup,
    hash_of,
    model_hash,
)
from tformer_cli.plugins.corpora_tools.distill.stages import Stage
from tformer_cli.plugins.corpora_tools.distill.translations import COUNTS, read_translations
from tformer_cli.search.keywords import TranslatorOptions
from tformer_cli.show.document import Document, Section, Table
from tformer_cli.show.html import render_html
from tformer_cli.structure import StructureError, structure
from tformer_cli.text.config import CorpusConfig
from tformer_cli.text.corpora import SentencePair, corpus_name, read_corpus
from tformer_cli.text.lines import plain_name
from tformer_cli.wording import is_blank

SCHEMA = "tformer.distillation/1"
TITLE = "Teacher and student"
ROUNDS = 3
"""Measurements of each system's speed, in turns."""
N_EXAMPLES = 3
LARGEST_REPORT = 64 * MIB
_MB = 1e6
JSON_FILE, HTML_FILE = f"{REPORT}/report.json", f"{REPORT}/report.html"


@dataclass(frozen=True, kw_only=True)
class SystemReport:
    """Size and speed of a system."""

    name: str
    """Name: "teacher", "student", "int8 student" or "plain student"."""
    models: tuple[str, ...]
    """Its model directories as they are named; several are an ensemble."""
    n_parameters: int
    weight_bytes: int
    total_bytes: int
    """Bytes of all files that translation needs: tokenizer, settings and shortlist, too."""
    weight_type: str
    beam_size: int
    has_shortlist: bool
    kernels: str
    """Engine that computes: "native", the compiled kernels, or "torch"."""
    lines_per_second: float
    """Lines a second, all lines at hand: the median of the rounds."""
    speed_ratio: float
    """The same as a multiple of the first system's: the median of the rounds' own ratios."""
    processor_ratio: float
    """Processor time of the first system as a multiple of this one's, likewise."""
    latency_p50: float
    """Median seconds of a line that is translated by itself."""
    peak_memory: int
    """Bytes: the largest resident memory of its process."""


@dataclass(frozen=True, kw_only=True)
class Selected:
    """Counts of the translations chosen for a corpus."""

    corpus: str
    pairs: int
    ranks: tuple[int, ...] = ()
    """Pairs whose chosen translation was the teacher's first, second, …"""


@dataclass(frozen=True, kw_only=True)
class DistillationReport:
    """Sizes, speeds and scores of a distillation."""

    schema: str
    rounds: int
    n_lines: int
    systems: tuple[SystemReport, ...]
    selected: tuple[Selected, ...]
    """Pairs that the student has read, apart from the original ones."""
    test: str
    samples: int
    seed: int
    test_sets: tuple[Comparison, ...]
    """Scores and tests, as `tformer compare` makes them."""


@dataclass(frozen=True, kw_only=True)
class _Contestant:
    """A system to be measured."""

    name: str
    models: tuple[Path, ...]
    named: tuple[str, ...]
    options: TranslatorOptions


def check_test_sets(setup: Setup) -> None:
    """Makes sure, before hours of work, that the report can be made of the test sets."""
    _given_translations(setup, read_test_sets(setup))


def read_test_sets(setup: Setup) -> dict[str, list[SentencePair]]:
    test_sets = {
        name: list(read_corpus(corpus, setup.recipe.data.directory))
        for name, corpus in _named_test_sets(setup.test_sets).items()
    }
    for name, pairs in test_sets.items():
        if all(is_blank(pair.source) for pair in pairs):
            raise DataError(f"distillation.test: {name} has no sentence; name another corpus")
    return test_sets


def report_stage(setup: Setup, needs: Sequence[str]) -> Stage:
    return Stage(
        name=REPORT,
        what="sizes, speeds, scores and their significance",
        place=REPORT,
        files=(JSON_FILE, HTML_FILE),
        inputs=partial(_inputs, setup),
        run=partial(_write_report, setup),
        needs=tuple(needs),
    )


def read_report(directory: Path) -> DistillationReport:
    path = directory / JSON_FILE
    try:
        return structure(DistillationReport, json.loads(read_regular(path, LARGEST_REPORT)))
    except (OSError, ValueError, RecursionError, StructureError) as error:
        reason = str(error).splitlines()[0]
        raise ArtifactError(
            f"{path}: is damaged ({reason}); remove it and run the same command again"
        ) from None


def _contestants(setup: Setup) -> Iterator[_Contestant]:
    config = setup.config
    if config.teachers:
        yield _Contestant(
            name="teacher",
            models=setup.teachers,
            named=config.teachers,
            options=setup.options(setup.teachers),
        )
    places = {"student": STUDENT}
    if config.int8:
        places["int8 student"] = INT8
    if config.plain_student:
        places["plain student"] = PLAIN
    for name, place in places.items():
        student = setup.directory / place
        options = setup.student_options(student)
        if place == INT8:  # only processors compute with integers
            options["device"] = "cpu"
        yield _Contestant(name=name, models=(student,), named=(place,), options=options)


def _inputs(setup: Setup) -> Mapping[str, str]:
    systems = {
        entry.name: hash_of([_choices(entry.options), *map(model_hash, entry.models)])
        for entry in _contestants(setup)
    }
    test_sets = [setup.content(corpus) for corpus in setup.test_sets]
    test_sets += [hash_file(setup.file(file)) for file in setup.config.test_translations]
    return {
        **systems,
        "decoding": hash_of(asdict(setup.recipe.decoding)),
        "test": hash_of(test_sets),
        "significance": setup.config.significance,
    }


def _choices(options: TranslatorOptions) -> list[str | None]:
    return [
        options.get("precision"),
        options.get("source_language"),
        options.get("target_language"),
    ]


def _write_report(setup: Setup) -> None:
    entries, pairs = list(_contestants(setup)), read_test_sets(setup)
    teacher_texts = _given_translations(setup, pairs)
    lines = [pair.source for corpus in pairs.values() for pair in corpus]
    # a blank line takes no time, and would count as a line a second
    kept = [line for line in lines if not is_blank(line)]
    systems = [System(model=str(entry.models[0]), options=entry.options) for entry in entries]
    total = ROUNDS * len(systems) * len(kept)
    with setup.display.lines("measuring", total) as progress:
        runs = measure_in_turns(
            systems, kept, rounds=ROUNDS, progress=lambda n: progress(n * len(kept))
        )
    # the translations that were timed are scored: nothing is translated twice
    texts = {
        entry.name: _with_blanks(lines, own[0]["texts"])
        for entry, own in zip(entries, runs, strict=True)
    }
    if teacher_texts:
        texts = {"teacher": teacher_texts, **texts}
    settings = TestSettings(name=setup.config.significance)
    setup.display.say(f"testing {len(texts) - 1} of {len(texts)} systems")
    report = DistillationReport(
        schema=SCHEMA,
        rounds=ROUNDS,
        n_lines=len(kept),
        systems=tuple(
            _system_report(entry, own, runs[0]) for entry, own in zip(entries, runs, strict=True)
        ),
        selected=tuple(_read_counts(setup.directory / CORPORA / COUNTS)),
        test=settings.name,
        samples=settings.n_samples,
        seed=settings.seed,
        test_sets=tuple(_compare(pairs, texts, settings)),
    )
    # the page and the record belong together: both or none are there
    with directory_aside(setup.directory / REPORT) as aside:
        record = json.dumps(asdict(report), ensure_ascii=False, indent=1) + "\n"
        (aside / Path(JSON_FILE).name).write_text(record, encoding="utf-8", newline="\n")
        page = render_html(report_document(report))
        (aside / Path(HTML_FILE).name).write_text(page, encoding="utf-8", newline="\n")


def _compare(
    pairs: Mapping[str, Sequence[SentencePair]],
    texts: Mapping[str, Sequence[str]],
    settings: TestSettings,
) -> Iterator[Comparison]:
    """Compares the systems' translations, which hold one test set after the other."""
    start = 0
    for name, corpus in pairs.items():
        end = start + len(corpus)
        test_set = TestSet(
            name=name,
            references=(tuple(pair.target for pair in corpus),),
            systems={system: (tuple(own[start:end]),) for system, own in texts.items()},
            source=tuple(pair.source for pair in corpus),
        )
        # each test set by itself: a mean over domains would hide what a student loses in one
        yield compare_systems(
            test_set,
            [make_metric("bleu"), make_metric("chrf")],
            settings,
            tokenize=make_bleu().tokenizer,
            n_examples=N_EXAMPLES,
        )
        start = end


def _named_test_sets(corpora: Sequence[CorpusConfig]) -> dict[str, CorpusConfig]:
    """Names test sets by their files, with a number where that is not enough."""
    test_sets: dict[str, CorpusConfig] = {}
    for corpus in corpora:
        file = corpus.source or corpus.tsv or corpus.jsonl
        name = plain_name(file).rpartition(".")[0] if file else corpus_name(corpus)
        name = name or corpus_name(corpus)
        # files of the same name in other directories
        labels = [name, *(f"{name} {number}" for number in range(2, len(corpora) + 1))]
        test_sets[next(label for label in labels if label not in test_sets)] = corpus
    return test_sets


def _given_translations(setup: Setup, pairs: Mapping[str, Sequence[SentencePair]]) -> list[str]:
    """Reads a teacher's translations of all test sets; empty if none were made elsewhere."""
    translations: list[str] = []
    files = setup.config.test_translations
    for file, (name, corpus) in zip(files, pairs.items() if files else (), strict=True):
        path = setup.file(file)
        lines = [texts[0] for _, texts in read_translations(path)]
        check_counts([(str(path), len(lines)), (name, len(corpus))])
        translations += lines
    return translations


def _with_blanks(lines: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Puts blank translations where lines are blank: these were not measured."""
    translated = iter(texts)
    return ["" if is_blank(line) else next(translated) for line in lines]


def _system_report(
    entry: _Contestant, runs: Sequence[Mapping[str, Any]], baseline: Sequence[Mapping[str, Any]]
) -> SystemReport:
    # an ensemble costs what its members cost
    configs = [read_config(model) for model in entry.models]
    files = [model / WEIGHTS for model in entry.models]
    others = [model / name for model in entry.models for name in (CONFIG, TOKENIZER, SHORTLIST)]
    weight_bytes = sum(file.stat().st_size for file in files)
    return SystemReport(
        name=entry.name,
        models=entry.named,
        n_parameters=sum(parameter_count(c.model, c.vocab_size) for c in configs),
        weight_bytes=weight_bytes,
        total_bytes=weight_bytes + sum(f.stat().st_size for f in others if f.is_file()),
        weight_type=configs[0].weight_type,
        beam_size=configs[0].decoding.beam_size,
        has_shortlist=(entry.models[0] / SHORTLIST).is_file(),
        kernels=runs[0]["kernels"],
        lines_per_second=statistics.median(run["lines"] / run["seconds"] for run in runs),
        speed_ratio=_ratio("seconds", runs, baseline),
        processor_ratio=_ratio("processor_seconds", runs, baseline),
        latency_p50=percentile(sorted(latency for run in runs for latency in run["latencies"]), 50),
        peak_memory=max(run["peak_memory"] for run in runs),
    )


def _ratio(
    key: str, runs: Sequence[Mapping[str, Any]], baseline: Sequence[Mapping[str, Any]]
) -> float:
    """Median of the rounds' ratios: the load of the machine differs from round to round."""
    pairs = zip(runs, baseline, strict=True)
    return statistics.median(
        float(theirs[key]) / max(float(run[key]), 1e-9) for run, theirs in pairs
    )


def _read_counts(path: Path) -> Iterator[Selected]:
    counts = json.loads(read_regular(path, MIB))
    for name, count in counts.items():
        yield Selected(corpus=name, pairs=count["pairs"], ranks=tuple(count.get("ranks", ())))


Column = tuple[str, Callable[[Any], str]]


def _table(title: str, columns: Sequence[Column], rows: Sequence[object], note: str = "") -> Table:
    head = tuple(name for name, _ in columns)
    cells = tuple(tuple(write(row) for _, write in columns) for row in rows)
    return Table(title=title, head=head, rows=cells, note=note)


SIZES: Sequence[Column] = (
    ("System", lambda system: system.name),
    ("Directory", lambda system: ", ".join(system.models)),
    ("Parameters", lambda system: f"{system.n_parameters:,}"),
    ("Type", lambda system: system.weight_type),
    ("Weights MB", lambda system: f"{system.weight_bytes / _MB:.2f}"),
    ("All files MB", lambda system: f"{system.total_bytes / _MB:.2f}"),
)
SPEEDS: Sequence[Column] = (
    ("System", lambda system: system.name),
    ("Beam", lambda system: f"{system.beam_size}{', shortlist' if system.has_shortlist else ''}"),
    ("Lines/s", lambda system: f"{system.lines_per_second:,.1f}"),
    ("Speed", lambda system: f"{system.speed_ratio:.2f}×"),
    ("Processor", lambda system: f"{system.processor_ratio:.2f}×"),
    ("A line ms", lambda system: f"{1000 * system.latency_p50:.1f}"),
    ("Memory MB", lambda system: f"{system.peak_memory / _MB:,.0f}"),
)


def report_document(report: DistillationReport) -> Document:
    """The systems and the student's corpora, then the comparisons."""
    first = report.systems[0].name
    note = (
        f"{report.n_lines:,} lines in {report.rounds} rounds, the systems in turns. Speed: as a "
        f"multiple of the {first}'s; Processor: the {first}'s processor time as a multiple; "
        "medians of the rounds' ratios. A line: each line by itself."
    )
    tables = [
        _table("Size", SIZES, report.systems),
        _table("Speed", SPEEDS, report.systems, note),
    ]
    if chosen := [selection for selection in report.selected if selection.ranks]:
        n_ranks = max(len(selection.ranks) for selection in chosen)
        ranks = [(f"Rank {rank + 1}", partial(_share_of_rank, rank)) for rank in range(n_ranks)]
        columns = [("Corpus", lambda row: row.corpus), ("Pairs", lambda row: f"{row.pairs:,}")]
        tables.append(_table("Choice among the teacher's translations", [*columns, *ranks], chosen))
    # the header says what the columns of the comparisons mean, nothing of sizes
    systems = Section(title="Systems", tables=tuple(tables), legend=LEGEND)
    return Document(title=TITLE, sections=[systems, *sections_of(report.test_sets)])


def _share_of_rank(rank: int, selection: Selected) -> str:
    count = selection.ranks[rank] if rank < len(selection.ranks) else 0
    return f"{count / max(selection.pairs, 1):.1%}"
