"""Translating lines with a model directory."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import torch

from tformer_cli.artifacts.ctranslate2_export import EXPORT, check_export, import_ctranslate2
from tformer_cli.artifacts.model_directory import ModelDirectory, load_model_directory
from tformer_cli.decoding.config import of_any_engine
from tformer_cli.decoding.demands import NO_DEMANDS, Demands, Term, demands_of, with_terms
from tformer_cli.decoding.details import NO_DETAILS, Details
from tformer_cli.decoding.formats import OutputFormat, format_lines, read_records
from tformer_cli.decoding.translator import BUFFER_LINES, TooLong, Translation, Translator
from tformer_cli.errors import UsageError
from tformer_cli.inspection.gates import keep_only
from tformer_cli.inspection.heads import head_layout
from tformer_cli.inspection.selectors import select_heads
from tformer_cli.model.runtime import Precision, prepare_cpu, resolve_device, set_threads
from tformer_cli.workflows.ensemble import join_models

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tformer_cli.decoding.config import DecodingConfig
    from tformer_cli.decoding.ensemble import EnsembleSpace
    from tformer_cli.workflows.aligner import Aligner, WordAlignment

InputFormat = Literal["text", "jsonl"]
AlignmentFormat = Literal["pharaoh", "soft"]
SEEDS = 2**63
"""Seeds there are for torch's generators."""


Engine = Literal["tformer", "ctranslate2"]
"""Who searches."""
PrecisionChoice = Precision | Literal["auto", "int8"]
"""What may be asked for; "int8" is the other engine's alone."""


class SearchOverrides(TypedDict, total=False):
    """Fields of `DecodingConfig` that may differ from a model's defaults; None: as if not given."""

    beam_size: int | None
    length_penalty: float | None
    max_length: int | None
    max_length_ratio: float | None
    batch_tokens: int | None
    length_normalization: Literal["gnmt", "average"] | None
    coverage_penalty: float | None
    min_length: int | None
    min_length_ratio: float | None
    no_repeat_ngram: int | None
    repetition_penalty: float | None
    sampling: bool | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    diversity_groups: int | None
    diversity_penalty: float | None
    risk: Literal["none", "chrf", "bleu"] | None
    candidates: int | None
    distinct_texts: bool | None


class DecodingOverrides(SearchOverrides, total=False):
    """All of them."""

    n_best: int | None


