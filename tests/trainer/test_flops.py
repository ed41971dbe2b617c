import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tformer_cli.model.config import PRESETS, ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.trainer.speed import forward_flops, training_flops_per_token


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "pre"},
        {"norm": "post"},
        {"decoder_cell": "ssru"},
        {"gated": True, "n_key_heads": 2},
        {"d_head": 6},
        {"projections": False},
    ],
    ids=str,
)
def test_the_formula_counts_what_torch_counts(changes):
    config = ModelConfig(
        d_model=32, n_heads=4, d_ff=48, n_encoder_layers=3, n_decoder_layers=2, **changes
    )
    n_pairs, s, t, vocab_size = 3, 7, 5, 50
    model = Transformer(config, vocab_size).eval()
    source, target = (torch.randint(4, vocab_size, (n_pairs, n)) for n in (s, t))
    # with gradients: without them few rows are padded
    with FlopCounterMode(display=False) as counter:
        model(source, torch.ones(n_pairs, s, dtype=torch.bool), target)
    assert counter.get_total_flops() == n_pairs * forward_flops(config, vocab_size, s, t)


@pytest.mark.parametrize(("preset", "megaflops"), [("small", 45.2), ("base", 286.0)])
def test_a_training_step_costs_what_was_counted_by_hand(preset, megaflops):
    config = ModelConfig(**PRESETS[preset])
    flops = training_flops_per_token(config, 8000, 0.966 * 16.21, 16.21)
    assert flops / 1e6 == pytest.approx(megaflops, rel=1e-3)
