"""`tformer compare`: several systems on one test set or several."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tformer_cli.artifacts.overwriting import NamedPath, Output, check_outputs, standard_stream
from tformer_cli.cli.format_choice import (
    check_format,
    chosen_format,
    format_option,
    write_result,
)
from tformer_cli.cli.options import (
    DeviceOption,
    OutputOption,
    QuietOption,
    ThreadsOption,
    argument,
    named_path,
    option_field,
    refuse,
    torch_preparation,
)
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    STDOUT,
    check_stdin_is_read_once,
    note,
    open_stream,
    prompt_at_terminal,
    results,
    warn,
    warn_of_bytes,
)
from tformer_cli.errors import UsageError
from tformer_cli.metrics.choices import CompareSettings, TestSetFiles
from tformer_cli.show.figure_files import FIGURES
from tformer_cli.text.lines import LineCounts

if TYPE_CHECKING:
    from tformer_cli.show.document import Document

SCHEMA, SCHEMA_OF_LABELS = "tformer.compare/1", "tformer.comparelabels/1"


FORMATS = ("text", "json", "csv", "markdown", "latex", "html", *FIGURES)
SYSTEMS = argument(
    "SYSTEM",
    "A file of translations, a model directory, or the folder of a `train --seeds`, which is "
    "one system; NAME=FILE gives it a name. The first is the baseline; a single system is only "
    "scored.",
    default=None,
    role="reads_system",
)


def _name_systems(systems: Sequence[str]) -> dict[str, str]:
    """Separates NAME=FILE into names and files; the default name is the file's."""
    files: dict[str, str] = {}
    for system in systems:
        name, path = named_path(system)
        name = name or Path(path).name
        # The report's tables name systems, so two names must not be equal
        if name in files:
            raise UsageError(f"SYSTEM: two have the name {name}; give names, as in NAME={path}")
        files[name] = path
    return files


