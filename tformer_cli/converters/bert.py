"""BERT, RoBERTa, DistilBERT and the encoders of sentence-transformers, in Hugging Face directories.

Post-norm encoders with learned positions and a norm of the embeddings. The vector of token type 0
is added to every position, for texts are single sentences here; RoBERTa's first text position is
row 2 of its table. The head is told by the weights: rows of tokens, labels, or none. Sources:
transformers 5.23, models/bert/modeling_bert.py, models/roberta/modeling_roberta.py and
models/distilbert/modeling_distilbert.py; sentence-transformers 5.1, models/Pooling.py.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from tformer_cli.converters.assembly import Reader, Weight, assembled
from tformer_cli.converters.encoder_vocabulary import CLASSES, read_vocabulary
from tformer_cli.converters.foreign_model import (
    ForeignModel,
    model_config,
    number,
    parse_json,
    read_bytes,
    read_json_file,
    shown,
)
from tformer_cli.converters.formats.lazy_arrays import Array, LazyArrays
from tformer_cli.converters.formats.weight_files import read_weights_of
from tformer_cli.converters.hugging_face.generation import WITHOUT_EFFECT
from tformer_cli.converters.hugging_face.keys import CONFIG_ROWS, LABELS, rows_of
from tformer_cli.converters.keys import USED, Keys, Rows, no_effect, noted, only
from tformer_cli.converters.label_names import label_names
from tformer_cli.decoding.config import DecodingConfig
from tformer_cli.errors import ArtifactError
from tformer_cli.model.config import Head, Pooler, Pooling

_BERT_LAYER = "encoder.layer.{n}."
_DISTIL_LAYER = "transformer.layer.{n}."
BERT_TABLE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "self_attention.in_projection": tuple(
            f"{_BERT_LAYER}attention.self.{name}.{{part}}" for name in ("query", "key", "value")
        ),
        "self_attention.out_projection": (f"{_BERT_LAYER}attention.output.dense.{{part}}",),
        "self_attention_norm": (f"{_BERT_LAYER}attention.output.LayerNorm.{{part}}",),
        "feed_forward.inner": (f"{_BERT_LAYER}intermediate.dense.{{part}}",),
        "feed_forward.outer": (f"{_BERT_LAYER}output.dense.{{part}}",),
        "feed_forward_norm": (f"{_BERT_LAYER}output.LayerNorm.{{part}}",),
        "input.norm": ("embeddings.LayerNorm.{part}",),
    }
)
"""Foreign names of the modules of a layer and of the norm of embeddings, of BERT and RoBERTa."""
DISTIL_TABLE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "self_attention.in_projection": tuple(
            f"{_DISTIL_LAYER}attention.{name}_lin.{{part}}" for name in "qkv"
        ),
        "self_attention.out_projection": (f"{_DISTIL_LAYER}attention.out_lin.{{part}}",),
        "self_attention_norm": (f"{_DISTIL_LAYER}sa_layer_norm.{{part}}",),
        "feed_forward.inner": (f"{_DISTIL_LAYER}ffn.lin1.{{part}}",),
        "feed_forward.outer": (f"{_DISTIL_LAYER}ffn.lin2.{{part}}",),
        "feed_forward_norm": (f"{_DISTIL_LAYER}output_layer_norm.{{part}}",),
        "input.norm": ("embeddings.LayerNorm.{part}",),
    }
)
"""The same of DistilBERT."""
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "relu": "relu",
    "silu": "swish",
    "swish": "swish",
}
"""tformer's names of their activations."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """What one kind of model has that others have not."""

    title: str
    """Name for users."""
    prefix: str
    """Of the names of the body's arrays, where there is a head."""
    table: Mapping[str, tuple[str, ...]]
    """Foreign names of the body's modules."""
    keys: Mapping[str, str]
    """Foreign names of settings, by tformer's."""
    pooler: Pooler
    """Function of the layer before the labels."""
    pooler_module: str
    """Name of that layer."""
    label_module: str
    """Name of the rows of labels."""
    transform_module: str
    """Name of the layer before the rows of tokens."""
    transform_norm: str
    """Name of its norm."""
    rows_module: str
    """Name of the rows of tokens and of their bias."""
    rows_bias: str
    """Another name of that bias."""
    epsilon: float | None = None
    """Of the norms, where config.json does not say it."""
    token_types: bool = True
    """A vector of the token's type is added to each embedding."""
    counts_from_padding: bool = False
    """The first token's row in the table of positions is the one behind padding's id."""


