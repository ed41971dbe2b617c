"""Language models as directories that Hugging Face's library loads: GPT-2's or LLaMA's class.

The inverse of `converters.gpt2` and `converters.llama`. Learned and sinusoidal positions with layer
norms make a `GPT2LMHeadModel`, rotary ones with RMS norms and gated layers a `LlamaForCausalLM`.
What the classes lack is put into the weights, or refused by name.
"""

import json
import math
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch
from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import processors
from torch import Tensor

from tformer_cli.allow_list import ANY
from tformer_cli.artifacts.config_file import TOKENIZER
from tformer_cli.artifacts.model_directory import ModelDirectory
from tformer_cli.converters import gpt2, llama
from tformer_cli.converters.assembly import NEVER, UNUSED, foreign_names, original_piece
from tformer_cli.converters.hugging_face.layout import original_ids
from tformer_cli.data.foreign_pieces import BytePieceTokenizer
from tformer_cli.data.joint_tokenizer import JointTokenizer
from tformer_cli.data.sentencepiece.tokenizer import SentencePieceTokenizer
from tformer_cli.data.tokenizer import BOS_ID, EOS_ID, PAD_ID, SPECIAL_PIECES, UNK_ID
from tformer_cli.errors import UsageError
from tformer_cli.model.config import PLAIN_TRANSLATION, ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.model.weight_shapes import parameter_shapes

CPU = torch.device("cpu")
_COMMON: Mapping[str, Container[Any]] = MappingProxyType(
    {
        **PLAIN_TRANSLATION,
        "n_encoder_layers": (0,),
        "source_vocab_size": (0,),
        **dict.fromkeys(
            (
                *("d_model", "n_heads", "d_ff", "max_positions", "norm_epsilon"),
                *("dropout", "attention_dropout", "activation_dropout"),
                *("scale_embeddings", "target_bos", "target_eos", "tied_embeddings"),
                # biases of tokens that are never written; others are refused with a message
                "output_bias",
                # of other positions alone
                *("relative_buckets", "relative_distance"),
                # numbers that differ from layer to layer are refused with a message of their own
                *("encoder_heads", "decoder_heads", "cross_heads", "bias_heads"),
                # of a source
                "source_eos",
            ),
            ANY,
        ),
        "norm": ("pre",),
        "embedding_norm": (False,),
        "final_norm": ("pre-norm", "always"),
    }
)
GPT2: Mapping[str, Container[Any]] = MappingProxyType(
    {
        **_COMMON,
        "activation": frozenset(gpt2.ACTIVATIONS.values()),
        "positions": ("sinusoidal", "learned", "table"),
        "rotary_base": ANY,
        "bias": (False, True),
    }
)
"""Settings of models that `GPT2LMHeadModel` can hold."""
LLAMA: Mapping[str, Container[Any]] = MappingProxyType(
    {
        **_COMMON,
        "norm_kind": ("rms",),
        "activation": ("swish",),
        "gated": (True,),
        "positions": ("rotary",),
        "rotary_base": ANY,
        "bias": (False,),
        "n_key_heads": ANY,
    }
)
"""Settings of models that `LlamaForCausalLM` can hold."""
CLASSES = {"gpt2": ("GPT2LMHeadModel", GPT2), "llama": ("LlamaForCausalLM", LLAMA)}
"""Class of each model_type, and the settings that it can hold."""
_ACTIVATIONS = {"gelu-tanh": "gelu_new", "gelu": "gelu", "relu": "relu", "swish": "silu"}


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """A vocabulary in the exported order."""

    ids: tuple[int, ...]
    """The exported id of each of tformer's ids; -1: none."""
    files: Mapping[str, bytes]
    """Contents of the tokenizer's files, by their names."""
    settings: Mapping[str, Any]
    """What tokenizer_config.json says."""

    @property
    def size(self) -> int:
        """Rows of the exported matrices."""
        return max(self.ids) + 1

    def special(self, token: int) -> int | None:
        """The exported id of a special token, if it has one."""
        return self.ids[token] if self.ids[token] >= 0 else None

    def ordered(self, rows: Tensor) -> Tensor:
        """Puts rows (V, D) in the exported order; where start and end share one it is the end's."""
        found = rows.new_zeros(self.size, *rows.shape[1:])
        for token, number in enumerate(self.ids):
            if number >= 0:
                found[number] = rows[token]
        if self.ids[EOS_ID] >= 0:
            found[self.ids[EOS_ID]] = rows[EOS_ID]
        return found


