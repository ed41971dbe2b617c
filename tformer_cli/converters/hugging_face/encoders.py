"""Encoders alone as directories that Hugging Face's library loads; undoes `converters.bert`.

Models with WordPiece become BERT's, or DistilBERT's if they came from there; with BPE on bytes they
become RoBERTa's. The vector of token type 0 stays in the positions, and the types are zero.
"""

import json
from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from tformer_cli.allow_list import ANY
from tformer_cli.artifacts.model_directory import ModelDirectory
from tformer_cli.converters.assembly import UNUSED, foreign_names, original_piece
from tformer_cli.converters.bert import ACTIVATIONS, FAMILIES, Family
from tformer_cli.converters.hugging_face.decoders import Vocabulary
from tformer_cli.converters.hugging_face.layout import original_ids
from tformer_cli.data.foreign_pieces import NAMES, BytePieceTokenizer, WordPieceTokenizer
from tformer_cli.data.tokenizer import PAD_ID
from tformer_cli.errors import UsageError
from tformer_cli.model.config import PLAIN_TRANSLATION, ModelConfig

KNOWN: Mapping[str, Container[Any]] = MappingProxyType(
    {
        **PLAIN_TRANSLATION,
        "n_decoder_layers": (0,),
        **dict.fromkeys(
            (
                *("d_model", "n_heads", "d_ff", "max_positions", "norm_epsilon", "n_labels"),
                *("dropout", "attention_dropout", "encoder_heads", "decoder_heads", "cross_heads"),
                *("tied_embeddings", "rotary_base", "relative_buckets", "relative_distance"),
                *("bias_heads", "unit_length"),
            ),
            ANY,
        ),
        "activation_dropout": (0.0,),
        "norm": ("post",),
        "activation": frozenset(ACTIVATIONS.values()),
        "positions": ("learned",),
        "bias": (True,),
        "final_norm": ("pre-norm",),
        "embedding_norm": (True,),
        "scale_embeddings": (False,),
        "output_bias": (False,),
        "source_vocab_size": (0,),
        "source_eos": (True,),
        "head": ("labels", "tokens", "none"),
        "pooling": ("mean", "first"),
        "pooler": ("none", "tanh", "relu"),
    }
)
"""Settings of models that the library's classes can hold."""
_HEADS = {"labels": "ForSequenceClassification", "tokens": "ForMaskedLM", "none": "Model"}
_CLASSES = {"bert": "Bert", "roberta": "Roberta", "distilbert": "DistilBert"}
ACTIVATION_NAMES = {"gelu": "gelu", "gelu-tanh": "gelu_new", "relu": "relu", "swish": "silu"}
"""The library's names of activations by tformer's."""
_DROPOUTS = {
    "bert": ("hidden_dropout_prob", "attention_probs_dropout_prob"),
    "distilbert": ("dropout", "attention_dropout"),
}


def class_of(directory: ModelDirectory) -> tuple[str, str]:
    """Returns model_type and class of an encoder alone."""
    config, tokenizer, origin = directory.config, directory.tokenizer, directory.info.origin
    kind = "bert"
    if isinstance(tokenizer, BytePieceTokenizer):
        kind = "roberta"
    elif origin is not None and origin.kind.endswith(FAMILIES["distilbert"].title):
        kind = "distilbert"
    family = FAMILIES[kind]
    name = f"{_CLASSES[kind]}{_HEADS[config.head]}"
    is_other = config.head == "labels" and (config.pooler, config.pooling) != (
        family.pooler,
        "first",
    )
    is_other = is_other or (kind == "distilbert" and config.norm_epsilon != family.epsilon)
    if is_other:
        raise UsageError(
            f"{directory.path}: {name} of Hugging Face has another pooler, pooling or norm_epsilon "
            f'(pooling = "first", pooler = "{family.pooler}"); use it here'
        )
    return kind, name


def vocabulary_of(directory: ModelDirectory) -> Vocabulary:
    """Decides how the vocabulary is exported: with the ids and in the files that it came with."""
    tokenizer = directory.tokenizer
    ids = tuple(original_ids(directory)) or tuple(range(tokenizer.vocab_size))
    if isinstance(tokenizer, WordPieceTokenizer):
        rules = tokenizer.rules
        if rules.between_spaces or rules.longest_word != 100 or not rules.clean:
            raise UsageError(
                f"{directory.path}: its words are cut in a way that --format huggingface cannot "
                "write; use the model it was imported from"
            )
        pieces = [*NAMES, *map(original_piece, tokenizer.all_pieces[len(NAMES) :])]
        named = dict(sorted(zip(ids, pieces, strict=True)))
        lines = "".join(f"{piece}\n" for piece in named.values())
        settings: dict[str, Any] = {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": rules.lowercase,
            "strip_accents": rules.strip_accents,
            "tokenize_chinese_chars": rules.chinese,
        }
        return Vocabulary(ids=ids, files={"vocab.txt": lines.encode()}, settings=settings)
    if not isinstance(tokenizer, BytePieceTokenizer) or not tokenizer.mask:
        raise UsageError(
            f"{directory.path}: its tokenizer is of a kind that --format huggingface cannot write "
            "for encoders; use it here"
        )
    numbered = {
        original_piece(piece): number
        for piece, number in zip(tokenizer.all_pieces, ids, strict=True)
        if not piece.startswith(UNUSED)
    }
    merges = "".join(f"{left} {right}\n" for left, right in tokenizer.merges)
    ordered = dict(sorted(numbered.items(), key=lambda item: item[1]))
    return Vocabulary(
        ids=ids,
        files={
            "vocab.json": json.dumps(ordered, ensure_ascii=False).encode(),
            "merges.txt": b"#version: 0.2\n" + merges.encode(),
        },
        settings={"tokenizer_class": "RobertaTokenizer", "mask_token": tokenizer.mask},
    )


