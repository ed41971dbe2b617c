"""Turning texts into vectors with an encoder."""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np

from tformer_cli.artifacts.array_file import write_header
from tformer_cli.data.given_lines import given_lines
from tformer_cli.data.prefetch import buffers
from tformer_cli.decoding.pooled import pooled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from tformer_cli.artifacts.config_file import TaskKind
    from tformer_cli.model.config import Pooling
    from tformer_cli.workflows.opening.encoder import OpenedEncoder, TooLong

VectorFormat = Literal["tsv", "jsonl", "npy", "safetensors"]
ENCODERS: tuple[TaskKind, ...] = ("embed", "masked", "classify")
"""Tasks whose models turn texts into vectors."""
BUFFER_LINES = 1024
TENSOR = "vectors"
"""Name of the array in a safetensors file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedText:
    """A text and its vector."""

    index: int
    """Number of the line, from 0."""
    text: str
    vector: NDArray[np.float32] | None
    """(D); None of a blank text."""
    is_truncated: bool = False
    """True if the text was longer than the model takes; its end was cut off."""


def embed_texts(
    opened: OpenedEncoder,
    texts: Sequence[str],
    *,
    pooling: Pooling | None = None,
    unit_length: bool | None = None,
    too_long: TooLong = "truncate",
    first_index: int = 0,
) -> list[EmbeddedText]:
    """Computes the vectors of texts; in float32 on a CPU none depends on the other texts.

    Args:
        opened: from `open_encoder`.
        texts: the texts; a blank one has no vector.
        pooling: "mean" or "first"; None: that of the model's settings.
        unit_length: whether vectors are divided by their length; None: see `pooling`.
        too_long: what becomes of texts longer than the model takes.
        first_index: number of the first one.

    Raises:
        DataError: if one is too long and `too_long` is "error".
    """
    directory = opened.directory
    config = directory.config
    ids = directory.tokenizer.source.encode_batch([text if text.strip() else "" for text in texts])
    read = opened.fitting(ids, too_long, first_index)
    there = [number for number, one in enumerate(read) if one]
    vectors = _vectors(
        opened,
        [read[number] for number in there],
        pooling or config.pooling,
        unit_length=config.unit_length if unit_length is None else unit_length,
    )
    found = dict(zip(there, vectors, strict=True))
    return [
        EmbeddedText(
            index=first_index + number,
            text=text,
            vector=found.get(number),
            is_truncated=len(ids[number]) > len(read[number]),
        )
        for number, text in enumerate(texts)
    ]


def _vectors(
    opened: OpenedEncoder, texts: Sequence[Sequence[int]], pooling: Pooling, *, unit_length: bool
) -> list[NDArray[np.float32]]:
    """Computes the vectors (D) of texts, by the kernels if they can."""
    if opened.compiled is not None:
        return opened.compiled.each(
            texts, lambda _, hidden: pooled(hidden, pooling, unit_length=unit_length).copy()
        )
    from tformer_cli.decoding.encoding import text_vectors

    return text_vectors(
        opened.directory.encoder,
        texts,
        pooling,
        unit_length=unit_length,
        precision=opened.precision,
    )


def embed_lines(
    opened: OpenedEncoder,
    lines: Iterable[str],
    buffer_lines: int = BUFFER_LINES,
    *,
    max_wait: float | None = None,
    **settings: Any,  # noqa: ANN401 - of `embed_texts`
) -> Iterator[list[EmbeddedText]]:
    """Computes the vectors of lines as they come, in order, a buffer at a time.

    Args:
        opened: from `open_encoder`.
        lines: the texts.
        buffer_lines: lines that are batched together; 1 answers line by line.
        max_wait: seconds after which a buffer is computed although it is not full.
        **settings: pooling, unit_length and too_long of `embed_texts`.

    Raises:
        TypeError: if the lines are one string, or hold something else.
        DataError: if a line is too long and `too_long` is "error".
    """
    first = 0
    for buffer in buffers(given_lines(lines), buffer_lines, max_wait):
        yield embed_texts(opened, buffer, first_index=first, **settings)
        first += len(buffer)


def format_vector(embedded: EmbeddedText, output_format: VectorFormat) -> str:
    """Writes a vector as a line, without its end.

    Args:
        embedded: what to write; of a blank text an empty line, or null.
        output_format: "tsv": numbers of seven digits; "jsonl": an object; see `array_writer` for
            the others.
    """
    vector = embedded.vector
    numbers = [] if vector is None else [f"{value:.7g}" for value in vector.tolist()]
    if output_format == "tsv":
        return "\t".join(numbers)
    record = {"index": embedded.index, "text": embedded.text}
    shown = json.dumps(record, ensure_ascii=False)[:-1]
    shown += f', "vector": [{", ".join(numbers)}]' if numbers else ', "vector": null'
    return shown + (', "truncated": true}' if embedded.is_truncated else "}")


@contextmanager
def array_writer(
    stream: BinaryIO, output_format: VectorFormat, width: int
) -> Iterator[Callable[[EmbeddedText], None]]:
    """Writes an array (N, D) of float32 whose rows come one by one; memory does not grow with N.

    Args:
        stream: the output.
        output_format: "npy": a file of numpy; else a safetensors file with one tensor, "vectors".
        width: D.

    Yields:
        What takes the rows; a blank text has a row of zeros.
    """
    n_rows = 0
    with tempfile.TemporaryFile() as rows:

        def add(embedded: EmbeddedText) -> None:
            nonlocal n_rows
            vector = embedded.vector
            rows.write((np.zeros(width) if vector is None else vector).astype("<f4").tobytes())
            n_rows += 1

        yield add
        shape = (n_rows, width)
        if output_format == "npy":
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(stream, header)
        else:
            write_header(stream, {TENSOR: ("<f4", shape)}, {})
        rows.seek(0)
        shutil.copyfileobj(rows, stream)
