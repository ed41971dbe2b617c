"""`tformer evaluate`: scores of translations, labels or texts."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

import typer

from tformer_cli.artifacts.config_file import COMMANDS, read_config
from tformer_cli.cli.commands.evaluate_options import (
    ScoreOptions,
    TextOptions,
    TextScoringOptions,
)
from tformer_cli.cli.format_choice import TextOrJson
from tformer_cli.cli.image_options import ReadImageOptions, warn_of_damaged
from tformer_cli.cli.options import (
    PathRole,
    QuietOption,
    TranslatorOptions,
    takes_decoding_options,
    takes_groups,
    torch_preparation,
)
from tformer_cli.cli.progress import line_progress
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    check_stdin_is_read_once,
    file_lines,
    note,
    note_choices,
    prompt_at_terminal,
    results,
    stdout_console,
    telling_of_markup,
    utf8_line,
    warn,
    warn_of_bytes,
    warn_of_lengths,
    write_line,
)
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.kinds import kind_named, kinds_for
from tformer_cli.text.lines import LineCounts

if TYPE_CHECKING:
    from rich.console import Console

    from tformer_cli.artifacts.config_file import ModelInfo
    from tformer_cli.evaluate.evaluate import Evaluation
    from tformer_cli.kinds.kind import Kind
    from tformer_cli.kinds.lines.classify import LabelEvaluation
    from tformer_cli.kinds.lines.evaluate_texts import MaskedEvaluation, TextEvaluation
    from tformer_cli.metrics.significance import PairedDifference
    from tformer_cli.search.keywords import SearchOverrides


@takes_decoding_options
@takes_groups
def evaluate(
    model: Annotated[
        Path | None,
        typer.Argument(metavar="MODEL", help="Model directory to translate or label --source."),
        PathRole.reads_model,
    ] = None,
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
    reference are measured too. Otherwise --hypothesis is scored. A classifier labels the source:
    accuracy, precision, recall and F1 of each label, their mean (macro F1) and the confusion
    matrix; one of images takes them and their labels from --images, or names from --source. Of a
    language model --text has its loss, perplexity and bits per byte.

    Examples:
        tformer evaluate runs/quickstart -i corpus/test.en --reference corpus/test.fr
        tformer evaluate --hypothesis a.fr --reference ref1.fr --reference ref2.fr
        tformer evaluate --hypothesis new.fr --reference ref.fr --baseline old.fr --format json
        tformer evaluate runs/ratings -i corpus/test.txt --reference corpus/test.label
        tformer evaluate runs/digits --images t10k-images-idx3-ubyte.gz
        tformer evaluate runs/shakespeare --text valid.txt --window 256 --stride 128
        tformer evaluate runs/new --text valid.txt --baseline-model runs/old
    """
    as_json = scores.report_format == TextOrJson.json
    if language.text is not None:
        chosen = language.check(model, texts, scores)
        _evaluate_text(
            chosen, texts.baseline_model, language, options, as_json=as_json, quiet=quiet
        )
        return
    _check_inputs(model, texts, pictures)
    if model is not None and _kind(model).measured_by == "labels":
        given = {
            "lowercase": scores.lowercase or None,
            "tokenize": None if scores.tokenize == "13a" else scores.tokenize,
            "confidence": scores.confidence or None,
        }
        _check_has_no_search(options, {**given, **decoding}, "MODEL is a classifier; omit it")
        _evaluate_labels(model, texts, pictures, options, as_json=as_json, quiet=quiet)
        return
    if texts.baseline_model is not None:
        raise UsageError(
            "--baseline-model: is of language models and classifiers; compare translations with "
            "`tformer compare`"
        )
    if model is None:
        _check_has_no_search(options, decoding, "needs a MODEL; name one or omit it")
    _evaluate_translations(model, texts, scores, options, decoding, quiet=quiet)


def _kind(model: Path) -> "Kind":
    return kind_named(read_config(model).task)


