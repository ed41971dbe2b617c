"""A Transformer in formulas, straight from named weights: the oracle of all variants of a model.

One sentence pair, whole sentences, no cache, no batch: what a layer computes is a line each.
"""

import functools
import math

import torch
from torch.nn import functional

ACTIVATIONS = {
    "relu": torch.relu,
    "gelu": functional.gelu,
    "gelu-tanh": functools.partial(functional.gelu, approximate="tanh"),
    "swish": functional.silu,
}


def plain_logits(config, weights, source, target_input):
    """Computes the logits of every next target token."""
    get = weights.get

    def linear(x, name):
        result = x @ weights[f"{name}.weight"].T
        return result if get(f"{name}.bias") is None else result + weights[f"{name}.bias"]

    def norm(x, name):
        centered = x if config.norm_kind == "rms" else x - x.mean(-1, keepdim=True)
        normed = centered / (centered.square().mean(-1, keepdim=True) + config.norm_epsilon).sqrt()
        shift = get(f"{name}.bias")
        return normed * weights[f"{name}.weight"] + (0.0 if shift is None else shift)

    def embed_ids(ids, matrix, side):
        x = matrix[ids] * (math.sqrt(config.d_model) if config.scale_embeddings else 1.0)
        if config.positions == "sinusoidal":
            x = x + sinusoids(len(ids), config.d_model)
        if config.positions in ("learned", "table"):
            x = x + weights[f"{side}_input.positions.table"][: len(ids)]
        return norm(x, f"{side}_input.norm") if config.embedding_norm else x

    def attention(x, memory, name, is_causal=False):
        q, k, v = project_heads(x, memory, name)
        heads = []
        for start in range(0, q.shape[1], config.head_width):
            some = slice(start, start + config.head_width)
            scores = similarity(q[:, some], k[:, some], start // config.head_width, name)
            if memory is x:
                scores = scores + bias(start // config.head_width, len(x), name)
            if is_causal:
                scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -math.inf)
            heads.append(torch.softmax(scores, -1) @ v[:, some])
        joined = torch.cat(heads, -1)
        return linear(joined, f"{name}.out_projection") if config.projections else joined

    def project_heads(x, memory, name):
        if not config.projections:
            return x, memory, memory
        weight = weights[f"{name}.in_projection.weight"]
        n_keys = config.n_key_heads * config.head_width or len(weight) // 3
        sizes = (len(weight) - 2 * n_keys, n_keys, n_keys)
        three = zip(
            (x, memory, memory),
            weight.split(sizes),
            get(f"{name}.in_projection.bias", torch.zeros(len(weight))).split(sizes),
            strict=True,
        )
        q, k, v = (given @ w.T + b for given, w, b in three)
        if config.n_key_heads:  # each group of heads has the columns of its own key head
            head = torch.arange(config.n_heads) // (config.n_heads // config.n_key_heads)
            first = head[:, None] * config.head_width
            columns = (first + torch.arange(config.head_width)).flatten()
            k, v = k[:, columns], v[:, columns]
        return q, k, v

    def similarity(q, k, head, name):
        root = math.sqrt(config.head_width)
        if config.similarity == "cosine":
            factor = weights[f"{name}.similarity.log_factor"][head].exp().clamp(max=100)
            return factor * functional.cosine_similarity(q[:, None], k[None], dim=-1)
        if config.similarity == "distance":
            distance = torch.cdist(q, k, compute_mode="donot_use_mm_for_euclid_dist")
            return -distance.square() / (2 * root)
        if config.similarity == "additive":
            v = weights[f"{name}.similarity.vector"][head]
            return torch.stack([torch.stack([v @ torch.tanh(a + b) for b in k]) for a in q])
        return q @ k.T / (1.0 if config.similarity == "dot" else root)

    def bias(head, n, name):
        if config.positions == "alibi":
            h = config.n_heads
            assert h & (h - 1) == 0, "a power of two"
            slope = 2.0 ** (-8.0 * (head + 1) / h)
            return -slope * (torch.arange(n)[:, None] - torch.arange(n)[None, :]).abs()
        if config.positions == "relative":
            side = name.split(".")[0]
            table = weights[f"{side}_input.positions.table"][:, head]
            buckets = [[bucket(j - i, config, side) for j in range(n)] for i in range(n)]
            return table[torch.tensor(buckets)]
        return 0.0

    def feed_forward(x, name):
        activation = ACTIVATIONS[config.activation]
        if config.gated:
            inner = activation(linear(x, f"{name}.gate")) * linear(x, f"{name}.inner")
        else:
            inner = activation(linear(x, f"{name}.inner"))
        return linear(inner, f"{name}.outer")

    def recurrence(x, name):
        gate, new = torch.sigmoid(linear(x, f"{name}.forget")), linear(x, f"{name}.input")
        state, outputs = torch.zeros(config.d_model), []
        for f, w in zip(gate, new, strict=True):
            state = f * state + (1.0 - f) * w
            outputs.append(torch.relu(state))
        return torch.stack(outputs)

    def residual(x, sublayer, name):
        if config.norm == "pre":
            return x + sublayer(norm(x, f"{name}_norm"), name)
        return norm(x + sublayer(x, name), f"{name}_norm")

    def last_norm(x, side):
        is_last = config.norm == "pre" or config.final_norm == "always"
        return norm(x, f"{side}.final_norm") if is_last else x

    x = embed_ids(source, weights["source_embedding.weight"], "encoder")
    for layer in range(config.n_encoder_layers):
        name = f"encoder.layers.{layer}"
        x = residual(x, lambda x, name: attention(x, x, name), f"{name}.self_attention")
        x = residual(x, feed_forward, f"{name}.feed_forward")
    memory = last_norm(x, "encoder")

    targets = get("target_embedding.weight", weights["source_embedding.weight"])
    x = embed_ids(target_input, targets, "decoder")
    for layer in range(config.n_decoder_layers):
        name = f"decoder.layers.{layer}"
        if config.decoder_cell == "ssru":
            x = residual(x, recurrence, f"{name}.recurrence")
        else:
            x = residual(x, lambda x, name: attention(x, x, name, True), f"{name}.self_attention")
        x = residual(x, lambda x, name: attention(x, memory, name), f"{name}.cross_attention")
        x = residual(x, feed_forward, f"{name}.feed_forward")
    logits = last_norm(x, "decoder") @ get("output_projection.weight", targets).T
    return logits + get("output_bias", 0.0)


def bucket(offset, config, side):
    """The bucket of T5 for a key `offset` tokens after the query."""
    n, first = config.relative_buckets, 0
    if side == "encoder":
        n //= 2
        first = n if offset > 0 else 0
        distance = abs(offset)
    else:
        distance = max(0, -offset)
    exact = n // 2
    if distance < exact:
        return first + distance
    share = math.log(distance / exact) / math.log(config.relative_distance / exact)
    return first + min(n - 1, exact + math.floor(share * (n - exact)))


def sinusoids(n_positions, width):
    """(n_positions, width) PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) its cosine."""
    table = torch.zeros(n_positions, width, dtype=torch.float64)
    for p in range(n_positions):
        for i in range(0, width, 2):
            angle = p / 10000.0 ** (i / width)
            table[p, i], table[p, i + 1] = math.sin(angle), math.cos(angle)
    return table.float()
