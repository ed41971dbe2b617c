"""`tformer evaluate`: BLEU, chrF and TER; with a model also its loss."""

import json
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

import typer

from tformer_cli.artifacts.config_file import read_config
from tformer_cli.cli.commands.evaluate_labels import evaluate_labels
from tformer_cli.cli.commands.evaluate_texts import TextScoringOptions, evaluate_texts
from tformer_cli.cli.console import stdout_console, utf8_line, warn, write_line
from tformer_cli.cli.decoding_options import TranslatorOptions, takes_decoding_options
from tformer_cli.cli.format_choice import TextOrJson, format_option
from tformer_cli.cli.image_options import ReadImageOptions
from tformer_cli.cli.line_progress import line_progress
from tformer_cli.cli.option_groups import takes_groups
from tformer_cli.cli.options import QuietOption, option, option_field
from tformer_cli.cli.path_roles import Holds, PathRole
from tformer_cli.cli.scoring_options import LowercaseOption, TokenizeOption
from tformer_cli.cli.text_io import (
    STANDARD_STREAM,
    check_stdin_is_read_once,
    prompt_at_terminal,
    results,
    telling_of_markup,
    warn_of_bytes,
    warn_of_lengths,
)
from tformer_cli.data.lines import LineCounts
from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from tformer_cli.artifacts.model_directory import ModelInfo
    from tformer_cli.decoding.keywords import SearchOverrides
    from tformer_cli.workflows.evaluate import Evaluation


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """The texts that are compared, and where translations go."""

    source: Path | None = option_field(
        None,
        "Source text that MODEL translates or labels; - is stdin.",
        "--source",
        "-i",
        metavar="FILE",
        role=PathRole.reads_file,
    )
    reference: list[Path] | None = option_field(
        None,
        "Reference translation, or right labels. Repeat for several references.",
        shown="none",
        metavar="FILE",
        role=PathRole.reads_file,
    )
    hypothesis: Path | None = option_field(
        None,
        "Translation to score, without a model; - is stdin.",
        metavar="FILE",
        role=PathRole.reads_file,
    )
    baseline: Path | None = option_field(
        None,
        "Other translations of the same text, or labels of another classifier: their scores, "
        "and tests of the differences as `tformer compare` makes them.",
        metavar="FILE",
        role=PathRole.reads_file,
    )
    baseline_model: Path | None = option_field(
        None,
        "Another language model or classifier: its scores on the same text, and tests of the "
        "differences.",
        metavar="MODEL",
        role=PathRole.reads_model,
    )
    output: Annotated[
        Path | None,
        option(
            "Also write MODEL's translations or labels to this file.",
            "--output",
            "-o",
            metavar="FILE",
        ),
        PathRole.writes_file,
        Holds({"text"}),
    ] = None

    @property
    def files(self) -> list[Path]:
        """The text that is scored or translated, the references, then the baseline."""
        baseline = [] if self.baseline is None else [self.baseline]
        return [self.hypothesis or self.source or Path(), *(self.reference or ()), *baseline]

    def check(self, model: Path | None) -> None:
        """Checks that there is one thing to score."""
        if not self.reference:
            raise UsageError(
                "--reference: is missing; name the file of a reference, or --text for a language "
                "model"
            )
        if model is None:
            if self.hypothesis is None:
                raise UsageError(
                    "--hypothesis: nothing to score; give --hypothesis FILE, or a MODEL and "
                    "--source FILE"
                )
            if self.source is not None or self.output is not None:
                option = "--source" if self.source is not None else "--output"
                raise UsageError(f"{option}: needs a MODEL; name one or omit it")
        elif self.hypothesis is not None:
            raise UsageError("--hypothesis: a MODEL makes its own; omit one of the two")
        elif self.source is None:
            raise UsageError("--source: is missing; name the text to translate")


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """How scores are computed and shown."""

    report_format: Annotated[
        TextOrJson,
        format_option(TextOrJson, what="A table with sacreBLEU's signatures, or one JSON object."),
    ] = TextOrJson.text
    confidence: bool = option_field(
        False, "Also give each score's 95 % interval, by bootstrap (Koehn 2004)."
    )
    lowercase: LowercaseOption = False
    tokenize: TokenizeOption = "13a"


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
    if language.text is not None:
        if model is None or texts.reference or texts.source or texts.hypothesis:
            raise UsageError(
                "--text: is of a language model; name its MODEL, and no --source, --hypothesis or "
                "--reference"
            )
        if texts.baseline is not None:
            raise UsageError("--baseline: is a file of translations; name a --baseline-model")
        if scores.confidence:
            raise UsageError("--confidence: is of translations; --baseline-model gives intervals")
        evaluate_texts(
            model,
            language,
            options,
            scores.report_format,
            baseline=texts.baseline_model,
            quiet=quiet,
        )
        return
    pictures.check(has_texts=texts.source is not None)
    if pictures.damaged == "skip" and (model is None or read_config(model).task != "image"):
        raise UsageError("--damaged: is of a model of images; omit it")
    if pictures.images is None:
        texts.check(model)
    elif model is None or read_config(model).task != "image":
        raise UsageError("--images: needs the MODEL of a classifier of images")
    elif texts.hypothesis is not None:
        raise UsageError("--hypothesis: a MODEL makes its own; omit one of the two")
    if str(texts.output) == STANDARD_STREAM:
        raise UsageError("--output: stdout is for the scores; name a file")
    if model is not None and read_config(model).task in ("classify", "image"):
        given = {
            "lowercase": scores.lowercase or None,
            "tokenize": None if scores.tokenize == "13a" else scores.tokenize,
            "confidence": scores.confidence or None,
        }
        _check_has_no_search(options, {**given, **decoding}, "MODEL is a classifier; omit it")
        as_json = scores.report_format == TextOrJson.json
        evaluate_labels(model, texts, pictures, options, as_json=as_json, quiet=quiet)
        return
    if texts.baseline_model is not None:
        raise UsageError(
            "--baseline-model: is of language models and classifiers; compare translations with "
            "`tformer compare`"
        )
    if model is None:
        _check_has_no_search(options, decoding, "needs a MODEL; name one or omit it")
    check_stdin_is_read_once(texts.files)
    from tformer_cli.workflows import evaluate as workflow
    from tformer_cli.workflows.translate import TranslationCounts

    read, translated = LineCounts(), TranslationCounts()
    prompt_at_terminal(files=texts.files, quiet=quiet)
    # All texts are read before a model is loaded: different line counts are an error at once
    scored, *references = workflow.read_texts(texts.files, read)
    baseline = None if texts.baseline is None else references.pop()
    how: dict[str, Any] = {"lowercase": scores.lowercase, "tokenize": scores.tokenize}
    if model is None:
        result = workflow.score_hypotheses(scored, references, **how)
    else:
        with nullcontext() if texts.output is None else results(texts.output) as stream:
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
            if stream is not None:
                stream.writelines(utf8_line(line) for line in result.hypotheses)
    if baseline is not None or scores.confidence:
        result = workflow.with_tests(result, references, baseline, **how)
    # Warnings last on stderr, where they are not scrolled away by the progress
    warn_of_bytes(read)
    warn_of_lengths(translated, quiet=quiet)
    shows = _show_json if scores.report_format == TextOrJson.json else _write_text
    shows(result, has_intervals=scores.confidence)


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
    from tformer_cli.data.doubts import share_of_equal
    from tformer_cli.data.languages import looks_swapped

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
    """Prints a line for each score, with its signature."""
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
