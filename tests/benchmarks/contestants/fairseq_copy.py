"""fairseq's Transformer with the weights of one of ours: the same function, computed by it.

fairseq has special tokens in an order of its own, which are told apart by their names; the other
tokens keep their numbers. Its positions are a table, which is overwritten, so that no formula has
to agree; it counts them from one behind the number of padding.
"""

from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerConfig, TransformerModelBase
from layer_copy import check_copyable, copy_stacks
from torch import Tensor, nn

from tformer_cli.model.transformer import Transformer
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID


class FairseqCopy(NamedTuple):
    """A model of fairseq's and what its token ids mean."""

    model: Any
    dictionary: Dictionary
    to_theirs: Tensor
    """(V): fairseq's id of each of our tokens."""
    to_ours: Tensor
    """(V): our id of each of fairseq's tokens."""


def fairseq_copy(model: Transformer) -> FairseqCopy:
    """Makes fairseq's model, in evaluation mode.

    Args:
        model: of one vocabulary matrix, with biases and all heads.

    Raises:
        ValueError: if the library has no such model.
    """
    check_copyable(model.config)
    dictionary = Dictionary()
    for token in range(dictionary.nspecial, model.vocab_size):
        dictionary.add_symbol(str(token))
    to_theirs = torch.arange(model.vocab_size)
    to_theirs[[PAD_ID, UNK_ID, BOS_ID, EOS_ID]] = torch.tensor(
        [dictionary.pad(), dictionary.unk(), dictionary.bos(), dictionary.eos()]
    )
    to_ours = to_theirs.argsort()
    both = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    theirs = TransformerModelBase.build_model(_config(model), both)
    with torch.no_grad():
        theirs.encoder.embed_tokens.weight.copy_(model.source_embedding.weight[to_ours])
        _copy_positions(theirs.encoder.embed_positions, model.encoder_input)
        _copy_positions(theirs.decoder.embed_positions, model.decoder_input)
        copy_stacks(theirs.encoder, theirs.decoder, model)
    theirs.make_generation_fast_(need_attn=False)  # as fairseq-generate does; evaluation mode, too
    return FairseqCopy(theirs, dictionary, to_theirs, to_ours)


def _config(model: Transformer) -> TransformerConfig:
    ours = model.config
    config = TransformerConfig(
        activation_fn=ours.activation,
        dropout=0.0,
        share_all_embeddings=True,
        max_source_positions=ours.max_positions,
        max_target_positions=ours.max_positions,
    )
    for side, n_layers in (
        (config.encoder, ours.n_encoder_layers),
        (config.decoder, ours.n_decoder_layers),
    ):
        side.layers = n_layers
        side.embed_dim = ours.d_model
        side.ffn_embed_dim = ours.d_ff
        side.attention_heads = ours.n_heads
        side.normalize_before = ours.norm == "pre"
    config.decoder.input_dim = config.decoder.output_dim = ours.d_model
    return config


def _copy_positions(their: nn.Module, our: Any) -> None:
    table = our.positions.rows(0, our.max_positions, torch.device("cpu"))
    their.weights[their.padding_idx + 1 :].copy_(table)
