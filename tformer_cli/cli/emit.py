"""Results of the inspection commands: one of their formats, to stdout or a file."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from tformer_cli.cli.console import utf8_line
from tformer_cli.cli.text_io import results, text_console

if TYPE_CHECKING:
    from rich.console import Console

Part = bytes | str
"""Bytes as they are, or a line of text without its end."""


def emit(
    output: str,
    chosen: str,
    *,
    show: "Callable[[Console], None]",
    others: Mapping[str, Callable[[], Iterable[Part]]],
    after_text: str = "",
) -> None:
    """Writes a result; a file is there whole in the end or not at all.

    Args:
        output: what `--output` says.
        chosen: the format.
        show: prints the result, fitted to the width, where the format is "text".
        others: for each other format the parts of the result, each written as it comes.
        after_text: more text, which is neither wrapped nor styled.
    """
    with results(output) as stream:
        if chosen == "text":
            show(text_console(output, stream))
            stream.write(after_text.encode("utf-8", "replace"))
            return
        for part in others[chosen]():
            stream.write(part if isinstance(part, bytes) else utf8_line(part))
            stream.flush()


def page_bytes(page: str) -> bytes:
    """Encodes a page; lone surrogates, which no file can hold, become question marks."""
    return page.encode("utf-8", "replace")
