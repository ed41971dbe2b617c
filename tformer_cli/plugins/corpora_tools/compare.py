"""Comparing several systems on several test sets."""

from __future__ import annotations

import tomllib
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sacrebleu.dataset import DATASETS
from sacrebleu.utils import get_reference_files, get_source_file

from tformer_cli.artifacts.config_file import TASKS, check_model
from tformer_cli.errors import DataError, UsageError
from tformer_cli.evaluate.evaluate import read_texts
from tformer_cli.foreign.import_model import resolve_model
from tformer_cli.kinds.lines.classify import classify_lines
from tformer_cli.kinds.opening import open_model
from tformer_cli.metrics.choices import CompareSettings, MetricName, TestSetFiles
from tformer_cli.metrics.scores import make_bleu, make_metric
from tformer_cli.metrics.significance import TestSettings
from tformer_cli.plugins.corpora_tools.comparison.comet import Comet, check_installed
from tformer_cli.plugins.corpora_tools.comparison.compare import TestSet, compare_systems
from tformer_cli.plugins.corpora_tools.comparison.labels import LabelComparison, compare_labelings
from tformer_cli.plugins.corpora_tools.comparison.lengths import (
    Run,
    read_length,
    unequal_lengths,
)
from tformer_cli.recipe import seed_runs
from tformer_cli.structure import structure
from tformer_cli.text.lines import LineCounts, read_lines
from tformer_cli.wording import did_you_mean, suggestions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from sacrebleu.metrics.base import Metric

    from tformer_cli.plugins.corpora_tools.comparison.compare import Comparison

LABELERS = tuple(kind for kind, row in TASKS.items() if row.has_labels and not row.at_places)
"""Kinds of models that give an example one label."""


def read_manifest(path: Path) -> dict[str, TestSetFiles]:
    """Reads a TOML file with a table for each test set."""
    try:
        tables = tomllib.loads("\n".join(read_lines(path)))
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{path}: is not TOML ({error}); correct it") from None
    if not tables:
        raise DataError(f"{path}: has no test set; write a table for each")
    test_sets = {}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise DataError(f"{path}: {name}: must be a table, [{name}]; correct it")
        reference = table.get("reference")
        values = table | {"reference": [reference]} if isinstance(reference, str) else table
        try:
            test_sets[name] = structure(TestSetFiles, values)
            test_sets[name].check()
        except ValueError as error:
            message = str(error).replace("--", "").replace("test-set", "test_set")
            raise DataError(f"{path}: {name}.{message}; correct it") from None
    # an overview has one row a system
    names = {system: None for files in test_sets.values() for system in files.systems}
    for name, files in test_sets.items():
        missing = next((system for system in names if system not in files.systems), None)
        if missing is not None:
            has_it = next(other for other, others in test_sets.items() if missing in others.systems)
            raise DataError(
                f"{path}: {name}.systems: test sets have different systems: {missing} is missing "
                f"here, but {has_it} has it; name the same ones in each"
            )
    return test_sets


def compare(
    test_sets: Mapping[str, TestSetFiles],
    settings: CompareSettings,
    *,
    counts: LineCounts | None = None,
    tell: Callable[[str], None] = lambda text: None,  # noqa: ARG005 - the default is silent
    warn: Callable[[str], None] = lambda text: None,  # noqa: ARG005 - the default is silent
    **opening: Any,  # noqa: ANN401 - options of opening a model
) -> list[Comparison]:
    """Compares systems on test sets: scores with tests, and where the systems differ."""
    counts = counts if counts is not None else LineCounts()
    order = _order_systems(next(iter(test_sets.values())), settings.baseline)
    has_groups = any(
        len(runs) > 1 for files in test_sets.values() for runs in _runs(files).values()
    )
    if has_groups and not test_settings(settings).is_bootstrap:
        raise UsageError(f"--test: {settings.test} is only for single runs, not for seeds; omit it")
    if MetricName.comet in settings.metrics:
        check_installed()  # before anything is read
    _warn_of_lengths(test_sets.values(), warn)
    answers = _answers("translating", translate_texts, tell, opening)
    read = [_read(name, files, order, counts, answers) for name, files in test_sets.items()]
    tell(_progress_line(order))
    on_gpu = str(opening.get("device", "")).startswith("cuda")
    return [_compare(test_set, settings, counts, on_gpu=on_gpu) for test_set in read]


