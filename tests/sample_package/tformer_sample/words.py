"""`tformer count-words`: a command."""

from tformer_cli.cli.known_commands import Command
from tformer_cli.cli.options import QuietOption, option_field
from tformer_cli.cli.streams import input_lines, warn_of_bytes, write_line
from tformer_cli.text.lines import LineCounts


def count_words(
    *,
    input_file: str | None = option_field(
        None, "Input file.", "--input", "-i", role="reads_file", shown="stdin"
    ),
    quiet: QuietOption = False,
) -> None:
    """Count the words of each line.

    Examples:
        tformer count-words -i train.en
    """
    counts = LineCounts()
    for line in input_lines(None, input_file, counts, "--input", quiet=quiet):
        write_line(str(len(line.split())))
    warn_of_bytes(counts)


COMMAND = Command("tformer_sample.words:count_words", "Count the words of each line.")
