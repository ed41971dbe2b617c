"""Translating lines with a model directory."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Unpack

from tformer_cli.kinds.lines.job import ResultCounts
from tformer_cli.kinds.opening import open_model
from tformer_cli.search.constraints import LineConstraints, constraints_of
from tformer_cli.search.formats import (
    INPUT_FIELDS,
    NO_DETAILS,
    Details,
    OutputFormat,
    format_lines,
    own_fields,
    read_records,
)
from tformer_cli.text.lines import check_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.search.keywords import TranslatorOptions
    from tformer_cli.search.translator import Translation, Translator

InputFormat = Literal["text", "jsonl"]
AlignmentFormat = Literal["pharaoh", "soft"]


class Alignment(Protocol):
    """An alignment of words as it is written."""

    @property
    def pharaoh(self) -> str: ...
    @property
    def soft(self) -> list[list[float]]: ...


class Aligner(Protocol):
    """Aligns every hypothesis of translations, as `inspect.jobs.align.Aligner` does."""

    def align_translations(
        self, translations: Sequence[Translation], /
    ) -> Sequence[Sequence[Alignment]]: ...


def translate_lines(
    model: Path | str | ModelDirectory,
    lines: Iterable[str],
    *,
    buffer_lines: int | None = None,
    **options: Unpack[TranslatorOptions],
) -> Iterator[Translation]:
    """Translates lines as they come, in order, by options of `open_model`."""
    check_lines(lines)
    return open_model(model, **options).translator.stream(lines, buffer_lines)


def translate_file(
    model: Path | str | ModelDirectory,
    source: Path,
    target: Path,
    **options: Unpack[TranslatorOptions],
) -> ResultCounts:
    """Translates a file into another, which is there whole or not at all."""
    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.artifacts.overwriting import NamedPath, Output, check_outputs
    from tformer_cli.files.atomic import written_aside
    from tformer_cli.text.lines import read_lines

    directory = model.path if isinstance(model, ModelDirectory) else Path(model)
    # Before the model is opened: a mistake shows at once
    check_outputs(
        [Output(name="target", path=Path(target))],
        [
            NamedPath(name="source", path=Path(source)),
            NamedPath(name="model", path=directory, is_model=True),
        ],
    )
    translator = open_model(model, **options).translator
    counts = ResultCounts()
    with (
        written_aside(Path(target)) as aside,
        aside.open("w", encoding="utf-8", errors="replace", newline="") as file,
    ):
        for buffer in translated_text(translator, read_lines(source), counts=counts):
            file.writelines(line + "\n" for line in buffer)
    return counts


def translated_text(
    translator: Translator,
    lines: Iterable[str],
    *,
    counts: ResultCounts,
    output_format: OutputFormat = "text",
    input_format: InputFormat = "text",
    input_name: str = "input",
    lists_hypotheses: bool = False,
    details: Details = NO_DETAILS,
    buffer_lines: int | None = None,
    first_index: int = 0,
    max_wait: float | None = None,
    aligner: Aligner | None = None,
    alignment_format: AlignmentFormat = "pharaoh",
    correct: Callable[[list[Translation]], list[Translation]] | None = None,
) -> Iterator[list[str]]:
    """Translates lines of text or JSONL into the lines that are to be written.

    `correct` changes the translations of a buffer before they are written.
    """
    # A queue: lines are read some buffers before their translations are there
    records: deque[dict[str, Any]] = deque()
    texts: Iterable[str | tuple[str, LineConstraints]] = lines
    if input_format == "jsonl":
        texts = _sources_of(lines, records, input_name, first_index)
    translated = translator.buffers(texts, buffer_lines, first_index=first_index, max_wait=max_wait)
    for buffer in translated if correct is None else map(correct, translated):
        output_lines: list[str] = []
        aligned = _render_alignments(buffer, aligner, alignment_format)
        for translation, alignments in zip(buffer, aligned, strict=True):
            counts.add(translation)
            passed = own_fields(records.popleft()) if records else {}
            counts.moved += output_format == "jsonl" and INPUT_FIELDS in passed
            output_lines += format_lines(
                translation,
                output_format,
                lists_hypotheses=lists_hypotheses,
                details=details,
                passed_through=passed,
                alignments=alignments,
            )
        yield output_lines


def _render_alignments(
    buffer: list[Translation], aligner: Aligner | None, alignment_format: AlignmentFormat
) -> Sequence[list[Any] | None]:
    """Alignments of all hypotheses of each line as links or weights, if there is an aligner."""
    if aligner is None:
        return [None] * len(buffer)
    return [
        [getattr(alignment, alignment_format) for alignment in alignments]
        for alignments in aligner.align_translations(buffer)
    ]


def _sources_of(
    lines: Iterable[str],
    waiting: deque[dict[str, Any]],
    name: str,
    first_index: int,
) -> Iterator[tuple[str, LineConstraints]]:
    """Yields the source texts and keeps the records until their translations are there."""
    for number, record in enumerate(read_records(lines, name, first_index), first_index + 1):
        waiting.append(record)
        yield record["source"], constraints_of(record, f"{name}:{number}")
