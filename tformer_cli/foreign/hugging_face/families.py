"""The families of Hugging Face's library, each a table that is read both ways; see `family`.

Sources: transformers 5.23, models/*/modeling_*.py; Raffel et al. 2020 and Shazeer 2020 for T5.
"""

from collections.abc import Container, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tformer_cli.artifacts.weights_file import MODULES
from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.foreign_model import name_table
from tformer_cli.foreign.hugging_face.family import Family
from tformer_cli.foreign.hugging_face.generation import IN_CONFIG, WITHOUT_EFFECT
from tformer_cli.foreign.hugging_face.keys import LABELS, TRANSLATOR_CLASSES, classes_of
from tformer_cli.foreign.keys import (
    USED,
    KeyRows,
    Setting,
    no_effect,
    number,
    only,
    quote,
    rows_of,
)
from tformer_cli.model.config import ModelConfig
from tformer_cli.settings import ANY

# tformer's activations by the library's names; an export writes the first name of each
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "relu": "relu",
    "silu": "swish",
    "swish": "swish",
}


# --- Encoders: post-norm with a norm of the embeddings, or pre-norm without; learned positions.

_ENCODER_ROWS: KeyRows = {
    **LABELS,
    **WITHOUT_EFFECT,
    "position_embedding_type": only(None, "absolute"),
    "is_decoder": only(False),
    "add_cross_attention": only(False),
    "is_encoder_decoder": only(False),
    "problem_type": only(None, "single_label_classification"),
    "tokenizer_class": classes_of("bert"),
    "max_position_embeddings": no_effect("the table of positions determines it"),
    "vocab_size": no_effect("the embedding determines it"),
    "tie_word_embeddings": only(False, True),
    "tie_weights_": no_effect("the weights determine it"),
    "type_vocab_size": no_effect("the table of token types determines it"),
    "sinusoidal_pos_embds": no_effect("the table of positions holds them"),
    **rows_of(
        "directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers"
        " pooler_size_per_head pooler_type",
        no_effect("no program reads it"),
    ),
}
_ENCODER_FIXED = {
    "n_decoder_layers": 0,
    "positions": "learned",
    "embedding_norm": True,
    "scale_embeddings": False,
}
_ENCODER_ALSO: Mapping[str, Container[Any]] = {
    **dict.fromkeys(("n_labels", "unit_length"), ANY),
    "activation_dropout": (0.0,),
    "head": ("labels", "tags", "tokens", "none"),
    "pooling": ("mean", "first"),
    "pooler": ("none", "tanh", "relu"),  # one that no class has is a module of a pipeline
    # of models that were trained here: an export folds them into its tables
    "positions": ("learned", "sinusoidal", "table"),
    "scale_embeddings": (False, True),
    "bias": (True, False),
}
# ends of the names of the library's classes, by the head of the model
HEAD_CLASSES: Mapping[str, str] = {
    "none": "Model",
    "labels": "ForSequenceClassification",
    "tags": "ForTokenClassification",
    "tokens": "ForMaskedLM",
}


# modules of a layer, in the order in which a family's table names them
_LAYER = (
    "self_attention.in_projection",
    "self_attention.out_projection",
    "self_attention_norm",
    "feed_forward.inner",
    "feed_forward.outer",
    "feed_forward_norm",
)
_TOKENS = ("transform", "transform_norm", "output", "output_bias")


def _layers(prefix: str, *names: str, **outer: str) -> dict[str, tuple[str, ...]]:
    """The names of a layer's modules in the order of `_LAYER`, and of norms around the layers."""
    return name_table(prefix, dict(zip(_LAYER, names, strict=True)), **outer)


def _of_tokens(names: str) -> dict[str, str]:
    """The names of the head of masked tokens."""
    return dict(zip(_TOKENS, names.split(), strict=True))


def _encoder_classes(name: str, *without: str) -> dict[str, str]:
    return {head: f"{name}{end}" for head, end in HEAD_CLASSES.items() if head not in without}


