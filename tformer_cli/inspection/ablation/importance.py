"""Gradient importance of heads: I_h = E |∂L/∂ξ_h| (Michel et al. 2019, equation 2).

ξ_h is the factor on head h's weighted values (`MultiHeadAttention.gate`), so that ∂L/∂ξ_h is
Att_h(x)ᵀ · ∂L/∂Att_h(x). One backward pass gives all heads. The absolute value is taken

- of each sentence's derivative (`"sentence"`, the paper's formula), or
- of each query position's part of it (`"token"`, as the paper's own program does),

and the sum is divided by the number of target tokens, for every kind: I_h is in nats a target
token, to be compared with Δ loss, of which it is the first-order estimate.
"""

from typing import Literal

import torch
from torch import Tensor

from tformer_cli.data.batching import Batch
from tformer_cli.inspection.ablation.gates import Place, gated
from tformer_cli.inspection.ablation.losses import sentence_losses
from tformer_cli.inspection.capture.heads import HeadId, Inspected, attentions, head_layout

Granularity = Literal["sentence", "token"]


@torch.enable_grad()
def importance_sums(
    model: Inspected, batch: Batch, granularity: Granularity
) -> dict[HeadId, float]:
    """Computes Σ |∂L/∂ξ_h| of a batch, L a sentence's loss summed over its tokens.

    Args:
        model: the model, in evaluation mode.
        batch: B pairs, on its device.
        granularity: what absolute values are taken of; see the module.

    Returns:
        The sum for every head, in nats; not yet divided by the number of tokens.
    """
    gates = _open_gates(model, batch)
    with gated(model, gates):
        loss = sentence_losses(model, batch).sum()
    gradients = torch.autograd.grad(loss, list(gates.values()))
    sums = {}
    for place, gradient in zip(gates, gradients, strict=True):
        # (B, H, Q, 1) -> (B, H, Q) or (B, H)
        parts = gradient.squeeze(3) if granularity == "token" else gradient.sum(dim=(2, 3))
        sums[place] = parts.double().abs().transpose(0, 1).flatten(1).sum(dim=1).tolist()
    return {head: sums[head.kind, head.layer][head.head] for head in head_layout(model)}


def layer_normalized(importance: dict[HeadId, float]) -> dict[HeadId, float]:
    """Divides by the ℓ₂ norm of the layer, as Michel et al. do before they rank (section 4.2)."""
    norms: dict[Place, float] = {}
    for head, value in importance.items():
        norms[head.kind, head.layer] = norms.get((head.kind, head.layer), 0.0) + value**2
    return {
        head: value / norms[head.kind, head.layer] ** 0.5 if value else 0.0
        for head, value in importance.items()
    }


def _open_gates(model: Inspected, batch: Batch) -> dict[Place, Tensor]:
    """Gates of 1 for each sentence, head and query position, (B, H, Q, 1), that have a gradient."""
    like = next(model.parameters())
    n_positions = {"enc": batch.source_mask.shape[1] + model.config.class_token}
    n_targets = batch.target_input.shape[1]
    return {
        (kind, layer): like.new_ones(
            batch.n_sentences, attention.n_heads, n_positions.get(kind, n_targets), 1
        ).requires_grad_()
        for kind, layer, attention in attentions(model)
        if attention.n_heads
    }
