"""Encoders of the library, both ways: those of BERT's family, with and without heads.

The vector of token type 0 is added to every position, for texts are single sentences here, and an
export leaves it there; RoBERTa's first text position is row 2 of its table. The weights tell the
head: rows of tokens, labels, or none; only the class tells a tagger's labels from those of texts.
Pre-norm models are exported as MegatronBERT, others as BERT, or as
what they came from, those with BPE on bytes as RoBERTa; see `pipelines` for sentence-transformers.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tformer_cli.artifacts.config_file import MODELS, task_kind
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.foreign.foreign_model import ForeignModel, Weight, model_config
from tformer_cli.foreign.hugging_face.byte_pieces import read_encoder_vocabulary
from tformer_cli.foreign.hugging_face.families import FAMILIES, HEAD_CLASSES
from tformer_cli.foreign.hugging_face.family import (
    Family,
    Parts,
    Source,
    finish,
    label_names,
    named_weights,
    position_rows,
    written_labels,
)
from tformer_cli.foreign.hugging_face.pipelines import is_written, read_classifier, write_pipeline
from tformer_cli.foreign.hugging_face.tokenizers import read_exported
from tformer_cli.foreign.keys import number, quote
from tformer_cli.model.weight_shapes import parameter_shapes
from tformer_cli.text.foreign_pieces import BytePieceTokenizer
from tformer_cli.text.tokenizer import PAD_ID

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.foreign.formats.mapped_file import Array
    from tformer_cli.foreign.hugging_face.layout import Layout
    from tformer_cli.foreign.hugging_face.pipelines import Pipeline
    from tformer_cli.model.config import Head
    from tformer_cli.model.methods import Pooling

_PARTS = ("weight", "bias")
# settings of a BERT whose config.json is older than `model_type`
_OLD_BERT = {"hidden_size", "num_hidden_layers", "type_vocab_size", "hidden_act"}


def model_type_of(settings: Mapping[str, Any]) -> str:
    kind = settings.get("model_type")
    return "bert" if kind is None and settings.keys() >= _OLD_BERT else str(kind)


def read(source: Source, pipeline: Pipeline) -> ForeignModel:
    """Reads a directory of the library, or the encoder in one of sentence-transformers."""
    # a head of other weights has names of its own; one of other sums would not be noticed
    source.check_architecture(
        (*(HEAD_CLASSES[head] for head in source.family.classes), "ForPreTraining"),
        "import an encoder without a head, with one for masked tokens, or for labels of texts or "
        "words",
    )
    file, family = source.file, source.family
    vocabulary = read_exported(file.parent) or read_encoder_vocabulary(
        file.parent, source.settings.get("tokenizer_class"), lowercase=pipeline.lowercase
    )
    longest = pipeline.longest or (vocabulary.longest if pipeline.is_sentence else 0)
    output = f"{family.heads.get('tokens', {}).get('output')}.weight"
    embedding = source.read_embedding([f"{family.outer['source_embedding']}.weight"], output)
    rows = vocabulary.rows(len(embedding), str(file))
    positions = _positions(source, longest, rows.foreign[PAD_ID])
    weights: dict[str, Weight] = {
        "source_embedding.weight": rows.of(embedding),
        "encoder_input.positions.table": positions,
    }
    head, of_head = _head(source, embedding)
    pooler = family.pooler if head == "labels" else "none"
    pooling: Pooling = "first" if head == "labels" else pipeline.pooling
    of_pipeline = pipeline.files
    if pipeline.dense:  # that library reads no head of the encoder
        pooler, of_head, more = read_classifier(pipeline, source.settings.get("id2label"))
        head, of_pipeline = "labels", (*of_pipeline, *more)
    labels = _labels(source, head, of_head)
    for name, weight in of_head.items():
        is_of_tokens = head == "tokens" and name.startswith("output_")
        weights[name] = rows.of(weight) if is_of_tokens else weight
    is_untied = head == "tokens" and "output_projection.weight" in weights
    config = model_config(
        file,
        **source.shape(),
        head=head,
        n_labels=len(labels),
        pooling=pooling,
        pooler=pooler,
        unit_length=pipeline.unit_length,
        max_positions=len(positions),
        tied_embeddings="none" if is_untied else "all",
    )
    return finish(
        source,
        config,
        weights,
        ids=rows.foreign,
        tokenizer=vocabulary.tokenizer(rows, str(file)),
        files=(*vocabulary.files, *of_pipeline),
        notes=vocabulary.notes,
        kind=f"sentence-transformers {family.title}" if pipeline.is_sentence else "",
        labels=labels,
        lowercase=pipeline.lowercase,
    )


def _labels(source: Source, head: Head, of_head: Mapping[str, Array]) -> tuple[str, ...]:
    """Reads the names of labels; labels of words have no space."""
    if head not in ("labels", "tags"):
        return ()
    labels = label_names(source.file, source.settings, len(of_head["output_bias"]), source.notes)
    spaced = next((label for label in labels if head == "tags" and label.split() != [label]), None)
    if spaced is not None:  # a line of labels has as many as words
        raise ArtifactError(
            f"{source.file}: the label {quote(spaced)} has a space, but labels of words are "
            "written with spaces between them; rename it in id2label"
        )
    return labels


def _positions(source: Source, longest: int, padding: int) -> Array:
    """The vectors of positions, with that of token type 0."""
    file, family, reader = source.file, source.family, source.reader
    table = reader.take(f"{family.outer['positions']}.weight")
    if family.counts_from_padding:
        pad = number(file, {"pad_token_id": 1, **source.settings}, "pad_token_id")
        if pad != padding:
            raise ArtifactError(
                f"{file}: pad_token_id = {pad}, from which positions are counted, but the "
                f"tokenizer pads with the id {padding}; use this model's own settings"
            )
        table = table[pad + 1 :]
    if "token_types" in family.outer:
        types = reader.take(f"{family.outer['token_types']}.weight")
        if types.ndim != 2 or types.shape[1:] != table.shape[1:]:
            raise ArtifactError(f"{file}: token_type_embeddings: wrong width")
        table = table + types[0]
        if len(types) > 1:
            source.notes.append("texts are single sentences: token type 1 is omitted")
    if 1 < longest < len(table):
        source.notes.append(f"texts are cut off at {longest} tokens, as its own library does")
        table = table[:longest]
    return table


def _head_names(family: Family, head: str) -> dict[str, str]:
    """The family's names of the weights of a head, by tformer's."""
    names = family.heads.get(head)
    if not names:
        return {}
    modules = names.keys() - {"output", "output_bias"}
    return {
        **{f"{module}.{part}": f"{names[module]}.{part}" for module in modules for part in _PARTS},
        "output_projection.weight": f"{names['output']}.weight",
        "output_bias": names.get("output_bias", f"{names['output']}.bias"),
    }


def _head(source: Source, embedding: Array) -> tuple[Head, dict[str, Array]]:
    """Reads the weights of the head by tformer's names."""
    reader, family = source.reader, source.family
    labels, tags, tokens = (_head_names(family, head) for head in ("labels", "tags", "tokens"))
    # BERT's taggers may hold a pooler, too, which nothing in them reads
    if any(
        str(architecture).endswith(HEAD_CLASSES["tags"])
        for architecture in source.settings.get("architectures") or ()
    ):
        return "tags", {ours: reader.take(theirs) for ours, theirs in tags.items()}
    if labels and labels["output_projection.weight"] in reader:
        return "labels", {ours: reader.take(theirs) for ours, theirs in labels.items()}
    if not tokens or tokens["transform.weight"] not in reader:
        return "none", {}
    if family.gelu_head and source.settings.get("hidden_act", "gelu") != "gelu":
        raise ArtifactError(
            f"{source.file}: hidden_act is not gelu, which its head computes with; import another "
            "model"
        )
    names = [f"{family.heads['tokens']['output']}.bias", tokens.pop("output_bias")]
    rows = source.read_output(tokens.pop("output_projection.weight"), embedding)
    if not source.is_tied and names[0] in reader:
        reader.ignore(names[1:])  # the other one is added to nothing
        names = names[:1]
    weights = {ours: reader.take(theirs) for ours, theirs in tokens.items()}
    weights["output_bias"] = reader.take_first(names)
    if not np.array_equal(rows, embedding):
        weights["output_projection.weight"] = rows
    return "tokens", weights


