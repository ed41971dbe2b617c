"""Rows as lines for programs: cells between tabs, or CSV."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO


def delimited_lines(rows: Iterable[Sequence[object]], output_format: str) -> Iterator[str]:
    """Writes rows as lines of `tsv` or `csv` (RFC 4180, lines end in a line feed); None is empty.

    Yields lines without their ends. A quoted cell of CSV may hold line ends.
    """
    for row in rows:
        cells = ["" if cell is None else str(cell) for cell in row]
        if output_format == "tsv":
            yield "\t".join(cells)
        else:
            line = StringIO(newline="")
            csv.writer(line, lineterminator="\n").writerow(cells)
            yield line.getvalue().removesuffix("\n")
