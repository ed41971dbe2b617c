"""Hugging Face datasets, from the hub or from local files, through one call."""

import base64
import json
import logging
import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, time
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from tformer_cli.errors import DataError
from tformer_cli.text.config import CorpusConfig
from tformer_cli.text.fields import missing_field
from tformer_cli.text.lines import OPENERS, without_surrogates

# Read when huggingface_hub is first imported: no usage report is sent.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

import datasets
import huggingface_hub

LOADERS = {
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".arrow": "arrow",
}
"""File endings (before a `.gz` and the like) and the `datasets` builder that reads them."""
SAVED = ("dataset_dict.json", "state.json")
"""Files that `save_to_disk` leaves in a directory."""
BATCH_ROWS = 1000
PROBE_SECONDS = 5.0


def local_path(config: CorpusConfig, directory: str) -> Path | None:
    """The file or directory that `config.dataset` names, or None if it is a name on the hub."""
    # what lies here goes before a name on the hub
    path = Path(directory) / Path(config.dataset).expanduser()
    if path.exists():
        return path
    looks_local = config.dataset.startswith((".", "/", "~")) or _loader(path) is not None
    if looks_local or config.dataset.count("/") > 1:
        raise DataError(f"{path}: no such dataset; check the path")
    return None


def open_dataset(config: CorpusConfig, directory: str = "") -> datasets.Dataset:
    """Opens the split of a dataset, memory-mapped; a hub dataset is downloaded first."""
    path = local_path(config, directory)
    datasets.disable_progress_bars()
    datasets.utils.logging.set_verbosity(logging.CRITICAL)  # what it logs is in the error, too
    try:
        if path is None:
            with _offline_if_unreachable():
                return datasets.load_dataset(
                    config.dataset, config.dataset_config or None, split=config.split
                )
        return _open_local(path, config)
    except DataError:
        raise
    except (ConnectionError, datasets.exceptions.DatasetNotFoundError) as error:
        raise DataError(
            f"{config.dataset}: the hub is unreachable or has no such dataset "
            f"({_one_line(error)}); check the name and the network, or give a local path"
        ) from None
    except Exception as error:  # noqa: BLE001 - the library's builders raise whatever the file's reader raises
        # The library says "an error occurred", and what it was is the cause
        why = _one_line(error.__cause__ or error)
        raise DataError(f"{config.dataset}: cannot be opened ({why}); check the dataset") from None


def read_rows(
    dataset: datasets.Dataset, fields: tuple[str, str], name: str, *, whole: bool = False
) -> Iterator[dict[str, Any]]:
    columns = {_column_of(field, dataset, name) for field in fields}
    # pictures and vectors in other columns would be decoded for nothing
    rows = dataset if whole else dataset.select_columns(sorted(columns))
    readers = {}
    for column, feature in rows.features.items():
        if isinstance(feature, datasets.Image):  # its file, which is decoded later
            rows = rows.cast_column(column, datasets.Image(decode=False))
            readers[column] = _image_name
        elif isinstance(feature, datasets.ClassLabel):
            readers[column] = partial(_label_name, feature.names)
    for batch in rows.iter(batch_size=BATCH_ROWS):
        for values in zip(*batch.values(), strict=True):
            record = dict(zip(batch, values, strict=True))
            record.update({column: read(record[column]) for column, read in readers.items()})
            yield record


def json_line(record: dict[str, Any], where: str) -> str:
    """Writes a row as JSON: dates by ISO 8601, decimal numbers as text, NaN as null."""
    try:
        line = json.dumps(_without_nan(record), ensure_ascii=False, default=_as_text)
    except TypeError as error:
        raise DataError(
            f"{where}: cannot be written as JSON ({error}); remove the column, or write its values "
            "as text"
        ) from None
    return without_surrogates(line)


def _without_nan(value: Any) -> Any:  # noqa: ANN401 - whatever a row holds
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    if isinstance(value, dict):
        return {name: _without_nan(item) for name, item in value.items()}
    return value


def _as_text(value: object) -> str:
    if isinstance(value, date | time):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _image_name(value: dict[str, Any] | None) -> str | None:
    """Names an image for `data.images.named`: the picture itself, or the path of its file."""
    if value is None or value["bytes"] is None:
        return None if value is None else value["path"]
    return f"data:image/any;base64,{base64.b64encode(value['bytes']).decode()}"


def _label_name(names: Sequence[str], number: int | None) -> str | None:
    """The name of a label; numbers that have none, as -1 for unknown labels, are blank."""
    return names[number] if number is not None and 0 <= number < len(names) else ""


@contextmanager
def _offline_if_unreachable() -> Iterator[None]:
    """Tries once to reach the hub; if it fails, only earlier downloads are used."""
    # by themselves the libraries try again for half a minute and log each time
    constants = huggingface_hub.constants
    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    try:
        if not any(before):
            huggingface_hub.get_session().head(constants.ENDPOINT, timeout=PROBE_SECONDS)
    except Exception:  # noqa: BLE001 - whatever it was, the hub did not answer
        constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before


def _open_local(path: Path, config: CorpusConfig) -> datasets.Dataset:
    if path.is_dir() and any((path / file).exists() for file in SAVED):
        return _split_of(datasets.load_from_disk(str(path)), config.split)
    if path.is_dir():
        return datasets.load_dataset(str(path), config.dataset_config or None, split=config.split)
    loader = _loader(path)
    if loader is None:
        raise DataError(f"{path}: unknown kind of dataset; give {', '.join(LOADERS)} or a folder")
    options: dict[str, Any] = {}
    if loader == "csv":  # a blank field, or the word "null", is text
        options = {"sep": "\t" if ".tsv" in path.suffixes else ",", "keep_default_na": False}
    files = {_split_name(config.split): str(path)}
    return datasets.load_dataset(loader, data_files=files, split=config.split, **options)


def _split_of(saved: datasets.Dataset | datasets.DatasetDict, split: str) -> datasets.Dataset:
    """A split, or a slice of one, of a saved dataset; one without splits has every name."""
    if isinstance(saved, datasets.Dataset):
        saved = {_split_name(split): saved}
    lengths = {name: len(part) for name, part in saved.items()}
    slices = datasets.ReadInstruction.from_spec(split).to_absolute(lengths)
    spans = [slice(part.from_, part.to).indices(lengths[part.splitname]) for part in slices]
    return datasets.concatenate_datasets(
        [
            saved[part.splitname].select(range(*span))
            for part, span in zip(slices, spans, strict=True)
        ]
    )


def _split_name(split: str) -> str:
    match = re.match(r"\w+", split)
    return match.group() if match else "train"


def _loader(path: Path) -> str | None:
    suffixes = [ending for ending in map(str.casefold, path.suffixes) if ending not in OPENERS]
    return LOADERS.get(suffixes[-1]) if suffixes else None


def _column_of(field: str, dataset: datasets.Dataset, name: str) -> str:
    if field in dataset.column_names:
        return field
    column = field.split(".")[0]
    if column not in dataset.column_names:
        raise missing_field(field, _field_names(dataset.features), name)
    return column


def _field_names(features: datasets.Features) -> list[str]:
    names = []
    for name, feature in features.items():
        inner = getattr(feature, "languages", None) or (
            feature if isinstance(feature, dict) else ()
        )
        names += [f"{name}.{part}" for part in inner] or [name]
    return names


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