def family_of(directory: ModelDirectory) -> Family:
    """Returns the family whose layers are those of an encoder."""
    config, origin = directory.config, directory.info.origin
    kind = "roberta" if isinstance(directory.tokenizer, BytePieceTokenizer) else "bert"
    for name in ("distilbert", "electra"):
        came_from = origin is not None and origin.kind.endswith(FAMILIES[name].title)
        if kind == "bert" and came_from and config.head in FAMILIES[name].classes:
            kind = name
    family = FAMILIES["megatron-bert" if config.is_pre_norm else kind]
    if config.head not in family.classes:
        raise UsageError(
            f"{directory.path}: {family.title} of Hugging Face has no {MODELS[task_kind(config)]} "
            "that read texts this way; use it in tformer"
        )
    return family


def write(directory: ModelDirectory, family: Family) -> Parts:
    from tformer_cli.foreign.hugging_face.layout import encoder_layout

    config, labels = directory.config, directory.info.labels
    layout = encoder_layout(directory)
    has_pipeline = is_written(config, family.pooler)
    head = "none" if has_pipeline else config.head
    is_tied = config.tied_embeddings == "all" and not (head == "tokens" and config.scale_embeddings)
    settings = {
        **family.write(config),
        "vocab_size": layout.sizes[0],
        "max_position_embeddings": config.max_positions + _offset(family, layout),
        "pad_token_id": layout.ids[PAD_ID],
        "tie_word_embeddings": is_tied,
        **(written_labels(labels) if labels else {}),
    }
    return Parts(
        settings=settings,
        weights=_weights(directory, family, layout, head),
        layout=layout,
        pipeline=write_pipeline(directory) if has_pipeline else None,
    )


