import copy
import warnings

import pytest
import torch

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.trainer.hardware import compile_layers, uncompiled, use_kernels


def make_model():
    torch.manual_seed(1)
    config = ModelConfig(
        d_model=16, n_heads=2, d_ff=24, n_encoder_layers=2, n_decoder_layers=2, dropout=0.0
    )
    return Transformer(config, 30).train()


def compiled(model):
    layers = [*model.encoder.layers, *model.decoder.layers]
    return [layer._compiled_call_impl is not None for layer in layers]


@pytest.mark.parametrize("compiles", [False, True])
def test_layers_are_compiled_off_the_cpu_where_that_is_asked_for(compiles):
    model = make_model().to("meta")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's compiler
        assert use_kernels(model, compiles=compiles) == []
        assert compiled(model) == [compiles] * 4
        with uncompiled(model):
            sources = torch.zeros(2, 5, dtype=torch.int64, device="meta")
            assert model(sources, sources.bool(), sources).shape == (2, 5, 30)


def test_on_the_cpu_they_are_not_and_a_note_says_so():
    model = make_model()
    notes = use_kernels(model, compiles=True)
    assert notes[0] == "training.compile has no effect without a GPU"
    assert not any(compiled(model))


def gradients(model, n_sentences, n_source, n_target):
    generator = torch.Generator().manual_seed(n_sentences)
    source = torch.randint(4, 30, (n_sentences, n_source), generator=generator)
    mask = torch.ones(n_sentences, n_source, dtype=torch.bool)
    mask[0, 2:] = False
    target = torch.randint(4, 30, (n_sentences, n_target), generator=generator)
    model.zero_grad()
    model(source, mask, target).logsumexp(dim=-1).mean().backward()
    return [weight.grad for weight in model.parameters()]


@pytest.mark.slow
def test_compiled_layers_have_the_same_gradients_for_all_shapes():
    model = make_model()
    faster = copy.deepcopy(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's compiler
        compile_layers(faster)
        for shape in ((8, 12, 10), (5, 20, 17), (3, 30, 33)):
            pairs = zip(gradients(faster, *shape), gradients(model, *shape), strict=True)
            for one, other in pairs:
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
        once = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        gradients(faster, 7, 9, 14)
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == once
