"""Fields of records that hold sentences: names in which dots descend."""

from collections.abc import Iterator
from dataclasses import replace

from tformer_cli.errors import DataError
from tformer_cli.text.config import TEXT_FIELDS, CorpusConfig


def field_names(config: CorpusConfig) -> tuple[str, str]:
    """The fields of source and target of a JSONL file or dataset; of a text both are its own."""
    if config.text_field:
        return config.text_field, config.text_field
    return config.source_field or "source", config.target_field or "target"


def sides_of(record: object, fields: tuple[str, str], where: str) -> tuple[str, str]:
    """The source and the target of a record; a target may be a whole number, as stars are."""
    source, target = fields
    text = text_of(record, source, where)
    return text, text_of(record, target, where, takes_whole=target != source)


def text_of(record: object, field: str, where: str, *, takes_whole: bool = False) -> str:
    """The string at `field` of a record; `where` names the record in messages."""
    try:
        value = value_at(record, field)
    except KeyError:
        raise missing_field(field, list(names_in(record)), where) from None
    # bool is an int, too, but "true" cannot be a label
    if takes_whole and type(value) is int:
        return str(value)
    if not isinstance(value, str):
        raise DataError(f'{where}: "{field}" is {_kind(value)}, not a string; correct the data')
    return value


def value_at(record: object, field: str) -> object:
    # a name with a dot in it goes before one that descends
    if isinstance(record, dict) and field in record:
        return record[field]
    value = record
    for part in field.split("."):
        if not isinstance(value, dict):
            raise KeyError(field)
        value = value[part]
    return value


def missing_field(
    field: str,
    present: list[str],
    where: str,
    advice: str = "set source_field and target_field, or text_field of texts{ (--source-field …)}",
) -> DataError:
    """Lists the fields that exist instead of `field`."""
    # a table of pixels has hundreds of columns
    names = ", ".join(present[:20]) or "none"
    return DataError.of('{}: has no field "{}", only {}; ' + advice, where, field, names)


def names_in(record: object, prefix: str = "") -> Iterator[str]:
    """The fields of a record, written with dots."""
    if not isinstance(record, dict):
        return
    for name, value in record.items():
        if isinstance(value, dict) and value:
            yield from names_in(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _kind(value: object) -> str:
    if value is None:
        return "null"
    kinds = {bool: "true or false", int: "a number", float: "a number", list: "a list"}
    return kinds.get(type(value), "an object")


def with_text_field(corpus: CorpusConfig) -> CorpusConfig:
    """Names the field of a corpus that has its texts, where the recipe does not."""
    if corpus.is_text or corpus.format not in TEXT_FIELDS:
        return corpus
    return replace(corpus, text_field=TEXT_FIELDS[corpus.format])


def with_label_fields(corpus: CorpusConfig) -> CorpusConfig:
    """Names the fields of a corpus of labeled texts, where the recipe does not."""
    if corpus.format not in ("jsonl", "dataset"):
        return corpus
    return replace(
        corpus,
        source_field=corpus.source_field or "text",
        target_field=corpus.target_field or "label",
    )
