"""`tformer tokenize`: train, run and measure tokenizers."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tformer_cli.cli.command import CommandGroup
from tformer_cli.cli.format_choice import text_or_json
from tformer_cli.cli.options import (
    REQUIRED,
    OutputOption,
    QuietOption,
    argument,
    option_field,
)
from tformer_cli.cli.progress import LineProgress, line_progress
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    check_stdin_is_read_once,
    file_lines,
    note,
    prompt_at_terminal,
    results,
    stdout_console,
    utf8_line,
    warn_of_bytes,
    write_line,
)
from tformer_cli.errors import UsageError
from tformer_cli.text.config import Algorithm
from tformer_cli.text.tokenizer import MOST_PIECES, Normalization, read_tokenizer
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from rich.console import Console

    from tformer_cli.plugins.corpora_tools.tokenize import TokenizerStatistics
    from tformer_cli.text.lines import LineCounts

tokenize_app = CommandGroup(
    "tokenize",
    help="Train, apply and measure tokenizers.\n\nExamples:\n"
    "  tformer tokenize train a.en a.fr -o tokenizer.json\n"
    "  tformer tokenize encode tokenizer.json -i a.en > a.pieces",
)


SCHEMA = "tformer.tokenizer/1"
TOKENIZER = argument("TOKENIZER", "A tokenizer.json, or a model.", role="reads_tokenizer")
FILES = argument("FILE…", "Text, also .gz, .xz, .bz2 and .zst; - is stdin.", role="reads_file")
INPUT = option_field(
    None,
    "Input file, also .gz, .xz, .bz2 and .zst; - is stdin.",
    *("--input", "-i"),
    role="reads_file",
    shown="stdin",
)
IDS = option_field(False, "Use token ids instead of pieces.")
SIDE: Literal["source", "target"] = option_field(
    "source", "Side of the text, for a model with a tokenizer for each side."
)


@tokenize_app.add("train")
def train(
    files: list[str] = FILES,
    *,
    output: Path = option_field(
        REQUIRED,
        "The tokenizer.json to write; - is stdout.",
        "-o",
        role="writes_file",
        holds=("tokenizer",),
    ),
    algorithm: Algorithm = option_field(
        "bpe", "bpe, unigram and byte can represent any text; word and char cannot."
    ),
    vocab_size: int = option_field(
        8000,
        "Vocabulary size, including the 4 special tokens; byte always has 260.",
        min=5,
        max=MOST_PIECES,
    ),
    normalization: Normalization = option_field(
        "nfc",
        "nfc composes letters and accents; models trained with it also read every space in the "
        "source as a plain space, and ignore soft hyphens and the like. none changes nothing.",
    ),
    quiet: QuietOption = False,
) -> None:
    """Train one joint tokenizer on all lines of all files.

    Examples:
        tformer tokenize train train.en train.fr -o tokenizer.json --vocab-size 8000
        tformer tokenize train train.en -o unigram.json --algorithm unigram
    """
    from tformer_cli.plugins.corpora_tools import tokenize
    from tformer_cli.text.config import TokenizerConfig

    try:
        config = TokenizerConfig(
            algorithm=algorithm, vocab_size=vocab_size, normalization=normalization
        )
    except ValueError as error:
        # The error begins with the name of a field; the user typed an option
        raise UsageError(str(error).replace("vocab_size", "--vocab-size", 1)) from None
    to_stdout = str(output) == STANDARD_STREAM
    prompt_at_terminal(files=files, quiet=quiet)
    check_stdin_is_read_once(files)
    with results(output) as stream:
        with line_progress(None, "reading", quiet=quiet) as progress:
            trained = tokenize.train(files, config, progress=progress.update)
        stream.write(trained.tokenizer.to_json().encode("utf-8"))
    warn_of_bytes(trained.lines)
    for remark in trained.tokenizer.notes:
        note(remark, quiet=quiet)
    note(
        f"{algorithm}: {trained.tokenizer.vocab_size:,} pieces from "
        f"{count_of(trained.lines.lines, 'line')}"
        + ("" if to_stdout else f", written to {output}"),
        quiet=quiet,
    )


@tokenize_app.add("encode")
def encode(
    tokenizer: Path = TOKENIZER,
    *,
    input_file: str | None = INPUT,
    output: OutputOption = STANDARD_STREAM,
    ids: bool = IDS,
    side: Literal["source", "target"] = SIDE,
    quiet: QuietOption = False,
) -> None:
    """Encode lines of text into pieces or ids, separated by single spaces.

    Examples:
        echo "The old house." | tformer tokenize encode runs/quickstart
        tformer tokenize encode tokenizer.json -i a.en --ids > a.ids
    """
    from tformer_cli.plugins.corpora_tools.tokenize import encode_lines

    opened = read_tokenizer(tokenizer)
    prompt_at_terminal(files=[input_file or STANDARD_STREAM], quiet=quiet)
    _stream(input_file, output, lambda lines, _: encode_lines(opened, lines, ids=ids, side=side))


@tokenize_app.add("decode")
def decode(
    tokenizer: Path = TOKENIZER,
    *,
    input_file: str | None = INPUT,
    output: OutputOption = STANDARD_STREAM,
    ids: bool = IDS,
    side: Literal["source", "target"] = SIDE,
    quiet: QuietOption = False,
) -> None:
    """Decode lines of pieces or ids into text.

    Examples:
        tformer tokenize decode tokenizer.json -i a.ids --ids
        tformer tokenize encode tokenizer.json -i a.en | tformer tokenize decode tokenizer.json
    """
    from tformer_cli.plugins.corpora_tools.tokenize import decode_lines

    opened = read_tokenizer(tokenizer)
    what = "ids" if ids else "pieces"
    prompt_at_terminal(what, [input_file or STANDARD_STREAM], quiet=quiet)
    _stream(
        input_file,
        output,
        lambda lines, number: decode_lines(opened, lines, ids=ids, first_line=number, side=side),
    )


@tokenize_app.add("stats")
def stats(
    tokenizer: Path = TOKENIZER,
    files: list[str] = FILES,
    *,
    side: Literal["source", "target"] = SIDE,
    format_: str = text_or_json("A table, or one JSON object."),
    quiet: QuietOption = False,
) -> None:
    """Measure a tokenizer: pieces per word, unknown rate, vocabulary use, round trip.

    Examples:
        tformer tokenize stats tokenizer.json train.en train.fr
        tformer tokenize stats runs/quickstart test.en --format json
    """
    from tformer_cli.plugins.corpora_tools.tokenize import measure
    from tformer_cli.text.lines import LineCounts, read_lines

    opened = read_tokenizer(tokenizer)
    prompt_at_terminal(files=files, quiet=quiet)
    counts = LineCounts()
    statistics = {}
    with line_progress(None, "measuring", quiet=quiet) as progress:
        for file in files:
            lines = _report(read_lines(file, counts), counts, progress)
            statistics[file] = measure(opened, lines, side)
    warn_of_bytes(counts)
    if format_ == "json":
        _show_json(opened.algorithm, opened.side(side).vocab_size, statistics)
    else:
        show_statistics(stdout_console(), statistics)


def _report(lines: Iterable[str], counts: "LineCounts", progress: LineProgress) -> Iterator[str]:
    """Yields lines and updates the progress by the lines read of all files."""
    for line in lines:
        progress.update(counts.lines)
        yield line


def _stream(file: str | None, output: str, work: Callable[[Sequence[str], int], list[str]]) -> None:
    """Writes a line for each of a file or stdin, answering whenever stdin pauses."""
    from tformer_cli.text.lines import LineCounts, groups_of_lines

    counts = LineCounts()
    if file in (None, STANDARD_STREAM):
        groups = groups_of_lines(sys.stdin.buffer, counts)
    else:
        read = file_lines(file, counts)
        # A file never pauses: groups of a fixed size need little memory
        groups = iter(lambda: list(islice(read, 1024)), [])
    number = 1
    with results(output) as stream:
        for lines in groups:
            stream.writelines(map(utf8_line, work(lines, number)))
            # A program that talks with this one through pipes waits for each answer
            stream.flush()
            number += len(lines)
    warn_of_bytes(counts)


def _show_json(
    algorithm: str, vocab_size: int, statistics: "dict[str, TokenizerStatistics]"
) -> None:
    import json

    files = [{"file": file, **statistics.summary()} for file, statistics in statistics.items()]
    head = {"schema": SCHEMA, "algorithm": algorithm, "vocab_size": vocab_size}
    write_line(json.dumps({**head, "files": files}, ensure_ascii=False, indent=2))


def show_statistics(console: "Console", statistics: "dict[str, TokenizerStatistics]") -> None:
    """Prints a line for each measure and a column for each file; columns may continue below."""
    from tformer_cli.show.document import Table
    from tformer_cli.show.terminal import cut, is_ascii_only, show_blocks, show_text

    summaries = [statistics.summary() for statistics in statistics.values()]
    names = [name.replace("_", " ") for name in summaries[0]]
    is_ascii = is_ascii_only(console)
    most = console.width - max(map(len, names)) - 2
    # Long paths are cut at the beginning: their ends distinguish files
    ends = (show_text(file, is_ascii=is_ascii)[::-1] for file in statistics)
    heads = (cut(end, most, is_ascii=is_ascii)[::-1] for end in ends)
    rows = [
        [label, *(_format_value(name, summary[name]) for summary in summaries)]
        for label, name in zip(names, summaries[0], strict=True)
    ]
    show_blocks(console, [Table(head=("", *heads), rows=rows, labels=(), texts=(0,))])


def _format_value(name: str, value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.2f}" if name.startswith("pieces_per") else f"{value:.2%}"