class TranslatorOptions(DecodingOverrides, total=False):
    """Keyword arguments of `open_translator`."""

    device: str
    precision: PrecisionChoice
    engine: Engine
    threads: int
    seed: int
    too_long: TooLong
    banned: Sequence[str]
    ensemble: Sequence[Path]
    ensemble_weights: Sequence[float] | None
    ensemble_space: EnsembleSpace
    heads: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A model directory ready to translate, and where and how it computes."""

    directory: ModelDirectory
    translator: Translator
    device: torch.device
    precision: PrecisionChoice
    engine: Engine = "tformer"


@dataclass
class TranslationCounts:
    """What a stream of translations held; it grows as the stream goes on."""

    lines: int = 0
    """Lines translated."""
    split: int = 0
    """Lines that were too long and translated in parts."""
    truncated: int = 0
    """Lines that were too long and cut off."""
    unsatisfied: int = 0
    """Lines whose translation lacks a required phrase or holds a banned one."""

    def add(self, translation: Translation) -> None:
        """Counts a translation."""
        self.lines += 1
        self.split += translation.n_parts > 1
        self.truncated += translation.is_truncated
        self.unsatisfied += bool(translation.unsatisfied)


def open_translator(
    model: Path | str | ModelDirectory,
    *,
    device: str = "auto",
    precision: PrecisionChoice = "auto",
    engine: Engine = "tformer",
    threads: int = 0,
    seed: int = 1,
    too_long: TooLong = "split",
    banned: Sequence[str] = (),
    ensemble: Sequence[Path] = (),
    ensemble_weights: Sequence[float] | None = None,
    ensemble_space: EnsembleSpace = "probability",
    heads: Sequence[str] = (),
    **overrides: Unpack[DecodingOverrides],
) -> Opened:
    """Reads a model directory and connects it to a translator.

    Args:
        model: a model directory, or its path.
        device: "auto", "cpu", "cuda" or "cuda:N"; a `ModelDirectory` stays where it is.
        precision: "float32", "bfloat16", or "auto", which is float32: there a translation does
            not depend on what is translated beside it. The engine CTranslate2 also knows "int8".
        engine: "tformer", or "ctranslate2" for a model that `export` was run on.
        threads: CPU threads (0: torch's choice).
        seed: of what is sampled; greedy and beam search draw nothing.
        too_long: what to do with lines longer than the model takes.
        banned: texts whose tokens no translation may hold in a row.
        ensemble: model directories of the same vocabulary that translate with it.
        ensemble_weights: how much the models count, the first one's first; None: equally.
        ensemble_space: whether probabilities are averaged or their logarithms.
        heads: the attention heads to translate with, by the grammar of `inspection.selectors`; the
            others stay switched off in this model. None given: all, and nothing is set.
        **overrides: fields of `DecodingConfig` that differ from the model's defaults; None is
            as if it were not given.

    Raises:
        UsageError: if the device is not there, a setting is impossible, or the engine is not
            installed.
        ArtifactError: if the model directory or its export cannot be used.
    """
    prepare_cpu()
    set_threads(threads)
    if not 0 <= seed < SEEDS:
        raise UsageError(f"--seed: must be from 0 to {SEEDS - 1}, but is {seed}")
    torch.manual_seed(seed)
    if not isinstance(model, ModelDirectory):
        try:
            place = resolve_device(device)
        except ValueError as error:
            raise UsageError(f"--device: {error}") from None
        model = load_model_directory(Path(model), place)
    if heads and engine == "ctranslate2":
        raise UsageError("--heads: --engine ctranslate2 uses all heads; leave one of them out")
    if heads and ensemble:
        raise UsageError("--heads: names the heads of one model; leave out it or --ensemble")
    if heads:
        keep_only(model.model, select_heads(heads, head_layout(model.model)))
    place = next(model.model.parameters()).device
    decoding = overridden(model.decoding, **overrides)
    if engine == "ctranslate2":
        if ensemble or banned or not of_any_engine(decoding):
            raise UsageError("--engine: ctranslate2 knows beam search alone; leave it out")
        chosen, translator = _engine_translator(model, decoding, precision, threads, too_long)
        return Opened(
            directory=model, translator=translator, device=place, precision=chosen, engine=engine
        )
    if precision == "int8":
        raise UsageError("--precision: int8 is computed by --engine ctranslate2 alone; add it")
    own: Precision = "float32" if precision == "auto" else precision
    searched = model.model
    if ensemble:
        if decoding.coverage_penalty:
            raise UsageError("--coverage-penalty: needs one model; leave out it or --ensemble")
        searched = join_models(model, ensemble, ensemble_weights, ensemble_space)
    translator = Translator(
        searched,
        model.tokenizer,
        decoding,
        device=place,
        too_long=too_long,
        precision=own,
        seed=seed,
        banned=banned,
    )
    return Opened(directory=model, translator=translator, device=place, precision=own)


def _engine_translator(
    model: ModelDirectory,
    decoding: DecodingConfig,
    precision: PrecisionChoice,
    threads: int,
    too_long: TooLong,
) -> tuple[PrecisionChoice, Translator]:
    """Loads a model's export into CTranslate2."""
    from tformer_cli.decoding.ctranslate2_engine import CTranslate2Translator

    place = next(model.model.parameters()).device
    path = model.path / EXPORT
    ctranslate2 = import_ctranslate2()
    check_export(model.path, path)
    chosen = "float32" if precision == "auto" else precision
    try:
        # Single-threaded workers beside each other: one with two threads is far slower in int8.
        engine = ctranslate2.Translator(
            str(path),
            device=place.type,
            device_index=place.index or 0,
            compute_type=chosen,
            inter_threads=threads or torch.get_num_threads(),
            intra_threads=1,
        )
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"--engine ctranslate2: cannot load the model ({path}): {reason}"
        ) from None
    translator = CTranslate2Translator(
        model.model, model.tokenizer, decoding, device=place, too_long=too_long
    )
    translator.use(engine)
    return chosen, translator


def overridden(config: DecodingConfig, **overrides: Unpack[DecodingOverrides]) -> DecodingConfig:
    """Replaces the fields that are given (not None) and checks the whole again.

    Raises:
        UsageError: naming the option that cannot be.
    """
    given: dict[str, Any] = {name: value for name, value in overrides.items() if value is not None}
    try:
        return replace(config, **given)
    except ValueError as error:
        name, _, reason = str(error).partition(": ")
        raise UsageError(f"--{name.replace('_', '-')}: {reason}") from None


def translate_lines(
    model: Path | str | ModelDirectory,
    lines: Iterable[str],
    *,
    buffer_lines: int = BUFFER_LINES,
    **options: Unpack[TranslatorOptions],
) -> Iterator[Translation]:
    """Translates lines as they come, in order, one translation a line.

    Args:
        model: a model directory, or its path.
        lines: the source text, a sentence each.
        buffer_lines: lines that are sorted and batched together; 1 answers line by line.
        **options: of `open_translator`: device, precision, beam_size, length_penalty, n_best, …
    """
    return open_translator(model, **options).translator.stream(lines, buffer_lines)


