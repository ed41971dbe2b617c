"""`tformer evaluate`: scores of translations, labels or texts."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tformer_cli.artifacts.config_file import COMMANDS, TASKS, read_config
from tformer_cli.cli.commands.evaluate_options import (
    ScoreOptions,
    TextOptions,
    TextScoringOptions,
)
from tformer_cli.cli.encoder_job import ReadImageOptions
from tformer_cli.cli.options import (
    QuietOption,
    TranslatorOptions,
    argument,
    opened_model,
    refuse,
    takes_decoding_options,
)
from tformer_cli.cli.progress import line_progress
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    check_stdin_is_read_once,
    file_lines,
    note,
    prompt_at_terminal,
    results,
    stdout_console,
    telling_of_markup,
    utf8_line,
    warn,
    warn_of_bytes,
    warn_of_results,
    write_line,
)
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.kinds import kind_named
from tformer_cli.metrics.choices import record_key
from tformer_cli.metrics.gates import MEASURES, WITHOUT_MODEL, check_gates
from tformer_cli.sockets import load_place
from tformer_cli.text.lines import LineCounts

SCHEMA = "tformer.scores/1"
SHARE_OF_EQUAL = "tformer_cli.plugins.corpora_tools.quality.doubts:share_of_equal"

if TYPE_CHECKING:
    from rich.console import Console

    from tformer_cli.artifacts.config_file import ModelInfo, Verb
    from tformer_cli.evaluate.evaluate import (
        Evaluation,
        LabelEvaluation,
        TextEvaluation,
    )
    from tformer_cli.kinds.kind import Kind
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.metrics.significance import PairedDifference
    from tformer_cli.search.keywords import SearchOverrides


@takes_decoding_options
def evaluate(
    model: Path | None = argument(
        "MODEL",
        "Model to translate or label --source: a directory, hub name (owner/name), short name or "
        "pair such as en-de.",
        default=None,
        role="reads_model",
    ),
    *,
    texts: TextOptions,
    pictures: ReadImageOptions,
    language: TextScoringOptions,
    scores: ScoreOptions,
    options: TranslatorOptions,
    quiet: QuietOption = False,
    **decoding: Unpack["SearchOverrides"],
) -> None:
    """Score translations (BLEU, chrF, TER), labels or texts.

    Scores are sacreBLEU's, on raw, detokenized text. With MODEL and --source, MODEL first
    translates the source; its loss per token (natural logarithm) and perplexity on the first
    reference are measured, too. Otherwise --hypothesis is scored. A classifier or tagger labels the
    source: you get accuracy, precision, recall and F1 of each label, their mean (macro F1) and the
    confusion matrix. An image classifier reads images and labels from --images, or image names from
    --source. For a language model, --text gives loss, perplexity and bits per byte.

    Examples:
        tformer evaluate runs/quickstart -i corpus/test.en --reference corpus/test.fr
        tformer evaluate runs/mine -i test.en --reference test.fr --fail-under bleu=30
        tformer evaluate --hypothesis a.fr --reference ref1.fr --reference ref2.fr
        tformer evaluate --hypothesis new.fr --reference ref.fr --baseline old.fr --format json
        tformer evaluate runs/ratings -i ratings/test.txt --reference ratings/test.label
        tformer evaluate runs/digits --images t10k-images-idx3-ubyte.gz
        tformer evaluate runs/shakespeare --text valid.txt --window 256 --stride 128
        tformer evaluate runs/new --text valid.txt --baseline-model runs/old
    """
    how = {"as_json": scores.report_format == "json", "quiet": quiet}
    if language.text is not None:
        chosen = language.check(model, texts, scores)
        _check_reads_text(chosen)
        gates = scores.gates(MEASURES[_kind(chosen).measured_by])
        record = _evaluate_text(chosen, texts.baseline_model, language, options, **how)
        check_gates(gates, record)
        return
    _check_inputs(model, texts, pictures)
    measured_by = "translations" if model is None else _kind(model).measured_by
    gates = scores.gates(WITHOUT_MODEL if model is None else MEASURES[measured_by])
    if model is not None and measured_by == "labels":
        kind, values = TASKS[read_config(model).task].singular, scores.for_translations()
        _check_has_no_search(options, {**values, **decoding}, f"MODEL is {kind}; omit it")
        record = _evaluate_labels(model, texts, pictures, options, **how)
    else:
        _check_is_no_baseline(texts)
        if model is None:
            _check_has_no_search(options, decoding, "needs a MODEL; name one or omit it")
        record = _evaluate_translations(model, texts, scores, options, decoding, quiet=quiet)
    check_gates(gates, record)


def _check_is_no_baseline(texts: TextOptions) -> None:
    if texts.baseline_model is not None:
        raise UsageError(
            "--baseline-model: only for language models and classifiers; compare translations "
            "with `tformer compare`"
        )


def _kind(model: Path) -> "Kind":
    return kind_named(read_config(model).task)


def _check_inputs(model: Path | None, texts: TextOptions, pictures: ReadImageOptions) -> None:
    """Checks that there is one thing to score, and that the model reads it."""
    pictures.check(has_texts=texts.source is not None)
    if pictures.images is not None or pictures.damaged == "skip":
        training = None if model is None else _kind(model).training
        if training is None or training.examples.are_texts:
            raise UsageError(
                "--images: needs the MODEL of a classifier of images"
                if pictures.damaged == "error"
                else "--damaged: only for image models; omit it"
            )
    if pictures.images is None:
        texts.check(model)
    elif texts.hypothesis is not None:
        raise UsageError("--hypothesis: a MODEL makes its own; omit one of the two")
    if str(texts.output) == STANDARD_STREAM:
        raise UsageError("--output: stdout is for the scores; name a file")


def _evaluate_translations(
    model: Path | None,
    texts: TextOptions,
    scores: ScoreOptions,
    options: TranslatorOptions,
    decoding: "SearchOverrides",
    *,
    quiet: bool,
) -> dict[str, Any]:
    """Shows the scores of translations; returns their record."""
    from tformer_cli.evaluate import evaluate as workflow
    from tformer_cli.kinds.lines.job import ResultCounts

    counts, read = ResultCounts(), LineCounts()
    # All texts are read before a model is loaded: different line counts are an error at once
    scored, *references = _read(texts, read, quiet=quiet)
    baseline = None if texts.baseline is None else references.pop()
    how: dict[str, Any] = {"lowercase": scores.lowercase, "tokenize": scores.tokenize}
    if model is None:
        result = workflow.score_hypotheses(scored, references, **how)
    else:
        with _writing(texts.output) as write:
            opened = options.open(model, quiet=quiet, n_best=1, **decoding)
            _warn_of_sides(scored, references[0], opened.directory.info)
            with line_progress(len(scored), quiet=quiet) as progress:
                result = workflow.evaluate_model(
                    opened,
                    list(telling_of_markup(scored)),
                    references,
                    counts=counts,
                    progress=progress.update,
                    **how,
                )
            write(result.hypotheses)
    if baseline is not None or scores.confidence:
        result = workflow.with_tests(result, references, baseline, **how)
    # Warnings last on stderr, where they are not scrolled away by the progress
    warn_of_bytes(read)
    warn_of_results(counts, quiet=quiet)
    for hint in (score.hint for score in result.scores if score.hint):
        note(hint, quiet=quiet)
    has_intervals = scores.confidence
    record = result.record(has_intervals=has_intervals)
    if scores.report_format == "json":
        _write_record(record)
    elif sys.stdout.isatty():
        show_evaluation(stdout_console(), result, has_intervals=has_intervals)
    else:  # a signature is one piece, to be copied and cut
        for name, value, how_computed in result.rows(has_intervals=has_intervals):
            write_line(f"{name:<12}{value:>9}  {how_computed}")
    return record


def _write_record(record: Mapping[str, Any]) -> None:
    write_line(json.dumps({"schema": SCHEMA, **record}, ensure_ascii=False))


def _read(texts: TextOptions, read: LineCounts, *, quiet: bool) -> list[list[str]]:
    from tformer_cli.evaluate.evaluate import read_texts

    check_stdin_is_read_once(texts.files)
    prompt_at_terminal(files=texts.files, quiet=quiet)
    return read_texts(texts.files, read)


@contextmanager
def _writing(output: Path | None) -> Iterator[Callable[[Sequence[str]], None]]:
    """Yields a writer of lines; opens the file now, so that a bad path fails early."""
    with nullcontext() if output is None else results(output) as stream:

        def write(lines: Sequence[str]) -> None:
            if stream is not None:
                stream.writelines(utf8_line(line) for line in lines)

        yield write


def _opens(options: TranslatorOptions, verb: "Verb", *, quiet: bool) -> Callable[..., "Opened"]:
    """Returns a function that opens models for a verb and notes where they compute."""
    return partial(
        opened_model,
        verb=verb,
        device=options.device,
        precision=options.precision,
        threads=options.threads,
        quiet=quiet,
    )


def _evaluate_labels(
    model: Path,
    texts: TextOptions,
    pictures: ReadImageOptions,
    options: TranslatorOptions,
    *,
    as_json: bool,
    quiet: bool,
) -> dict[str, Any]:
    """Shows the scores of a classifier or tagger; returns their record."""
    references = texts.reference or ()
    # Images may bring their own labels, such as the names of their folders
    if len(references) != 1 and not (pictures.images and not references):
        raise UsageError("--reference: an example has one correct label; name one file")
    if texts.baseline is not None and texts.baseline_model is not None:
        raise UsageError("--baseline-model: --baseline has its labels; omit one of the two")
    from tformer_cli.evaluate.evaluate import compare_predictions, evaluate_classifier
    from tformer_cli.kinds.lines.job import ResultCounts

    read = LineCounts()
    baselines: list[list[str]] = []
    label = str(references[0]) if references else ""
    pairs = pictures.read_labeled_images(label, "--reference", read)
    if pairs is None:
        sources, right, *baselines = _read(texts, read, quiet=quiet)
    else:
        sources, right = map(list, zip(*pairs, strict=True))
        if texts.baseline is not None:
            baselines = [list(file_lines(str(texts.baseline), read, quiet=quiet))]
    opens, damaged = _opens(options, _kind(model).verbs[0], quiet=quiet), pictures.damaged
    with _writing(texts.output) as write:
        opened = opens(model)
        with line_progress(len(sources), "labeling", quiet=quiet) as progress:
            result = evaluate_classifier(opened, sources, right, progress.update, damaged)
        write(result.predicted)
        if texts.baseline_model is not None:
            other = opens(texts.baseline_model)
            baselines = [
                list(evaluate_classifier(other, sources, right, damaged=damaged).predicted)
            ]
    warn_of_bytes(read)
    # An image that cannot be read has an empty label
    counts = ResultCounts(damaged=result.predicted.count(""))
    warn_of_results(counts, blank="omitted from the scores")
    changes = [change for labels in baselines for change in compare_predictions(result, labels)]
    record = result.record()
    if as_json:
        _write_record(record | (_change_record(changes, "examples") if changes else {}))
    else:
        show_scores(stdout_console(), result, changes)
    return record


def show_scores(
    console: "Console", result: "LabelEvaluation", changes: "Sequence[PairedDifference]"
) -> None:
    from rich.text import Text

    compared_lines = ["", *_change_lines(changes, "examples", 2)] if changes else []
    for line in (*result.lines(console.width), *compared_lines):
        # As Text: a label in brackets is not markup; and whole: scripts cut lines
        console.print(Text(line), soft_wrap=True)


def _evaluate_text(
    model: Path,
    baseline: Path | None,
    texts: TextScoringOptions,
    options: TranslatorOptions,
    *,
    as_json: bool,
    quiet: bool,
) -> dict[str, Any]:
    """Shows the scores of a language model, masked or not, and the changes from another one.

    Returns the record of the scores.
    """
    read = LineCounts()
    # A list: the baseline reads the same lines again
    lines = list(texts.lines(read, quiet=quiet))
    # Before either is scored: a wrong baseline is an error at once
    if baseline is not None:
        _check_reads_text(baseline)
    from tformer_cli.evaluate import evaluate as workflow

    result: TextEvaluation[Any]
    more: dict[str, Any] = {}
    compared: list[str] = []
    if _kind(model).measured_by == "gaps":
        _check_of_gaps(texts, options, baseline)
        opened = _opens(options, "fill", quiet=quiet)(model, by_kernels=False)
        result = workflow.evaluate_masked(opened, lines, texts.text_kind or "lines")
    else:
        opens = _opens(options, "generate", quiet=quiet)
        evaluated = partial(
            workflow.evaluate_texts,
            lines=lines,
            kind=texts.text_kind,
            window=texts.window or 0,
            stride=texts.stride or 0,
        )
        result = evaluated(opens(model, adapter=options.adapter))
        if baseline is not None:
            other = evaluated(opens(baseline))
            changes = [workflow.compare_evaluations(result, other)]
            units = "lines" if result.kind == "lines" else f"blocks of {workflow.BLOCK} tokens"
            more = {"baseline": other.record(), **_change_record(changes, units)}
            compared = [
                f"{'baseline':<14}{'':>10}  {other.signature}",
                *_change_lines(changes, units, 4),
            ]
    warn_of_bytes(read)
    record = result.record()
    if as_json:
        _write_record(record | more)
        return record
    for name, value, how in result.rows():
        write_line(f"{name:<14}{value:>10}  {how}")
    for line in compared:
        write_line(line)
    return record


def _check_reads_text(model: Path) -> None:
    kind = _kind(model)
    if kind.measured_by in ("text", "gaps"):
        return
    what = COMMANDS[kind.name].partition(";")[0]
    instead = "name one"
    if kind.training is not None:
        are_texts = kind.training.examples.are_texts
        instead = f"give {'--source and --reference' if are_texts else '--images'}"
    raise ArtifactError(f"{model}: {what}; --text is only for language models, {instead}")


def _check_of_gaps(
    texts: TextScoringOptions, options: TranslatorOptions, baseline: Path | None
) -> None:
    """Refuses options that a model which fills gaps has no use for."""
    refuse({"baseline_model": baseline}, "not for masked language models; omit it")
    refuse(
        {"window": texts.window, "stride": texts.stride},
        "MODEL reads each text as a whole; omit it",
    )
    refuse({"adapter": options.adapter}, "MODEL takes no adapter; omit it")


def _change_record(changes: "Sequence[PairedDifference]", units: str) -> dict[str, Any]:
    return {
        "changes": [
            {
                "measure": record_key(change.name),
                "baseline": change.baseline,
                "value": change.value,
                "difference": change.difference,
                "ci95": [change.low, change.high],
                "p_value": change.p_value,
            }
            for change in changes
        ],
        "test": _test_signature(units),
    }


def _change_lines(changes: "Sequence[PairedDifference]", units: str, digits: int) -> Iterator[str]:
    for change in changes:
        interval = f"95 % {change.low:+.{digits}f} to {change.high:+.{digits}f}"
        yield (
            f"{change.name} change  {change.difference:+.{digits}f}  "
            f"from {change.baseline:.{digits}f}, {interval}, p = {change.p_value:.4f}"
        )
    yield f"test  {_test_signature(units)}"


def _test_signature(units: str) -> str:
    from tformer_cli.metrics.resampling import RESAMPLES

    return f"paired-bootstrap|units:{units}|resamples:{RESAMPLES}|seed:1"


def _check_has_no_search(
    options: TranslatorOptions, decoding: Mapping[str, object], why: str
) -> None:
    """Refuses options of a search where no model searches."""
    names = ("adapter", "source_language", "target_language", "split_sentences", "shortlist")
    values = {name: getattr(options, name) for name in names}
    refuse({"heads": options.heads or None, **values, **decoding}, why)


def _warn_of_sides(sources: list[str], references: list[str], info: "ModelInfo") -> None:
    """Warns if the first reference is the source again, or the two look swapped."""
    from tformer_cli.text.languages import looks_swapped

    pairs = list(zip(sources, references, strict=False))  # their numbers are compared elsewhere
    own, other = info.source_language, info.target_language
    share: float = load_place(SHARE_OF_EQUAL)(pairs)
    if share > 0.5:
        warn(f"--reference: {share:.0%} of its lines are those of --source; name the translation")
    elif looks_swapped(pairs, own, other):
        warn(
            f'--source: looks like "{other}" and --reference like "{own}", but the model '
            f'translates "{own}" to "{other}"; swap the two files'
        )


def show_evaluation(
    console: "Console", result: "Evaluation", *, has_intervals: bool = False
) -> None:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    # Folded, never cut: only whole signatures can be compared
    table.add_column(style="dim", overflow="fold")
    for row in result.rows(has_intervals=has_intervals):
        table.add_row(*row)
    console.print(table)
