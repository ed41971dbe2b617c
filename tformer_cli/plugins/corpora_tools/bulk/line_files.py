"""Files of lines in shards by byte offset: text, TSV, CSV and JSONL."""

import codecs
import hashlib
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from tformer_cli.errors import DataError
from tformer_cli.files.atomic import written_aside
from tformer_cli.files.regular_file import hash_file
from tformer_cli.plugins.corpora_tools.bulk.csv_files import CsvHead, read_head
from tformer_cli.plugins.corpora_tools.bulk.shards import (
    CorpusKind,
    Fields,
    Source,
    Task,
    file_state,
)
from tformer_cli.search.constraints import NO_CONSTRAINTS, LineConstraints, constraints_of
from tformer_cli.search.formats import TSV_ENDS, json_line, read_record
from tformer_cli.search.translator import Translation
from tformer_cli.text.corpora import corpus_file
from tformer_cli.text.fields import missing_field, names_in, text_of, value_at
from tformer_cli.text.lines import (
    BLOCK_BYTES,
    LineCounts,
    check_text,
    compressed_ending,
    decode_line,
    open_bytes,
    readable,
)
from tformer_cli.wording import count_of, is_blank


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A line to translate."""

    text: str | None
    """None: a null of JSONL, which has no translation."""
    demands: LineConstraints = NO_CONSTRAINTS
    kept: Any = None
    """The row that the translation is added to: the line of TSV or CSV, the record of JSONL."""
    head: CsvHead | None = None
    """The start of a CSV file."""

    @property
    def lines(self) -> list[str]:
        """Returns its text and, of a cell of CSV with line ends, these as every second one."""
        return [self.text or ""] if self.head is None else _LINE_END.split(self.text or "")


_LINE_END = re.compile(r"(\r\n|\n|\r)")


def scan_lines(
    name: str,
    kind: CorpusKind,
    fields: Fields,
    lines_per_shard: int,
    progress: Callable[[int], None],
) -> tuple[Source, list[int]]:
    """Reads a file once: every line is one that can be translated, or none will be."""
    path = corpus_file(name, "").absolute()
    state = file_state(path)  # before it is read: a change meanwhile is noticed
    head = read_head(path, name) if kind == "csv" else None
    read_row = _row_reader(kind, fields, name, head)
    digest, offset, number = hashlib.sha256(), 0, 0
    starts: list[int] = []
    with readable(name), open_bytes(path) as stream:
        check_text(stream.read(BLOCK_BYTES), name)
    # Opened again, for zstd is not read from where it was read before
    with readable(name), open_bytes(path) as stream:
        if head is not None:
            digest.update(stream.read(len(head.data)))
            offset = len(head.data)
        for number, line in enumerate(head.records(stream) if head else stream, 1):
            if (number - 1) % lines_per_shard == 0:
                starts.append(offset)
                progress(number - 1)
            if kind != "text":  # any line of text can be translated
                read_row(_decode_row(line, number - 1, LineCounts()), number - 1)
            digest.update(line)
            offset += len(line)
    progress(number)
    scanned = Source(
        kind=kind, name=name, path=str(path), rows=number, content=digest.hexdigest(), state=state
    )
    return scanned, starts


def unpack_source(source: Source, directory: Path, number: int) -> Source:
    """Decompresses a source, if it is compressed, into a file that can be read from its middle."""
    if not compressed_ending(source.path):
        return source
    # A compressed file cannot be read from its middle; the copy stays until all shards are done
    copy = unpacked_path(directory, number)
    if not copy.is_file() or hash_file(copy) != source.content:  # an earlier run may have left it
        with (
            written_aside(copy) as aside,
            aside.open("wb") as file,
            readable(source.name),
            open_bytes(source.path) as stream,
        ):
            shutil.copyfileobj(stream, file, BLOCK_BYTES)
    return replace(source, path=str(copy), state=file_state(copy))


def unpacked_path(directory: Path, number: int) -> Path:
    """The place of a decompressed source."""
    return directory / f"source-{number:05d}.unpacked"


def read_rows(task: Task, counts: LineCounts) -> Iterator[Row]:
    """Yields the lines of a shard."""
    shard, source = task.shard, task.source
    head = _head(source)
    read_row = _row_reader(source.kind, task.fields, source.name, head)
    with readable(source.name), Path(source.path).open("rb") as stream:
        stream.seek(shard.start)
        records = head.records(stream) if head else stream
        lines = islice(records, shard.skipped, shard.skipped + shard.rows)
        for number, line in enumerate(lines, shard.first):  # messages name the line of the file
            yield read_row(_decode_row(line, number, counts), number)


def _head(source: Source) -> CsvHead | None:
    return read_head(Path(source.path), source.name) if source.kind == "csv" else None


def header_of(task: Task) -> bytes:
    """Writes what stands above the rows of a shard."""
    head = _head(task.source)
    return b"" if head is None else head.header(task.fields)


def write_row(
    row: Row, translations: Sequence[Translation], kind: CorpusKind, fields: Fields
) -> str:
    """Writes the translations of a row's lines with what is kept of it, without a line end."""
    best = translations[0].hypotheses[0]
    if kind == "text":
        return best.text
    if kind == "tsv":
        cells = [row.kept, best.text.translate(TSV_ENDS)]  # a tab or line end would split them
        return "\t".join(cells + [f"{best.score:.6f}"] * bool(fields.score))
    if row.head is not None:
        hypotheses = [translation.hypotheses[0] for translation in translations]
        texts = row.lines
        texts[::2] = [hypothesis.text for hypothesis in hypotheses]
        score = min(hypothesis.score for hypothesis in hypotheses)  # that of the worst
        added = ["".join(texts), *([f"{score:.6f}"] * bool(fields.score))]
        return row.head.with_columns(row.kept, added if row.text is not None else ())
    ours: dict[str, Any] = {fields.translation: None if row.text is None else best.text}
    if fields.score:
        ours[fields.score] = None if row.text is None else best.score
    return json_line({**row.kept, **ours})