def translate_file(
    model: Path | str | ModelDirectory,
    source: Path,
    target: Path,
    **options: Unpack[TranslatorOptions],
) -> TranslationCounts:
    """Translates a file into another, which is there whole or not at all.

    Args:
        model: a model directory, or its path.
        source: text to translate, a sentence a line; `.gz`, `.xz` and `.bz2` are read through.
        target: where the translations go, a line for a line.
        **options: of `open_translator`.
    """
    from tformer_cli.artifacts.atomic import written_aside
    from tformer_cli.data.lines import read_lines

    translator = open_translator(model, **options).translator
    counts = TranslationCounts()
    with (
        written_aside(Path(target)) as aside,
        aside.open("w", encoding="utf-8", errors="replace", newline="") as file,
    ):
        for line in translated_text(translator, read_lines(source), counts=counts):
            file.write(line + "\n")
    return counts


def translated_text(
    translator: Translator,
    lines: Iterable[str],
    *,
    counts: TranslationCounts,
    output_format: OutputFormat = "text",
    input_format: InputFormat = "text",
    input_name: str = "input",
    lists_hypotheses: bool = False,
    details: Details = NO_DETAILS,
    glossary: Sequence[Term] = (),
    buffer_lines: int = BUFFER_LINES,
    first_index: int = 0,
    max_wait: float | None = None,
    aligner: Aligner | None = None,
    alignment_format: AlignmentFormat = "pharaoh",
) -> Iterator[str]:
    """Translates lines of text or JSONL into the lines that are to be written.

    Args:
        translator: from `open_translator`.
        lines: the input; with "jsonl" an object a line, whose other fields are passed through.
        counts: is told of every translation before its lines are yielded.
        output_format: "text", "tsv", "jsonl" or "moses" (see `tformer_cli.decoding.formats`).
        input_format: "text" or "jsonl".
        input_name: what messages call the input.
        lists_hypotheses: "jsonl" output lists all hypotheses.
        details: what else "jsonl" output says.
        glossary: phrases that translations must or must not hold.
        buffer_lines: lines that are batched together.
        first_index: number of the first line.
        max_wait: seconds after which a buffer is translated although it is not full.
        aligner: of the same model; aligns every hypothesis once it is found.
        alignment_format: "pharaoh" links or "soft" weights, by words; not for "text" output.

    Yields:
        Output lines without their ends; as many as input lines but for "tsv" and "moses", which
        have one for each hypothesis.
    """
    records: deque[dict[str, Any]] = deque()
    texts: Iterable[str | tuple[str, Demands]] = (
        _sources_of(read_records(lines, input_name, first_index), records, input_name, first_index)
        if input_format == "jsonl"
        else lines
    )
    if glossary:
        texts = _with_glossary(texts, glossary)
    for translation, alignments in _with_alignments(
        translator.buffers(texts, buffer_lines, first_index=first_index, max_wait=max_wait),
        aligner,
    ):
        counts.add(translation)
        yield from format_lines(
            translation,
            output_format,
            lists_hypotheses=lists_hypotheses,
            details=details,
            passed_through=records.popleft() if records else None,
            alignments=None
            if alignments is None
            else [
                found.pharaoh if alignment_format == "pharaoh" else found.soft
                for found in alignments
            ],
        )


def _with_alignments(
    buffers: Iterable[list[Translation]], aligner: Aligner | None
) -> Iterator[tuple[Translation, list[WordAlignment] | None]]:
    """Yields translations, each with an alignment for every hypothesis if there is an aligner."""
    for buffer in buffers:
        if aligner is None:
            yield from ((translation, None) for translation in buffer)
        else:
            yield from zip(buffer, aligner.align_translations(buffer), strict=True)


def _sources_of(
    records: Iterable[dict[str, Any]],
    waiting: deque[dict[str, Any]],
    name: str,
    first_index: int,
) -> Iterator[tuple[str, Demands]]:
    """Yields the source texts and keeps the records until their translations are there."""
    for number, record in enumerate(records, first_index + 1):
        waiting.append(record)
        yield record["source"], demands_of(record, f"{name}:{number}")


def _with_glossary(
    lines: Iterable[str | tuple[str, Demands]], glossary: Sequence[Term]
) -> Iterator[tuple[str, Demands]]:
    for line in lines:
        text, demands = (line, NO_DEMANDS) if isinstance(line, str) else line
        yield text, with_terms(demands, text, glossary)
