"""A translation model of torch's own layers, to compare imported models with."""

import math

import torch
from torch import nn

ACTIVATIONS = {"relu": nn.functional.relu, "gelu": nn.functional.gelu, "swish": nn.functional.silu}


class TorchTranslation(nn.Module):
    """Encoder and decoder of torch, with random weights everywhere, biases and norms too."""

    def __init__(
        self,
        n_source,
        n_target,
        positions,
        *,
        d_model=16,
        n_heads=2,
        d_ff=24,
        n_encoder_layers=2,
        n_decoder_layers=3,
        norm_first=False,
        final_norm=None,
        embedding_norm=False,
        activation="relu",
        epsilon=1e-5,
        scale=True,
        tied="all",
        output_bias=False,
        without_biases=(),
    ):
        """Makes a model."""
        super().__init__()
        shape = {
            "d_model": d_model,
            "nhead": n_heads,
            "dim_feedforward": d_ff,
            "dropout": 0.0,
            "activation": ACTIVATIONS[activation],
            "layer_norm_eps": epsilon,
            "norm_first": norm_first,
            "batch_first": True,
        }

        def norm(is_there):
            return nn.LayerNorm(d_model, eps=epsilon) if is_there else None

        has_final = norm_first if final_norm is None else final_norm
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(**shape),
            n_encoder_layers,
            norm(has_final),
            enable_nested_tensor=False,
        )
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(**shape), n_decoder_layers, norm(has_final)
        )
        self.source_norm, self.target_norm = norm(embedding_norm), norm(embedding_norm)
        self.source = nn.Embedding(n_source, d_model)
        self.target = self.source if tied == "all" else nn.Embedding(n_target, d_model)
        self.output = nn.Linear(d_model, n_target, bias=output_bias)
        if tied != "none":
            self.output.weight = self.target.weight
        self.positions = positions
        self.scale = math.sqrt(d_model) if scale else 1.0
        torch.manual_seed(5)
        for name, weight in self.named_parameters():
            is_gain = name.endswith("weight") and weight.dim() == 1
            with torch.no_grad():
                weight.copy_(torch.randn(weight.shape) * 0.3 + is_gain)
                if name.endswith("bias") and any(part in name for part in without_biases):
                    weight.zero_()
        self.eval()

    def forward(self, source, source_mask, target):
        """Computes logits."""
        memory = self.encoder(
            self.embed_tokens(source, self.source, self.source_norm, 0),
            src_key_padding_mask=~source_mask,
        )
        n_targets = target.shape[1]
        is_future = torch.ones(n_targets, n_targets, dtype=torch.bool).triu(1)
        return self.output(
            self.decoder(
                self.embed_tokens(target, self.target, self.target_norm, 1),
                memory,
                tgt_mask=is_future,
                memory_key_padding_mask=~source_mask,
            )
        )

    def embed_tokens(self, ids, table, norm, side):
        """Embeds tokens: (B, L) to (B, L, D)."""
        rows = table(ids) * self.scale + self.positions[side][: ids.shape[1]]
        return rows if norm is None else norm(rows)


def halves(n_positions, d_model, first):
    """Sines, then cosines, of the position over 10000^(i/(D/2 - 1)); obviously."""
    half = d_model // 2
    return torch.tensor(
        [
            [
                wave(place / 10000 ** (i / (half - 1)))
                for wave in (math.sin, math.cos)
                for i in range(half)
            ]
            for place in range(first, first + n_positions)
        ]
    )


def interleave_sines(n_positions, d_model):
    """Sine and cosine in turn, of the position over 10000^(2i/D); the paper's."""
    return torch.tensor(
        [
            [
                wave(place / 10000 ** (2 * i / d_model))
                for i in range(d_model // 2)
                for wave in (math.sin, math.cos)
            ]
            for place in range(n_positions)
        ]
    )


MODULES = {
    "self_attn": "self",
    "multihead_attn": "cross",
    "linear1": "inner",
    "linear2": "outer",
}
NORMS = {
    "encoder": {"norm1": "self_norm", "norm2": "feed_norm"},
    "decoder": {"norm1": "self_norm", "norm2": "cross_norm", "norm3": "feed_norm"},
}


def layer_tensors(model):
    """Yields the weights of layers: side, layer, module, part ("weight", "bias") and tensor.

    Modules are self.q, self.k, self.v, self.out, the same of cross, inner, outer, self_norm,
    cross_norm, feed_norm; of the final norm the layer is None and the module final_norm.
    """
    for side in ("encoder", "decoder"):
        for name, tensor in getattr(model, side).state_dict().items():
            parts = name.split(".")
            if parts[0] == "norm":
                yield side, None, "final_norm", parts[1], tensor
                continue
            _, layer, module, *rest = parts
            if module in NORMS[side]:
                yield side, int(layer), NORMS[side][module], rest[0], tensor
            elif rest[0].startswith("in_proj"):
                for letter, third in zip("qkv", tensor.chunk(3), strict=True):
                    part = rest[0].removeprefix("in_proj_")
                    yield side, int(layer), f"{MODULES[module]}.{letter}", part, third.clone()
            elif rest[0] == "out_proj":
                yield side, int(layer), f"{MODULES[module]}.out", rest[1], tensor
            else:
                yield side, int(layer), MODULES[module], rest[0], tensor
