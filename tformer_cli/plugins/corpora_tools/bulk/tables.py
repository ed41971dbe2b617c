"""Tables in shards by rows: Parquet files, and whatever else `datasets` reads.

All columns are kept with their types; the table of a shard has one or two more. A row without a
text (null) has no translation.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tformer_cli.errors import DataError
from tformer_cli.files.regular_file import hash_file
from tformer_cli.plugins.corpora_tools.bulk.shards import Fields, Source, Task, file_state
from tformer_cli.text.corpora import corpus_file, format_of
from tformer_cli.text.fields import missing_field
from tformer_cli.text.lines import without_surrogates

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from datasets import Dataset

    from tformer_cli.text.config import CorpusConfig

HUGGING_FACE = b"huggingface"
"""Key of a schema's metadata under which `datasets` describes the columns."""


def scan_parquet(name: str, fields: Fields) -> Source:
    """Reads the schema of a Parquet file, and hashes it."""
    path = corpus_file(name, "").absolute()
    state = file_state(path)  # before it is read: a change meanwhile is noticed
    with _parquet(path, name) as file:
        check_columns(file.schema_arrow, fields, name)
        rows = file.metadata.num_rows
    content = hash_file(path)
    return Source(
        kind="parquet", name=name, path=str(path), rows=rows, content=content, state=state
    )


def scan_dataset(config: CorpusConfig, fields: Fields) -> Source:
    """Opens a dataset, which is downloaded if it must be."""
    from tformer_cli.text.hub import local_path, open_dataset  # imports `datasets`, for a second

    path = local_path(config, "")
    dataset = open_dataset(config)
    check_columns(dataset.features.arrow_schema, fields, config.dataset)
    return Source(
        kind="dataset",
        name=config.dataset,
        path=config.dataset if path is None else str(path.absolute()),
        rows=len(dataset),
        content=" ".join(format_of(config).content(config, "")),
        dataset_config=config.dataset_config,
        split=config.split,
    )


def check_columns(schema: pa.Schema, fields: Fields, name: str) -> None:
    """Checks that a table has texts, and no column of a name that translations would get."""
    field = fields.of_source("parquet")
    kind = _type_at(schema, field)
    if kind is None:
        raise missing_field(field, list(_names(schema)), name, "choose another by --source-field")
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(value) or pa.types.is_large_string(value)):
        raise DataError(f'{name}: column "{field}" holds {kind}, not texts; choose another')
    for ours, option in ((fields.translation, "--target-field"), (fields.score, "--score-field")):
        if ours in schema.names:
            raise DataError(
                f'{name}: has a column "{ours}" already; choose another name with {option}'
            )


def read_tables(task: Task, n_rows: int) -> Iterator[pa.Table]:
    """Yields the rows of a shard in tables of `n_rows`, which are translated at once."""
    shard, source = task.shard, task.source
    if source.kind == "dataset":
        dataset = _open_source(source).select(range(shard.first, shard.first + shard.rows))
        if not shard.rows:
            yield dataset.features.arrow_schema.empty_table()  # so the file has columns
        yield from dataset.with_format("arrow").iter(batch_size=n_rows)
        return
    path = Path(source.path)
    with _parquet(path, source.name) as file:
        if not shard.rows:
            yield file.schema_arrow.empty_table()
            return
        left, skipped = shard.rows, shard.first
        groups: list[int] = []
        for number in range(file.num_row_groups):
            n_in_group = file.metadata.row_group(number).num_rows
            if not groups and skipped >= n_in_group:
                skipped -= n_in_group
            else:
                groups.append(number)
        for batch in file.iter_batches(batch_size=n_rows, row_groups=groups):
            part = batch.slice(min(skipped, len(batch)), left)
            skipped -= min(skipped, len(batch))
            left -= len(part)
            if len(part):
                yield pa.Table.from_batches([part])
            if not left:
                return


def texts_of(table: pa.Table, fields: Fields) -> list[str | None]:
    """The texts to translate; None where there is none."""
    field = fields.of_source("parquet")
    if field in table.column_names:  # the name of a column may hold dots
        values = table.column(field).to_pylist()
    else:
        first, *others = field.split(".")
        values = table.column(first).to_pylist()
        for name in others:
            values = [None if value is None else value[name] for value in values]
    return [None if value is None else without_surrogates(value) for value in values]


def with_translations(
    table: pa.Table, texts: Sequence[str | None], scores: Sequence[float | None], fields: Fields
) -> pa.Table:
    """Adds the columns of the translations to a table."""
    features: dict[str, Any] = {fields.translation: {"dtype": "string", "_type": "Value"}}
    added = table.append_column(fields.translation, pa.array(texts, pa.string()))
    if fields.score:
        added = added.append_column(fields.score, pa.array(scores, pa.float64()))
        features[fields.score] = {"dtype": "float64", "_type": "Value"}
    metadata = dict(table.schema.metadata or {})
    if HUGGING_FACE in metadata:  # else `datasets` would refuse the new columns
        about = json.loads(metadata[HUGGING_FACE])
        about["info"]["features"].update(features)
        about.pop("fingerprint", None)  # it is that of the table without them
        metadata[HUGGING_FACE] = json.dumps(about).encode()
    return added.replace_schema_metadata(metadata)


def write_tables(path: Path, tables: Sequence[pa.Table], source: Source) -> None:
    """Writes tables of one schema into one Parquet file, compressed as the source is."""
    codec = "SNAPPY"
    if source.kind == "parquet":
        with _parquet(Path(source.path), source.name) as file:
            if file.metadata.num_row_groups:
                codec = file.metadata.row_group(0).column(0).compression
    codec = "NONE" if codec == "UNCOMPRESSED" else codec  # pyarrow reads and writes other names
    pq.write_table(pa.concat_tables(tables), path, compression=codec)


@contextmanager
def _parquet(path: Path, name: str) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (OSError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())[:200]  # of several lines, where a message has one
        raise DataError(f"{name}: cannot be read as Parquet ({reason}); check the file") from None


@lru_cache(maxsize=4)  # each shard would open it again
def _open_source(source: Source) -> Dataset:
    from tformer_cli.text.hub import open_dataset

    return open_dataset(source.corpus())


def _type_at(schema: pa.Schema, field: str) -> pa.DataType | None:
    """The type of a column, or of a field of structs, in which dots descend."""
    if field in schema.names:
        return schema.field(field).type
    first, *others = field.split(".")
    kind: Any = schema.field(first).type if first in schema.names else None
    for name in others:
        is_there = _is_struct(kind) and kind.get_field_index(name) >= 0
        kind = kind.field(name).type if is_there else None
    return kind


def _names(schema: pa.Schema) -> Iterator[str]:
    for field in schema:
        parts = field.type if _is_struct(field.type) else []
        yield from [f"{field.name}.{part.name}" for part in parts] or [field.name]


def _is_struct(kind: pa.DataType | None) -> bool:
    return kind is not None and bool(pa.types.is_struct(kind))
