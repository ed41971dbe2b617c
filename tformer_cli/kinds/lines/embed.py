"""Turning texts or images into vectors with an encoder."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np

from tformer_cli.artifacts.weights_file import write_header
from tformer_cli.errors import UsageError
from tformer_cli.kinds.lines.job import LineResult, each_read
from tformer_cli.model.methods import POOLINGS, name_choices
from tformer_cli.search.pooled import pool_states
from tformer_cli.show.notebook import html_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from tformer_cli.kinds.lines.job import Damaged, TooLong
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.model.config import ModelConfig
    from tformer_cli.model.methods import Pooling

VectorFormat = Literal["tsv", "jsonl", "npy", "safetensors"]
TENSOR = "vectors"
"""Name of the array in a safetensors file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedText(LineResult):
    """A text, or the name of an image, and its vector."""

    vector: NDArray[np.float32] | None
    """(D), or (2·D) of pooling "first-and-mean"; None of a blank text."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: ANN401
        """Returns the vector to NumPy; for a blank text, a vector of NaN."""
        return np.array(np.nan if self.vector is None else self.vector, dtype=dtype, copy=copy)

    def __str__(self) -> str:
        return self.line("tsv")

    def _repr_html_(self) -> str:
        shown = "" if self.vector is None else str(self.vector)  # NumPy omits the middle
        return html_table(self.text, ("vector",), [(shown,)])

    def line(self, output_format: VectorFormat) -> str:
        """Writes it as a line, without its end; see `array_writer` for files of one array."""
        values = [] if self.vector is None else self.vector.tolist()
        # Seven digits hold any float32
        numbers = [f"{value:.7g}" for value in values]
        if output_format == "tsv":
            return "\t".join(numbers)
        vector = f"[{', '.join(numbers)}]" if numbers else "null"
        # json would write the float64 that is nearest to each number, of 17 digits
        return self.object_line({"vector": None}).replace('"vector": null', f'"vector": {vector}')


def embed_texts(
    opened: Opened,
    texts: Sequence[str],
    *,
    pooling: Pooling | None = None,
    unit_length: bool | None = None,
    too_long: TooLong = "truncate",
    damaged: Damaged = "error",
    first_index: int = 0,
) -> list[EmbeddedText]:
    """Computes the vectors of texts or images; in float32 on a CPU none depends on the others."""
    config = opened.config
    kind = checked_pooling(config, pooling)
    is_unit = config.unit_length if unit_length is None else unit_length
    rows = each_read(
        opened.directory,
        texts,
        lambda ids: _vectors(opened, ids, kind, unit_length=is_unit),
        first_index=first_index,
        too_long=too_long,
        damaged=damaged,
    )
    return [EmbeddedText(**fields, vector=vector) for fields, vector in rows]


def checked_pooling(config: ModelConfig, pooling: Pooling | None) -> Pooling:
    """Returns how a model is pooled, if it can be; None: by its settings."""
    if pooling not in (None, *POOLINGS):  # Python programs may give any word
        raise ValueError(f'pooling: must be {name_choices(POOLINGS)}, but is "{pooling}"')
    row = POOLINGS[pooling or config.pooling]
    if pooling and row.is_joined and not config.reads_images:
        raise UsageError.of("{pooling}: {} is only for image models; use mean or first", pooling)
    if pooling and row.has_first and config.reads_images and not config.class_token:
        raise UsageError.of("{pooling}: MODEL has no class token for {}; use mean", pooling)
    return pooling or config.pooling


def vector_width(config: ModelConfig, pooling: Pooling | None) -> int:
    """Returns the numbers of a vector; see `checked_pooling`."""
    is_joined = POOLINGS[checked_pooling(config, pooling)].is_joined
    return config.d_model * (2 if is_joined else 1)


def _vectors(
    opened: Opened, texts: Sequence[Sequence[int]], pooling: Pooling, *, unit_length: bool
) -> list[NDArray[np.float32]]:
    """Computes the vectors (D) of texts or images, by the kernels if they can."""
    if opened.compiled is not None:
        return opened.compiled.each(
            texts, lambda _, hidden: pool_states(hidden, pooling, unit_length=unit_length).copy()
        )
    from tformer_cli.search.encoding import text_vectors

    return text_vectors(
        opened.directory.encoder,
        texts,
        pooling,
        unit_length=unit_length,
        precision=opened.products,
    )


@contextmanager
def array_writer(
    stream: BinaryIO, output_format: VectorFormat, width: int
) -> Iterator[Callable[[EmbeddedText], None]]:
    """Writes a float32 array (N, D) row by row, in constant memory."""
    # On disk: a header has the number of rows, and a billion floats may not fit in memory
    n_rows = 0
    with tempfile.TemporaryFile() as rows:

        def add(embedded: EmbeddedText) -> None:
            nonlocal n_rows
            vector = embedded.vector
            # A blank text keeps its row: row i is line i, little-endian as the header says
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
