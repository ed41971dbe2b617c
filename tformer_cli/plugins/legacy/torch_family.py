"""One reader for models of fairseq, OpenNMT-py and Eole, each a table.

Their settings are those of a training run, of which few concern the model.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.foreign_model import (
    ForeignModel,
    Reader,
    VocabularyOrder,
    Weight,
    build_weights,
    output_bias,
)
from tformer_cli.foreign.formats.mapped_file import Array
from tformer_cli.foreign.side_tokenizers import read_tokenizer
from tformer_cli.model.config import ModelConfig
from tformer_cli.search.config import DecodingConfig

DECODING = DecodingConfig(beam_size=5, length_normalization="average", length_penalty=1.0)


def vocabulary_rows(array: Array, rows: VocabularyOrder, where: str, name: str) -> Weight:
    """Puts the rows of an embedding (V, D), or of a bias (V), in the order of tformer's ids."""
    n_entries = max(rows.foreign) + 1
    if len(array) != n_entries:
        raise ArtifactError(
            f"{where}: {name} has {len(array):,} rows, but its vocabulary has {n_entries:,} "
            "entries; use this model's own vocabulary"
        )
    return rows.of(array)


def values_of(names: str, values: tuple[Any, ...]) -> dict[str, tuple[Any, ...]]:
    """The same known values of several settings, which a text names with spaces between them."""
    return dict.fromkeys(names.split(), values)


def flag(path: Path, settings: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    value = settings.get(name, default)
    if value is None:
        return default
    if value not in (True, False):
        raise ArtifactError(f"{path}: {name} is neither true nor false; use this model's own file")
    return bool(value)


@dataclass(frozen=True, kw_only=True)
class Names:
    """A tool's names of weights."""

    # those of the modules of a layer and of norms; see `build_weights`
    layers: Mapping[str, Sequence[str]]
    source: str
    target: str
    output: str  # embeddings, and the matrix of the logits
    output_bias: str = ""
    # tables of positions of "encoder" and "decoder", where the file holds them
    positions: Mapping[str, str] = field(default_factory=dict)
    lacks_biases: bool = False  # true if a bias that no layer of a stack has is zero


def read_model(
    kind: str,
    names: Names,
    reader: Reader,
    config: ModelConfig,
    sides: tuple[VocabularyOrder, VocabularyOrder],
    *,
    directory: Path,
    files: Iterable[Path],
    positions: Mapping[str, Array] | None = None,
    languages: tuple[str, str] = ("", ""),
    decoding: DecodingConfig = DECODING,
) -> ForeignModel:
    """Reads the weights of a model, all of which must be known, and the tokenizer next to it."""
    outer_weights = _around_stacks(names, reader, config, sides)
    tables = positions or {side: reader.take(name) for side, name in names.positions.items()}
    for side, table in tables.items():
        rows = table.reshape(len(table), -1)[: config.max_positions]
        outer_weights[f"{side}_input.positions.table"] = rows
    read = partial(_take_or_zeros, reader) if names.lacks_biases else reader.take
    n_pieces = len(sides[1].pieces)
    weights = build_weights(config, n_pieces, names.layers, read, outer_weights, reader.where)
    reader.check_all_taken()
    tokenizer, texts, notes = read_tokenizer(directory, languages, sides)
    return ForeignModel(
        kind=kind,
        config=config,
        weights=weights,
        tokenizer=tokenizer,
        decoding=decoding,
        files=(*files, *texts),
        ids=sides[1].foreign,
        languages=languages,
        notes=tuple(notes),
    )


def _around_stacks(
    names: Names,
    reader: Reader,
    config: ModelConfig,
    sides: tuple[VocabularyOrder, VocabularyOrder],
) -> dict[str, Weight]:
    """Reads embeddings and the output layer; a matrix that is shared may have several names."""
    weights: dict[str, Weight] = {}

    def rows(names: list[str], side: VocabularyOrder) -> Weight:
        there = [name for name in names if name in reader] or names[:1]
        return vocabulary_rows(reader.take_first(there), side, reader.where, there[0])

    source, target, output = [names.source], [names.target], [names.output]
    if config.tied_embeddings == "all":
        weights["source_embedding.weight"] = rows([*source, *target, *output], sides[1])
    else:
        # without a vocabulary of its own, the source's matrix may have the target's name
        has_own = config.source_vocab_size > 0
        also = ([], []) if has_own else (target, source)
        tied = output if config.tied_embeddings == "decoder" else []
        weights["source_embedding.weight"] = rows([*source, *also[0]], sides[0 if has_own else 1])
        weights["target_embedding.weight"] = rows([*target, *also[1], *tied], sides[1])
    if config.tied_embeddings == "none":
        weights["output_projection.weight"] = rows(output, sides[1])
    bias = names.output_bias
    weights["output_bias"] = output_bias(sides[1], reader.take(bias) if bias in reader else None)
    return weights


def _take_or_zeros(reader: Reader, name: str) -> Array:
    """Reads a weight; a bias that no layer of the stack has is zero."""
    stem, _, part = name.rpartition(".")
    if part == "bias" and name not in reader and "norm" not in stem:
        same = re.compile(re.sub(r"\\\.\d+\\\.", r"\\.\\d+\\.", re.escape(name)))
        if not any(same.fullmatch(other) for other in reader.arrays):
            return np.zeros(len(reader.take(f"{stem}.weight")), np.float32)
    return reader.take(name)