def _decode_row(line: bytes, number: int, counts: LineCounts) -> str:
    return decode_line(line if number else line.removeprefix(codecs.BOM_UTF8), counts)


def _row_reader(
    kind: CorpusKind, fields: Fields, name: str, head: CsvHead | None = None
) -> Callable[[str, int], Row]:
    """Makes what reads a line, given its number from 0."""
    if kind == "text":
        return lambda line, _: Row(text=line)
    field = fields.of_source(kind)
    if head is not None:
        chosen = head.column(fields)

        def read_csv_row(line: str, number: int) -> Row:
            cells = head.cells(line, number + 1)
            # A line without a cell stays blank
            text = None if all(map(is_blank, cells)) else cells[chosen]
            return Row(text=text, kept=line, head=head)

        return read_csv_row
    if kind == "jsonl":
        return lambda line, number: _record(line, number, field, fields, name)
    if not (field.isascii() and field.isdigit() and int(field)):  # `isdigit` takes ², `int` not
        raise DataError(f'--source-field: must be a column of TSV from 1, but is "{field}"')
    column, n_columns = int(field), 0

    def read_cells(line: str, number: int) -> Row:
        nonlocal n_columns
        cells = line.split("\t")
        n_columns = n_columns or len(cells)
        if len(cells) < column:
            fault = f"column {field} is asked for"
        elif len(cells) != n_columns:  # its translation would be in another column
            fault = f"the lines before it have {n_columns}; correct the line"
        else:
            return Row(text=cells[column - 1], kept=line)
        width = count_of(len(cells), "column")
        raise DataError(
            f"{name}, line {number + 1}: has {width}, but {fault}; columns are split at tabs"
        )

    return read_cells


def _record(line: str, number: int, field: str, fields: Fields, name: str) -> Row:
    where = f"{name}, line {number + 1}"
    record = {field: ""} if is_blank(line) else read_record(line, where)  # lines stay in step
    for ours, option in ((fields.translation, "--target-field"), (fields.score, "--score-field")):
        if ours in record:
            raise DataError(
                f'{where}: has a field "{ours}" already; choose another name with {option}'
            )
    demands = constraints_of(record, f"{name}:{number + 1}")
    try:
        is_null = value_at(record, field) is None
    except KeyError:
        advice = "choose another by --source-field"
        raise missing_field(field, list(names_in(record)), where, advice) from None
    if is_null:
        return Row(text=None, kept=record)
    return Row(text=text_of(record, field, where), demands=demands, kept=record)
