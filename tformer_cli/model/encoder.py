"""The encoder stack. With a causal mask the same stack is a decoder-only language model."""

from typing import TYPE_CHECKING, cast

from torch import Tensor, nn

from tformer_cli.model.attention import MultiHeadAttention
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.dropout import Dropout
from tformer_cli.model.feed_forward import FeedForward
from tformer_cli.model.norm import layer_norm
from tformer_cli.model.unpadded import Spans

if TYPE_CHECKING:
    from collections.abc import Sequence


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward layer, each with residual and layer norm.

    Post-norm computes norm(x + sublayer(x)) as the paper does (Vaswani et al. 2017, section 3.1);
    pre-norm computes x + sublayer(norm(x)), which trains deep stacks without a warm-up (Xiong et
    al. 2020).
    """

    def __init__(self, config: ModelConfig, n_heads: int | None = None) -> None:
        super().__init__()
        self.is_pre_norm = config.norm == "pre"
        self.self_attention = MultiHeadAttention(config, n_heads)
        self.self_attention_norm = layer_norm(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = layer_norm(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, hidden: Tensor, mask: Tensor | Spans | None = None) -> Tensor:
        """Maps (B, S, D) to (B, S, D).

        Args:
            hidden: (B, S, D) hidden states.
            mask: boolean, broadcastable to (B, H, S, S); True means "may attend". Or where each
                sentence lies, in a single row.
        """
        if self.is_pre_norm:
            attended = self.self_attention(self.self_attention_norm(hidden), mask=mask)
            hidden, normed = self.dropout.added_and_normed(
                hidden, attended, self.feed_forward_norm, rounds=True
            )
            return self.dropout.added(hidden, self.feed_forward(normed))
        attended = self.self_attention(hidden, mask=mask)
        hidden = self._normed(hidden, attended, self.self_attention_norm)
        return self._normed(hidden, self.feed_forward(hidden), self.feed_forward_norm)

    def _normed(self, hidden: Tensor, output: Tensor, norm: nn.LayerNorm) -> Tensor:
        return self.dropout.added_and_normed(hidden, output, norm, rounds=False)[1]

    if TYPE_CHECKING:
        __call__ = forward


class Encoder(nn.Module):
    """A stack of encoder layers, with a final norm where the layers are pre-norm."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        layers = nn.ModuleList(EncoderLayer(config, n) for n in config.layer_heads.encoder)
        self.layers = cast(
            "Sequence[EncoderLayer]", layers
        )  # what torch's types do not say of a ModuleList
        self.final_norm = layer_norm(config) if config.norm == "pre" else nn.Identity()

    def forward(self, hidden: Tensor, mask: Tensor | Spans | None = None) -> Tensor:
        """Maps embedded tokens (B, S, D) to the memory (B, S, D).

        Args:
            hidden: (B, S, D) embedded tokens.
            mask: boolean, broadcastable to (B, H, S, S); True means "may attend". Or where each
                sentence lies, in a single row.
        """
        for layer in self.layers:
            hidden = layer(hidden, mask)
        memory: Tensor = self.final_norm(hidden)
        return memory

    if TYPE_CHECKING:
        __call__ = forward
