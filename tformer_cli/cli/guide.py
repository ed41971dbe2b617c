"""`tformer guide`: the guides that ship with the package."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tformer_cli.cli.completion import complete_topics
from tformer_cli.cli.console import stdout_console, utf8_line
from tformer_cli.cli.help_screen import show_list

if TYPE_CHECKING:
    from rich.console import Console


def guide(
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="TOPIC",
            help="The guide to print; without it, the topics are listed.",
            autocompletion=complete_topics,
        ),
    ] = None,
) -> None:
    """Print a guide, or list their topics.

    On a terminal a guide is formatted; elsewhere it is the Markdown itself.

    Examples:
        tformer guide
        tformer guide translating
        tformer guide formats > formats.md
    """
    from tformer_cli.workflows.guide import find_guide, guides

    if topic is None:
        show_list(stdout_console(), [(one.topic, one.summary) for one in guides()])
        return
    text = find_guide(topic).text
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(utf8_line(text.rstrip("\n")))
        return
    show_guide(stdout_console(), text)


def show_guide(console: "Console", text: str) -> None:
    """Prints a guide, its Markdown formatted."""
    from rich.markdown import Markdown

    console.print(Markdown(text, hyperlinks=False))
