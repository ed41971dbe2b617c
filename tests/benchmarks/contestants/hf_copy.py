"""Hugging Face models with the weights of one of ours: the same function, computed by others.

Marian's architecture is the paper's, with norms after the residual sums; M2M100's has them before.
Both take their positions from a table, which is overwritten, so that no formula has to agree.
"""

from typing import Any

import torch
from layer_copy import check_copyable, copy_stacks
from torch import Tensor, nn
from transformers import M2M100Config, M2M100ForConditionalGeneration, MarianConfig, MarianMTModel

from tformer_cli.model.transformer import Transformer
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, PAD_ID


def hf_copy(model: Transformer, attention: str = "sdpa") -> Any:
    """Makes a `MarianMTModel`, or for norms before the sub-layers an `M2M100…`.

    Args:
        model: of one vocabulary matrix, with biases and all heads.
        attention: the library's name for how to compute attention.

    Raises:
        ValueError: if the library has no such model.
    """
    config = model.config
    check_copyable(config)
    is_pre = config.norm == "pre"
    shape: Any = {
        "vocab_size": model.vocab_size,
        "d_model": config.d_model,
        "encoder_layers": config.n_encoder_layers,
        "decoder_layers": config.n_decoder_layers,
        "encoder_attention_heads": config.n_heads,
        "decoder_attention_heads": config.n_heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "activation_function": config.activation,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "max_position_embeddings": config.max_positions,
        "scale_embedding": True,
        "pad_token_id": PAD_ID,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "decoder_start_token_id": BOS_ID,
        "forced_eos_token_id": None,
        "attn_implementation": attention,
    }
    theirs: Any = (
        M2M100ForConditionalGeneration(
            M2M100Config(encoder_layerdrop=0.0, decoder_layerdrop=0.0, **shape)
        )
        if is_pre
        else MarianMTModel(MarianConfig(**shape))
    )
    with torch.no_grad():
        theirs.model.shared.weight.copy_(model.source_embedding.weight)
        for stack, ours in (
            (theirs.model.encoder, model.encoder_input),
            (theirs.model.decoder, model.decoder_input),
        ):
            table = ours.positions.rows(0, config.max_positions, torch.device("cpu"))
            _copy_positions(stack.embed_positions, table)
        copy_stacks(theirs.model.encoder, theirs.model.decoder, model)
        if not is_pre:
            theirs.final_logits_bias.zero_()
    theirs.tie_weights()
    return theirs.eval()


def _copy_positions(their: Any, table: Tensor) -> None:
    if isinstance(their, nn.Embedding):
        their.weight.copy_(table)
    else:  # M2M100 counts from 1 after padding, and has a row to spare
        their.weights[1 : len(table) + 1].copy_(table)