def kind_of(config: ModelConfig) -> str:
    """Returns the model_type of the class that comes nearest to a language model."""
    return "llama" if config.positions == "rotary" or config.norm_kind == "rms" else "gpt2"


def vocabulary_of(directory: ModelDirectory) -> Vocabulary:
    """Decides how the vocabulary of a language model is exported."""
    tokenizer, config = directory.tokenizer, directory.config
    ids = tuple(original_ids(directory)) or tuple(range(tokenizer.vocab_size))
    shared = ids[BOS_ID] == ids[EOS_ID] >= 0
    matrix = directory.model.target_matrix
    if shared and config.target_bos and not torch.equal(matrix[BOS_ID], matrix[EOS_ID]):
        raise UsageError(
            f"{directory.path}: its start and its end share a row in the model it was imported "
            "from, but training has made them two; export with --format int8, or use it here"
        )
    if isinstance(tokenizer, JointTokenizer):
        return _joint(tokenizer, ids, has_start=config.target_bos)
    if isinstance(tokenizer, BytePieceTokenizer):
        return _byte_pieces(tokenizer, ids)
    if isinstance(tokenizer, SentencePieceTokenizer):
        return _sentence_pieces(tokenizer, ids)
    raise UsageError(
        f"{directory.path}: its tokenizer is of a kind that --format huggingface cannot write; use "
        "the model it was imported from"
    )


def _joint(tokenizer: JointTokenizer, ids: tuple[int, ...], *, has_start: bool) -> Vocabulary:
    made = HuggingFaceTokenizer.from_str(tokenizer.to_json())
    pad, unk, bos, eos = SPECIAL_PIECES
    if has_start:
        made.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, BOS_ID)]
        )
    named = {"pad_token": pad, "unk_token": unk, "bos_token": bos, "eos_token": eos}
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **named,
        # "</s>" in a text is four characters, not the token
        "split_special_tokens": True,
    }
    return Vocabulary(
        ids=ids, files={TOKENIZER: (made.to_str(pretty=True) + "\n").encode()}, settings=settings
    )


def _byte_pieces(tokenizer: BytePieceTokenizer, ids: tuple[int, ...]) -> Vocabulary:
    """GPT-2's files: pieces with their exported ids, and merges."""
    numbered = {
        original_piece(piece): number
        for piece, number in zip(tokenizer.all_pieces, ids, strict=True)
        if number >= 0 and piece not in SPECIAL_PIECES and not piece.startswith(UNUSED)
    }
    has_end = ids[EOS_ID] >= 0
    if has_end:
        numbered[gpt2.END] = ids[EOS_ID]
    merges = "".join(f"{left} {right}\n" for left, right in tokenizer.merges)
    settings: dict[str, Any] = {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False}
    if has_end:
        settings |= dict.fromkeys(("bos_token", "eos_token", "unk_token"), gpt2.END)
    return Vocabulary(
        ids=ids,
        files={
            "vocab.json": _json(dict(sorted(numbered.items(), key=lambda item: item[1]))),
            "merges.txt": b"#version: 0.2\n" + merges.encode(),
        },
        settings=settings,
    )


def _sentence_pieces(tokenizer: SentencePieceTokenizer, ids: tuple[int, ...]) -> Vocabulary:
    return Vocabulary(
        ids=ids,
        files={"tokenizer.model": tokenizer.target.file.data},
        settings={
            "tokenizer_class": "LlamaTokenizer",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "add_bos_token": True,
            "add_eos_token": False,
            "legacy": True,
        },
    )


