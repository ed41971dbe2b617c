"""Decoder-only models: against torch's own layers, and step by step against whole sentences."""

import pytest
import torch

from tests.model.conftest import VOCAB_SIZE, small_config, small_model
from tests.model.test_transformer import torchs_stack
from tformer_cli.model.attention import causal_mask
from tformer_cli.model.operations import OneDnnProducts
from tformer_cli.model.transformer import Transformer
from tformer_cli.model.weight_shapes import parameter_count, parameter_shapes

VARIANTS = [
    {},
    {"norm": "pre"},
    {"positions": "learned", "tied_embeddings": "none", "bias": False},
    {"positions": "rotary", "activation": "swish", "scale_embeddings": False},
    {"output_bias": True, "final_norm": "always", "embedding_norm": True},
    {"decoder_cell": "ssru", "norm": "pre"},
    {"decoder_heads": (4, 1, 2)},
]
NO_SOURCE = torch.zeros(3, 1, dtype=torch.int64), torch.ones(3, 1, dtype=torch.bool)


def language_model(**changes):
    return small_model(n_encoder_layers=0, **changes)


def logits_of(model, tokens):
    return model(NO_SOURCE[0][: len(tokens)], NO_SOURCE[1][: len(tokens)], tokens)


@pytest.fixture
def texts():
    return torch.randint(4, VOCAB_SIZE, (3, 9), generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_parameters_are_named_and_counted_without_a_model(changes):
    config = small_config(n_encoder_layers=0, **changes)
    model = Transformer(config, VOCAB_SIZE)
    shapes = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    assert parameter_shapes(config, VOCAB_SIZE) == shapes
    assert sum(p.numel() for p in model.parameters()) == parameter_count(config, VOCAB_SIZE)
    assert not any("cross" in name or "encoder" in name or "source" in name for name in shapes)


@pytest.mark.filterwarnings("ignore:.*norm_first.*")
@pytest.mark.parametrize("changes", [{}, {"norm": "pre"}, {"activation": "gelu"}])
def test_equals_torchs_encoder_with_a_causal_mask(changes, texts):
    model = language_model(**changes)
    theirs = torchs_stack(model.config, model.decoder)
    hidden = model.decoder_input(texts, model.target_matrix)
    expected = theirs(hidden, mask=~causal_mask(9).visible) @ model.output_matrix.T
    logits = logits_of(model, texts)
    assert torch.allclose(logits, expected, atol=1e-5)
    for result in (logits, expected):
        result.log_softmax(-1)[..., 7].sum().backward()
    ours, own = model.decoder.layers[0].feed_forward, theirs.layers[0]
    assert torch.allclose(ours.inner.weight.grad, own.linear1.weight.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
@torch.inference_mode()
def test_later_tokens_change_nothing_before_them(changes, texts):
    model = language_model(**changes)
    changed = texts.clone()
    changed[:, 5:] = 4
    with OneDnnProducts():
        logits, others = logits_of(model, texts), logits_of(model, changed)
    assert torch.equal(logits[:, :5], others[:, :5])
    assert not torch.allclose(logits[:, 5], others[:, 5], atol=1e-3)


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
@torch.inference_mode()
def test_steps_with_a_cache_equal_the_whole_text(changes, texts, one_thread):
    model = language_model(**changes)
    with OneDnnProducts():
        whole = logits_of(model, texts)
        cache = model.start_cache(model.encode(*NO_SOURCE), NO_SOURCE[1], 1, 9)
        steps = [model.decode_step(texts[:, place], cache) for place in range(9)]
    assert torch.allclose(torch.stack(steps, dim=1), whole, atol=1e-5)
    with OneDnnProducts():  # a text alone has the same bits, however it is cached
        cache = model.start_cache(model.encode(*(n[:1] for n in NO_SOURCE)), NO_SOURCE[1][:1], 1, 9)
        alone = [model.decode_step(texts[1:2, place], cache) for place in range(9)]
    for step, single in zip(steps, alone, strict=True):
        assert torch.equal(step[1:2], single)
