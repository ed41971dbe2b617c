"""Tables of the keys of the files that come with a foreign model.

A `Keys` is the table of one file of one family: each key is *used* (read elsewhere), *without
effect* (with the reason), *noted* (its sentence is shown at import), or *supported for some values
only*. A key that the table lacks is refused by name, unless its value is null, which is as if it
were missing. So a setting that a library adds later is never silently computed as something else.

An importer reads a file with `read_json_file`, hands it to `Keys.read`, and appends the sentences
that this returns to its model's notes:

    PROCESSOR = Keys(
        "preprocessor_config.json",
        "ViT",
        {
            "size": USED,
            "do_pad": only(False, None),
            "feature_extractor_type": no_effect("name of a class"),
            "crop_pct": noted("images are not cropped", 1.0),
            "pretrained_cfg": {"mean": USED},  # an object, or a list of objects
        },
    )
    notes += PROCESSOR.read(file, values)

Rows that families share are merged as mappings: `{**COMMON, "hidden_act": only("gelu")}`.
"""

import json
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from tformer_cli.allow_list import ANY
from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.foreign_model import shown


@dataclass(frozen=True)
class Fate:
    """The fate of one key."""

    kind: Literal["used", "no effect", "noted", "only"]
    """Read by the importer, ignored, ignored with a note, or refused but for some values."""
    why: str = ""
    """Why it has no effect, or the sentence of the note."""
    values: Container[Any] = ANY
    """Values that are supported, or that need no note."""


@dataclass(frozen=True)
class Parts:
    """An object with a `type`, such as a normalizer."""

    kinds: Mapping[str | None, "Rows"]
    """The rows of each supported type; None: there may be no object."""
    in_sequence: bool = False
    """It may also be a `Sequence` of such objects, in any order."""


Row: TypeAlias = "Fate | Parts | Mapping[str, Row]"
Rows: TypeAlias = Mapping[str, Row]

USED: Final = Fate("used")
"""The importer reads the key, and checks its value."""


def no_effect(why: str) -> Fate:
    """The key changes nothing here, for a reason."""
    return Fate("no effect", why)


def noted(sentence: str, *neutral: object) -> Fate:
    """The key is omitted, which a note says, unless its value is null or a neutral one."""
    return Fate("noted", sentence, (None, *neutral))


def only(*values: object) -> Fate:
    """The key is refused unless its value is one of these."""
    return Fate("only", "", values)


@dataclass(frozen=True)
class Keys:
    """The table of a file of one family of models."""

    file: str
    """Name of the file."""
    models: str
    """Whose file it is."""
    rows: Rows = field(repr=False)
    """The fate of each key."""

    def read(self, path: Path, values: Mapping[str, Any]) -> list[str]:
        """Checks all keys of a file.

        Args:
            path: the file, for messages.
            values: what it holds.

        Returns:
            Sentences about keys that are omitted.

        Raises:
            ArtifactError: naming the first key that is unknown or has an unsupported value.
        """
        return list(dict.fromkeys(_read(path, values, self.rows, "")))


def _read(path: Path, values: Mapping[str, Any], rows: Rows, within: str) -> Iterator[str]:
    for key, value in values.items():
        name = within + (key if key.isascii() and key.isprintable() else json.dumps(key))[:60]
        row = rows.get(key)
        if row is None:
            if value is not None:
                raise ArtifactError(
                    f"{path}: {name} = {shown(value)} is unknown, so it could change results; "
                    "remove it if the model is computed without it"
                )
        elif isinstance(row, Fate):
            if row.kind == "only" and value not in row.values:
                raise _unsupported(path, name, value)
            if row.kind == "noted" and value not in row.values:
                yield f"{name} = {shown(value)}: {row.why}"
        elif isinstance(row, Parts):
            yield from _read_parts(path, value, row, name)
        else:
            for inner in value if isinstance(value, list) else (value or {},):
                if not isinstance(inner, dict):
                    raise _unsupported(path, name, value)
                yield from _read(path, inner, row, f"{name}.")


def _read_parts(path: Path, value: object, row: Parts, name: str) -> Iterator[str]:
    part = {"type": None} if value is None else value
    kind = part.get("type") if isinstance(part, dict) else part
    if not isinstance(part, dict) or not isinstance(kind, str | None):
        raise _unsupported(path, name, value)
    if kind == "Sequence" and row.in_sequence:
        for inner in (one for items in part.values() if isinstance(items, list) for one in items):
            yield from _read_parts(path, inner, row, name)
    elif kind in row.kinds:
        yield from _read(path, part, {"type": USED, **row.kinds[kind]}, f"{name}.")
    else:
        raise _unsupported(path, f"{name}.type", kind)


def _unsupported(path: Path, name: str, value: object) -> ArtifactError:
    return ArtifactError(f"{path}: {name} = {shown(value)} is not supported; import another model")
