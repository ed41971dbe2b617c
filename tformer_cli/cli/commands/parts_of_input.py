"""`--shard` and `--resume` of `translate`: the lines of a file that this run translates."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tformer_cli.cli.commands.translate_options import FileOptions
from tformer_cli.cli.streams import STANDARD_STREAM, check_not_compressed, note, results
from tformer_cli.errors import UsageError
from tformer_cli.text.lines import read_lines, shard_range
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from tformer_cli.artifacts.resumable import ResumableFiles


def parse_shard(text: str) -> tuple[int, int]:
    """Reads I/N, I from 0; launchers provide it as `--shard $RANK/$WORLD_SIZE`."""
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise UsageError(f'--shard: "{text}" is not I/N with I from 0 to N - 1; write 0/4')
    return int(match[1]), int(match[2])


def chosen_lines(
    lines: Iterator[str], file: str | None, shard: str | None
) -> tuple[range, Iterator[str]]:
    """Returns the numbers of the lines to translate, and these lines."""
    if shard is None:
        return range(0), lines
    index, count = parse_shard(shard)
    n_lines = count_lines(file)
    if n_lines is None:
        raise UsageError("--shard: the lines have to be counted first; give a file with --input")
    chosen = shard_range(n_lines, index, count)
    return chosen, islice(lines, chosen.start, chosen.stop)


def count_lines(file: str | None) -> int | None:
    """Counts the lines of a file; None for a stream, which can be read only once."""
    if file is None or not Path(file).is_file():
        return None
    return sum(1 for _ in read_lines(file))


@contextmanager
def opened_output(
    files: FileOptions, model: Path, settings: Mapping[str, object], *, resume: bool
) -> Iterator[tuple[BinaryIO, "ResumableFiles | None"]]:
    """Opens the output as `results` does or, to resume, behind the lines that are done."""
    output, input_file = files.output, files.input_file
    if not resume:
        with results(output) as stream:
            yield stream, None
        return
    if output == STANDARD_STREAM or input_file is None or not Path(input_file).is_file():
        raise UsageError("--resume: works from a file to a file; give --input and --output")
    from tformer_cli.artifacts.config_file import WEIGHTS
    from tformer_cli.artifacts.resumable import resumable_file
    from tformer_cli.files.regular_file import hash_file

    if Path(output).is_dir():
        raise UsageError(f"--output: {output} is a directory; name a file")
    check_not_compressed(output)
    origin = {
        "input": hash_file(Path(input_file)),
        "model": hash_file(model / WEIGHTS) if (model / WEIGHTS).is_file() else "",
        "settings": json.dumps(settings, sort_keys=True, default=str),
    }
    with resumable_file(Path(output).resolve(), origin) as file:
        if file.done:
            note(f"{output}.part: {count_of(file.done, 'line')} done; resuming after them")
        yield file.stream, file
