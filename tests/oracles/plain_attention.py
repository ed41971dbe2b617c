"""Attention by its definition, a query at a time in float64: the oracle of every fast path.

z_i = Σ_j a_ij·v_j with a_ij = e^(s_ij) / Σ_k e^(s_ik) over the keys that query i may attend to, and
s_ij = q_i·k_j / √E + b_ij (Vaswani et al. 2017, section 3.2.1; the paper has no bias b).
"""

import math

import torch


def plain_weights(query, key, mask=None, bias=None):
    """Computes (B, H, Q, K) float64 weights; rows with every key hidden are 0."""
    n_sentences, n_heads, n_queries, width = query.shape
    shape = (n_sentences, n_heads, n_queries, key.shape[2])
    visible = torch.ones(shape, dtype=torch.bool) if mask is None else mask.expand(shape)
    added = torch.zeros(shape, dtype=torch.float64) if bias is None else bias.expand(shape)
    weights = torch.zeros(shape, dtype=torch.float64)
    for b, h, i in torch.cartesian_prod(*map(torch.arange, shape[:3])).tolist():
        scores = {
            j: (query[b, h, i].double() @ key[b, h, j].double()).item() / math.sqrt(width)
            + added[b, h, i, j].item()
            for j in range(shape[3])
            if visible[b, h, i, j]
        }
        largest = max(scores.values(), default=0.0)
        exponentials = {j: math.exp(score - largest) for j, score in scores.items()}
        for j, exponential in exponentials.items():
            weights[b, h, i, j] = exponential / sum(exponentials.values())
    return weights


def plain_context(query, key, value, mask=None, bias=None):
    """Computes (B, H, Q, E) float64, the values (B, H, K, E) summed with the weights."""
    return plain_weights(query, key, mask, bias) @ value.double()