def settings_of(kind: str, config: ModelConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """Returns what config.json says of a model."""
    is_tied = config.tied_embeddings != "none" and not config.scale_embeddings
    common = {
        "vocab_size": vocabulary.size,
        "tie_word_embeddings": is_tied,
        "bos_token_id": vocabulary.special(BOS_ID),
        "eos_token_id": vocabulary.special(EOS_ID),
        "pad_token_id": vocabulary.special(PAD_ID),
        "dtype": "float32",
    }
    if kind == "gpt2":
        return {
            **common,
            "n_positions": config.max_positions,
            "n_embd": config.d_model,
            "n_layer": config.n_decoder_layers,
            "n_head": config.n_heads,
            "n_inner": config.d_ff,
            "activation_function": _ACTIVATIONS[config.activation],
            "layer_norm_epsilon": config.norm_epsilon,
            "resid_pdrop": config.dropout,
            "embd_pdrop": config.dropout,
            "attn_pdrop": config.attention_dropout,
        }
    return {
        **common,
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "num_hidden_layers": config.n_decoder_layers,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_key_heads or config.n_heads,
        "head_dim": config.head_width,
        "hidden_act": "silu",
        "max_position_embeddings": config.max_positions,
        "rms_norm_eps": config.norm_epsilon,
        "rope_theta": config.rotary_base,
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": config.attention_dropout,
    }


def generation_of(model: Transformer, vocabulary: Vocabulary) -> dict[str, Any]:
    """Returns the defaults of generation: special tokens, and those that are never written."""
    bias = model.output_bias
    never = {UNK_ID} if bias is None else set(torch.nonzero(bias == NEVER).flatten().tolist())
    written = {vocabulary.ids[n] for n in range(len(vocabulary.ids)) if n not in never}
    ids = {vocabulary.ids[token] for token in never} - written - {-1}
    return {
        "bos_token_id": vocabulary.special(BOS_ID),
        "eos_token_id": vocabulary.special(EOS_ID),
        "pad_token_id": vocabulary.special(PAD_ID),
        "max_length": model.config.max_positions,
        **({"suppress_tokens": sorted(ids)} if ids else {}),
    }


def weights_of(directory: ModelDirectory, kind: str, vocabulary: Vocabulary) -> dict[str, Tensor]:
    """Returns the weights under the library's names, in its shapes."""
    model, config = directory.model, directory.config
    bias = model.output_bias
    if bias is not None and bool(bias[bias != NEVER].any()):
        raise UsageError(
            f"{directory.path}: its logits have biases, which {CLASSES[kind][0]} of Hugging Face "
            "lacks; export with --format int8"
        )
    # √D of the embeddings alone: where both are one matrix it becomes two
    scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
    embedding = vocabulary.ordered(model.target_matrix) * scale
    names = ("transformer.wte.weight", "lm_head.weight")
    names = names if kind == "gpt2" else ("model.embed_tokens.weight", names[1])
    found = {names[0]: embedding}
    if config.tied_embeddings == "none" or config.scale_embeddings:
        found[names[1]] = vocabulary.ordered(model.output_matrix)
    if kind == "gpt2":
        rows = model.decoder_input.positions.rows(0, config.max_positions, CPU)
        if rows is None:
            raise UsageError(f"{directory.path}: has no table of positions")
        found["transformer.wpe.weight"] = rows
    ours, table = model.state_dict(), gpt2.TABLE if kind == "gpt2" else llama.TABLE
    has_biases = kind == "gpt2"  # everywhere; those that the model lacks are zero
    shapes = parameter_shapes(replace(config, bias=has_biases), model.vocab_size)
    for name, shape in shapes.items():
        foreign = foreign_names(name, table)
        weight = ours[name] if name in ours else torch.zeros(shape)
        if len(foreign) == 3:
            joined, keys = config.n_heads * config.head_width, config.key_width
            found.update(zip(foreign, weight.split([joined, keys, keys]), strict=True))
        elif foreign:
            is_transposed = kind == "gpt2" and weight.ndim == 2
            found[foreign[0]] = weight.T if is_transposed else weight
    return {name: tensor.detach().clone().contiguous() for name, tensor in found.items()}


def _json(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, ensure_ascii=False, indent=1) + "\n").encode()
