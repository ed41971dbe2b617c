import pytest

from tests.model.conftest import VOCAB_SIZE, small_config
from tformer_cli.model.config import PRESETS, ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.model.weight_shapes import parameter_count, parameter_shapes


@pytest.mark.parametrize("tied", ["all", "decoder", "inputs", "none"])
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "table"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"encoder_heads": (1, 0), "cross_heads": (2, 1, 0)},
        {"output_bias": True, "embedding_norm": True},
        {"final_norm": "always", "scale_embeddings": False},
        {"decoder_cell": "ssru", "cross_heads": (2, 1, 0)},
        {"d_head": 6, "cross_heads": (2, 1, 0), "norm_kind": "rms", "gated": True},
    ],
)
def test_parameters_are_named_and_counted_without_a_model(tied, norm, positions, bias, more):
    if tied not in ("all", "inputs"):
        more = {**more, "source_vocab_size": 60}
    config = small_config(tied_embeddings=tied, norm=norm, positions=positions, bias=bias, **more)
    model = Transformer(config, VOCAB_SIZE)
    shapes = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    assert parameter_shapes(config, VOCAB_SIZE) == shapes
    assert sum(p.numel() for p in model.parameters()) == parameter_count(config, VOCAB_SIZE)


def test_base_and_big_are_the_papers():
    # Table 3 gives 65 and 213 million parameters, with about 37,000 joint BPE entries.
    assert round(parameter_count(ModelConfig(**PRESETS["base"]), 37_000) / 1e6) == 63
    assert round(parameter_count(ModelConfig(**PRESETS["big"]), 37_000) / 1e6) == 214
