"""Turning texts or images into vectors with an encoder."""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np

from tformer_cli.artifacts.weights_file import write_header
from tformer_cli.errors import UsageError
from tformer_cli.kinds.opening.encoder import computed_by_buffer, fitting, source_ids
from tformer_cli.search.pooled import pooled
from tformer_cli.text.lines import given_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from tformer_cli.kinds.opening.encoder import Damaged, OpenedEncoder, TooLong
    from tformer_cli.model.config import ModelConfig, Pooling

VectorFormat = Literal["tsv", "jsonl", "npy", "safetensors"]
TENSOR = "vectors"
"""Name of the array in a safetensors file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedText:
    """A text, or the name of an image, and its vector."""

    index: int
    """Number of the line, from 0."""
    text: str
    vector: NDArray[np.float32] | None
    """(D), or (2·D) of pooling "first-and-mean"; None of a blank text."""
    is_truncated: bool = False
    """True if the text was longer than the model takes; its end was cut off."""
    error: str = ""
    """The problem with an image that could not be read."""


def embed_texts(
    opened: OpenedEncoder,
    texts: Sequence[str],
    *,
    pooling: Pooling | None = None,
    unit_length: bool | None = None,
    too_long: TooLong = "truncate",
    damaged: Damaged = "error",
    first_index: int = 0,
) -> list[EmbeddedText]:
    """Computes the vectors of texts or images; in float32 on a CPU none depends on the others.

    Args:
        opened: from `open_encoder`.
        texts: the texts, or names of images; a blank one has no vector.
        pooling: "mean", "first", or of images "first-and-mean"; None: that of the model's
            settings.
        unit_length: whether vectors are divided by their length; None: see `pooling`.
        too_long: what becomes of texts longer than the model takes.
        damaged: what becomes of images that cannot be read.
        first_index: number of the first one.

    Raises:
        UsageError: if the model has not what is to be pooled.
        DataError: if one is too long and `too_long` is "error", or an image cannot be read.
    """
    directory = opened.directory
    config = directory.config
    kind = checked_pooling(config, pooling)
    ids, problems = source_ids(directory, texts, first_index, damaged)
    read = fitting(directory, ids, too_long, first_index)
    there = [number for number, one in enumerate(read) if one]
    vectors = _vectors(
        opened,
        [read[number] for number in there],
        kind,
        unit_length=config.unit_length if unit_length is None else unit_length,
    )
    found = dict(zip(there, vectors, strict=True))
    return [
        EmbeddedText(
            index=first_index + number,
            text=text,
            vector=found.get(number),
            is_truncated=len(ids[number]) > len(read[number]),
            error=problems.get(number, ""),
        )
        for number, text in enumerate(texts)
    ]


def checked_pooling(config: ModelConfig, pooling: Pooling | None) -> Pooling:
    """Returns how a model is pooled.

    Args:
        config: of the model.
        pooling: what was asked for; None: that of its settings.

    Raises:
        UsageError: if it has not what was asked for.
    """
    if pooling == "first-and-mean" and not config.reads_images:
        raise UsageError(f"--pooling: {pooling} is of images; give mean or first")
    if pooling not in (None, "mean") and config.reads_images and not config.class_token:
        raise UsageError(f"--pooling: MODEL has no class token for {pooling}; give mean")
    return pooling or config.pooling


def vector_width(config: ModelConfig, pooling: Pooling | None) -> int:
    """Returns the numbers of a vector; see `checked_pooling`."""
    is_joined = checked_pooling(config, pooling) == "first-and-mean"
    return config.d_model * (2 if is_joined else 1)


def _vectors(
    opened: OpenedEncoder, texts: Sequence[Sequence[int]], pooling: Pooling, *, unit_length: bool
) -> list[NDArray[np.float32]]:
    """Computes the vectors (D) of texts or images, by the kernels if they can."""
    if opened.compiled is not None:
        return opened.compiled.each(
            texts, lambda _, hidden: pooled(hidden, pooling, unit_length=unit_length).copy()
        )
    from tformer_cli.search.encoding import text_vectors

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
    buffer_lines: int | None = None,
    *,
    max_wait: float | None = None,
    **settings: Any,  # noqa: ANN401 - of `embed_texts`
) -> Iterator[list[EmbeddedText]]:
    """Computes the vectors of lines as they come, in order, a buffer at a time.

    Args:
        opened: from `open_encoder`.
        lines: the texts, or names of images.
        buffer_lines: lines that are batched together; 1 answers line by line; None: as many as
            usual, of large images only some.
        max_wait: seconds after which a buffer is computed although it is not full.
        **settings: pooling, unit_length, too_long and damaged of `embed_texts`.

    Raises:
        TypeError: if the lines are one string, or hold something else.
        UsageError, DataError: see `embed_texts`.
    """

    def compute(buffer: list[str], first: int) -> list[EmbeddedText]:
        return embed_texts(opened, buffer, first_index=first, **settings)

    lines = given_lines(lines)
    yield from computed_by_buffer(opened.directory, lines, compute, buffer_lines, max_wait)


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
    shown += ', "truncated": true' if embedded.is_truncated else ""
    shown += (
        f', "error": {json.dumps(embedded.error, ensure_ascii=False)}' if embedded.error else ""
    )
    return f"{shown}}}"


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