_BERT_KEYS = {
    "d_model": "hidden_size",
    "n_heads": "num_attention_heads",
    "d_ff": "intermediate_size",
    "n_encoder_layers": "num_hidden_layers",
    "activation": "hidden_act",
}
_DISTIL_KEYS = {
    "d_model": "dim",
    "n_heads": "n_heads",
    "d_ff": "hidden_dim",
    "n_encoder_layers": "n_layers",
    "activation": "activation",
}
FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "bert": Family(
            title="BERT",
            prefix="bert.",
            table=BERT_TABLE,
            keys=_BERT_KEYS,
            pooler="tanh",
            pooler_module="pooler.dense",
            label_module="classifier",
            transform_module="cls.predictions.transform.dense",
            transform_norm="cls.predictions.transform.LayerNorm",
            rows_module="cls.predictions.decoder",
            rows_bias="cls.predictions.bias",
        ),
        "roberta": Family(
            title="RoBERTa",
            prefix="roberta.",
            table=BERT_TABLE,
            keys=_BERT_KEYS,
            pooler="tanh",
            pooler_module="classifier.dense",
            label_module="classifier.out_proj",
            transform_module="lm_head.dense",
            transform_norm="lm_head.layer_norm",
            rows_module="lm_head.decoder",
            rows_bias="lm_head.bias",
            counts_from_padding=True,
        ),
        "distilbert": Family(
            title="DistilBERT",
            prefix="distilbert.",
            table=DISTIL_TABLE,
            keys=_DISTIL_KEYS,
            pooler="relu",
            pooler_module="pre_classifier",
            label_module="classifier",
            transform_module="vocab_transform",
            transform_norm="vocab_layer_norm",
            rows_module="vocab_projector",
            rows_bias="vocab_projector.bias",
            epsilon=1e-12,
            token_types=False,
        ),
    }
)
"""Families by their `model_type`."""
_FAMILY_ROWS: Rows = {
    **CONFIG_ROWS,
    **LABELS,
    **WITHOUT_EFFECT,
    "position_embedding_type": only(None, "absolute"),
    "is_decoder": only(False),
    "add_cross_attention": only(False),
    "is_encoder_decoder": only(False),
    "problem_type": only(None, "single_label_classification"),
    "tokenizer_class": CLASSES,
    "max_position_embeddings": no_effect("the table of positions says it"),
    "vocab_size": no_effect("the embedding says it"),
    "tie_word_embeddings": no_effect("the weights say it"),
    "tie_weights_": no_effect("the weights say it"),
    "type_vocab_size": no_effect("the table of token types says it"),
    "sinusoidal_pos_embds": no_effect("the table of positions holds them"),
    **rows_of(
        "directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers"
        " pooler_size_per_head pooler_type",
        no_effect("no program reads it"),
    ),
}
CONFIGS: Mapping[str, Keys] = MappingProxyType(
    {
        kind: Keys(
            "config.json",
            family.title,
            {
                **_FAMILY_ROWS,
                **dict.fromkeys(family.keys.values(), USED),
                family.keys["activation"]: only(*ACTIVATIONS),
                **({} if family.epsilon else {"layer_norm_eps": USED}),
            },
        )
        for kind, family in FAMILIES.items()
    }
)
"""Tables of their config.json."""
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
HEADS = ("Model", "ForMaskedLM", "ForPreTraining", "ForSequenceClassification")
"""Endings of the architectures whose weights are known."""
_PASSED_OVER = ("pooler.dense.", "cls.seq_relationship.")
"""Beginnings of the arrays of heads for pairs of sentences."""
_OLD_BERT = {"hidden_size", "num_hidden_layers", "type_vocab_size", "hidden_act"}
"""Settings of a BERT whose config.json is older than `model_type`."""


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """What sentence-transformers makes of an encoder's states."""

    path: Path
    """Directory of the encoder."""
    pooling: Pooling = "mean"
    unit_length: bool = False
    longest: int = 0
    """Tokens of the longest text (0: as long as there are positions)."""
    lowercase: bool = False
    """Texts are made small before they are cut."""
    files: tuple[Path, ...] = ()
    """Files that were read."""
    notes: list[str] = field(default_factory=list)
    """About settings that are omitted."""
    is_sentence: bool = False
    """The directory is of sentence-transformers."""


