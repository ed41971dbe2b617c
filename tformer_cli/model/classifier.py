"""An encoder alone with a label for the whole text or image: a classifier."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from tformer_cli.model.encoder_only import EncoderOnly
from tformer_cli.model.operations import Dropout, Linear, by_rows, repeatable_linear

POOLERS: Mapping[Literal["tanh", "relu"], Callable[[Tensor], Tensor]] = MappingProxyType(
    {"tanh": torch.tanh, "relu": functional.relu}
)
"""Functions behind the product of a pooler."""


class Classifier(EncoderOnly):
    """The encoder of a Transformer, pooled to one vector that is compared with one row a label.

    To training it is a model whose target is one token, its label: the pooled vector is the hidden
    state that predicts it.
    """

    def make_head(self) -> None:
        """See `EncoderOnly`: a row for each label, and perhaps a pooler before them."""
        config, width = self.config, self.config.pooled_width
        if not config.n_outputs:
            raise ValueError("n_labels: a classifier has n_decoder_layers = 0 and some labels")
        self.output_projection = nn.Linear(width, config.n_labels, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(config.n_labels)) if config.bias else None
        has_pooler = config.pooler != "none"
        self.pooler = Linear(width, width, bias=config.bias) if has_pooler else None
        self.pooler_dropout = Dropout(config.dropout)

    @property
    def output_matrix(self) -> Tensor:
        """(L, D) a row for each label."""
        return self.output_projection.weight

    def summarize(self, pooled: Tensor) -> Tensor:
        """Turns pooled vectors (B, D) into those that labels are compared with.

        They are the same without a pooler; with one dropout(f(W·x + b)) (Devlin et al. 2019,
        section 4.1, as the authors' and later code has it).
        """
        pooler, kind = self.pooler, self.config.pooler
        if pooler is None or kind == "none":
            return pooled

        def activated(rows: Tensor) -> Tensor:
            return POOLERS[kind](pooler(rows))

        if torch.is_grad_enabled():
            return self.pooler_dropout(activated(pooled))
        return by_rows(activated, pooled)

    def predicting(self, hidden: Tensor, source_mask: Tensor) -> Tensor:
        """See `EncoderOnly`: the summaries (B, 1, D)."""
        return self.summary(hidden, source_mask).unsqueeze(1)

    def summary(self, hidden: Tensor, source_mask: Tensor) -> Tensor:
        """Turns hidden states (B, S, D) into the vectors (B, D) that labels are compared with."""
        return self.summarize(self.pool(hidden, source_mask))

    def forward(self, source: Tensor, source_mask: Tensor) -> Tensor:
        """Computes logits (B, L) of the labels; see `encode`."""
        return self.project(self.summary(self.encode(source, source_mask), source_mask))

    def project(self, pooled: Tensor) -> Tensor:
        """Compares vectors (..., D) with the labels' rows: logits (..., L)."""
        if torch.is_grad_enabled():
            return functional.linear(pooled, self.output_matrix, self.output_bias)
        return repeatable_linear(pooled, self.output_matrix, self.output_bias)

    if TYPE_CHECKING:
        __call__ = forward