def _check_inputs(model: Path | None, texts: TextOptions, pictures: ReadImageOptions) -> None:
    """Checks that there is one thing to score, and that the model reads it."""

    def takes_pictures() -> bool:
        training = None if model is None else _kind(model).training
        return training is not None and not training.examples.are_texts

    pictures.check(has_texts=texts.source is not None)
    if pictures.damaged == "skip" and not takes_pictures():
        raise UsageError("--damaged: is of a model of images; omit it")
    if pictures.images is None:
        texts.check(model)
    elif not takes_pictures():
        raise UsageError("--images: needs the MODEL of a classifier of images")
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
) -> None:
    check_stdin_is_read_once(texts.files)
    from tformer_cli.evaluate import evaluate as workflow
    from tformer_cli.kinds.lines.translate import TranslationCounts

    read, translated = LineCounts(), TranslationCounts()
    prompt_at_terminal(files=texts.files, quiet=quiet)
    # All texts are read before a model is loaded: different line counts are an error at once
    scored, *references = workflow.read_texts(texts.files, read)
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
                    counts=translated,
                    progress=progress.update,
                    **how,
                )
            write(result.hypotheses)
    if baseline is not None or scores.confidence:
        result = workflow.with_tests(result, references, baseline, **how)
    # Warnings last on stderr, where they are not scrolled away by the progress
    warn_of_bytes(read)
    warn_of_lengths(translated, quiet=quiet)
    shows = _show_json if scores.report_format == TextOrJson.json else _write_text
    shows(result, has_intervals=scores.confidence)


@contextmanager
def _writing(output: Path | None) -> Iterator[Callable[[Sequence[str]], None]]:
    """Yields what writes lines to the file; it is there before a model works for hours."""
    with nullcontext() if output is None else results(output) as stream:

        def write(lines: Sequence[str]) -> None:
            if stream is not None:
                stream.writelines(utf8_line(line) for line in lines)

        yield write


