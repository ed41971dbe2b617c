"""Layer norm (Ba et al. 2016) with the settings of a model."""

from torch import nn

from tformer_cli.model.config import ModelConfig


def layer_norm(config: ModelConfig) -> nn.LayerNorm:
    """Makes one layer norm over the width D."""
    return nn.LayerNorm(config.d_model, eps=config.norm_epsilon, bias=config.bias)
