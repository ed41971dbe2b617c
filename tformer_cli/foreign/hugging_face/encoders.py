"""Encoders of the library, both ways: BERT, RoBERTa, DistilBERT, ELECTRA, with and without heads.

The vector of token type 0 is added to every position, for texts are single sentences here, and an
export leaves it there; RoBERTa's first text position is row 2 of its table. The weights tell the
head: rows of tokens, labels, or none. Models with WordPiece are exported as BERT, or as what they
came from; with BPE on bytes as RoBERTa.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.foreign.assembly import Weight, assembled
from tformer_cli.foreign.foreign_model import ForeignModel, model_config, number
from tformer_cli.foreign.hugging_face.encoder_vocabulary import read_vocabulary
from tformer_cli.foreign.hugging_face.families import FAMILIES
from tformer_cli.foreign.hugging_face.family import (
    Family,
    Parts,
    Source,
    named_weights,
    written_labels,
)
from tformer_cli.foreign.label_names import label_names
from tformer_cli.search.config import DecodingConfig
from tformer_cli.text.foreign_pieces import BytePieceTokenizer
from tformer_cli.text.tokenizer import PAD_ID

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.foreign.formats.lazy_arrays import Array
    from tformer_cli.foreign.hugging_face.layout import Layout
    from tformer_cli.foreign.hugging_face.sentences import Pipeline
    from tformer_cli.model.config import Head

_ENDINGS = ("Model", "ForMaskedLM", "ForPreTraining")
_PARTS = ("weight", "bias")
_OLD_BERT = {"hidden_size", "num_hidden_layers", "type_vocab_size", "hidden_act"}
"""Settings of a BERT whose config.json is older than `model_type`."""


def model_type_of(settings: Mapping[str, Any]) -> str:
    kind = settings.get("model_type")
    return "bert" if kind is None and settings.keys() >= _OLD_BERT else str(kind)


def read(source: Source, pipeline: Pipeline) -> ForeignModel:
    """Reads a directory of the library, or the encoder in one of sentence-transformers."""
    # a head of other weights has names of its own; one of other sums would not be noticed
    is_labeled = "labels" in source.family.heads
    source.check_architecture(
        (*_ENDINGS, "ForSequenceClassification") if is_labeled else _ENDINGS,
        "import an encoder without a head, with one for masked tokens, or for labels of texts",
    )
    file, family, reader, notes = source.file, source.family, source.reader, source.notes
    vocabulary = read_vocabulary(file.parent, lowercase=pipeline.lowercase)
    longest = pipeline.longest or (vocabulary.longest if pipeline.is_sentence else 0)
    embedding = reader.take(f"{family.outer['source_embedding']}.weight")
    rows = vocabulary.rows(len(embedding), str(file))
    positions = _positions(source, longest)
    given: dict[str, Weight] = {
        "source_embedding.weight": rows.of(embedding),
        "encoder_input.positions.table": positions,
    }
    head, of_head = _head(source, embedding)
    labels: tuple[str, ...] = ()
    if head == "labels":
        labels = label_names(file, source.settings, len(of_head["output_bias"]), notes)
    for name, one in of_head.items():
        is_of_tokens = head == "tokens" and name.startswith("output_")
        given[name] = rows.of(one) if is_of_tokens else one
    is_untied = head == "tokens" and "output_projection.weight" in given
    config = model_config(
        file,
        **source.shape(),
        head=head,
        n_labels=len(labels),
        pooling="first" if head == "labels" else pipeline.pooling,
        pooler=family.pooler if head == "labels" else "none",
        unit_length=pipeline.unit_length,
        max_positions=len(positions),
        tied_embeddings="none" if is_untied else "all",
    )
    weights = assembled(config, len(rows.pieces), family.modules, reader.take, given, str(file))
    beginnings, note = family.omitted
    left = [n for n in reader.arrays if n.startswith(beginnings) and not reader.is_taken(n)]
    if left:
        notes.append(note)
        reader.ignore(left)
    reader.ignore([name for name in reader.arrays if name.endswith("position_ids")])
    reader.check_all_taken()
    title = "sentence-transformers" if pipeline.is_sentence else "Hugging Face"
    return ForeignModel(
        kind=f"{title} {family.title}",
        config=config,
        weights=weights,
        tokenizer=vocabulary.tokenizer(rows, str(file)),
        decoding=DecodingConfig(),
        files=(file, *source.weight_files, *vocabulary.files, *pipeline.files),
        ids=rows.foreign,
        labels=labels,
        notes=(*notes, *vocabulary.notes),
    )


def _positions(source: Source, longest: int) -> Array:
    """The vectors of positions, with that of token type 0."""
    file, family, reader = source.file, source.family, source.reader
    table = reader.take(f"{family.outer['positions']}.weight")
    if family.counts_from_padding:
        table = table[number(file, {"pad_token_id": 1, **source.settings}, "pad_token_id") + 1 :]
    if "token_types" in family.outer:
        types = reader.take(f"{family.outer['token_types']}.weight")
        if types.ndim != 2 or types.shape[1:] != table.shape[1:]:
            raise ArtifactError(f"{file}: the token types are no vectors of the model's")
        table = table + types[0]
        if len(types) > 1:
            source.notes.append("texts are single sentences: token type 1 is omitted")
    if 1 < longest < len(table):
        source.notes.append(f"texts are cut off at {longest} tokens, as its own library does")
        table = table[:longest]
    return table


def _head(source: Source, embedding: Array) -> tuple[Head, dict[str, Array]]:
    """Reads the weights of the head by tformer's names."""
    reader, labels, tokens = source.reader, *map(source.family.heads.get, ("labels", "tokens"))
    if labels and f"{labels['output']}.weight" in reader:
        return "labels", {
            "output_projection.weight": reader.take(f"{labels['output']}.weight"),
            "output_bias": reader.take(f"{labels['output']}.bias"),
            **{f"pooler.{part}": reader.take(f"{labels['pooler']}.{part}") for part in _PARTS},
        }
    if not tokens or f"{tokens['transform']}.weight" not in reader:
        return "none", {}
    found = {
        f"{ours}.{part}": reader.take(f"{tokens[ours]}.{part}")
        for ours in ("transform", "transform_norm")
        for part in _PARTS
    }
    found["output_bias"] = reader.take_first([tokens["output_bias"], f"{tokens['output']}.bias"])
    if f"{tokens['output']}.weight" in reader:
        rows = reader.take(f"{tokens['output']}.weight")
        if not np.array_equal(rows, embedding):
            found["output_projection.weight"] = rows
    if source.family.gelu_head and source.settings.get("hidden_act", "gelu") != "gelu":
        raise ArtifactError(
            f"{source.file}: hidden_act is not gelu, which its head computes with; import another "
            "model"
        )
    return "tokens", found


