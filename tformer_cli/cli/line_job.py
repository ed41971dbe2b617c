"""Commands that read lines (texts or names of images) and write a model's results."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, BinaryIO

from tformer_cli.cli.options import OutputOption, option_field
from tformer_cli.cli.progress import line_progress, shares_terminal
from tformer_cli.cli.streams import STANDARD_STREAM, stdin_is_terminal, utf8_line
from tformer_cli.settings import dataclass
from tformer_cli.text.lines import read_lines

if TYPE_CHECKING:
    from tformer_cli.kinds.lines.job import ResultCounts


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """Input and output."""

    input_file: str | None = option_field(
        None,
        "Input file, one sentence per line; - is stdin.",
        "--input",
        "-i",
        shown="stdin",
        role="reads_file",
    )
    output: OutputOption = STANDARD_STREAM

    def is_stdin(self, texts: list[str] | None) -> bool:
        """Returns whether the lines come from stdin, which the arguments may also ask for."""
        return self.input_file in (None, STANDARD_STREAM) and (
            not texts or texts == [STANDARD_STREAM]
        )

    def is_typed(self, texts: list[str] | None) -> bool:
        return self.is_stdin(texts) and stdin_is_terminal()

    def count(self, texts: list[str] | None) -> int | None:
        return None if self.is_stdin(texts) else count_lines(self.input_file)


def render_buffers(
    buffers: Iterable[Iterable[Any]], counts: "ResultCounts", render: Callable[[Any], str | None]
) -> Iterator[list[str]]:
    """Yields the lines of each buffer's results, and counts these; None is no line."""
    for buffer in buffers:
        lines = []
        for result in buffer:
            counts.add(result)
            if (line := render(result)) is not None:
                lines.append(line)
        yield lines


def write_lines(
    stream: BinaryIO,
    buffers: Iterable[Iterable[str]],
    counts: "ResultCounts",
    *,
    doing: str = "translating",
    output: str,
    total: Callable[[], int | None] = lambda: None,
    is_hidden: bool,
) -> float:
    """Writes lines a buffer at a time while `counts` grow, and shows the progress."""
    # On the same terminal a bar would be drawn into the results
    is_hidden = is_hidden or shares_terminal(output)
    # Counting reads the whole file, so it is done only if the number is shown
    n_lines = None if is_hidden else total()
    start = monotonic()
    with line_progress(n_lines, doing, quiet=is_hidden) as progress:
        for lines in buffers:
            stream.writelines(map(utf8_line, lines))
            # The reader of a pipe gets each buffer when it is done
            stream.flush()
            progress.update(counts.lines)
    return monotonic() - start


def count_lines(file: str | None) -> int | None:
    """Counts the lines of a file; None for a stream, which can be read only once."""
    if file is None or not Path(file).is_file():
        return None
    return sum(1 for _ in read_lines(file))