def settings_of(directory: ModelDirectory, kind: str, vocabulary: Vocabulary) -> dict[str, Any]:
    """Returns what config.json says of a model."""
    config, family = directory.config, FAMILIES[kind]
    values = {name: getattr(config, ours) for ours, name in family.keys.items()}
    values[family.keys["activation"]] = ACTIVATION_NAMES[config.activation]
    hidden, attention = _DROPOUTS.get(kind, _DROPOUTS["bert"])
    labels = directory.info.labels
    offset = _offset(family, vocabulary)
    found = {
        **values,
        "vocab_size": vocabulary.size,
        "max_position_embeddings": config.max_positions + offset,
        "pad_token_id": vocabulary.ids[PAD_ID],
        "tie_word_embeddings": config.tied_embeddings == "all",
        hidden: config.dropout,
        attention: config.attention_dropout,
        "dtype": "float32",
    }
    if family.token_types:
        found |= {"type_vocab_size": 1, "layer_norm_eps": config.norm_epsilon}
    if labels:
        found["id2label"] = {str(n): label for n, label in enumerate(labels)}
        found["label2id"] = {label: n for n, label in enumerate(labels)}
    return found


def weights_of(directory: ModelDirectory, kind: str, vocabulary: Vocabulary) -> dict[str, Tensor]:
    """Returns the weights under the library's names, in its shapes."""
    family, config = FAMILIES[kind], directory.config
    ours = directory.encoder.state_dict()
    rows = ours["encoder_input.positions.table"]
    found = {
        "embeddings.word_embeddings.weight": vocabulary.ordered(ours["source_embedding.weight"]),
        "embeddings.position_embeddings.weight": torch.cat(
            [rows.new_zeros(_offset(family, vocabulary), config.d_model), rows]
        ),
    }
    if family.token_types:
        found["embeddings.token_type_embeddings.weight"] = rows.new_zeros(1, config.d_model)
    found |= named_weights(ours, family.table)
    if config.head != "none":
        found = {f"{family.prefix}{name}": weight for name, weight in found.items()}
    found |= _head(ours, config, family, vocabulary)
    return {name: weight.detach().clone().contiguous() for name, weight in found.items()}


def named_weights(
    ours: Mapping[str, Tensor], table: Mapping[str, tuple[str, ...]]
) -> dict[str, Tensor]:
    """Gives weights the names of a table; queries, keys and values become three matrices."""
    found: dict[str, Tensor] = {}
    for name, weight in ours.items():
        foreign = foreign_names(name, table)
        if foreign:
            found.update(zip(foreign, weight.chunk(len(foreign)), strict=True))
    return found


def _offset(family: Family, vocabulary: Vocabulary) -> int:
    """Rows of the table of positions before the first token's."""
    return vocabulary.ids[PAD_ID] + 1 if family.counts_from_padding else 0


def _head(
    ours: Mapping[str, Tensor], config: ModelConfig, family: Family, vocabulary: Vocabulary
) -> dict[str, Tensor]:
    """The weights of the head under the library's names."""
    if config.head == "labels":
        pooler = family.pooler_module
        prefix = family.prefix if pooler.startswith("pooler.") else ""
        return {
            f"{prefix}{pooler}.weight": ours["pooler.weight"],
            f"{prefix}{pooler}.bias": ours["pooler.bias"],
            f"{family.label_module}.weight": ours["output_projection.weight"],
            f"{family.label_module}.bias": ours["output_bias"],
        }
    if config.head == "none":
        return {}
    names = {"transform": family.transform_module, "transform_norm": family.transform_norm}
    found = {
        f"{theirs}.{part}": ours[f"{name}.{part}"]
        for name, theirs in names.items()
        for part in ("weight", "bias")
    }
    bias = vocabulary.ordered(ours["output_bias"])
    found |= {family.rows_bias: bias, f"{family.rows_module}.bias": bias}
    if "output_projection.weight" in ours:
        found[f"{family.rows_module}.weight"] = vocabulary.ordered(ours["output_projection.weight"])
    return found
