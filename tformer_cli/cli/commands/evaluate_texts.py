"""`tformer evaluate MODEL --text`: what a language model thinks of a text."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from tformer_cli.artifacts.config_file import COMMANDS, read_config
from tformer_cli.cli.commands.changes import change_lines, change_record, signature
from tformer_cli.cli.console import note, write_line
from tformer_cli.cli.format_choice import TextOrJson
from tformer_cli.cli.options import option_field
from tformer_cli.cli.path_roles import PathRole
from tformer_cli.cli.process import torch_preparation
from tformer_cli.cli.text_io import STANDARD_STREAM, file_lines, note_choices, warn_of_bytes
from tformer_cli.data.lines import LineCounts
from tformer_cli.errors import ArtifactError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tformer_cli.cli.decoding_options import TranslatorOptions
    from tformer_cli.workflows.evaluate_texts import TextEvaluation

LANGUAGE_MODELS = "Language models"
OTHER_INPUTS: Mapping[str, str] = MappingProxyType(
    {
        "translate": "give --source and --reference",
        "classify": "give --source and --reference",
        "image": "give --images",
    }
)
"""What models of other tasks are evaluated on."""


@dataclass(frozen=True, kw_only=True)
class TextScoringOptions:
    """The text that a language model is evaluated on, and how it is read."""

    text: str | None = option_field(
        None,
        "Text that a language model is evaluated on: loss, perplexity and bits per byte, or "
        "accuracy of a masked one; - is stdin.",
        panel=LANGUAGE_MODELS,
        metavar="FILE",
        role=PathRole.reads_file,
    )
    text_field: str | None = option_field(
        None,
        "Field or column of the texts, where --text is JSONL, a TSV file or a Hugging Face "
        "dataset (a hub name or a path).",
        panel=LANGUAGE_MODELS,
        shown="none; --text is text",
        metavar="FIELD",
    )
    text_split: str | None = option_field(
        None,
        "Split of a dataset; slices such as test[:100] work.",
        panel=LANGUAGE_MODELS,
        shown="train",
        metavar="SPLIT",
    )
    text_kind: Literal["lines", "stream"] | None = option_field(
        None,
        "Score each line or record of --text by itself, or all of it as one.",
        panel=LANGUAGE_MODELS,
        shown="as MODEL was trained",
    )
    window: int | None = option_field(
        None,
        "Positions that are read at once.",
        panel=LANGUAGE_MODELS,
        shown="as many as MODEL takes",
        min=2,
    )
    stride: int | None = option_field(
        None,
        "Tokens between the beginnings of two windows; a smaller one gives each token more "
        "context, and takes longer.",
        panel=LANGUAGE_MODELS,
        shown="--window",
        min=1,
    )

    def lines(self, counts: LineCounts, *, quiet: bool) -> "Iterable[str]":
        """Returns the lines or records of the text."""
        name = self.text or ""
        if self.text_field is None:
            if self.text_split is not None:
                raise UsageError("--text-split: is of a dataset; add --text-field")
            return file_lines(name, counts, quiet=quiet)
        if name == STANDARD_STREAM:
            raise UsageError("--text-field: stdin is text; name a file")
        from tformer_cli.workflows.evaluate_texts import texts_in_field

        return texts_in_field(name, self.text_field, self.text_split or "train", counts)


def evaluate_texts(
    model: Path,
    texts: TextScoringOptions,
    options: "TranslatorOptions",
    report_format: TextOrJson,
    *,
    baseline: Path | None = None,
    quiet: bool,
) -> None:
    """Shows the scores of a language model, masked or not, and the changes from another one."""
    counts = LineCounts()
    lines = list(texts.lines(counts, quiet=quiet))
    for one in (model, *([] if baseline is None else [baseline])):
        kind = read_config(one).task
        if kind not in ("language-model", "masked"):
            what = COMMANDS[kind].partition(";")[0]
            instead = OTHER_INPUTS.get(kind, "name one")
            raise ArtifactError(f"{one}: {what}; --text is of language models, {instead}")
    if read_config(model).task == "masked":
        if baseline is not None:
            raise UsageError("--baseline-model: is of other models than masked ones; omit it")
        _evaluate_masked(model, texts, lines, options, report_format, quiet=quiet)
        warn_of_bytes(counts)
        return
    evaluated = partial(_evaluated, lines, texts, options, quiet=quiet)
    result = evaluated(model, options.adapter)
    other = None if baseline is None else evaluated(baseline, None)
    warn_of_bytes(counts)
    _show(result, other, report_format)


def _evaluated(
    lines: list[str],
    texts: TextScoringOptions,
    options: "TranslatorOptions",
    model: Path,
    adapter: Path | None,
    *,
    quiet: bool,
) -> "TextEvaluation":
    """Scores the lines with a model."""
    from tformer_cli.workflows import evaluate_texts as workflow
    from tformer_cli.workflows.opening.generator import open_generator

    opened = open_generator(
        model,
        device=options.device,
        precision=options.precision,
        adapter=adapter,
        threads=options.threads,
        tell=partial(note, quiet=quiet),
        before_torch=torch_preparation(options.threads),
    )
    note_choices(opened, quiet=quiet)
    return workflow.evaluate_texts(
        opened,
        lines,
        kind=texts.text_kind,
        window=texts.window or 0,
        stride=texts.stride or 0,
    )


def _evaluate_masked(
    model: Path,
    texts: TextScoringOptions,
    lines: "Iterable[str]",
    options: "TranslatorOptions",
    report_format: TextOrJson,
    *,
    quiet: bool,
) -> None:
    """Shows how a masked language model predicts hidden tokens."""
    for name, value in (("--window", texts.window), ("--stride", texts.stride)):
        if value is not None:
            raise UsageError(f"{name}: MODEL reads a text at once; omit it")
    if options.adapter is not None:
        raise UsageError("--adapter: is of other models; omit it")
    from tformer_cli.workflows.evaluate_texts import evaluate_masked
    from tformer_cli.workflows.opening.encoder import open_encoder

    opened = open_encoder(
        model,
        ("masked",),
        device=options.device,
        precision=options.precision,
        tell=partial(note, quiet=quiet),
        before_torch=torch_preparation(options.threads),
        by_kernels=False,
    )
    note_choices(opened, quiet=quiet)
    result = evaluate_masked(opened, lines, texts.text_kind or "lines")
    scores = result.scores
    if report_format == TextOrJson.json:
        record = {
            "tokens": scores.n_tokens,
            "loss": scores.loss,
            "perplexity": scores.perplexity,
            "accuracy": scores.accuracy,
            "signature": result.signature,
        }
        write_line(json.dumps(record))
        return
    for name, shown, how in (
        ("loss", f"{scores.loss:.4f}", f"nats per hidden token of {scores.n_tokens:,}"),
        ("perplexity", f"{scores.perplexity:.2f}", "exp(loss)"),
        ("accuracy", f"{scores.accuracy:.2f}", "of hidden tokens"),
        ("signature", "", result.signature),
    ):
        write_line(f"{name:<14}{shown:>10}  {how}")


def _show(
    result: "TextEvaluation", other: "TextEvaluation | None", report_format: TextOrJson
) -> None:
    from tformer_cli.workflows.evaluate_texts import BLOCK, compare_evaluations

    scores = result.scores
    changes = [] if other is None else [compare_evaluations(result, other)]
    units = "lines" if result.kind == "lines" else f"blocks of {BLOCK} tokens"
    if report_format == TextOrJson.json:
        record = _record(result)
        if other is not None:
            record["baseline"] = _record(other)
            record |= change_record(changes, signature(units))
        write_line(json.dumps(record))
        return
    for name, value, how in (
        ("loss", f"{scores.loss:.4f}", f"nats per token of {scores.n_tokens:,}"),
        ("perplexity", f"{scores.perplexity:.2f}", "exp(loss)"),
        ("bits per byte", f"{scores.bits_per_byte:.4f}", f"of {scores.n_bytes:,} bytes"),
        ("signature", "", result.signature),
    ):
        write_line(f"{name:<14}{value:>10}  {how}")
    if other is not None:
        write_line(f"{'baseline':<14}{'':>10}  {other.signature}")
        for line in change_lines(changes, signature(units), 4):
            write_line(line)


def _record(result: "TextEvaluation") -> dict[str, Any]:
    """Makes the JSON object of scores."""
    scores = result.scores
    return {
        "tokens": scores.n_tokens,
        "bytes": scores.n_bytes,
        "loss": scores.loss,
        "perplexity": scores.perplexity,
        "bits_per_byte": scores.bits_per_byte,
        "signature": result.signature,
    }
