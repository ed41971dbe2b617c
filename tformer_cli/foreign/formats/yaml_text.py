"""YAML of lists, mappings and texts, as Marian writes its options and vocabularies.

Scalars stay the texts that they are: in a vocabulary `yes`, `null` and `1e3` are pieces. Anchors,
tags that mean something and deep nesting are refused, so that the size of a file bounds the work.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tformer_cli.errors import ArtifactError
from tformer_cli.files.regular_file import read_regular

MOST_BYTES = 1 << 26
DEEPEST = 8


def read_yaml(path: Path) -> Any:  # noqa: ANN401
    """Reads a file; see `parse_yaml`."""
    try:
        content = read_regular(path, MOST_BYTES)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ArtifactError(f"{path}: cannot be read ({reason}); name another file") from None
    return parse_yaml(content, str(path))


def parse_yaml(content: bytes, where: str) -> Any:  # noqa: ANN401
    """Turns YAML into dictionaries, lists and strings."""
    # Collections that are open, the outermost a list for the whole; keys that await their value
    waiting: list[Any] = [[]]
    keys: list[str | None] = [None]

    def add(value: object) -> None:
        above = waiting[-1]
        if isinstance(above, list):
            above.append(value)
        elif keys[-1] is None:
            if not isinstance(value, str):
                raise ArtifactError(f"{where}: a key of the YAML is not a text; {_ADVICE}")
            keys[-1] = value
        else:
            above[keys[-1]] = value
            keys[-1] = None

    try:
        for event in yaml.parse(content.decode("utf-8"), Loader=yaml.CSafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise ArtifactError(f"{where}: has an alias ({event.anchor}); {_ADVICE}")
            if isinstance(event, yaml.ScalarEvent):
                add(event.value)
            elif isinstance(event, yaml.CollectionStartEvent):
                collection: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
                add(collection)
                waiting.append(collection)
                keys.append(None)
                if len(waiting) > DEEPEST:
                    raise ArtifactError(f"{where}: is nested too deeply; {_ADVICE}")
            elif isinstance(event, yaml.CollectionEndEvent):
                waiting.pop()
                keys.pop()
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ArtifactError(f"{where}: is not readable YAML ({reason}); {_ADVICE}") from None
    documents = waiting[0]
    return documents[0] if documents else None


def write_yaml(values: Mapping[str, Any]) -> str:
    """Writes a mapping of texts, numbers and lists, an entry a line."""
    text: str = yaml.dump(
        dict(values), Dumper=yaml.CSafeDumper, allow_unicode=True, sort_keys=False, width=1 << 16
    )
    return text


_ADVICE = "copy the file again, or use another one"
