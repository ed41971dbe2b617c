"""The format of a result: by `--format`, else by FILE's name, else by the kind of stdout.

One rule for all commands: text on a terminal or in a file, a format for programs in a pipe.
"""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from tformer_cli.cli.options import one_of
from tformer_cli.cli.streams import STANDARD_STREAM, is_regular_file, text_console, utf8_line
from tformer_cli.errors import UsageError
from tformer_cli.settings import Option, declare
from tformer_cli.show.delimited import delimited_lines
from tformer_cli.show.figure_files import FIGURES

if TYPE_CHECKING:
    from tformer_cli.show.document import Document

Format = TypeVar("Format", bound=str)


# The endings of files in each format, the one to recommend first.
ENDINGS: dict[str, tuple[str, ...]] = {
    "text": ("txt", "text", "log"),
    "json": ("json", "jsonl", "ndjson"),
    "jsonl": ("jsonl", "json", "ndjson"),
    "html": ("html", "htm"),
    "markdown": ("md", "markdown"),
    "latex": ("tex",),
    "svg": ("svg",),
    "png": ("png",),
    "pdf": ("pdf",),
    "csv": ("csv",),
    "npz": ("npz",),
    "npy": ("npy",),
    "safetensors": ("safetensors",),
    "tsv": ("tsv",),
    "pharaoh": ("align", "pharaoh", "txt", "text", "log"),
}
# Endings of formats that no command here writes.
WITHOUT_FORMAT = (
    *("eps", "ps", "jpg", "jpeg", "gif", "webp", "bmp", "tif", "tiff"),
    *("xlsx", "ods", "parquet", "arrow", "xml", "yaml", "yml", "toml"),
    *("doc", "docx", "odt", "rtf", "ppt", "pptx"),
    *("pt", "pth", "pkl", "onnx", "h5", "gz", "xz", "bz2", "zst", "zip", "tar"),
)

# Formats other than text.
BINARY = ("npy", "npz", "pdf", "png", "safetensors")


def format_option(
    formats: Iterable[str],
    in_a_pipe: str | None = None,
    what: str = "Output format.",
    panel: str | None = None,
) -> Option:
    """Declares the option `--format`."""
    shown = None
    if in_a_pipe == "text":
        shown = "text; or by FILE's name"
    elif in_a_pipe is not None:
        shown = f"text on a terminal or into a file, {in_a_pipe} in a pipe; or by FILE's name"
    return Option(
        what,
        panel,
        names=("--format",),
        parser=one_of(formats),
        metavar="|".join(formats),
        complete=lambda: list(formats),
        shown_default=shown,
    )


def text_or_json(what: str) -> str:
    """Declares `--format` of a single result: a table to read, or one JSON object."""
    return declare("text", format_option(("text", "json"), what=what))


def chosen_format(
    choice: Format | None, output: str, formats: Iterable[Format], in_a_pipe: Format
) -> Format:
    """Chooses a format where none is given: by the file's name, else by the kind of output."""
    # A file that stdout was redirected to is for people, like one that is named
    if output == STANDARD_STREAM:
        is_for_people = sys.stdout.isatty() or is_regular_file(sys.stdout)
    else:
        # Though a format is given: JSON in a file called .png is a slip, too
        check_ending(output, formats if choice is None else [choice])
        is_for_people = not _is_special(Path(output))
    if choice is not None:
        return choice
    ending = "" if output == STANDARD_STREAM else _ending(output)
    # of a command's formats at most one has an ending as its first
    by_rank = sorted(formats, key=lambda name: ENDINGS[name][:1] != (ending,))
    text = next(name for name in by_rank if name == "text")
    otherwise = text if is_for_people else in_a_pipe
    return next((name for name in by_rank if ending in ENDINGS[name]), otherwise)


def format_by_name(choice: Format | None, output: str, formats: Sequence[Format]) -> Format:
    """Chooses a format where none is given: by the file's name, else the first."""
    check_ending(output, formats if choice is None else [choice])
    ending = "" if output == STANDARD_STREAM else _ending(output)
    named = next((name for name in formats if ending in ENDINGS[name]), formats[0])
    chosen = named if choice is None else choice
    check_format(chosen, output)
    return chosen


def check_format(chosen: str, output: str, *, draws_svg: bool = True) -> None:
    """Checks that a format can be written: where it goes, and that a figure's package is here."""
    if draws_svg and chosen in FIGURES:
        FIGURES[chosen].check()
    # Raw bytes would upset the terminal
    if chosen in BINARY and output == STANDARD_STREAM and sys.stdout.isatty():
        raise UsageError(f"--format {chosen}: is not text for a terminal; name a file with -o FILE")


def write_result(
    stream: BinaryIO,
    output: str,
    chosen: str,
    record: Callable[[], object],
    document: Callable[[], "Document"],
    indent: int | None = None,
    rows: Callable[[], Iterable[Sequence[object]]] | None = None,
) -> None:
    """Writes a result: its record as JSON, its rows as CSV, or its document as another format."""
    if chosen == "json":
        text = json.dumps(record(), ensure_ascii=False, indent=indent)
        stream.write(utf8_line(text))
    elif chosen == "text":
        from tformer_cli.show.terminal import show_document

        show_document(text_console(output, stream), document())
    elif chosen == "csv" and rows is not None:
        stream.writelines(map(utf8_line, delimited_lines(rows(), chosen)))
    elif chosen in FIGURES:
        from tformer_cli.show.figure import render_document

        figure = FIGURES[chosen].render(render_document(document()))
        stream.write(figure if isinstance(figure, bytes) else figure.encode())
    else:
        from tformer_cli.show.html import render_html
        from tformer_cli.show.markup import render_latex, render_markdown

        renderers = {"html": render_html, "latex": render_latex, "markdown": render_markdown}
        stream.write(utf8_line(renderers[chosen](document()).removesuffix("\n")))


def check_ending(output: str, formats: Iterable[str]) -> None:
    """Checks that a file's name does not have the ending of another format."""
    # Any format may be written to a name without an ending, or with one of no known format.
    chosen = list(formats)
    fitting = {ending for choice in chosen for ending in ENDINGS[choice]}
    ending = _ending(output)
    known = {*WITHOUT_FORMAT, *(name for names in ENDINGS.values() for name in names)}
    if output == STANDARD_STREAM or ending in fitting or ending not in known:
        return
    names = ", ".join(f".{name}" for name in dict.fromkeys(ENDINGS[choice][0] for choice in chosen))
    raise UsageError(
        f"--output: {output}: cannot write .{ending}; name a file that ends in {names}"
    )


def _is_special(path: Path) -> bool:
    """True for a device or a named pipe, from which programs read."""
    try:
        return not S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):  # a file that is not there yet, or a name that cannot be
        return False


def _ending(output: str) -> str:
    return Path(output).suffix.removeprefix(".").lower()
