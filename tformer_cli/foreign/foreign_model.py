"""A foreign model in tformer's terms, before it is written."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tformer_cli.artifacts.config_file import AlignmentInfo
from tformer_cli.errors import ArtifactError
from tformer_cli.files.regular_file import read_regular
from tformer_cli.foreign.formats.lazy_arrays import Array
from tformer_cli.foreign.formats.mapped_file import check_no_pointer
from tformer_cli.model.config import ModelConfig
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.shortlist import Shortlist
from tformer_cli.text.tokenizer import Tokenizer

_LARGEST_JSON, _MOST_VALUES = 1 << 26, 1 << 22
"""Bytes and values of the largest tokenizer.json."""
_MOST_LINES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ForeignModel:
    """A foreign model, converted."""

    kind: str
    """Kind of the source: "Hugging Face Marian"."""
    config: ModelConfig
    """Its settings."""
    weights: Mapping[str, Array]
    """Arrays by tformer's names."""
    tokenizer: Tokenizer
    """Its tokenizer."""
    decoding: DecodingConfig
    """Defaults of the search."""
    files: tuple[Path, ...]
    """Files that it was read from."""
    ids: tuple[int, ...]
    """The foreign id of each id of the target; -1: none."""
    languages: tuple[str, str] = ("", "")
    """Codes of source and target, if the files name them."""
    labels: tuple[str, ...] = ()
    """Labels of a classifier in the order of its outputs."""
    notes: tuple[str, ...] = field(default=())
    """Sentences about what is not exactly as in the foreign tool."""
    shortlist: Shortlist | None = None
    """Its lexical shortlist in tformer's ids, if it has one."""
    weight_type: str = "float32"
    """Type of the matrices: "float32" or "int8"."""
    spare_rows: int = 0
    """Rows without a piece that all models of the family have."""
    alignment: AlignmentInfo | None = None
    """Heads that its own tool aligns words with, if the files name them."""


def read_json_file(path: Path) -> dict[str, Any]:
    """Reads a JSON object."""
    try:
        values = parse_json(read_regular(path, _LARGEST_JSON))
    except FileNotFoundError:
        raise ArtifactError(f"{path}: no such file; download the whole model") from None
    except (OSError, ValueError, RecursionError) as error:
        said = getattr(error, "strerror", None) or str(error)
        reason = " ".join(said.split())[:200]
        raise ArtifactError(f"{path}: is not readable JSON ({reason}); download it again") from None
    if not isinstance(values, dict):
        raise ArtifactError(f"{path}: is not a JSON object; download it again")
    return values


def parse_json(data: bytes) -> Any:  # noqa: ANN401
    """Reads JSON of a size that makes sense: a value takes some hundred bytes of memory."""
    if sum(map(data.count, (b",", b"[", b"{"))) > _MOST_VALUES:
        raise ValueError(f"has more than {_MOST_VALUES:,} values")
    values = json.loads(data)
    if b"\\ud" in data.lower():  # no file could hold it again
        json.dumps(values, ensure_ascii=False).encode()
    return values


def read_bytes(path: Path, most_bytes: int = 1 << 26) -> bytes:
    """Reads a file of a model whole."""
    try:
        check_no_pointer(path)
        return read_regular(path, most_bytes)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ArtifactError(
            f"{path}: cannot be read ({reason}); download the whole model"
        ) from None


def read_lines(path: Path) -> list[str]:
    """Reads a vocabulary that has a piece a line, all of which end."""
    try:
        text = read_bytes(path).decode("utf-8")
    except UnicodeDecodeError:
        raise ArtifactError(f"{path}: is not UTF-8 text; download it again") from None
    lines = text.split("\n", _MOST_LINES + 1)
    if len(lines) > _MOST_LINES + 1:
        raise ArtifactError(f"{path}: has more than {_MOST_LINES:,} lines; use the model's own")
    if lines.pop():
        raise ArtifactError(
            f"{path}: ends inside a line, so it may be cut short; download it again, or end its "
            "last line if that is whole"
        )
    return [line.removesuffix("\r") for line in lines]


def check_settings(
    path: Path, settings: Mapping[str, Any], known: Mapping[str, Iterable[Any]]
) -> None:
    """Refuses settings whose values are not the known ones; a missing one is as by default."""
    for name, values in known.items():
        if name in settings and settings[name] not in values:
            raise ArtifactError(
                f"{path}: {name} = {shown(settings[name])} is not supported; import another model"
            )


def shown(value: object) -> str:
    """Writes a foreign setting for a message; of what is not plain its type, which is short."""
    parts = value if isinstance(value, list) else [value]
    if len(parts) < 10 and all(isinstance(part, str | int | float | None) for part in parts):
        return json.dumps(value)[:60]
    return f"a {type(value).__name__}"


def model_config(path: Path, **values: Any) -> ModelConfig:  # noqa: ANN401
    """Makes the settings of a model."""
    try:
        return ModelConfig(dropout=0.0, **values)
    except (ValueError, TypeError) as error:
        raise ArtifactError(f"{path}: {error}; use this model's own settings") from None


def number(path: Path, settings: Mapping[str, Any], name: str) -> int:
    """Returns a setting that is a whole number."""
    value = settings.get(name)
    if isinstance(value, str) and value.isdecimal():
        value = int(value[:20])
    if isinstance(value, list) and name.endswith("_token_id"):
        raise ArtifactError(
            f"{path}: {name} = {shown(value)} is a list, which is not supported; leave the one "
            "that texts were trained with, or import another model"
        )
    if type(value) is not int or value < 0:
        found = shown(value) if name in settings else "nothing"
        raise ArtifactError(
            f"{path}: {name} is not a whole number (found {found}); use this model's own settings"
        )
    return value
