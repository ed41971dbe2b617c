import pytest
import torch

from tformer_cli.model.norms import RMSNorm, make_norm


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(4))


def results(norm, hidden):
    """The output, and the gradients of the input and of the weights."""
    hidden = hidden.clone().requires_grad_()
    output = norm(hidden)
    (output * random(*output.shape)).sum().backward()
    return output, hidden.grad, norm.weight.grad


@pytest.mark.parametrize("size", [1.0, 1e-3])  # of small numbers epsilon counts
@pytest.mark.parametrize(
    "name", ["llama.modeling_llama.LlamaRMSNorm", "t5.modeling_t5.T5LayerNorm"]
)
def test_rms_norms_are_those_of_llama_and_t5_with_their_gradients(name, size):
    module, _, kind = name.rpartition(".")
    modeling = pytest.importorskip(f"transformers.models.{module}")
    theirs, ours = getattr(modeling, kind)(24, eps=1e-6), make_norm("rms", 24, 1e-6, bias=True)
    assert isinstance(ours, RMSNorm)
    with torch.no_grad():
        for norm in (theirs, ours):
            norm.weight.copy_(random(24))
    hidden = size * random(3, 5, 24) + 0.3 * size
    expected = results(theirs, hidden)
    for one, other in zip(results(ours, hidden), expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)
    wrong = make_norm("rms", 24, 1e-5, bias=True)
    wrong.weight = ours.weight
    assert torch.allclose(wrong(hidden), expected[0], atol=1e-3) == (size == 1.0)
    centered = make_norm("layer", 24, 1e-6, bias=False)
    centered.weight = ours.weight
    assert not torch.allclose(centered(hidden), expected[0], atol=1e-2)


def test_an_rms_norm_has_no_bias():
    assert [name for name, _ in make_norm("rms", 8, 1e-6, bias=True).named_parameters()] == [
        "weight"
    ]
    assert make_norm("layer", 8, 1e-6, bias=True).bias is not None