_BERT = Family(
    model_type="bert",
    task="encoder",
    title="BERT",
    classes=_encoder_classes("Bert"),
    settings=(
        Setting("d_model", "hidden_size"),
        Setting("n_heads", "num_attention_heads"),
        Setting("d_ff", "intermediate_size"),
        Setting("n_encoder_layers", "num_hidden_layers"),
        Setting("activation", "hidden_act", "gelu", ACTIVATIONS),
        Setting("norm_epsilon", "layer_norm_eps", 1e-12),
    ),
    fixed=_ENCODER_FIXED,
    also=_ENCODER_ALSO,
    pooler="tanh",
    dropouts={
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
    },
    written={"type_vocab_size": 1},
    rows=_ENCODER_ROWS,
    modules=_layers(
        "encoder.layer.{n}.",
        "attention.self.query attention.self.key attention.self.value",
        *("attention.output.dense", "attention.output.LayerNorm"),
        *("intermediate.dense", "output.dense", "output.LayerNorm"),
        **{"input.norm": "embeddings.LayerNorm"},
    ),
    outer={
        "source_embedding": "embeddings.word_embeddings",
        "positions": "embeddings.position_embeddings",
        "token_types": "embeddings.token_type_embeddings",
    },
    heads={
        "labels": {"pooler": "pooler.dense", "output": "classifier"},
        "tags": {"output": "classifier"},
        "tokens": _of_tokens(
            "cls.predictions.transform.dense cls.predictions.transform.LayerNorm"
            " cls.predictions.decoder cls.predictions.bias"
        ),
    },
    omitted=(
        ("pooler.dense.", "cls.seq_relationship."),
        "the layers for next-sentence prediction are omitted",
    ),
    ignored=r".*position_ids",
    prefix="bert.",
    unprefixed=("cls.", "classifier."),
    zero_biases=True,
)
_MEGATRON = replace(
    _BERT,
    model_type="megatron-bert",
    title="MegatronBERT",
    classes=_encoder_classes("MegatronBert"),
    fixed={**_ENCODER_FIXED, "embedding_norm": False, "norm": "pre"},
    modules=_layers(
        "encoder.layer.{n}.",
        "attention.self.query attention.self.key attention.self.value",
        *("attention.output.dense", "attention.ln"),
        *("intermediate.dense", "output.dense", "ln"),
        final_norm="encoder.ln",
    ),
)
_ROBERTA = replace(
    _BERT,
    model_type="roberta",
    title="RoBERTa",
    # its taggers read words with a space before each, the first included, which texts here have not
    classes=_encoder_classes("Roberta", "tags"),
    heads={
        "labels": {"pooler": "classifier.dense", "output": "classifier.out_proj"},
        "tokens": _of_tokens("lm_head.dense lm_head.layer_norm lm_head.decoder lm_head.bias"),
    },
    prefix="roberta.",
    unprefixed=("lm_head.", "classifier."),
    gelu_head=True,
    counts_from_padding=True,
)
_DISTILBERT = Family(
    model_type="distilbert",
    task="encoder",
    title="DistilBERT",
    classes=_encoder_classes("DistilBert"),
    settings=(
        Setting("d_model", "dim"),
        Setting("n_heads", "n_heads"),
        Setting("d_ff", "hidden_dim"),
        Setting("n_encoder_layers", "n_layers"),
        Setting("activation", "activation", "gelu", ACTIVATIONS),
    ),
    fixed={**_ENCODER_FIXED, "norm_epsilon": 1e-12},
    also=_ENCODER_ALSO,
    pooler="relu",
    dropouts={"dropout": "dropout", "attention_dropout": "attention_dropout"},
    rows=_ENCODER_ROWS,
    modules=_layers(
        "transformer.layer.{n}.",
        "attention.q_lin attention.k_lin attention.v_lin",
        *("attention.out_lin", "sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm"),
        **{"input.norm": "embeddings.LayerNorm"},
    ),
    outer={
        "source_embedding": "embeddings.word_embeddings",
        "positions": "embeddings.position_embeddings",
    },
    heads={
        "labels": {"pooler": "pre_classifier", "output": "classifier"},
        "tags": {"output": "classifier"},
        "tokens": _of_tokens(
            "vocab_transform vocab_layer_norm vocab_projector vocab_projector.bias"
        ),
    },
    ignored=r".*position_ids",
    prefix="distilbert.",
    unprefixed=("pre_classifier.", "classifier.", "vocab_"),
    zero_biases=True,
)


