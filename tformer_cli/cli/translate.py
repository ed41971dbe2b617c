"""`tformer translate`: lines in, lines out."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from tformer_cli.cli.console import is_live, note, warn
from tformer_cli.cli.decoding_options import (
    BatchTokensOption,
    BeamSizeOption,
    LengthPenaltyOption,
    MaxLengthOption,
    TooLongChoice,
    TooLongOption,
)
from tformer_cli.cli.line_progress import line_progress
from tformer_cli.cli.options import (
    DeviceOption,
    ModelArgument,
    PrecisionChoice,
    PrecisionOption,
    QuietOption,
    SeedOption,
    ThreadsOption,
)
from tformer_cli.data.lines import LineCounts, decode_line, read_lines
from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    from tformer_cli.workflows.translate import Opened, TranslationCounts


class OutputFormatChoice(StrEnum):
    """Values of `--format`."""

    text = "text"
    tsv = "tsv"
    jsonl = "jsonl"
    moses = "moses"


class InputFormatChoice(StrEnum):
    """Values of `--input-format`."""

    text = "text"
    jsonl = "jsonl"


def translate(
    model: ModelArgument,
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="What to translate; without it, -i or stdin."),
    ] = None,
    *,
    input_file: Annotated[
        str | None,
        typer.Option(
            "--input", "-i", metavar="FILE", help="File to translate (- or nothing: stdin)."
        ),
    ] = None,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE", help="Where to write (-: stdout)."),
    ] = "-",
    beam_size: BeamSizeOption = None,
    length_penalty: LengthPenaltyOption = None,
    n_best: Annotated[
        int, typer.Option(min=1, help="Translations of each line (with tsv, jsonl or moses).")
    ] = 1,
    max_length: MaxLengthOption = None,
    batch_tokens: BatchTokensOption = None,
    buffer_lines: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Lines read before they are translated together; 1 answers line by line "
            "[1024; from a terminal 1].",
        ),
    ] = None,
    output_format: Annotated[
        OutputFormatChoice,
        typer.Option(
            "--format",
            help="text: a line for a line. tsv: index, source, translation, score. jsonl: an "
            "object a line. moses: index ||| translation ||| features ||| score.",
        ),
    ] = OutputFormatChoice.text,
    input_format: Annotated[
        InputFormatChoice,
        typer.Option(
            help='jsonl: objects with the text under "source"; their other fields are passed '
            "through to jsonl output."
        ),
    ] = InputFormatChoice.text,
    too_long: TooLongOption = TooLongChoice.in_parts,
    device: DeviceOption = "auto",
    precision: PrecisionOption = PrecisionChoice.auto,
    seed: SeedOption = 1,
    threads: ThreadsOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Translate lines: as many out as in, in order.

    Blank lines stay blank. In float32 a line's translation does not depend on its neighbours.
    """
    if n_best > 1 and output_format == OutputFormatChoice.text:
        raise UsageError(
            f"--n-best: {n_best} translations do not fit a line for a line; "
            "choose --format tsv, jsonl or moses"
        )
    if text and input_file is not None:
        raise UsageError("--input: texts to translate are given already; leave one of them out")
    counts = LineCounts()
    lines = _argument_lines(text, counts) if text else read_lines(input_file or "-", counts)
    from_terminal = not text and input_file in (None, "-") and sys.stdin.isatty()

    from tformer_cli.decoding.translator import BUFFER_LINES
    from tformer_cli.workflows import translate as workflow

    with _results(output) as write:
        opened = workflow.open_translator(
            model,
            device=device,
            precision=precision.value,
            threads=threads,
            seed=seed,
            too_long=too_long.value,
            beam_size=beam_size,
            length_penalty=length_penalty,
            n_best=n_best,
            max_length=max_length,
            batch_tokens=batch_tokens,
        )
        say_choices(opened, device, precision, quiet=quiet)
        translated = workflow.TranslationCounts()
        buffer = buffer_lines or (1 if from_terminal else BUFFER_LINES)
        output_lines = workflow.translated_text(
            opened.translator,
            lines,
            counts=translated,
            output_format=output_format.value,
            input_format=input_format.value,
            input_name="arguments" if text else _named(input_file),
            lists_hypotheses=n_best > 1,
            buffer_lines=buffer,
        )
        # A bar would be drawn over results on the same terminal
        hides_bar = from_terminal or (output == "-" and sys.stdout.isatty() and is_live())
        total = len(text) if text else _count_lines(input_file)
        start = monotonic()
        with line_progress(total, quiet=quiet or hides_bar) as progress:
            _write_all(output_lines, write, translated, buffer, progress.update)
    seconds = monotonic() - start
    rate = translated.lines / max(seconds, 1e-9)
    if not (text or from_terminal):
        note(f"{translated.lines:,} lines in {seconds:.1f} s, {rate:,.1f} lines/s", quiet=quiet)
    warn_of_lines(translated, counts)


def say_choices(opened: "Opened", device: str, precision: PrecisionChoice, *, quiet: bool) -> None:
    """Says what "auto" chose."""
    if device == "auto" or precision == PrecisionChoice.auto:
        note(f"{opened.device}, {opened.precision}", quiet=quiet)


def warn_of_lines(translated: "TranslationCounts", read: LineCounts) -> None:
    """Warns once of each kind of line that was not translated as it stood."""
    if read.not_utf8:
        warn(f"{_lines(read.not_utf8)} with bytes that are not UTF-8; they were read as U+FFFD")
    if translated.split:
        warn(f"{_lines(translated.split)} longer than the model takes, translated in parts")
    if translated.truncated:
        warn(f"{_lines(translated.truncated)} longer than the model takes, cut off")


@contextmanager
def _results(output: str) -> Iterator[BinaryIO]:
    """Opens stdout, or a file that is there whole in the end or not at all."""
    if output == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    from tformer_cli.artifacts.atomic import written_aside

    path = Path(output).resolve()
    if path.is_dir():
        raise UsageError(f"--output: is a directory ({output}): name a file")
    if path.exists() and not path.is_file():  # a device or a named pipe is written, not replaced
        with path.open("wb") as stream:
            yield stream
        return
    with written_aside(path) as aside, aside.open("wb") as stream:
        yield stream


def _write_all(
    output_lines: Iterable[str],
    stream: BinaryIO,
    translated: "TranslationCounts",
    buffer_lines: int,
    progress: Callable[[int], None],
) -> None:
    """Writes lines as UTF-8 and hands them on whenever a buffer is done."""
    for line in output_lines:
        stream.write(line.encode("utf-8", errors="replace") + b"\n")
        if translated.lines % buffer_lines == 0:
            stream.flush()
            progress(translated.lines)


def _argument_lines(texts: list[str], counts: LineCounts) -> Iterator[str]:
    """Reads arguments as lines; one that holds line ends is several."""
    lines = chain.from_iterable(text.removesuffix("\n").split("\n") for text in texts)
    return (decode_line(os.fsencode(line), counts) for line in lines)


def _count_lines(input_file: str | None) -> int | None:
    """Counts the lines of a file for the time that is left; nothing is known of a stream."""
    if input_file is None or not Path(input_file).is_file():
        return None
    return sum(1 for _ in read_lines(input_file))


def _named(input_file: str | None) -> str:
    return "stdin" if input_file in (None, "-") else str(input_file)


def _lines(n_lines: int) -> str:
    return f"{n_lines:,} line{'' if n_lines == 1 else 's'}"
