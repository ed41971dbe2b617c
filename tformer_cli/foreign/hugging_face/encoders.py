"""Encoders of the library, both ways: BERT, RoBERTa, DistilBERT, ELECTRA, with and without heads.

The vector of token type 0 is added to every position, for texts are single sentences here, and an
export leaves it there; RoBERTa's first text position is row 2 of its table. The weights tell the
head: rows of tokens, labels, or none; only the class tells a tagger's labels from those of texts.
Models with WordPiece are exported as BERT, or as what they
came from; with BPE on bytes as RoBERTa. Pipelines of sentence-transformers (5.1, models/Pooling.py)
are an encoder, a pooling, and perhaps a norm.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

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
    written_labels,
)
from tformer_cli.foreign.keys import (
    USED,
    Keys,
    no_effect,
    noted,
    number,
    only,
    parse_json,
    read_bytes,
    read_json_file,
    rows_of,
    shown,
)
from tformer_cli.text.foreign_pieces import BytePieceTokenizer
from tformer_cli.text.tokenizer import PAD_ID

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.foreign.formats.mapped_file import Array
    from tformer_cli.foreign.hugging_face.layout import Layout
    from tformer_cli.model.config import Head, Pooling

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
    file, family, reader = source.file, source.family, source.reader
    vocabulary = read_encoder_vocabulary(file.parent, lowercase=pipeline.lowercase)
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
    if head in ("labels", "tags"):
        labels = label_names(file, source.settings, len(of_head["output_bias"]), source.notes)
    spaced = next((one for one in labels if head == "tags" and one.split() != [one]), None)
    if spaced is not None:  # a line of labels has as many as words
        raise ArtifactError(
            f"{file}: the label {shown(spaced)} has a space, but labels of words are written with "
            "spaces between them; rename it in id2label"
        )
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
    return finish(
        source,
        config,
        given,
        ids=rows.foreign,
        tokenizer=vocabulary.tokenizer(rows, str(file)),
        files=(*vocabulary.files, *pipeline.files),
        notes=vocabulary.notes,
        kind=f"sentence-transformers {family.title}" if pipeline.is_sentence else "",
        labels=labels,
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
        **{f"{one}.{part}": f"{names[one]}.{part}" for one in modules for part in _PARTS},
        "output_projection.weight": f"{names['output']}.weight",
        "output_bias": names.get("output_bias", f"{names['output']}.bias"),
    }


def _head(source: Source, embedding: Array) -> tuple[Head, dict[str, Array]]:
    """Reads the weights of the head by tformer's names."""
    reader, family = source.reader, source.family
    labels, tags, tokens = (_head_names(family, head) for head in ("labels", "tags", "tokens"))
    # BERT's taggers may hold a pooler, too, which nothing in them reads
    if any(
        str(one).endswith(HEAD_CLASSES["tags"])
        for one in source.settings.get("architectures") or ()
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
    # the bias has two names in some files; tied rows are often stored again
    names = [tokens.pop("output_bias"), f"{family.heads['tokens']['output']}.bias"]
    output = tokens.pop("output_projection.weight")
    found = {ours: reader.take(theirs) for ours, theirs in tokens.items()}
    found["output_bias"] = reader.take_first(names)
    if output in reader and not np.array_equal(rows := reader.take(output), embedding):
        found["output_projection.weight"] = rows
    return "tokens", found


def family_of(directory: ModelDirectory) -> Family:
    config, origin = directory.config, directory.info.origin
    kind = "roberta" if isinstance(directory.tokenizer, BytePieceTokenizer) else "bert"
    for name in ("distilbert", "electra"):
        came_from = origin is not None and origin.kind.endswith(FAMILIES[name].title)
        if kind == "bert" and came_from and config.head in FAMILIES[name].classes:
            kind = name
    family = FAMILIES[kind]
    if config.head not in family.classes:
        raise UsageError(
            f"{directory.path}: {family.title} of Hugging Face has no taggers that read words as "
            "they are read here; use it here"
        )
    if config.head == "labels" and (config.pooler, config.pooling) != (family.pooler, "first"):
        raise UsageError(
            f"{directory.path}: {family.classes[config.head]} of Hugging Face has another pooler "
            f'or pooling (pooling = "first", pooler = "{family.pooler}"); use it here'
        )
    return family


def write(directory: ModelDirectory, family: Family) -> Parts:
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
    for name, theirs in _head_names(family, config.head).items():
        is_of_tokens = config.head == "tokens" and name.startswith("output_")
        if name in ours:
            found[theirs] = layout.ordered(ours[name]) if is_of_tokens else ours[name]
        if is_of_tokens and name == "output_bias":
            found[f"{family.heads['tokens']['output']}.bias"] = found[theirs]
    return found


def _offset(family: Family, layout: Layout) -> int:
    """Rows of the table of positions before the first token's."""
    return layout.ids[PAD_ID] + 1 if family.counts_from_padding else 0


MODULES = Keys(
    "modules.json",
    "sentence-transformers",
    {"type": USED, "path": USED, **rows_of("idx name", no_effect("the order is that of the list"))},
)
TRANSFORMER = Keys(
    "sentence_bert_config.json",
    "sentence-transformers",
    {
        "max_seq_length": USED,
        "do_lower_case": USED,
        "transformer_task": only(None, "feature-extraction"),
        "modality_config": only(
            None, {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
        ),
        "module_output_name": only(None, "token_embeddings"),
        "unpad_inputs": no_effect("how batches are computed"),
    },
)
POOLING = Keys(
    "1_Pooling/config.json",
    "sentence-transformers",
    {
        **rows_of(
            "pooling_mode pooling_mode_cls_token pooling_mode_mean_tokens pooling_mode_max_tokens"
            " pooling_mode_mean_sqrt_len_tokens pooling_mode_weightedmean_tokens"
            " pooling_mode_lasttoken",
            USED,
        ),
        **rows_of("word_embedding_dimension embedding_dimension", no_effect("the width says it")),
        "include_prompt": no_effect("there are no prompts"),
    },
)
NORMALIZE = Keys("2_Normalize/config.json", "sentence-transformers", {})
PIPELINE = Keys(
    "config_sentence_transformers.json",
    "sentence-transformers",
    {
        "__version__": no_effect("the origin of the model"),
        "model_type": only(None, "SentenceTransformer"),
        "similarity_fn_name": noted("vectors are written, and none is compared", "cosine"),
        "prompts": USED,
        "default_prompt_name": USED,
        "truncate_dim": only(None),
    },
)


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Pooling of an encoder's states by sentence-transformers."""

    path: Path
    pooling: Pooling = "mean"
    unit_length: bool = False
    longest: int = 0  # tokens of the longest text (0: as long as there are positions)
    lowercase: bool = False  # texts are made small before they are cut
    files: tuple[Path, ...] = ()
    notes: list[str] = field(default_factory=list)
    is_sentence: bool = False


def read_pipeline(path: Path) -> Pipeline:
    """Reads the modules of sentence-transformers; a directory without them is the encoder."""
    file = path / "modules.json"
    if not file.is_file():
        return Pipeline(path=path)
    notes: list[str] = []
    try:
        found = parse_json(read_bytes(file))
        for one in found:
            notes += MODULES.read(file, one)
        modules = [(str(one["type"]).rpartition(".")[2], path / str(one["path"])) for one in found]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ArtifactError(f"{file}: is not a list of modules; download it again") from None
    kinds = [kind for kind, _ in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]):
        raise ArtifactError(
            f"{file}: the modules {', '.join(kinds)[:60]} are not supported, only Transformer, "
            "Pooling and Normalize; import another model"
        )
    if not all(inner.resolve().is_relative_to(path.resolve()) for _, inner in modules):
        raise ArtifactError(f"{file}: names a directory that is not in it; download it again")
    tables = [
        (modules[1][1] / "config.json", POOLING),
        (modules[0][1] / "sentence_bert_config.json", TRANSFORMER),
        (path / PIPELINE.file, PIPELINE),
        *((inner / "config.json", NORMALIZE) for _, inner in modules[2:]),
    ]
    values: dict[str, dict[str, Any]] = {}
    for one, table in tables:
        values[table.file] = read_json_file(one) if one.is_file() or table is POOLING else {}
        notes += table.read(one, values[table.file])
    pooling_file = tables[0][0]
    settings = values[TRANSFORMER.file]
    notes += _prompts(path / PIPELINE.file, values[PIPELINE.file])
    longest = settings.get("max_seq_length")
    return Pipeline(
        path=modules[0][1],
        pooling=_pooling_of(pooling_file, values[POOLING.file]),
        unit_length="Normalize" in kinds,
        longest=longest if type(longest) is int else 0,
        lowercase=settings.get("do_lower_case") is True,
        files=(file, *(one for one, _ in tables if one.is_file())),
        notes=notes,
        is_sentence=True,
    )


def _prompts(file: Path, values: Mapping[str, Any]) -> list[str]:
    """Refuses a prompt that is put before every text; notes those that a caller chooses."""
    prompts, name = values.get("prompts") or {}, values.get("default_prompt_name")
    if not isinstance(prompts, dict):
        raise ArtifactError(f"{file}: prompts is not an object; download it again")
    if name is not None and prompts.get(str(name)) != "":
        raise ArtifactError(
            f"{file}: default_prompt_name = {shown(name)} puts a text before every text, which is "
            "not supported; set it to null and write the text before yours"
        )
    named = [shown(one) for one in prompts if prompts[one]][:4]
    if not named:
        return []
    return [f"prompts ({', '.join(named)}) are not put before texts; write them before yours"]


def _pooling_of(file: Path, settings: Mapping[str, Any]) -> Pooling:
    known: Mapping[str, Pooling] = {
        "pooling_mode_mean_tokens": "mean",
        "pooling_mode_cls_token": "first",
    }
    modes = [n for n, value in settings.items() if n.startswith("pooling_mode_") and value is True]
    if not modes and settings.get("pooling_mode") in ("mean", "cls"):
        return "mean" if settings["pooling_mode"] == "mean" else "first"
    if len(modes) != 1 or modes[0] not in known:
        raise ArtifactError(
            f"{file}: {', '.join(modes)[:100] or 'its pooling'} is not supported, only the mean or "
            "the first token's state; import another model"
        )
    return known[modes[0]]