def compare_classifiers(
    files: TestSetFiles,
    settings: CompareSettings,
    *,
    counts: LineCounts | None = None,
    tell: Callable[[str], None] = lambda text: None,  # noqa: ARG005 - the default is silent
    warn: Callable[[str], None] = lambda text: None,  # noqa: ARG005 - the default is silent
    **opening: Any,  # noqa: ANN401 - options of opening a model
) -> LabelComparison:
    """Compares the labels of classifiers: accuracy and macro F1, with tests."""
    if len(files.reference) != 1:
        raise UsageError("--reference: an example has one correct label; name one file")
    order = _order_systems(files, settings.baseline)
    for path in chain.from_iterable(_runs(files).values()):
        if path.is_dir():  # all, before any has labeled for minutes
            check_model(resolve_model(path, tell), LABELERS)
    _warn_of_lengths([files], warn)
    answers = _answers("labeling", label_texts, tell, opening)
    read = _read("", files, order, counts if counts is not None else LineCounts(), answers)
    tell(_progress_line(order))
    return compare_labelings(
        read.systems,
        read.references[0],
        samples=settings.samples or 0,
        seed=settings.seed,
        runs=read.runs,
    )


def _warn_of_lengths(test_sets: Iterable[TestSetFiles], warn: Callable[[str], None]) -> None:
    """Names the steps of runs of different lengths, if a system has several runs."""
    systems = {name: runs for files in test_sets for name, runs in _runs(files).items()}
    if all(len(runs) == 1 for runs in systems.values()):
        return
    lengths = {name: list(filter(None, map(read_length, runs))) for name, runs in systems.items()}
    steps = {name: [run.steps for run in runs] for name, runs in lengths.items() if runs}
    if doubt := unequal_lengths(steps):
        warn(doubt)


def _runs(files: TestSetFiles) -> dict[str, tuple[Path, ...]]:
    """For each system its runs: those of several seeds, or what it names itself."""
    return {
        system: seed_runs(Path(path)) or (Path(path),) for system, path in files.systems.items()
    }


def _order_systems(files: TestSetFiles, baseline: str | None) -> list[str]:
    names = list(files.systems)
    # the order of a command line is the order of the tables, but for the baseline
    first = names[0] if baseline is None else baseline
    if first not in names:
        hint = did_you_mean(suggestions(first, names)) or f"name one of {', '.join(names)}"
        raise UsageError(f"--baseline: {first} is no system; {hint}")
    return [first, *(name for name in names if name != first)]


def _progress_line(order: Sequence[str]) -> str:
    if len(order) == 1:
        return f"scoring {order[0]}"
    return f"testing {len(order) - 1} of {len(order)} systems against {order[0]}"


def _read(
    name: str,
    files: TestSetFiles,
    order: Sequence[str],
    counts: LineCounts,
    answers: Callable[[str, Sequence[str]], tuple[str, ...]],
) -> TestSet:
    """Reads the texts of a test set; models translate theirs."""
    source: Path | None = None if files.source is None else Path(files.source)
    references = [Path(path) for path in files.reference]
    if files.test_set is not None:
        source, references = files_of_test_set(files.test_set, files.language_pair)
    runs = _runs(files)
    # what a directory holds is found out when it is opened
    is_model = {system: runs[system][0].is_dir() for system in order}
    texts = [Path(files.systems[system]) for system in order if not is_model[system]]
    # all texts are read together, so that different counts of lines are named before models run
    sources = [] if source is None else [source]
    contents = iter(map(tuple, read_texts([*references, *sources, *texts], counts)))
    reference_lines = tuple(next(contents) for _ in references)
    source_lines = next(contents) if source is not None else None
    systems = {}
    for system in order:
        path = files.systems[system]
        if is_model[system] and source_lines is None:
            raise UsageError(f"--source: is missing; {path} is a model: name its text")
        systems[system] = (
            tuple(answers(str(run), source_lines or ()) for run in runs[system])
            if is_model[system]
            else (next(contents),)
        )
    has_groups = any(len(group) > 1 for group in runs.values())
    return TestSet(
        name=name,
        references=reference_lines,
        systems=systems,
        source=source_lines,
        runs={name: _facts(runs[name]) for name in order} if has_groups else {},
    )