def family_of(directory: ModelDirectory) -> Family:
    """Returns the family that an encoder is exported as."""
    config, origin = directory.config, directory.info.origin
    kind = "roberta" if isinstance(directory.tokenizer, BytePieceTokenizer) else "bert"
    for name in ("distilbert", "electra"):
        came_from = origin is not None and origin.kind.endswith(FAMILIES[name].title)
        if kind == "bert" and came_from and config.head in FAMILIES[name].classes:
            kind = name
    family = FAMILIES[kind]
    if config.head == "labels" and (config.pooler, config.pooling) != (family.pooler, "first"):
        raise UsageError(
            f"{directory.path}: {family.classes[config.head]} of Hugging Face has another pooler "
            f'or pooling (pooling = "first", pooler = "{family.pooler}"); use it here'
        )
    return family


def write(directory: ModelDirectory, family: Family) -> Parts:
    """Makes the parts of an export."""
    from tformer_cli.foreign.hugging_face.layout import encoder_layout

    config, labels = directory.config, directory.info.labels
    layout = encoder_layout(directory)
    settings = {
        **family.write(config),
        "vocab_size": layout.sizes[0],
        "max_position_embeddings": config.max_positions + _offset(family, layout),
        "pad_token_id": layout.ids[PAD_ID],
        "tie_word_embeddings": config.tied_embeddings == "all",
        **(written_labels(labels) if labels else {}),
    }
    return Parts(settings=settings, weights=_weights(directory, family, layout), layout=layout)


def _weights(directory: ModelDirectory, family: Family, layout: Layout) -> dict[str, Tensor]:
    import torch

    config, outer = directory.config, family.outer
    ours = directory.encoder.state_dict()
    rows = ours["encoder_input.positions.table"]
    before = rows.new_zeros(_offset(family, layout), config.d_model)
    found = {
        f"{outer['source_embedding']}.weight": layout.ordered(ours["source_embedding.weight"]),
        f"{outer['positions']}.weight": torch.cat([before, rows]),
        **named_weights(family, config, ours, len(layout.ids), directory.path),
    }
    if "token_types" in outer:
        found[f"{outer['token_types']}.weight"] = rows.new_zeros(1, config.d_model)
    names = family.heads.get(config.head, {})
    modules = names.keys() - {"output", "output_bias"}
    found |= {f"{names[one]}.{part}": ours[f"{one}.{part}"] for one in modules for part in _PARTS}
    if config.head == "labels":
        found[f"{names['output']}.weight"] = ours["output_projection.weight"]
        found[f"{names['output']}.bias"] = ours["output_bias"]
    if config.head == "tokens":
        bias = layout.ordered(ours["output_bias"])
        found |= {names["output_bias"]: bias, f"{names['output']}.bias": bias}
        if "output_projection.weight" in ours:
            matrix = layout.ordered(ours["output_projection.weight"])
            found[f"{names['output']}.weight"] = matrix
    return found


def _offset(family: Family, layout: Layout) -> int:
    """Rows of the table of positions before the first token's."""
    return layout.ids[PAD_ID] + 1 if family.counts_from_padding else 0
