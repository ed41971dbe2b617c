"""`shortlist.safetensors`: a lexical shortlist, in a model directory or by itself.

It holds `offsets` (V + 1) and `targets`, int64 and int32, and `first` (1), int64: the fields of
`decoding.shortlist.Shortlist`, in token ids of the model that it belongs to.
"""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from tformer_cli.artifacts.config_file import FREQUENCIES, SHORTLIST
from tformer_cli.artifacts.weights_file import open_tensors, write_arrays
from tformer_cli.errors import ArtifactError
from tformer_cli.files.atomic import write_text, written_aside
from tformer_cli.files.regular_file import open_regular, read_regular
from tformer_cli.search.engine import Shortlist

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SCHEMA = "tformer.frequencies/1"
FORMAT = "tformer shortlist"
_LARGEST = 1 << 26
_TEXT_ENTRY = rb"\S+ \S+ [0-9.e-]+\n"


def save_frequencies(path: Path, source: "NDArray[np.int64]", words: Sequence[str] = ()) -> None:
    """Writes the counts of source tokens into a model directory.

    Args:
        path: the directory.
        source: (V) how often each token occurs in the source side of the training corpora.
        words: the words of that side, from `frequent_words`; empty: they are not known.
    """
    record = {"schema": SCHEMA, "source": source.tolist()}
    if words:
        record["words"] = list(words)
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=False)
    write_text(path / FREQUENCIES, text + "\n")


def load_frequencies(path: Path, vocab_size: int) -> "NDArray[np.int64] | None":
    """Reads the counts of source tokens of a model directory.

    Returns:
        (V) the counts; None where the directory has none, or nothing was counted.
    """
    file = path / FREQUENCIES
    values = _read(file)
    if values is None:
        return None
    counts = values["source"]
    # Python takes JSON's true for an int, and int64 has bounds
    is_whole = isinstance(counts, list) and all(type(n) is int and 0 <= n < 1 << 62 for n in counts)
    if not is_whole or len(counts) != vocab_size:
        raise ArtifactError(
            f"{file}: does not hold one count for each of {vocab_size} tokens; remove it"
        )
    import numpy as np

    return np.array(counts, dtype=np.int64) if any(counts) else None


def load_seen_words(path: Path) -> frozenset[str] | None:
    """Reads the words of the source text that a model was trained on; None: they are not known."""
    file = path / FREQUENCIES
    words = (_read(file) or {}).get("words", [])
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ArtifactError(f'{file}: "words" is not a list of strings; remove the file')
    return frozenset(words) or None


def _read(file: Path) -> dict[str, Any] | None:
    try:
        values: Any = json.loads(read_regular(file, _LARGEST))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or "source" not in values:
        raise ArtifactError(f"{file}: holds no token frequencies; remove it")
    return values


_TYPES = {"offsets": "int64", "targets": "int32", "first": "int64"}


def save_shortlist(path: Path, shortlist: Shortlist) -> None:
    """Writes the file of a shortlist, whole or not at all."""
    with written_aside(path) as aside, aside.open("wb") as stream:
        write_shortlist(stream, shortlist)


def write_shortlist(stream: BinaryIO, shortlist: Shortlist) -> None:
    """Writes a shortlist; the same bytes for the same shortlist."""
    import numpy as np

    arrays: dict[str, NDArray[Any]] = {
        "offsets": np.asarray(shortlist.offsets, np.int64),
        "targets": np.asarray(shortlist.targets, np.int32),
        "first": np.array([shortlist.first], np.int64),
    }
    write_arrays(stream, arrays, {"format": FORMAT})


def holds_shortlist(path: Path) -> bool:
    """Returns whether a file holds a shortlist, ours or Marian's text."""
    with open_regular(path) as stream:
        start = stream.read(512)
    return f'"{FORMAT}"'.encode() in start or bool(re.match(_TEXT_ENTRY, start))


def copy_shortlist(model: Path, other: Path) -> None:
    """Copies a model directory's shortlist, if any, to another with the same vocabularies."""
    if (model / SHORTLIST).is_file():
        with written_aside(other / SHORTLIST) as aside:
            shutil.copyfile(model / SHORTLIST, aside)


def read_shortlist(path: Path, n_sources: int, n_targets: int) -> Shortlist:
    with open_tensors(path, "np") as file:
        names = set(file.keys())
        if names != set(_TYPES):
            raise ArtifactError(f"{path}: is not a shortlist; make one for this model again")
        arrays = {name: file.get_tensor(name) for name in names}
    offsets, targets, first = (arrays[name] for name in _TYPES)
    is_whole = (
        all(arrays[name].dtype == kind and arrays[name].ndim == 1 for name, kind in _TYPES.items())
        and len(first) == 1
        and len(offsets) > 0
        and offsets[0] == 0
        and offsets[-1] == len(targets)
        and bool((offsets[1:] >= offsets[:-1]).all())  # a difference might overflow
    )
    if not is_whole:
        raise ArtifactError(f"{path}: is damaged; copy it again, or make it again")
    is_of_targets = 0 <= first[0] <= n_targets and bool(
        ((targets >= 0) & (targets < n_targets)).all()
    )
    if len(offsets) != n_sources + 1 or not is_of_targets:
        raise ArtifactError(
            f"{path}: belongs to a model of other vocabularies; this one has {n_sources} source "
            f"and {n_targets} target tokens"
        )
    return Shortlist(int(first[0]), offsets, targets)