def is_bert(path: Path) -> bool:
    """Returns whether a directory holds an encoder of one of the families."""
    if (path / "modules.json").is_file():
        return True
    file = path / "config.json"
    return file.is_file() and _family_of(read_json_file(file)) is not None


def convert(path: Path) -> ForeignModel:
    """Converts a directory of Hugging Face or sentence-transformers."""
    pipeline = _read_pipeline(path)
    file = pipeline.path / "config.json"
    settings = read_json_file(file)
    family = _family_of(settings)
    if family is None:
        raise ArtifactError(
            f"{file}: model_type = {json.dumps(settings.get('model_type'))[:60]} is not supported; "
            "import a BERT, RoBERTa or DistilBERT"
        )
    pipeline.notes.extend(CONFIGS[_kind_of(settings)].read(file, settings))
    _check_architecture(file, settings)
    arrays, weight_files = read_weights_of(pipeline.path)
    reader = Reader(_renamed(arrays, family), str(pipeline.path))
    return _Conversion(family, file, settings, pipeline, reader).model(weight_files)


def _kind_of(settings: Mapping[str, Any]) -> str:
    kind = settings.get("model_type")
    if kind is None and settings.keys() >= _OLD_BERT:
        kind = "bert"
    return str(kind)


def _family_of(settings: Mapping[str, Any]) -> Family | None:
    return FAMILIES.get(_kind_of(settings))


def _check_architecture(file: Path, settings: Mapping[str, Any]) -> None:
    """Refuses a model with a head whose weights have the names of another one's."""
    for name in settings.get("architectures") or ():
        if not str(name).endswith(HEADS):
            raise ArtifactError(
                f"{file}: {str(name)[:60]} is not supported; import an encoder without a head, "
                "with one for masked tokens, or for labels of texts"
            )


def _renamed(arrays: LazyArrays, family: Family) -> LazyArrays:
    """Gives arrays today's names, without the prefix of the body; none is read yet."""

    def name_of(name: str) -> str:
        name = name.removeprefix(family.prefix)
        for old, new in (("LayerNorm.gamma", "weight"), ("LayerNorm.beta", "bias")):
            if name.endswith(old):
                return f"{name.removesuffix(old)}LayerNorm.{new}"
        return name

    kept = (name for name in arrays if not name.endswith("position_ids"))
    return LazyArrays({name_of(name): partial(arrays.__getitem__, name) for name in kept})


