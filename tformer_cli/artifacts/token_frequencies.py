"""`frequencies.json` of a model directory: how often each source token occurs in training.

Of a translation model it also lists the source's words. Training writes it; inspection reads the
counts, translating the words. A model directory without it is whole.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tformer_cli.errors import ArtifactError
from tformer_cli.files.atomic import write_text
from tformer_cli.files.regular_file import read_regular

FREQUENCIES = "frequencies.json"
SCHEMA = "tformer.frequencies/1"
_LARGEST = 1 << 26


def save_frequencies(path: Path, source: NDArray[np.int64], words: Sequence[str] = ()) -> None:
    """Writes the counts of source tokens into a model directory.

    Args:
        path: the directory.
        source: (V) how often each token occurs in the source side of the training corpora.
        words: the words of that side, from `frequent_words`; empty: they are not known.

    Raises:
        ArtifactError: if it cannot be written.
    """
    record = {"schema": SCHEMA, "source": source.tolist()}
    if words:
        record["words"] = list(words)
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=False)
    write_text(path / FREQUENCIES, text + "\n")


def load_frequencies(path: Path, vocab_size: int) -> NDArray[np.int64] | None:
    """Reads the counts of source tokens of a model directory.

    Args:
        path: the directory.
        vocab_size: entries of its vocabulary.

    Returns:
        (V) the counts; None where the directory has none, or nothing was counted.

    Raises:
        ArtifactError: if the file is damaged, foreign or of another vocabulary.
    """
    file = path / FREQUENCIES
    values = _read(file)
    if values is None:
        return None
    counts = values["source"]
    is_whole = isinstance(counts, list) and all(type(n) is int and 0 <= n < 1 << 62 for n in counts)
    if not is_whole or len(counts) != vocab_size:
        raise ArtifactError(
            f"{file}: does not hold one count for each of {vocab_size} tokens; remove it"
        )
    return np.array(counts, dtype=np.int64) if any(counts) else None


def load_seen_words(path: Path) -> frozenset[str] | None:
    """Reads the words of the source text that a model was trained on; None: they are not known.

    Raises:
        ArtifactError: if the file is damaged or foreign.
    """
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
