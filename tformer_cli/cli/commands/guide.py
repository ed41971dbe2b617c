"""`tformer guide`: the guides that ship with the package."""

import sys
from typing import TYPE_CHECKING, Annotated

from tformer_cli.cli.format_choice import check_ending
from tformer_cli.cli.help import show_list
from tformer_cli.cli.options import Holds, OutputOption, QuietOption, argument, complete_topics
from tformer_cli.cli.streams import STANDARD_STREAM, print_paged, results, stdout_console, utf8_line
from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions
    from rich.text import Text


def guide(
    topic: str | None = argument(
        "TOPIC",
        "The guide to print; without it, the topics are listed.",
        default=None,
        complete=complete_topics,
    ),
    *,
    output: Annotated[OutputOption, Holds({"text", "HTML"})] = STANDARD_STREAM,
    quiet: QuietOption = False,
) -> None:
    """Print a guide, or list the topics.

    On a terminal a guide is formatted and shown by $PAGER, unless --quiet; elsewhere it is the
    Markdown itself. sample-report is a report page, to open in a browser without training a model.

    Examples:
        tformer guide
        tformer guide translating
        tformer guide sample-report -o report.html
    """
    from tformer_cli.workflows.guide import SAMPLE, find_guide, guides, sample_report

    is_on_terminal = output == STANDARD_STREAM and sys.stdout.isatty()
    if topic is None:
        if output != STANDARD_STREAM:
            raise UsageError("--output: there is no guide to write; name a TOPIC")
        rows = [(one.topic, one.summary) for one in guides()]
        show_list(stdout_console(), [*rows, (SAMPLE, "A report page to open; needs -o FILE.")])
        return
    if topic == SAMPLE:
        if is_on_terminal:
            raise UsageError("--output: a page is not for a terminal; name a file with -o FILE")
        check_ending(output, ["html"])
        text = sample_report()
    else:
        text = find_guide(topic).text
    if is_on_terminal:
        show_guide(stdout_console(), text, is_paged=not quiet)
        return
    with results(output) as stream:
        stream.write(utf8_line(text.rstrip("\n")))


def show_guide(console: "Console", text: str, *, is_paged: bool = False) -> None:
    """Prints a guide, its Markdown formatted, but lines of code whole: they can be copied."""
    from rich.markdown import CodeBlock, Markdown
    from rich.text import Text

    class WholeLines(CodeBlock):
        """Code whose long lines the terminal wraps, without a line end."""

        def __rich_console__(
            self, console: "Console", options: "ConsoleOptions"
        ) -> "Iterator[Text]":
            code = str(self.text).rstrip()
            yield Text(code, style="cyan", no_wrap=True, overflow="ignore")

    guide = Markdown(text, hyperlinks=False)
    guide.elements = {**guide.elements, "fence": WholeLines, "code_block": WholeLines}  # type: ignore[misc]
    print_paged(console, guide, is_paged=is_paged)
