"""`frequencies.json` of a model directory: how often each source token occurs in training.

Training writes it; nothing but inspection reads it, and a model directory without it is whole.
"""

import json
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


def save_frequencies(path: Path, source: NDArray[np.int64]) -> None:
    """Writes the counts of source tokens into a model directory.

    Args:
        path: the directory.
        source: (V) how often each token occurs in the source side of the training corpora.

    Raises:
        ArtifactError: if it cannot be written.
    """
    record = {"schema": SCHEMA, "source": source.tolist()}
    write_text(path / FREQUENCIES, json.dumps(record, separators=(",", ":")) + "\n")


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
    try:
        values: Any = json.loads(read_regular(file, _LARGEST))
        counts = values["source"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise ArtifactError(f"{file}: holds no token frequencies; remove it") from None
    is_whole = isinstance(counts, list) and all(type(n) is int and 0 <= n < 1 << 62 for n in counts)
    if not is_whole or len(counts) != vocab_size:
        raise ArtifactError(
            f"{file}: does not hold one count for each of {vocab_size} tokens; remove it"
        )
    return np.array(counts, dtype=np.int64) if any(counts) else None