def _read_electra(file: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Refuses embeddings of another width: the projection follows their norm."""
    width = settings.get("embedding_size", 128)
    if width != settings["hidden_size"]:
        raise ArtifactError(
            f"{file}: embedding_size = {quote(width)}, but hidden_size = "
            f"{quote(settings['hidden_size'])}: a projection after the embedding norm is not "
            "supported; import an ELECTRA whose sizes are equal, such as electra-base"
        )
    return {}


_ELECTRA = replace(
    _BERT,
    model_type="electra",
    title="ELECTRA",
    # the head of its classifiers has gelu between its products, which no pooler here has
    classes=_encoder_classes("Electra", "labels"),
    read_more=_read_electra,
    write_more=lambda config: {"embedding_size": config.d_model},
    rows={
        **_ENCODER_ROWS,
        "embedding_size": USED,
        **rows_of(
            "summary_type summary_use_proj summary_activation summary_last_dropout generator_size"
            " discriminator_size",
            no_effect("of heads that are not imported"),
        ),
    },
    heads={
        "tags": {"output": "classifier"},
        "tokens": _of_tokens(
            "generator_predictions.dense generator_predictions.LayerNorm"
            " generator_lm_head generator_lm_head.bias"
        ),
    },
    prefix="electra.",
    unprefixed=("generator_", "discriminator_", "classifier."),
    omitted=(
        ("discriminator_predictions.",),
        "the layers that detect replaced tokens are omitted",
    ),
    gelu_head=True,
)


# --- Language models: pre-norm decoders. What their classes lack is folded into the weights.

_MASKS = r".*(\.(attn|attention)\.(bias|masked_bias)|rotary_emb\.inv_freq)"
_DECODER_FIXED = {"n_encoder_layers": 0, "norm": "pre", "output_bias": True}
_DECODER_ALSO: Mapping[str, Container[Any]] = {
    **dict.fromkeys(("scale_embeddings", "target_bos", "target_eos", "source_eos"), ANY),
    # biases that ban tokens become settings of generation; others are refused with a message
    "output_bias": ANY,
    "final_norm": ("pre-norm", "always"),
}
_DECODER_ROWS: KeyRows = {
    **IN_CONFIG,
    "add_cross_attention": only(False),
    "is_encoder_decoder": only(False),
    "tie_word_embeddings": only(False, True),
    "vocab_size": no_effect("the embedding determines it"),
}


def _read_inner(file: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """GPT-2's inner layers are four times as wide where n_inner does not say otherwise."""
    name = "n_inner" if settings.get("n_inner") else "n_embd"
    return {"d_ff": number(file, settings, name) * (1 if name == "n_inner" else 4)}


def _read_heads(file: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Heads that share keys, and the base of LLaMA's rotary positions."""
    width, heads = (number(file, settings, n) for n in ("hidden_size", "num_attention_heads"))
    if heads < 1 or (settings.get("head_dim") or width // heads) * heads != width:
        raise ArtifactError(f"{file}: head_dim is not hidden_size / heads; import another model")
    n_key_heads = heads
    if settings.get("num_key_value_heads") is not None:
        n_key_heads = number(file, settings, "num_key_value_heads")
    rope = settings.get("rope_parameters") or {}
    base = rope.get("rope_theta", settings.get("rope_theta", 10000.0))
    return {"n_key_heads": 0 if n_key_heads == heads else n_key_heads, "rotary_base": float(base)}


def _write_heads(config: ModelConfig) -> dict[str, Any]:
    return {
        "num_key_value_heads": config.n_key_heads or config.n_heads,
        "head_dim": config.head_width,
        "rope_theta": config.rotary_base,
    }


_LLAMA_SETTINGS = (
    Setting("d_model", "hidden_size"),
    Setting("d_ff", "intermediate_size"),
    Setting("n_decoder_layers", "num_hidden_layers"),
    Setting("n_heads", "num_attention_heads"),
    Setting("max_positions", "max_position_embeddings"),
    Setting("norm_epsilon", "rms_norm_eps", 1e-6),
)
_LLAMA_FIXED = {
    **_DECODER_FIXED,
    "norm_kind": "rms",
    "activation": "swish",
    "gated": True,
    "bias": False,
    "positions": "rotary",
    "scale_embeddings": False,
}
_LLAMA_MODULES = {
    "self_attention.in_projection": "self_attn.q_proj self_attn.k_proj self_attn.v_proj",
    "self_attention.out_projection": "self_attn.o_proj",
    "self_attention_norm": "input_layernorm",
    "feed_forward.gate": "mlp.gate_proj",
    "feed_forward.inner": "mlp.up_proj",
    "feed_forward.outer": "mlp.down_proj",
    "feed_forward_norm": "post_attention_layernorm",
}
_ROPE: KeyRows = {**rows_of("rope_type type", only("default")), "rope_theta": USED}
_LLAMA_ROWS: KeyRows = {
    **_DECODER_ROWS,
    **rows_of("num_key_value_heads head_dim rope_theta", USED),
    "rope_parameters": {**_ROPE, "partial_rotary_factor": only(1.0)},
    "rope_scaling": only(None),
    "rope_interleaved": only(False),
    "hidden_act": only("silu"),
    "tokenizer_class": classes_of("library"),
    "is_decoder": no_effect("a decoder it is"),
    "max_sequence_length": no_effect("max_position_embeddings says it"),
}
_GPT2 = Family(
    model_type="gpt2",
    task="decoder",
    title="GPT-2",
    classes={"": "GPT2LMHeadModel"},
    settings=(
        Setting("max_positions", "n_positions"),
        Setting("d_model", "n_embd"),
        Setting("n_decoder_layers", "n_layer"),
        Setting("n_heads", "n_head"),
        Setting("activation", "activation_function", "gelu_new", ACTIVATIONS),
        Setting("norm_epsilon", "layer_norm_epsilon", 1e-5),
    ),
    read_more=_read_inner,
    write_more=lambda config: {"n_inner": config.d_ff},
    fixed={**_DECODER_FIXED, "positions": "learned", "scale_embeddings": False},
    also={**_DECODER_ALSO, "positions": ("sinusoidal", "learned", "table"), "bias": (False, True)},
    dropouts={"resid_pdrop": "dropout", "embd_pdrop": "dropout", "attn_pdrop": "attention_dropout"},
    rows={
        **_DECODER_ROWS,
        "n_inner": USED,
        "tokenizer_class": classes_of("gpt2"),
        "is_decoder": only(False, True),
        "reorder_and_upcast_attn": only(False, True),
        "scale_attn_weights": only(True),
        "scale_attn_by_inverse_layer_idx": only(False),
        "n_ctx": no_effect("n_positions says it"),
        **rows_of(
            "summary_type summary_use_proj summary_activation summary_proj_to_labels"
            " summary_first_dropout n_special predict_special_tokens",
            no_effect("of heads that are not imported"),
        ),
    },
    modules=_layers(
        "h.{n}.",
        *("attn.c_attn", "attn.c_proj", "ln_1", "mlp.c_fc", "mlp.c_proj", "ln_2"),
        final_norm="ln_f",
    ),
    outer={"target_embedding": "wte", "output": "lm_head", "positions": "wpe"},
    # older files also hold masks and frequencies, which are not parameters
    ignored=_MASKS,
    prefix="transformer.",
    transposed=True,
    zero_biases=True,
)
_LLAMA = Family(
    model_type="llama",
    task="decoder",
    title="LLaMA",
    classes={"": "LlamaForCausalLM"},
    settings=_LLAMA_SETTINGS,
    read_more=_read_heads,
    write_more=_write_heads,
    fixed=_LLAMA_FIXED,
    also={**_DECODER_ALSO, "n_key_heads": ANY, "norm_kind": ("rms",)},
    dropouts={"attention_dropout": "attention_dropout"},
    written={"hidden_act": "silu", "attention_bias": False, "mlp_bias": False},
    rows={
        **_LLAMA_ROWS,
        "attention_bias": only(False),
        "mlp_bias": only(False),
        "pretraining_tp": no_effect("how the library splits the same products"),
        "is_llama_config": no_effect("the origin of the model"),
    },
    modules=name_table("layers.{n}.", _LLAMA_MODULES, final_norm="norm"),
    outer={"target_embedding": "embed_tokens", "output": "lm_head"},
    ignored=_MASKS,
    prefix="model.",
    tied=False,
)


def _read_qwen2(file: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    kinds = settings.get("layer_types") or []
    if {*kinds} - {"full_attention"}:
        raise ArtifactError(
            f"{file}: layer_types = {quote(sorted({*kinds}))} is not supported; import a model "
            "whose layers attend to all tokens before"
        )
    return _read_heads(file, settings)


_QWEN2 = replace(
    _LLAMA,
    model_type="qwen2",
    title="Qwen2",
    classes={"": "Qwen2ForCausalLM"},
    read_more=_read_qwen2,
    # queries, keys and values have biases; the biases of other products are zero here
    fixed={**_LLAMA_FIXED, "bias": True},
    written={"hidden_act": "silu", "use_sliding_window": False},
    rows={
        **_LLAMA_ROWS,
        "tokenizer_class": classes_of("gpt2"),
        "use_sliding_window": only(False),
        "layer_types": USED,
        **rows_of("sliding_window max_window_layers", no_effect("use_sliding_window is false")),
        "use_mrope": only(None, False),
    },
    modules={
        **_LLAMA.modules,
        "self_attention.out_projection": ("layers.{n}.self_attn.o_proj.weight",),
        **{
            f"feed_forward.{ours}": (f"layers.{{n}}.mlp.{theirs}_proj.weight",)
            for ours, theirs in (("gate", "gate"), ("inner", "up"), ("outer", "down"))
        },
    },
    spare_rows=1 << 9,
)


def _read_neox(file: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """GPT-NeoX's rotary positions, which by default turn a quarter of a head, and its layers."""
    rope = settings.get("rope_parameters") or {}
    share = rope.get("partial_rotary_factor", settings.get("rotary_pct", 0.25))
    if share != 1.0:
        raise ArtifactError(
            f"{file}: rotary_pct = {quote(share)} turns a part of each head, which is not "
            "supported, only 1.0; import another model"
        )
    if settings.get("use_parallel_residual", True) is not False:
        raise ArtifactError(
            f"{file}: use_parallel_residual = true adds attention and feed-forward layer at once, "
            "which is not supported, only false; import another model"
        )
    base = rope.get("rope_theta", settings.get("rotary_emb_base", 10000.0))
    return {"rotary_base": float(base)}


_NEOX = replace(
    _LLAMA,
    model_type="gpt_neox",
    title="GPT-NeoX",
    classes={"": "GPTNeoXForCausalLM"},
    settings=(
        *(setting for setting in _LLAMA_SETTINGS if setting.ours != "norm_epsilon"),
        Setting("activation", "hidden_act", "gelu", ACTIVATIONS),
        Setting("norm_epsilon", "layer_norm_eps", 1e-5),
    ),
    read_more=_read_neox,
    write_more=lambda config: {"rotary_pct": 1.0, "rotary_emb_base": config.rotary_base},
    fixed={**_DECODER_FIXED, "positions": "rotary", "scale_embeddings": False},
    also={**_DECODER_ALSO, "bias": (True, False)},
    dropouts={"hidden_dropout": "dropout", "attention_dropout": "attention_dropout"},
    written={"use_parallel_residual": False, "attention_bias": True},
    rows={
        **_DECODER_ROWS,
        "rope_parameters": {**_ROPE, "partial_rotary_factor": USED},
        "rope_scaling": only(None),
        **rows_of("rotary_pct rotary_emb_base use_parallel_residual", USED),
        "attention_bias": only(True),
        "hidden_dropout": no_effect("of training"),
        "tokenizer_class": classes_of("library"),
        "is_decoder": no_effect("a decoder it is"),
    },
    modules=_layers(
        "layers.{n}.",
        *("attention.query_key_value", "attention.dense", "input_layernorm"),
        *("mlp.dense_h_to_4h", "mlp.dense_4h_to_h", "post_attention_layernorm"),
        final_norm="final_layer_norm",
    ),
    outer={"target_embedding": "embed_in", "output": "embed_out"},
    prefix="gpt_neox.",
    unprefixed=("embed_out.",),
    by_heads=".query_key_value.",
    zero_biases=True,
)


# --- Translation models.

_SIDES = ("encoder", "decoder")
_TRANSLATION_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
MARIAN = Family(
    model_type="marian",
    task="translation",
    title="Marian (OPUS-MT)",
    classes={"": "MarianMTModel"},
    settings=(
        Setting("d_model", "d_model"),
        Setting("n_encoder_layers", "encoder_layers"),
        Setting("n_decoder_layers", "decoder_layers"),
        *(Setting("n_heads", f"{side}_attention_heads") for side in _SIDES),
        *(Setting("d_ff", f"{side}_ffn_dim") for side in _SIDES),
        Setting("max_positions", "max_position_embeddings"),
        Setting("activation", "activation_function", "gelu", _TRANSLATION_ACTIVATIONS),
        Setting("scale_embeddings", "scale_embedding", False, {False: False, True: True}),
    ),
    # no class has a setting for the epsilon of its norms
    fixed={"norm": "post", "positions": "table", "output_bias": True, "norm_epsilon": 1e-5},
    also={
        "positions": ("sinusoidal", "learned", "table"),
        **dict.fromkeys(("bias", "output_bias"), (False, True)),
        "tied_embeddings": ("all", "decoder"),
        "source_vocab_size": ANY,
    },
    dropouts={
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "activation_dropout": "activation_dropout",
    },
    written={
        "is_encoder_decoder": True,
        "tie_word_embeddings": True,
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
    },
    rows={
        **IN_CONFIG,
        **rows_of("vocab_size decoder_vocab_size", USED),
        "tokenizer_class": TRANSLATOR_CLASSES,
        "is_encoder_decoder": only(True),
        "is_decoder": only(False),
        "add_cross_attention": only(False, True),
        "tie_word_embeddings": only(True),
        "share_encoder_decoder_embeddings": only(False, True),
        "add_bias_logits": only(False),
        "extra_pos_embeddings": only(0, 1, 2),
        "static_position_embeddings": no_effect("the family says which positions it has"),
        **rows_of(
            "normalize_before normalize_embedding add_final_layer_norm",
            no_effect("the family says where its norms are"),
        ),
        "num_hidden_layers": no_effect("encoder_layers and decoder_layers say it"),
        "force_bos_token_to_be_generated": only(None, False),
        "save_step": no_effect("of training"),
    },
    modules=name_table(
        "{side}.layers.{n}.",
        {ours: " ".join(theirs) for ours, theirs in MODULES.items()},
        **{"final_norm": "{side}.layer_norm", "input.norm": "{side}.layernorm_embedding"},
    ),
    outer={"output_bias": "final_logits_bias"},
    ignored=r".*embed_positions\.weight",
    prefix="model.",
    zero_biases=True,
)
_PRE_NORM = {**MARIAN.also, "tied_embeddings": ("all",), "source_vocab_size": (0,)}
PEGASUS = replace(
    MARIAN,
    model_type="pegasus",
    title="Pegasus",
    classes={"": "PegasusForConditionalGeneration"},
    fixed={**MARIAN.fixed, "norm": "pre"},
    also=_PRE_NORM,
)
_M2M = replace(
    PEGASUS,
    model_type="m2m_100",
    title="M2M-100 / NLLB",
    classes={"": "M2M100ForConditionalGeneration"},
    settings=(
        *MARIAN.settings[:-2],
        Setting("activation", "activation_function", "relu", _TRANSLATION_ACTIVATIONS),
        replace(MARIAN.settings[-1], default=True),
    ),
    outer={},
    spare_rows=8,  # M2M-100's made-up words; NLLB has three
)
_MBART = replace(
    PEGASUS,
    model_type="mbart",
    title="mBART",
    classes={"": "MBartForConditionalGeneration"},
    fixed={**PEGASUS.fixed, "embedding_norm": True, "positions": "learned"},
    spare_rows=1,
)

_T5_ACTIVATIONS = {
    name: ACTIVATIONS[name] for name in ("relu", "gelu", "gelu_new", "silu", "swish")
}
# activation of each feed_forward_proj, and whether it is gated
PROJECTIONS: Mapping[str, tuple[str, bool]] = {
    **{name: (ours, False) for name, ours in _T5_ACTIVATIONS.items()},
    **{f"gated-{name}": (ours, True) for name, ours in _T5_ACTIVATIONS.items()},
    "gated-gelu": ("gelu-tanh", True),  # the library's exception
}


def _t5name_table(*, is_gated: bool) -> dict[str, tuple[str, ...]]:
    inner = {"gate": ["wi_0"], "inner": ["wi_1"]} if is_gated else {"inner": ["wi"]}
    attention = {"in_projection": ["q", "k", "v"], "out_projection": ["o"]}
    table: dict[str, tuple[str, ...]] = {"final_norm": ("{side}.final_layer_norm.{part}",)}
    for ours, place, theirs, parts in (
        ("encoder.self_attention", 0, "SelfAttention", attention),
        ("decoder.self_attention", 0, "SelfAttention", attention),
        ("decoder.cross_attention", 1, "EncDecAttention", attention),
        ("encoder.feed_forward", 1, "DenseReluDense", {**inner, "outer": ["wo"]}),
        ("decoder.feed_forward", 2, "DenseReluDense", {**inner, "outer": ["wo"]}),
    ):
        layer = f"{{side}}.block.{{n}}.layer.{place}"
        table[f"{ours}_norm"] = (f"{layer}.layer_norm.{{part}}",)
        for part, names in parts.items():
            table[f"{ours}.{part}"] = tuple(f"{layer}.{theirs}.{name}.{{part}}" for name in names)
    return table


# without a gate and with one
T5_MODULES = {is_gated: _t5name_table(is_gated=is_gated) for is_gated in (False, True)}


def _read_t5(file: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    default = "gated-gelu" if settings["model_type"] == "mt5" else "relu"
    projection = settings.get("feed_forward_proj", default)
    activation, is_gated = PROJECTIONS[projection]
    own = "gelu_new" if projection == "gated-gelu" else projection.removeprefix("gated-")
    for name, implied in (("dense_act_fn", own), ("is_gated_act", is_gated)):
        if settings.get(name, implied) != implied:
            raise ArtifactError(
                f"{file}: {name} = {quote(settings[name])}, but feed_forward_proj = "
                f"{quote(projection)}; correct one of the two"
            )
    width, heads, own_width = (number(file, settings, n) for n in ("d_model", "num_heads", "d_kv"))
    n_layers = number(file, settings, "num_layers")
    return {
        "activation": activation,
        "gated": is_gated,
        "d_head": 0 if heads * own_width == width else own_width,
        "n_decoder_layers": settings.get("num_decoder_layers") or n_layers,
        "max_positions": settings.get("n_positions") or ModelConfig.max_positions,
    }


def _write_t5(config: ModelConfig) -> dict[str, Any]:
    projection = [
        name for name, form in PROJECTIONS.items() if form == (config.activation, config.gated)
    ]
    return {
        "d_kv": config.head_width,
        "num_decoder_layers": config.n_decoder_layers,
        "feed_forward_proj": projection[-1],
        "n_positions": config.max_positions,
    }


_T5_CLASSES = ("T5ForConditionalGeneration", "MT5ForConditionalGeneration", "T5WithLMHeadModel")
T5 = Family(
    model_type="t5",
    task="t5",
    title="T5",
    classes={"": "T5ForConditionalGeneration"},
    settings=(
        Setting("d_model", "d_model"),
        Setting("d_ff", "d_ff"),
        Setting("n_encoder_layers", "num_layers"),
        Setting("n_heads", "num_heads"),
        Setting("relative_buckets", "relative_attention_num_buckets", 32),
        Setting("relative_distance", "relative_attention_max_distance", 128),
        Setting("norm_epsilon", "layer_norm_epsilon", 1e-6),
    ),
    read_more=_read_t5,
    write_more=_write_t5,
    fixed={
        "norm": "pre",
        "norm_kind": "rms",
        "bias": False,
        "positions": "relative",
        "similarity": "dot",
        "output_bias": True,
        "scale_embeddings": False,
    },
    also={
        **dict.fromkeys(("d_head", "output_bias"), ANY),
        "gated": (False, True),
        "activation": frozenset(activation for activation, _ in PROJECTIONS.values()),
        "similarity": ("dot", "scaled"),
        "tied_embeddings": ("all", "inputs"),
        "final_norm": ("pre-norm", "always"),
    },
    dropouts={"dropout_rate": "dropout"},
    written={"is_encoder_decoder": True},
    rows={
        **IN_CONFIG,
        "architectures": only(None, [], *([name] for name in _T5_CLASSES)),
        "is_encoder_decoder": only(True),
        "is_decoder": only(False),
        "add_cross_attention": no_effect("its decoder has it"),
        "tie_word_embeddings": only(False, True),
        "scale_decoder_outputs": only(False, True),
        "feed_forward_proj": only(*PROJECTIONS),
        "tokenizer_class": classes_of("t5"),
        **rows_of("transformers_version task_specific_params vocab_size d_kv", USED),
        **rows_of("num_decoder_layers n_positions dense_act_fn is_gated_act", USED),
    },
    modules=T5_MODULES[False],
    outer={},
    ignored=r".*EncDecAttention\.relative_attention_bias\.weight",  # nothing reads it
)
_MT5 = replace(T5, model_type="mt5", title="mT5")


# --- Vision Transformers: pre-norm encoders of patches with a class token.

_SHAPES = no_effect("the tensors determine it")
_TRAINING = no_effect("of training")
_IMAGE_FIXED = {"n_decoder_layers": 0, "norm": "pre", "positions": "learned"}
_IMAGE_ATTENTION = (
    "attention.attention.query attention.attention.key attention.attention.value",
    "attention.output.dense",
)


# names of version 5.24, which reads and writes files with those above
_RUNTIME_ATTENTION = (
    "attention.q_proj attention.k_proj attention.v_proj",
    "attention.o_proj",
)


def _image_classes(name: str) -> dict[str, str]:
    return {"none": f"{name}Model", "labels": f"{name}ForImageClassification"}


def _write_image(config: ModelConfig) -> dict[str, Any]:
    *size, channels = config.image_size
    return {
        "hidden_size": config.d_model,
        "num_hidden_layers": config.n_encoder_layers,
        "intermediate_size": config.d_ff,
        "image_size": size[0] if size[0] == size[1] else size,
        "patch_size": config.patch_size,
        "num_channels": channels,
    }


def _write_dinov2(config: ModelConfig) -> dict[str, Any]:
    parts = _write_image(config)
    ratio = parts.pop("intermediate_size") // config.d_model
    return {**parts, "mlp_ratio": ratio, "layerscale_value": 1.0}


VIT = Family(
    model_type="vit",
    task="vision",
    title="ViT",
    classes=_image_classes("ViT"),
    settings=(
        Setting("n_heads", "num_attention_heads"),
        Setting("activation", "hidden_act", "gelu", ACTIVATIONS),
        Setting("norm_epsilon", "layer_norm_eps", 1e-12),
    ),
    # sizes that tensors say are only checked, which `vision` does
    write_more=_write_image,
    fixed=_IMAGE_FIXED,
    also={
        **dict.fromkeys(("n_labels", "patch_size", "image_size", "image_mean", "image_std"), ANY),
        # these change only training, or vocabularies, which images lack
        **dict.fromkeys(("image_shift", "image_flip", "tied_embeddings", "source_eos"), ANY),
        "activation_dropout": (0.0,),
        "scale_embeddings": (False, True),
        "head": ("labels", "none"),
        "pooling": ("first", "first-and-mean"),
        "class_token": (True,),
    },
    dropouts=_BERT.dropouts,
    written={"qkv_bias": True},
    rows={
        **LABELS,
        **rows_of("hidden_size num_hidden_layers intermediate_size", USED),
        **rows_of("num_channels patch_size image_size", USED),
        "mlp_ratio": _SHAPES,
        "qkv_bias": only(True),
        "use_swiglu_ffn": only(False),
        "apply_layernorm": only(True),
        "problem_type": only(None, "single_label_classification"),
        **rows_of("encoder_stride use_mask_token", no_effect("of models that fill in pixels")),
        **rows_of("pooler_act pooler_output_size", no_effect("the pooler is not read")),
        **rows_of("drop_path_rate layerscale_value", _TRAINING),
        **rows_of("out_features out_indices stage_names", no_effect("of a backbone")),
        **rows_of("_out_features _out_indices reshape_hidden_states", no_effect("of a backbone")),
    },
    modules=_layers(
        "encoder.layer.{n}.",
        *_IMAGE_ATTENTION,
        *("layernorm_before", "intermediate.dense", "output.dense", "layernorm_after"),
        final_norm="layernorm",
    ),
    runtime_modules=_layers(
        "layers.{n}.",
        *_RUNTIME_ATTENTION,
        *("layernorm_before", "mlp.fc1", "mlp.fc2", "layernorm_after"),
    ),
    outer={
        "patches": "embeddings.patch_embeddings.projection",
        "class_token": "embeddings.cls_token",
        "positions": "embeddings.position_embeddings",
        "output": "classifier",
    },
    omitted=(("pooler.",), "the pooler, tanh of a product with the class token, is not read"),
    ignored=r"embeddings\.mask_token",
    prefix="vit.",
    unprefixed=("classifier.",),
)
DINOV2 = replace(
    VIT,
    model_type="dinov2",
    title="DINOv2",
    classes=_image_classes("Dinov2"),
    settings=(*VIT.settings[:-1], replace(VIT.settings[-1], default=1e-6)),
    write_more=_write_dinov2,
    modules=_layers(
        "encoder.layer.{n}.",
        *_IMAGE_ATTENTION,
        *("norm1", "mlp.fc1", "mlp.fc2", "norm2"),
        final_norm="layernorm",
    ),
    runtime_modules=_layers(
        "encoder.layer.{n}.", *_RUNTIME_ATTENTION, *("norm1", "mlp.fc1", "mlp.fc2", "norm2")
    ),
    scales={
        "self_attention.out_projection": "encoder.layer.{n}.layer_scale1.lambda1",
        "feed_forward.outer": "encoder.layer.{n}.layer_scale2.lambda1",
    },
    prefix="dinov2.",
)
# read only: its config.json has a form of its own; see `vision`
TIMM_VIT = replace(
    VIT,
    model_type="",
    title="timm Vision Transformer",
    settings=(),
    fixed={**_IMAGE_FIXED, "norm_epsilon": 1e-6},
    modules=_layers(
        "blocks.{n}.",
        *("attn.qkv", "attn.proj", "norm1", "mlp.fc1", "mlp.fc2", "norm2"),
        final_norm="norm",
    ),
    outer={
        "patches": "patch_embed.proj",
        "class_token": "cls_token",
        "positions": "pos_embed",
        "output": "head",
    },
    scales={
        "self_attention.out_projection": "blocks.{n}.ls1.gamma",
        "feed_forward.outer": "blocks.{n}.ls2.gamma",
    },
    omitted=((), ""),
    ignored="",
    prefix="",
)
_ENCODERS = (_BERT, _MEGATRON, _ROBERTA, _DISTILBERT, _ELECTRA)
_DECODERS = (_GPT2, _LLAMA, _QWEN2, _NEOX)
_TRANSLATORS = (MARIAN, PEGASUS, _M2M, _MBART, T5, _MT5)
FAMILIES: Mapping[str, Family] = {
    family.model_type: family for family in (*_ENCODERS, *_TRANSLATORS, *_DECODERS, VIT, DINOV2)
}
CONFIGS = {name: family.keys for name, family in FAMILIES.items()}
