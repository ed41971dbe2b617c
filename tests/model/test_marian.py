"""Differential test against random Hugging Face models; nothing is downloaded."""

from pathlib import Path

import pytest
import torch

from tests.model.conftest import small_model

pytest.importorskip("transformers")

CONTESTANTS = Path(__file__).parents[1] / "benchmarks" / "contestants"
"""Programs that import each other from their own folder."""


@pytest.fixture(scope="module", params=["post", "pre"])
def pair(request):
    """One of our models and a Marian or M2M100 model with the same weights."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(CONTESTANTS)
        from copies import hf_copy

    ours = small_model(norm=request.param)
    return ours, hf_copy(ours, "eager")


def test_logits_and_gradients_equal_theirs(pair, sentences):
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


def test_attention_weights_equal_theirs(pair, sentences):
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
        weights = tap.weights()
        assert torch.allclose(weights, expected, atol=1e-5)