def _weights(
    directory: ModelDirectory, family: Family, layout: Layout, head: Head
) -> dict[str, Tensor]:
    import torch

    config, outer = directory.config, family.outer
    encoder = directory.encoder
    ours = encoder.state_dict()
    rows = position_rows(encoder.encoder_input, config)
    before = rows.new_zeros(_offset(family, layout), config.d_model)
    embedding = layout.order_rows(ours["source_embedding.weight"])
    # √D scales only the embeddings: a matrix that the output shares becomes two
    scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
    weights = {
        f"{outer['source_embedding']}.weight": embedding * scale,
        f"{outer['positions']}.weight": torch.cat([before, rows]),
        **named_weights(family, config, ours, len(layout.ids), directory.path),
    }
    if "token_types" in outer:
        weights[f"{outer['token_types']}.weight"] = rows.new_zeros(1, config.d_model)
    shapes = parameter_shapes(replace(config, bias=True), len(layout.ids))
    for name, theirs in _head_names(family, head).items():
        is_of_tokens = head == "tokens" and name.startswith("output_")
        if name in ours or name.endswith("bias"):  # the classes always have biases
            weight = ours[name] if name in ours else torch.zeros(shapes[name])
            weights[theirs] = layout.order_rows(weight) if is_of_tokens else weight
        elif is_of_tokens and scale != 1.0:
            weights[theirs] = embedding
        if is_of_tokens and name == "output_bias":
            weights[f"{family.heads['tokens']['output']}.bias"] = weights[theirs]
    return weights


def _offset(family: Family, layout: Layout) -> int:
    """Rows of the table of positions before the first token's."""
    return layout.ids[PAD_ID] + 1 if family.counts_from_padding else 0