def _facts(runs: Iterable[Path]) -> tuple[Run, ...]:
    lengths = ((run, read_length(run)) for run in runs if run.is_dir())
    return tuple(
        Run(name=run.name, steps=None if length is None else length.steps)
        for run, length in lengths
    )


def _answers(
    verb: str,
    answer: Callable[[str, Sequence[str], Mapping[str, Any]], Iterable[str]],
    tell: Callable[[str], None],
    opening: Mapping[str, Any],
) -> Callable[[str, Sequence[str]], tuple[str, ...]]:
    """Returns a function that answers each line of a source by a model."""

    def answers(model: str, sources: Sequence[str]) -> tuple[str, ...]:
        tell(f"{verb} {len(sources):,} lines with {model}")
        return tuple(answer(model, sources, {"tell": tell, **opening}))

    return answers


def translate_texts(
    model: Path | str, sources: Sequence[str], how: Mapping[str, Any]
) -> Iterator[str]:
    return (translation.text for translation in open_model(model, **how).translator.stream(sources))


def label_texts(model: Path | str, sources: Sequence[str], how: Mapping[str, Any]) -> Iterator[str]:
    return (row.label for row in classify_lines(open_model(model, "classify", **how), sources))


def _compare(
    test_set: TestSet, settings: CompareSettings, counts: LineCounts, *, on_gpu: bool
) -> Comparison:
    # words of the buckets are BLEU's words, so that both count alike
    words = make_bleu(lowercase=settings.lowercase, tokenize=settings.tokenize)
    train = settings.train_text
    return compare_systems(
        test_set,
        list(_metrics(test_set, settings, on_gpu=on_gpu)),
        test_settings(settings),
        tokenize=words.tokenizer,
        lowercase=settings.lowercase,
        train_lines=None if train is None else partial(read_lines, Path(train), counts),
        n_examples=settings.examples,
    )


def test_settings(settings: CompareSettings) -> TestSettings:
    return TestSettings(name=settings.test, samples=settings.samples or 0, seed=settings.seed)


def _metrics(test_set: TestSet, settings: CompareSettings, *, on_gpu: bool) -> Iterator[Metric]:
    for name in settings.metrics:
        if name != MetricName.comet:
            yield make_metric(name, lowercase=settings.lowercase, tokenize=settings.tokenize)
        elif test_set.source is None:
            raise UsageError("--metric: comet needs the source sentences; give --source FILE")
        else:
            yield Comet(test_set.source, settings.comet_model, on_gpu=on_gpu)


def files_of_test_set(name: str, language_pair: str | None) -> tuple[Path, list[Path]]:
    """Finds the source and the references of a test set."""
    if name not in DATASETS:
        hint = did_you_mean(suggestions(name, DATASETS)) or "`sacrebleu --list` lists them"
        raise UsageError(f"--test-set: sacreBLEU has no {name}; {hint}")
    dataset = DATASETS[name]
    if language_pair not in dataset.langpairs:
        remark = f"; found {language_pair}" if language_pair else ""
        pairs = ", ".join(dataset.langpairs)
        raise UsageError(f"--language-pair: {name} has {pairs}{remark}; name one of them")
    try:
        source = get_source_file(name, str(language_pair))
        references = get_reference_files(name, str(language_pair))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - of downloads, archives and parsers
        name_of = dataset._get_tarball_filename
        archives = [
            (url, Path(dataset._rawdir, name_of(url)))  # type: ignore[no-untyped-call]
            for url in dataset.data or ()
        ]
        by_hand = ", ".join(f"{url} as {path}" for url, path in archives)
        reason = " ".join(str(error).split())
        raise UsageError(
            f"--test-set: {name} cannot be downloaded ({reason}); store {by_hand}, and unpack it "
            "there"
        ) from None
    return Path(source), [Path(path) for path in references]
