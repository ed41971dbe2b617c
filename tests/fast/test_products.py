"""Models with faster products, against the models without."""

import copy

import pytest
import torch

from tformer_cli.fast.products import (
    can_pack,
    pack,
    quantized_matrices,
    unpack,
    use_bfloat16,
    use_integers,
)
from tformer_cli.model.operations import StandardProducts
from tformer_cli.runtime import autocast


def quantized_copy(model):
    changed = copy.deepcopy(model)
    use_integers(changed, quantized_matrices(changed.state_dict()))
    return changed


def logits_of(model, sentences):
    with torch.inference_mode():
        return model(*sentences)


SHAPES = [
    {},
    {"norm": "pre", "activation": "gelu", "bias": False, "tied_embeddings": "none"},
    {"tied_embeddings": "decoder", "positions": "learned", "output_bias": True},
    {"decoder_cell": "ssru", "norm": "pre"},
    {"encoder_heads": (4, 0), "decoder_heads": (1, 0, 4), "cross_heads": (0, 2, 4)},
]


@pytest.mark.parametrize("changes", SHAPES)
def test_logits_of_a_packed_model_are_the_models(changes, sentences, one_thread, make_model):
    if not can_pack():
        pytest.skip("this build of torch packs no float32 matrices")
    model = make_model(**changes)
    expected = logits_of(model, sentences)
    pack(model)
    assert torch.allclose(logits_of(model, sentences), expected, atol=1e-5)


@pytest.mark.parametrize("changes", SHAPES)
def test_logits_in_integers_are_close_and_matrices_are_given_up(changes, sentences, make_model):
    model = make_model(**changes)
    expected = logits_of(model, sentences)
    found = logits_of(quantized_copy(model), sentences)
    assert 0.0 < (found - expected).norm() / expected.norm() < 0.03
    lost = [name for name, p in quantized_copy(model).named_parameters() if p.is_meta]
    wanted = (
        "input",
        "forget",
        "in_projection",
        "out_projection",
        "inner",
        "outer",
        "output_projection",
    )
    assert lost
    assert all(name.split(".")[-2] in wanted for name in lost)


def test_integers_are_of_matrices_alone(make_model):
    model = make_model(positions="learned")
    names = set(quantized_matrices(model.state_dict()))
    assert names == {
        name
        for name, parameter in model.named_parameters()
        if parameter.dim() == 2 and not name.endswith("positions.table")
    }
    assert "source_embedding.weight" in names


def test_tied_embeddings_and_output_use_the_same_integers(make_model):
    model = quantized_copy(make_model())
    with torch.inference_mode():
        # a hidden state that is an integer row itself is not rounded
        hidden = torch.zeros(32)
        hidden[5] = 1.0
        assert torch.allclose(model.project(hidden), model.target_matrix[:, 5], atol=1e-7)


def test_a_step_in_integers_gives_a_row_the_same_bits_in_every_batch(make_model):
    model = quantized_copy(make_model())
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(4, 50, (40, 16), generator=generator)
    mask = torch.ones_like(source, dtype=torch.bool)
    tokens = torch.randint(4, 50, (40, 5), generator=generator)
    with torch.inference_mode(), StandardProducts():
        together = steps_of(model, source, mask, tokens)
        for start, stop in ((0, 2), (3, 10), (10, 40)):
            part = slice(start, stop)
            found = steps_of(model, source[part], mask[part], tokens[part])
            assert torch.equal(found, together[part])


def steps_of(model, source, mask, tokens):
    cache = model.start_cache(model.encode(source, mask), mask, 1, tokens.shape[1])
    return torch.stack([model.decode_step(column, cache) for column in tokens.T], dim=1)


@pytest.mark.parametrize("changes", SHAPES[:4])  # of a layer without heads a float32 bias is left
def test_matrices_rounded_once_give_what_autocast_gives(make_model, sentences, changes):
    model = make_model(**changes)
    with autocast(torch.device("cpu"), "bfloat16"):
        expected = logits_of(model, sentences)
    use_bfloat16(model)
    computed = logits_of(model, sentences)
    assert computed.dtype == torch.bfloat16
    assert torch.equal(computed, expected)
    unpack(model)
    assert logits_of(model, sentences).dtype == torch.float32
