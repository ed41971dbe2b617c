"""Transformers of other libraries with the weights of one of ours: the same function, by them.

All take positions from a table, which is overwritten, so that no formula has to agree. A function
copies a model with one matrix of embeddings, with biases and with all heads; it raises ValueError
where the library has no such model.
"""

import math
from types import SimpleNamespace

import torch
from torch import nn

from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID

# Hugging Face's translation models descend from fairseq's and kept the names of their parts
FAIRSEQ = {
    "attention": ("q_proj", "k_proj", "v_proj", "out_proj"),
    "self": ("self_attn", "self_attn_layer_norm"),
    "cross": ("encoder_attn", "encoder_attn_layer_norm"),
    "feed_forward": ("fc1", "fc2", "final_layer_norm"),
}
EOLE = {
    "attention": ("linear_query", "linear_keys", "linear_values", "final_linear"),
    "self": ("self_attn", "input_layernorm"),
    "cross": ("context_attn", "precontext_layernorm"),
    "feed_forward": ("mlp.gate_up_proj", "mlp.down_proj", "post_attention_layernorm"),
}


def check_copyable(config):
    """Refuses what no library has a model for."""
    if config.tied_embeddings != "all" or not config.bias:
        raise ValueError("only models with one matrix of embeddings, and with biases, have a copy")
    if {n for layers in config.layer_heads for n in layers} != {config.n_heads}:
        raise ValueError("models whose layers have lost heads have no copy")


def position_table(our):
    return our.positions.rows(0, our.max_positions, torch.device("cpu"))


def copy_layers(theirs, ours, names):
    """Copies a stack of layers whose parts have these names; call it without gradients."""
    for their, our in zip(theirs, ours.layers, strict=True):
        _copy_attention(their, our.self_attention, our.self_attention_norm, names, "self")
        if our.cross_attention is not None:
            _copy_attention(their, our.cross_attention, our.cross_attention_norm, names, "cross")
        inner, outer, norm = (their.get_submodule(name) for name in names["feed_forward"])
        inner.load_state_dict(our.feed_forward.inner.state_dict())
        outer.load_state_dict(our.feed_forward.outer.state_dict())
        copy_norm(norm, our.feed_forward_norm)


def _copy_attention(their, our, our_norm, names, kind):
    attention, norm = (their.get_submodule(name) for name in names[kind])
    *parts, out = (attention.get_submodule(name) for name in names["attention"])
    # (3·D, D): the rows of queries, keys and values
    weights, biases = our.in_projection.weight.chunk(3), our.in_projection.bias.chunk(3)
    for part, weight, bias in zip(parts, weights, biases, strict=True):
        part.weight.copy_(weight)
        part.bias.copy_(bias)
    out.load_state_dict(our.out_projection.state_dict())
    copy_norm(norm, our_norm)


def copy_norm(their, our):
    their.load_state_dict(our.state_dict())
    their.eps = our.eps