class _Conversion:
    """Puts a model together."""

    def __init__(
        self,
        family: Family,
        file: Path,
        settings: Mapping[str, Any],
        pipeline: Pipeline,
        reader: Reader,
    ) -> None:
        self._family, self._file, self._settings = family, file, settings
        self._pipeline, self._reader = pipeline, reader
        self._notes = pipeline.notes

    def model(self, weight_files: Sequence[Path]) -> ForeignModel:
        """Returns the converted model."""
        file, family = self._file, self._family
        vocabulary = read_vocabulary(file.parent, lowercase=self._pipeline.lowercase)
        self._longest = self._pipeline.longest
        if self._pipeline.is_sentence and not self._longest:
            self._longest = vocabulary.longest
        embedding = self._reader.take("embeddings.word_embeddings.weight")
        rows = vocabulary.rows(len(embedding), str(file))
        positions = self._positions()
        given: dict[str, Weight] = {
            "source_embedding.weight": rows.of(embedding),
            "encoder_input.positions.table": positions,
        }
        head, of_head = self._head(embedding)
        labels: tuple[str, ...] = ()
        if head == "labels":
            labels = label_names(file, self._settings, len(of_head["output_bias"]), self._notes)
        for name, one in of_head.items():
            is_of_tokens = head == "tokens" and name.startswith("output_")
            given[name] = rows.of(one) if is_of_tokens else one
        is_untied = head == "tokens" and "output_projection.weight" in given
        config = model_config(
            file,
            **self._shape(),
            head=head,
            n_labels=len(labels),
            pooling="first" if head == "labels" else self._pipeline.pooling,
            pooler=family.pooler if head == "labels" else "none",
            unit_length=self._pipeline.unit_length,
            max_positions=len(positions),
            tied_embeddings="none" if is_untied else "all",
        )
        weights = assembled(
            config, len(rows.pieces), family.table, self._reader.take, given, str(file)
        )
        self._pass_over()
        self._reader.check_all_taken()
        title = "sentence-transformers" if self._pipeline.is_sentence else "Hugging Face"
        self._notes.extend(vocabulary.notes)
        return ForeignModel(
            kind=f"{title} {family.title}",
            config=config,
            weights=weights,
            tokenizer=vocabulary.tokenizer(rows, str(file)),
            decoding=DecodingConfig(),
            files=(file, *weight_files, *vocabulary.files, *self._pipeline.files),
            ids=rows.foreign,
            labels=labels,
            notes=tuple(self._notes),
        )

    def _shape(self) -> dict[str, Any]:
        keys = dict(self._family.keys)
        activation = self._settings.get(keys.pop("activation"), "gelu")
        epsilon = self._family.epsilon
        return {
            **{ours: number(self._file, self._settings, name) for ours, name in keys.items()},
            "n_decoder_layers": 0,
            "activation": ACTIVATIONS[activation],
            "norm_epsilon": epsilon or self._settings.get("layer_norm_eps", 1e-12),
            "positions": "learned",
            "embedding_norm": True,
            "scale_embeddings": False,
        }

    def _positions(self) -> Array:
        """The vectors of positions, with that of token type 0."""
        table = self._reader.take("embeddings.position_embeddings.weight")
        if self._family.counts_from_padding:
            table = table[
                number(self._file, {"pad_token_id": 1, **self._settings}, "pad_token_id") + 1 :
            ]
        if self._family.token_types:
            types = self._reader.take("embeddings.token_type_embeddings.weight")
            if types.ndim != 2 or types.shape[1:] != table.shape[1:]:
                raise ArtifactError(f"{self._file}: the token types are no vectors of the model's")
            table = table + types[0]
            if len(types) > 1:
                self._notes.append("texts are single sentences: token type 1 is omitted")
        longest = self._longest
        if 1 < longest < len(table):
            self._notes.append(f"texts are cut off at {longest} tokens, as its own library does")
            table = table[:longest]
        return table

    def _head(self, embedding: Array) -> tuple[Head, dict[str, Array]]:
        """Reads the weights of the head by tformer's names."""
        family, reader = self._family, self._reader
        if f"{family.label_module}.weight" in reader:
            return "labels", {
                "output_projection.weight": reader.take(f"{family.label_module}.weight"),
                "output_bias": reader.take(f"{family.label_module}.bias"),
                "pooler.weight": reader.take(f"{family.pooler_module}.weight"),
                "pooler.bias": reader.take(f"{family.pooler_module}.bias"),
            }
        if f"{family.transform_module}.weight" not in reader:
            return "none", {}
        found = {
            f"{ours}.{part}": reader.take(f"{theirs}.{part}")
            for ours, theirs in (
                ("transform", family.transform_module),
                ("transform_norm", family.transform_norm),
            )
            for part in ("weight", "bias")
        }
        found["output_bias"] = reader.take_first([family.rows_bias, f"{family.rows_module}.bias"])
        if f"{family.rows_module}.weight" in reader:
            rows = reader.take(f"{family.rows_module}.weight")
            if not np.array_equal(rows, embedding):
                found["output_projection.weight"] = rows
        if family.title == "RoBERTa" and self._settings.get("hidden_act", "gelu") != "gelu":
            raise ArtifactError(
                f"{self._file}: hidden_act is not gelu, which its head computes with; import "
                "another model"
            )
        return "tokens", found

    def _pass_over(self) -> None:
        """Omits the head for pairs of sentences."""
        left = [name for name in self._reader.arrays if name.startswith(_PASSED_OVER)]
        left = [name for name in left if not self._reader.is_taken(name)]
        if left:
            self._notes.append(
                "the layers that tell whether sentences follow each other are omitted"
            )
            self._reader.ignore(left)


def _read_pipeline(path: Path) -> Pipeline:
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
        raise ArtifactError(f"{file}: is no list of modules; download it again") from None
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
        pooling=_pooling(pooling_file, values[POOLING.file]),
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


def _pooling(file: Path, settings: Mapping[str, Any]) -> Pooling:
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