def _evaluate_labels(
    model: Path,
    texts: TextOptions,
    pictures: ReadImageOptions,
    options: TranslatorOptions,
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    references = texts.reference or ()
    if len(references) != 1 and not (pictures.images and not references):
        raise UsageError("--reference: an example has one right label; name one file")
    from tformer_cli.kinds.lines import classify as workflow

    if texts.baseline is not None and texts.baseline_model is not None:
        raise UsageError("--baseline-model: --baseline has its labels; omit one of the two")
    read = LineCounts()
    given: list[list[str]] = []
    label = str(references[0]) if references else ""
    pairs = pictures.labeled(label, "--reference", read)
    if pairs is not None:
        sources, right = map(list, zip(*pairs, strict=True))
        if texts.baseline is not None:
            given = [list(file_lines(str(texts.baseline), read, quiet=quiet))]
    else:
        from tformer_cli.evaluate.evaluate import read_texts

        check_stdin_is_read_once(texts.files)
        prompt_at_terminal(files=texts.files, quiet=quiet)
        sources, right, *given = read_texts(texts.files, read)
    opens = partial(
        workflow.open_classifier,
        device=options.device,
        precision=options.precision,
        threads=options.threads,
        before_torch=torch_preparation(options.threads),
    )
    damaged = pictures.damaged
    with _writing(texts.output) as write:
        opened = opens(model)
        note_choices(opened, quiet=quiet)
        with line_progress(len(sources), "labeling", quiet=quiet) as progress:
            result = workflow.evaluate_classifier(opened, sources, right, progress.update, damaged)
        write(result.predicted)
        if texts.baseline_model is not None:
            other = opens(texts.baseline_model)
            compared = workflow.evaluate_classifier(other, sources, right, damaged=damaged)
            given = [list(compared.predicted)]
    warn_of_bytes(read)
    warn_of_damaged(result.predicted.count(""), "omitted from the scores")
    changes = [one for labels in given for one in workflow.compare_predictions(result, labels)]
    if as_json:
        more = _change_record(changes, "examples") if changes else {}
        write_line(json.dumps(result.record() | more, ensure_ascii=False))
        return
    show_scores(stdout_console(), result, changes)


def show_scores(
    console: "Console", result: "LabelEvaluation", changes: "Sequence[PairedDifference]"
) -> None:
    from rich.text import Text

    compared_lines = ["", *_change_lines(changes, "examples", 2)] if changes else []
    for line in (*result.lines(console.width), *compared_lines):
        console.print(Text(line), soft_wrap=True)


def _evaluate_text(
    model: Path,
    baseline: Path | None,
    texts: TextScoringOptions,
    options: TranslatorOptions,
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Shows the scores of a language model, masked or not, and the changes from another one."""
    counts = LineCounts()
    lines = list(texts.lines(counts, quiet=quiet))
    for one in (model, *([] if baseline is None else [baseline])):
        _check_reads_text(one)
    how: dict[str, Any] = {
        "device": options.device,
        "precision": options.precision,
        "tell": partial(note, quiet=quiet),
        "before_torch": torch_preparation(options.threads),
    }
    from tformer_cli.kinds.lines import evaluate_texts as workflow

    if _kind(model).measured_by == "gaps":
        _check_of_gaps(texts, options, baseline)
        from tformer_cli.kinds.opening.encoder import open_encoder

        encoder = open_encoder(model, kinds_for("fill"), by_kernels=False, **how)
        note_choices(encoder, quiet=quiet)
        _show_text(workflow.evaluate_masked(encoder, lines, texts.text_kind or "lines"), as_json)
        warn_of_bytes(counts)
        return
    from tformer_cli.kinds.opening.generator import open_generator

    def evaluated(one: Path, adapter: Path | None) -> "TextEvaluation":
        opened = open_generator(one, adapter=adapter, threads=options.threads, **how)
        note_choices(opened, quiet=quiet)
        window, stride = texts.window or 0, texts.stride or 0
        return workflow.evaluate_texts(
            opened, lines, kind=texts.text_kind, window=window, stride=stride
        )

    result = evaluated(model, options.adapter)
    other = None if baseline is None else evaluated(baseline, None)
    warn_of_bytes(counts)
    if other is None:
        _show_text(result, as_json)
        return
    changes = [workflow.compare_evaluations(result, other)]
    units = "lines" if result.kind == "lines" else f"blocks of {workflow.BLOCK} tokens"
    if as_json:
        more = {"baseline": other.record(), **_change_record(changes, units)}
        write_line(json.dumps(result.record() | more))
        return
    _show_text(result, as_json)
    write_line(f"{'baseline':<14}{'':>10}  {other.signature}")
    for line in _change_lines(changes, units, 4):
        write_line(line)


def _check_reads_text(model: Path) -> None:
    kind = _kind(model)
    if kind.measured_by in ("text", "gaps"):
        return
    what = COMMANDS[kind.name].partition(";")[0]
    instead = "name one"
    if kind.training is not None:
        are_texts = kind.training.examples.are_texts
        instead = f"give {'--source and --reference' if are_texts else '--images'}"
    raise ArtifactError(f"{model}: {what}; --text is of language models, {instead}")


def _check_of_gaps(
    texts: TextScoringOptions, options: TranslatorOptions, baseline: Path | None
) -> None:
    """Refuses options that a model which fills gaps has no use for."""
    if baseline is not None:
        raise UsageError("--baseline-model: is of other models than masked ones; omit it")
    for name, value in (("--window", texts.window), ("--stride", texts.stride)):
        if value is not None:
            raise UsageError(f"{name}: MODEL reads a text at once; omit it")
    if options.adapter is not None:
        raise UsageError("--adapter: is of other models; omit it")


def _show_text(result: "TextEvaluation | MaskedEvaluation", as_json: bool) -> None:
    if as_json:
        write_line(json.dumps(result.record()))
        return
    for name, value, how in result.rows():
        write_line(f"{name:<14}{value:>10}  {how}")


def _change_record(changes: "Sequence[PairedDifference]", units: str) -> dict[str, Any]:
    return {
        "changes": [
            {
                "measure": one.name.lower().replace(" ", "_"),
                "baseline": one.baseline,
                "value": one.value,
                "difference": one.difference,
                "ci95": [one.low, one.high],
                "p_value": one.p_value,
            }
            for one in changes
        ],
        "test": _test_signature(units),
    }


def _change_lines(changes: "Sequence[PairedDifference]", units: str, digits: int) -> Iterator[str]:
    for one in changes:
        interval = f"95 % {one.low:+.{digits}f} to {one.high:+.{digits}f}"
        yield (
            f"{one.name} change  {one.difference:+.{digits}f}  from {one.baseline:.{digits}f}, "
            f"{interval}, p = {one.p_value:.4f}"
        )
    yield f"test  {_test_signature(units)}"


def _test_signature(units: str) -> str:
    from tformer_cli.metrics.significance import RESAMPLES

    return f"paired-bootstrap|units:{units}|resamples:{RESAMPLES}|seed:1"


def _check_has_no_search(
    options: TranslatorOptions, decoding: Mapping[str, object], why: str
) -> None:
    """Refuses options of a search where no model searches."""
    given = {
        "heads": options.heads or None,
        "adapter": options.adapter,
        "source_language": options.source_language,
        "target_language": options.target_language,
        "split_sentences": options.split_sentences,
        "shortlist": options.shortlist,
        **decoding,
    }
    idle = next((name for name, value in given.items() if value is not None), None)
    if idle is not None:
        option = f"--{idle.replace('_', '-')}"
        raise UsageError(f"{option}: {why}")


def _warn_of_sides(sources: list[str], references: list[str], info: "ModelInfo") -> None:
    """Warns if the first reference is the source again, or the two look swapped."""
    from tformer_cli.quality.doubts import share_of_equal
    from tformer_cli.text.languages import looks_swapped

    pairs = list(zip(sources, references, strict=False))  # their numbers are compared elsewhere
    own, other = info.source_language, info.target_language
    share = share_of_equal(pairs)
    if share > 0.5:
        warn(f"--reference: {share:.0%} of its lines are those of --source; name the translation")
    elif looks_swapped(pairs, own, other):
        warn(
            f'--source: looks like "{other}" and --reference like "{own}", but the model '
            f'translates "{own}" to "{other}"; swap the two files'
        )


def _show_json(result: "Evaluation", *, has_intervals: bool) -> None:
    record: dict[str, Any] = {"lines": len(result.hypotheses)}
    for score in result.scores:
        record[_key(score.name)] = {"score": score.value, "signature": score.signature}
    for metric in result.tested:
        before, after = metric.scores[0], metric.scores[-1]
        if has_intervals:
            intervals = {"mean": after.mean, "interval": after.interval, "test": metric.signature}
            record[_key(metric.name)] |= intervals
        if len(metric.scores) == 1:
            continue
        record[_key(metric.name)] |= {
            "baseline": before.value,
            "p_value": after.p_value,
            "equals_baseline": after.equals_baseline,
            "test": metric.signature,
        }
    if result.loss is not None:
        record |= {"loss": result.loss, "perplexity": result.perplexity}
    write_line(json.dumps(record, ensure_ascii=False))


def _key(name: str) -> str:
    return name.lower().removesuffix("2")


def _write_text(result: "Evaluation", *, has_intervals: bool) -> None:
    """Shows the scores on a terminal; elsewhere a signature is one piece, to be copied and cut."""
    if sys.stdout.isatty():
        show_evaluation(stdout_console(), result, has_intervals=has_intervals)
        return
    for name, value, how in _rows(result, has_intervals=has_intervals):
        write_line(f"{name:<12}{value:>9}  {how}")


def show_evaluation(
    console: "Console", result: "Evaluation", *, has_intervals: bool = False
) -> None:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", overflow="fold")
    for row in _rows(result, has_intervals=has_intervals):
        table.add_row(*row)
    console.print(table)


def _rows(result: "Evaluation", *, has_intervals: bool) -> list[tuple[str, str, str]]:
    rows = [(score.name, f"{score.value:.2f}", score.signature) for score in result.scores]
    for metric in result.tested:
        before, after = metric.scores[0], metric.scores[-1]
        if has_intervals:
            ends = f"{after.mean - after.interval:.2f} to {after.mean + after.interval:.2f}"
            how = f"95 % of the scores of resampled texts: {ends}  {metric.signature}"
            rows.append((f"{metric.name} mean", f"{after.mean:.2f}", how))
        if len(metric.scores) == 1:
            continue
        change = f"{after.value - before.value:+.2f}"
        same = "; no sentence differs from the baseline" if after.equals_baseline else ""
        how = f"from {before.value:.2f}, p = {after.p_value:.4f}{same}  {metric.signature}"
        rows.append((f"{metric.name} change", change, how))
    if result.loss is not None:
        rows.append(("loss", f"{result.loss:.4f}", "nats per reference token"))
        rows.append(("perplexity", f"{result.perplexity:.2f}", "exp(loss)"))
    return rows