def hf_copy(model, attention="sdpa"):
    """Makes a `MarianMTModel`, or for norms before the sub-layers an `M2M100…`."""
    from transformers import (
        M2M100Config,
        M2M100ForConditionalGeneration,
        MarianConfig,
        MarianMTModel,
    )

    config = model.config
    check_copyable(config)
    shape = {
        "vocab_size": model.vocab_size, "d_model": config.d_model,
        "encoder_layers": config.n_encoder_layers, "decoder_layers": config.n_decoder_layers,
        "encoder_attention_heads": config.n_heads, "decoder_attention_heads": config.n_heads,
        "encoder_ffn_dim": config.d_ff, "decoder_ffn_dim": config.d_ff,
        "activation_function": config.activation, "dropout": 0.0, "attention_dropout": 0.0,
        "activation_dropout": 0.0, "max_position_embeddings": config.max_positions,
        "scale_embedding": True, "pad_token_id": PAD_ID, "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID, "decoder_start_token_id": BOS_ID, "forced_eos_token_id": None,
        "attn_implementation": attention,
    }  # fmt: skip
    is_pre = config.norm == "pre"
    if is_pre:
        no_drop = {"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0}
        theirs = M2M100ForConditionalGeneration(M2M100Config(**no_drop, **shape))
    else:
        theirs = MarianMTModel(MarianConfig(**shape))
    inner = theirs.model
    with torch.no_grad():
        inner.shared.weight.copy_(model.source_embedding.weight)
        for stack, ours, our_input in (
            (inner.encoder, model.encoder, model.encoder_input),
            (inner.decoder, model.decoder, model.decoder_input),
        ):
            table, their = position_table(our_input), stack.embed_positions
            if isinstance(their, nn.Embedding):
                their.weight.copy_(table)
            else:  # M2M100 counts from 1 after padding, and has a row to spare
                their.weights[1 : len(table) + 1].copy_(table)
            copy_layers(stack.layers, ours, FAIRSEQ)
            if is_pre:
                copy_norm(stack.layer_norm, ours.final_norm)
        if not is_pre:
            theirs.final_logits_bias.zero_()
    theirs.tie_weights()
    return theirs.eval()


def fairseq_copy(model):
    """Makes fairseq's model, its dictionary, and (V) its id of each of our tokens and the reverse.

    Its special tokens have an order of their own; the other tokens keep their numbers.
    """
    from fairseq.data import Dictionary
    from fairseq.models.transformer import TransformerConfig, TransformerModelBase

    ours = model.config
    check_copyable(ours)
    dictionary = Dictionary()
    for token in range(dictionary.nspecial, model.vocab_size):
        dictionary.add_symbol(str(token))
    to_theirs = torch.arange(model.vocab_size)
    to_theirs[[PAD_ID, UNK_ID, BOS_ID, EOS_ID]] = torch.tensor(
        [dictionary.pad(), dictionary.unk(), dictionary.bos(), dictionary.eos()]
    )
    to_ours = to_theirs.argsort()
    config = TransformerConfig(
        activation_fn=ours.activation, dropout=0.0, share_all_embeddings=True,
        max_source_positions=ours.max_positions, max_target_positions=ours.max_positions,
    )  # fmt: skip
    for side, n_layers in (
        (config.encoder, ours.n_encoder_layers),
        (config.decoder, ours.n_decoder_layers),
    ):
        side.layers, side.embed_dim, side.ffn_embed_dim = n_layers, ours.d_model, ours.d_ff
        side.attention_heads, side.normalize_before = ours.n_heads, ours.norm == "pre"
    config.decoder.input_dim = config.decoder.output_dim = ours.d_model
    both = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    theirs = TransformerModelBase.build_model(config, both)
    with torch.no_grad():
        theirs.encoder.embed_tokens.weight.copy_(model.source_embedding.weight[to_ours])
        for stack, our, our_input in (
            (theirs.encoder, model.encoder, model.encoder_input),
            (theirs.decoder, model.decoder, model.decoder_input),
        ):
            positions = stack.embed_positions
            # it counts positions from one behind the number of padding
            positions.weights[positions.padding_idx + 1 :].copy_(position_table(our_input))
            copy_layers(stack.layers, our, FAIRSEQ)
            if ours.norm == "pre":
                copy_norm(stack.layer_norm, our.final_norm)
    theirs.make_generation_fast_(need_attn=False)  # as fairseq-generate does; evaluation mode, too
    return theirs, dictionary, to_theirs, to_ours


def eole_copy(model):
    """Makes Eole's model, whose norms come before the sub-layers."""
    from eole.config.models import TransformerDecoderConfig, TransformerEncoderConfig
    from eole.decoders.transformer import TransformerDecoder
    from eole.encoders.transformer import TransformerEncoder
    from eole.models.model import EncoderDecoderModel
    from eole.modules.embeddings import Embeddings

    config = model.config
    check_copyable(config)
    if config.norm != "pre":
        raise ValueError("Eole's decoder has its norms before the sub-layers")
    shape = {
        "hidden_size": config.d_model, "heads": config.n_heads, "transformer_ff": config.d_ff,
        "mlp_activation_fn": config.activation, "norm_eps": config.norm_epsilon,
        "add_qkvbias": True, "add_final_linear_bias": True, "add_ffnbias": True,
    }  # fmt: skip

    def embeddings(our):
        their = Embeddings(config.d_model, model.vocab_size, PAD_ID)
        with torch.no_grad():
            their.embeddings.weight.copy_(model.source_embedding.weight)
            table = position_table(our)
            their.pe.pe[: len(table), 0].copy_(table)
        if not math.isclose(our.scale, math.sqrt(their.pe.dim)):
            raise ValueError("Eole scales embeddings otherwise")
        return their

    encoder = TransformerEncoderConfig(layers=config.n_encoder_layers, **shape)
    decoder = TransformerDecoderConfig(
        layers=config.n_decoder_layers, with_cross_attn=True, **shape
    )
    theirs = EncoderDecoderModel(
        encoder=TransformerEncoder(encoder),
        decoder=TransformerDecoder(decoder),
        src_emb=embeddings(model.encoder_input),
        tgt_emb=embeddings(model.decoder_input),
        hidden_size=config.d_model,
    )
    theirs.generator = nn.Linear(config.d_model, model.vocab_size, bias=False)
    theirs.generator.weight = theirs.src_emb.embeddings.weight
    with torch.no_grad():
        for stack, ours in ((theirs.encoder, model.encoder), (theirs.decoder, model.decoder)):
            copy_layers(stack.transformer_layers, ours, EOLE)
            copy_norm(stack.layer_norm, ours.final_norm)
    return theirs.eval().requires_grad_(requires_grad=False)
