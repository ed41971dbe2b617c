"""A hand-made record: S and T differ, the two alphabets share nothing."""

import numpy as np
import pytest
import torch

from tests.inspect.cases import case  # noqa: F401 - a fixture
from tformer_cli.heads.gates import heads_off
from tformer_cli.heads.names import KINDS, HeadId, HeadLayout, head_layout
from tformer_cli.inspect.capture.maps import AttentionMaps, CapturedBatch, TappedAttention
from tformer_cli.inspect.record import HeadsRecord, ModelSummary
from tformer_cli.model.attention import MultiHeadAttention
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.plugins.instruments.ablation import (
    losses_along,
    losses_and_hits,
    losses_without_each,
    sentence_losses,
)

LAYOUT = HeadLayout((2, 2, 2), (2, 2), (2, 2))


def batch_of(maps):
    """A batch of one sentence."""
    tapped = {}
    for kind in KINDS:
        for layer, weights in enumerate(maps.layers(kind)):
            errors = [maps.residuals[HeadId(kind, layer, head)] for head in range(len(weights))]
            tapped[kind, layer] = TappedAttention(
                weights[None], np.repeat(np.array(errors)[None, :, None], weights.shape[1], axis=2)
            )
    return CapturedBatch([maps.source_ids], [maps.target_input_ids], [maps.next_id], tapped)


def made_record(
    source=("a", "b", "c", "d"), target=("x", "y"), heads=tuple(LAYOUT), index=0, aligned=None
):
    generator = torch.Generator().manual_seed(5)
    n_source, n_target = len(source) + 1, len(target) + 1

    def maps(n_layers, n_rows, n_keys, is_causal=False):
        scores = 3 * torch.randn(n_layers, 2, n_rows, n_keys, generator=generator)
        if is_causal:
            scores = scores.masked_fill(~torch.ones(n_rows, n_keys).tril().bool(), -torch.inf)
        return tuple(scores.softmax(dim=-1).numpy())

    return HeadsRecord(
        index=index,
        model=ModelSummary(name="m", n_encoder_layers=3, n_decoder_layers=2, n_heads=2, step=7),
        source=" ".join(source),
        target=" ".join(target),
        is_forced=False,
        score=-1.23456789,
        source_pieces=(*source, "</s>"),
        target_pieces=(*target, "</s>"),
        input_pieces=("<s>", *target),
        maps=AttentionMaps(
            source_ids=(*range(10, 9 + n_source), 3),
            target_input_ids=(2, *range(30, 29 + n_target)),
            enc=maps(3, n_source, n_source),
            dec=maps(2, n_target, n_target, is_causal=True),
            cross=maps(2, n_target, n_source),
            residuals={head: 1e-7 for head in LAYOUT} | {HeadId("cross", 1, 1): 3e-7},
        ),
        heads=heads,
        aligned=aligned,
    )


def blank_record(index=0):
    return HeadsRecord(
        index=index,
        model=made_record().model,
        source="",
        target="",
        is_forced=False,
    )


@pytest.fixture
def record():
    return made_record()


@pytest.fixture
def make_record():
    return made_record


@pytest.fixture
def make_blank_record():
    return blank_record


def made_model(dtype=torch.float32, vocab_size=40, *, sharpness=3.0, noise=0.2, **settings):
    """3 + 2 layers of 4 heads, its attention far from even; every bias and norm far from neutral,
    so that leaving one out shows."""
    shape = {"d_model": 32, "n_heads": 4, "d_ff": 48, "n_encoder_layers": 3, "n_decoder_layers": 2}
    torch.manual_seed(3)
    model = Transformer(ModelConfig(**shape | settings), vocab_size).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if noise and parameter.dim() == 1:
                parameter.add_(noise * torch.randn_like(parameter))
        for module in model.modules():
            if isinstance(module, MultiHeadAttention):
                n_rows = 2 * module.n_heads * module.head_width
                module.in_projection.weight[:n_rows].mul_(sharpness)
    return model.to(dtype)


def dictionary_model(looks_for):
    """One decoder layer whose only cross-attention head looks for a source token by the token that
    the decoder just read."""
    config = ModelConfig(
        d_model=16,
        n_heads=1,
        d_ff=16,
        n_encoder_layers=1,
        n_decoder_layers=1,
        max_positions=16,
        tied_embeddings="none",
        positions="learned",
        bias=False,
        norm="pre",
    )
    model = Transformer(config, 16).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_() if parameter.dim() > 1 else parameter.fill_(1.0)
        model.source_embedding.weight.copy_(torch.eye(16))
        for read, token in looks_for.items():
            model.target_embedding.weight[read, token] = 1.0
        attention = model.decoder.layers[0].cross_attention.in_projection.weight
        attention[:16], attention[16:32] = 20 * torch.eye(16), torch.eye(16)
    return model


def check_maps(maps, expected, atol=1e-6):
    """The maps of a pair are those found in another way, and exact."""
    assert maps.source_ids == expected.source_ids
    assert maps.target_input_ids == expected.target_input_ids
    for kind in KINDS:
        assert len(maps.layers(kind)) == len(expected.layers(kind)) > 0
        for ours, theirs in zip(maps.layers(kind), expected.layers(kind), strict=True):
            assert ours.dtype == theirs.dtype == np.float32
            np.testing.assert_allclose(ours, theirs, atol=atol, rtol=0)
    assert maps.residuals.keys() == expected.residuals.keys()
    assert maps.residual < 1e-5


def check_losses(model, batch, expected, *, hits=None, measure=losses_and_hits, atol=1e-5):
    """Losses without heads are those of the model with these heads off."""
    heads = list(head_layout(model))

    def of_rows(losses):
        return losses.reshape(len(losses), -1)[:, 0]

    def with_heads_off(closed):
        with heads_off(model, closed), torch.inference_mode():
            return sentence_losses(model, batch)

    whole, without = losses_without_each(model, batch, heads, measure=measure)
    assert of_rows(whole).tolist() == pytest.approx(expected, abs=atol)
    assert hits is None or whole[:, 1].tolist() == hits
    for head, losses in zip(heads, without, strict=True):
        assert torch.allclose(of_rows(losses), with_heads_off([head]), atol=atol)
    along = losses_along(model, batch, heads[:3], measure)
    assert torch.allclose(of_rows(along[3]), with_heads_off(heads[:3]), atol=atol)


@pytest.fixture
def make_model():
    return made_model
