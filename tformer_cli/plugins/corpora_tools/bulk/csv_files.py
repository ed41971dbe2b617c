"""CSV in shards by byte offset: records, which may have line ends, and a header for each shard."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tformer_cli.errors import DataError
from tformer_cli.text.csv_records import Dialect, dialect_of, start_of
from tformer_cli.text.fields import missing_field
from tformer_cli.text.lines import BLOCK_BYTES, open_bytes, readable, wide_encoding
from tformer_cli.wording import count_of, is_blank

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from tformer_cli.plugins.corpora_tools.bulk.shards import Fields

LONGEST_RECORD = 1 << 24
"""Bytes after which the end of a quote is given up."""


@dataclass(frozen=True)
class CsvHead:
    """The text before the rows of a file."""

    name: str
    data: bytes
    """All of it, with the byte order mark."""
    dialect: Dialect
    names: Sequence[str]

    def column(self, fields: Fields) -> int:
        """Returns the number of the column that is translated."""
        field = fields.of_source("csv")
        for ours, option in (
            (fields.translation, "--target-field"),
            (fields.score, "--score-field"),
        ):
            if ours and ours in self.names:  # a column of an index has no name
                raise DataError(
                    f'{self.name}: has a column "{ours}" already; choose another name with {option}'
                )
        if self.names.count(field) > 1:
            raise DataError(
                f'{self.name}: has several columns "{field}"; name one by its number with '
                "--source-field"
            )
        if field in self.names:
            return self.names.index(field)
        if field.isascii() and field.isdigit() and 0 < int(field) <= len(self.names):
            return int(field) - 1
        advice = "choose another by --source-field"
        raise missing_field(field, list(self.names), self.name, advice)

    def cells(self, line: str, number: int) -> list[str]:
        """Reads the cells of a row, of which `number` is that in the file, from 1."""
        (cells,) = self.dialect.records(line + "\n")
        texts = [
            self.dialect.decode_cell(line[cell.start : cell.end], is_quoted=cell.is_quoted)
            for cell in cells
        ]
        if len(texts) != len(self.names) and not all(map(is_blank, texts)):
            n_cells, expected = count_of(len(texts), "cell"), len(self.names)
            raise DataError(
                f"{self.name}, row {number}: has {n_cells}, but the header has {expected}; correct "
                "the row"
            )
        return texts

    def with_columns(self, line: str, added: Sequence[str]) -> str:
        """Adds cells at the end of a row, which has no line end, and ends as those of the file."""
        end = "\r" if self.data.endswith(b"\r\n") else ""
        return self.dialect.delimiter.join([line, *map(self.dialect.write_cell, added)]) + end

    def header(self, fields: Fields) -> bytes:
        """Writes the header of a shard."""
        line = self.data.decode(errors="replace").rstrip("\r\n")
        added = [fields.translation, *([fields.score] if fields.score else [])]
        return self.with_columns(line, added).encode() + b"\n"

    def records(self, stream: Iterable[bytes]) -> Iterator[bytes]:
        """Yields the rows of a stream that begins behind the head."""
        begun = b""
        for line in stream:
            begun += line
            place = 0
            # A byte is a character here: delimiters and quotes are those of ASCII
            for cells in self.dialect.records(begun.decode("latin-1")):
                if cells[-1].fault == "open" and len(begun) < LONGEST_RECORD:
                    break
                yield begun[place : cells[-1].after]
                place = cells[-1].after
            begun = begun[place:]
        if begun:
            quote = self.dialect.quote
            raise DataError(f"{self.name}: its last row has a quote ({quote}) that does not end")


def read_head(path: Path, name: str) -> CsvHead:
    """Recognizes the dialect of a file and reads the names of its columns."""
    with readable(name), open_bytes(path) as stream:
        block = stream.read(BLOCK_BYTES)
    if encoding := wide_encoding(block):
        raise DataError(
            f"{name}: is in {encoding.upper()}; convert it: iconv -f {encoding.upper()} -t UTF-8"
        )
    mark = codecs.BOM_UTF8 if block.startswith(codecs.BOM_UTF8) else b""
    block = block.removeprefix(mark)
    # A character that is cut at the end of the block does not matter: bytes are characters here
    text = block.decode("latin-1")
    dialect, (start, _) = dialect_of(text), start_of(text)
    for cells in dialect.records(text, start):
        raw = [(text[cell.start : cell.end], cell.is_quoted) for cell in cells]
        names = [dialect.decode_cell(value, is_quoted=is_quoted) for value, is_quoted in raw]
        if not all(map(is_blank, names)):
            names = [name.encode("latin-1").decode(errors="replace").strip() for name in names]
            return CsvHead(name, mark + block[: cells[-1].after], dialect, names)
    return CsvHead(name, mark + block, dialect, [])