def compare(
    systems: list[str] | None = SYSTEMS,
    *,
    texts: TestSetFiles,
    manifest: Path | None = option_field(
        None,
        "Several test sets and their systems, in TOML, instead of SYSTEM and --reference; see "
        "`tformer guide comparing`.",
        panel="Test sets",
        role="reads_file",
    ),
    settings: CompareSettings,
    each_seed: bool = option_field(
        False, "Also list each run of a system of several seeds.", panel="Scores and tests"
    ),
    output: OutputOption = STANDARD_STREAM,
    output_format: Annotated[str | None, format_option(FORMATS, "text")] = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Compare several systems: scores, significance and differing sentences.

    Scores, confidence intervals and tests against the baseline are sacreBLEU's. Below them are
    scores by reference length, word F1 by frequency, and the sentences that differ most. With
    --labels, files hold labels and models are classifiers. For systems of several seeds, all
    scores are means over the runs, and the test takes account of seeds and sentences.

    Examples:
        tformer compare --reference ref.de a.de b.de
        tformer compare --reference ref.de --source src.en old=a.de new=runs/quickstart -o new.html
        tformer compare --labels --reference test.label --source test.txt old.label new=runs/mine
        tformer compare --reference ref.de --source src.en base=runs/base rotary=runs/rotary
        tformer compare --manifest systems.toml --metric chrf --metric ter --format latex
    """
    chosen = chosen_format(output_format, output, FORMATS, "text")
    check_format(chosen, output)
    texts = replace(texts, systems=_name_systems(systems or ()))
    if settings.labels:
        _check_labels(texts, manifest, settings)
    test_sets = _test_sets(texts, manifest)
    _check_files(test_sets, manifest, settings.train_text, output)
    files = [path for test_set in test_sets.values() for path in test_set.paths]
    prompt_at_terminal(files=files, quiet=quiet)
    read = LineCounts()
    how: Any = {
        "counts": read,
        "tell": partial(note, quiet=quiet),
        "warn": warn,
        "device": device,
        "threads": threads,
        "before_torch": torch_preparation(threads),
    }
    compare_all = _compare_labels if settings.labels else _compare
    record, document = compare_all(test_sets, settings, how, each_seed=each_seed)
    warn_of_bytes(read)
    with results(output) as stream:
        rows = partial(_score_rows, record)
        write_result(stream, output, chosen, lambda: record, lambda: document, rows=rows)


def _score_rows(record: dict[str, Any]) -> Iterator[Sequence[object]]:
    """Yields a header and a row for each system's score by each metric on each test set."""
    rows = list(_score_records(record))
    columns = dict.fromkeys(name for row in rows for name in row)
    yield tuple(columns)
    yield from ([row.get(name) for name in columns] for row in rows)


def _score_records(record: dict[str, Any]) -> Iterator[dict[str, object]]:
    if record["schema"] == SCHEMA_OF_LABELS:
        for system in record["systems"]:
            yield from ({"system": system["name"], **_values_of(m)} for m in system["measures"])
        return
    for test_set in record["test_sets"]:
        for metric in test_set["metrics"]:
            for system, score in zip(test_set["systems"], metric["scores"], strict=True):
                names = {"test_set": test_set["test_set"], "metric": metric["name"]}
                yield {**names, "system": system, **_values_of(score)}


def _values_of(score: dict[str, Any]) -> dict[str, object]:
    """Returns what has one value, the ends of the interval, and wins by their kind."""
    values = {
        name: value
        for name, value in score.items()
        if name not in ("ci95", "wins") and not isinstance(value, (list, tuple))
    }
    low, high = score.get("ci95") or (None, None)
    ends = {"low": low, "high": high} if "ci95" in score else {}
    return {**values, **ends, **(score.get("wins") or {})}


def _compare(
    test_sets: dict[str, TestSetFiles],
    settings: CompareSettings,
    how: dict[str, Any],
    *,
    each_seed: bool,
) -> tuple[dict[str, Any], "Document"]:
    from tformer_cli.plugins.corpora_tools import compare as workflow
    from tformer_cli.plugins.corpora_tools.comparison.compare import SeedComparison
    from tformer_cli.plugins.corpora_tools.comparison.groups import TEST
    from tformer_cli.plugins.corpora_tools.comparison.report import comparison_document

    comparisons, test = (
        workflow.compare(test_sets, settings, **how),
        workflow.test_settings(settings),
    )
    record = {
        "schema": SCHEMA,
        "test": TEST if isinstance(comparisons[0], SeedComparison) else test.name,
        "samples": test.n_samples,
        "seed": test.seed,
        "test_sets": [asdict(comparison) for comparison in comparisons],
    }
    return record, comparison_document(comparisons, each_seed=each_seed)


def _compare_labels(
    test_sets: dict[str, TestSetFiles],
    settings: CompareSettings,
    how: dict[str, Any],
    *,
    each_seed: bool,
) -> tuple[dict[str, Any], "Document"]:
    from tformer_cli.plugins.corpora_tools.compare import compare_classifiers

    (files,) = test_sets.values()
    comparison = compare_classifiers(files, settings, **how)
    document = comparison.document(each_seed=each_seed)
    return {"schema": SCHEMA_OF_LABELS, **comparison.record()}, document


def _test_sets(texts: TestSetFiles, manifest: Path | None) -> dict[str, TestSetFiles]:
    """Returns the test set that the arguments name, or those of the manifest."""
    if manifest is None:
        if not texts.systems:
            raise UsageError(
                "SYSTEM: is missing; give one to score, several to compare, or --manifest FILE"
            )
        try:
            texts.check()
        except ValueError as error:
            # The error begins with the name of a field; the user typed an option
            raise UsageError(f"--{str(error).replace('_', '-', 1)}") from None
        return {texts.test_set or "": texts}
    why = "the manifest has its own; omit one of the two"
    if texts.systems:
        raise UsageError(f"SYSTEM: {why}")
    refuse({name: value or None for name, value in vars(texts).items()}, why)
    from tformer_cli.plugins.corpora_tools.compare import read_manifest

    return read_manifest(manifest)


def _check_labels(texts: TestSetFiles, manifest: Path | None, settings: CompareSettings) -> None:
    values = {"manifest": manifest, "test_set": texts.test_set}
    refuse(values, "only for translations; omit it or --labels")
    settings.check_labels()
    if not texts.reference:
        raise UsageError("--reference: is missing; name the file with the correct labels")
    if len(texts.systems) == 1:
        raise UsageError("SYSTEM: nothing to compare the labels with; give two or more")


def _check_files(
    test_sets: dict[str, TestSetFiles], manifest: Path | None, train: str | None, output: str
) -> None:
    """Checks that stdin is read once, and that a manifest's files are not written over."""
    named = [path for test_set in test_sets.values() for path in test_set.paths]
    inputs_read = [*named, *(Path(file) for file in (train, manifest) if file is not None)]
    check_stdin_is_read_once(inputs_read)
    # A manifest's files are no arguments: the base of all commands has not seen them
    inputs = [NamedPath(name="--manifest", path=path) for path in named]
    # With `> FILE` that file is an output, though no option names it
    outputs = standard_stream("stdout", STDOUT)
    if open_stream(output) is None:
        outputs.append(Output(name="--output", path=Path(output)))
    check_outputs(outputs, inputs)
