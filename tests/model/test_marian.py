"""Differential test against a random Hugging Face Marian model; nothing is downloaded."""

import pytest
import torch

from tests.model.conftest import VOCAB_SIZE, small_model
from tformer_cli.model.attention import attention_weights
from tformer_cli.model.positions import sinusoids

transformers = pytest.importorskip("transformers")

PAD = 0


@pytest.fixture(scope="module")
def pair():
    """One of our models and a Marian model with the same weights."""
    ours = small_model()
    config = transformers.MarianConfig(
        vocab_size=VOCAB_SIZE,
        d_model=32,
        encoder_layers=2,
        decoder_layers=3,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        activation_function="relu",
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        max_position_embeddings=64,
        scale_embedding=True,
        pad_token_id=PAD,
        eos_token_id=3,
        decoder_start_token_id=2,
        attn_implementation="eager",
    )
    theirs = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        theirs.model.shared.weight.copy_(ours.source_embedding.weight)
        theirs.final_logits_bias.zero_()
        for stack in (theirs.model.encoder, theirs.model.decoder):
            # Marian keeps sines and cosines in two halves, the paper alternates them
            stack.embed_positions.weight.copy_(sinusoids(64, 32))
        for their, our in zip(theirs.model.encoder.layers, ours.encoder.layers, strict=True):
            copy_attention(their.self_attn, our.self_attention)
            copy_rest(their, our)
        for their, our in zip(theirs.model.decoder.layers, ours.decoder.layers, strict=True):
            copy_attention(their.self_attn, our.self_attention)
            copy_attention(their.encoder_attn, our.cross_attention)
            their.encoder_attn_layer_norm.load_state_dict(our.cross_attention_norm.state_dict())
            copy_rest(their, our)
    theirs.tie_weights()
    return ours, theirs


def copy_attention(their, our):
    names = ("q_proj", "k_proj", "v_proj")
    parts = zip(
        names, our.in_projection.weight.chunk(3), our.in_projection.bias.chunk(3), strict=True
    )
    for name, weight, bias in parts:
        getattr(their, name).weight.copy_(weight)
        getattr(their, name).bias.copy_(bias)
    their.out_proj.load_state_dict(our.out_projection.state_dict())


def copy_rest(their, our):
    their.self_attn_layer_norm.load_state_dict(our.self_attention_norm.state_dict())
    their.fc1.load_state_dict(our.feed_forward.inner.state_dict())
    their.fc2.load_state_dict(our.feed_forward.outer.state_dict())
    their.final_layer_norm.load_state_dict(our.feed_forward_norm.state_dict())


def test_logits_and_gradients_equal_marians(pair, sentences):
    ours, theirs = pair
    source, source_mask, target = sentences
    logits = ours(source, source_mask, target)
    output = theirs(input_ids=source, attention_mask=source_mask.long(), decoder_input_ids=target)
    assert torch.allclose(logits, output.logits, atol=1e-5)

    for result in (logits, output.logits):
        result.log_softmax(-1)[..., 11].sum().backward()
    assert torch.allclose(
        ours.source_embedding.weight.grad, theirs.model.shared.weight.grad, atol=1e-4, rtol=1e-4
    )
    our_layer, their_layer = ours.encoder.layers[0], theirs.model.encoder.layers[0]
    assert torch.allclose(
        our_layer.feed_forward.inner.weight.grad, their_layer.fc1.weight.grad, atol=1e-5, rtol=1e-4
    )


def test_attention_weights_equal_marians(pair, sentences):
    ours, theirs = pair
    source, source_mask, target = sentences
    taps = []
    handles = [layer.cross_attention.tap(taps.append) for layer in ours.decoder.layers]
    ours(source, source_mask, target)
    for handle in handles:
        handle.remove()
    output = theirs(
        input_ids=source,
        attention_mask=source_mask.long(),
        decoder_input_ids=target,
        output_attentions=True,
    )
    assert len(taps) == len(output.cross_attentions) == 3
    for tap, expected in zip(taps, output.cross_attentions, strict=True):
        weights = attention_weights(tap.query, tap.key, tap.mask)
        assert torch.allclose(weights, expected, atol=1e-5)
