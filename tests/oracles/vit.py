"""A ViT of `transformers` with every parameter random, and the same weights under our names."""

import torch
from transformers import ViTConfig, ViTForImageClassification

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.encoder_only import Classifier

SIZE = (12, 8, 3)
N_LABELS = 5


def vit(**changes) -> ViTForImageClassification:
    """Makes a small model in evaluation mode; norms and biases are as random as the rest."""
    torch.manual_seed(2)
    settings = {
        "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3,
        "intermediate_size": 40, "image_size": SIZE[:2], "patch_size": 4,
        "num_labels": N_LABELS, "hidden_dropout_prob": 0.0, "attn_implementation": "eager",
    }  # fmt: skip
    model = ViTForImageClassification(ViTConfig(**{**settings, **changes})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


def config(**changes) -> ModelConfig:
    """The shape of the same model here."""
    settings = {
        "d_model": 24, "n_heads": 3, "d_ff": 40, "n_encoder_layers": 2, "n_decoder_layers": 0,
        "norm": "pre", "activation": "gelu", "positions": "learned", "norm_epsilon": 1e-12,
        "patch_size": 4, "image_size": SIZE, "class_token": True, "pooling": "first",
        "n_labels": N_LABELS, "dropout": 0.0,
        "image_mean": (0.5, 0.4, 0.3), "image_std": (0.2, 0.3, 0.4),
    }  # fmt: skip
    return ModelConfig(**{**settings, **changes})


def our_weights(theirs: ViTForImageClassification) -> dict[str, list[torch.Tensor]]:
    """Their parameters by the names of ours: of several the rows lie one below the other."""
    vit = theirs.vit
    outer = vit.embeddings
    names = {
        "encoder_input.patches.weight": [outer.patch_embeddings.projection.weight],
        "encoder_input.patches.bias": [outer.patch_embeddings.projection.bias],
        "encoder_input.class_token": [outer.cls_token],
        "encoder_input.positions.table": [outer.position_embeddings],
        "encoder.final_norm.weight": [vit.layernorm.weight],
        "encoder.final_norm.bias": [vit.layernorm.bias],
        "output_projection.weight": [theirs.classifier.weight],
        "output_bias": [theirs.classifier.bias],
    }
    for number, layer in enumerate(vit.layers):
        attention = layer.attention
        parts = {
            "self_attention_norm": [layer.layernorm_before],
            "feed_forward_norm": [layer.layernorm_after],
            "self_attention.in_projection": [
                attention.q_proj, attention.k_proj, attention.v_proj
            ],
            "self_attention.out_projection": [attention.o_proj],
            "feed_forward.inner": [layer.mlp.fc1],
            "feed_forward.outer": [layer.mlp.fc2],
        }  # fmt: skip
        for name, modules in parts.items():
            for kind in ("weight", "bias"):
                names[f"encoder.layers.{number}.{name}.{kind}"] = [
                    getattr(module, kind) for module in modules
                ]
    return names


def ours(theirs: ViTForImageClassification, **changes) -> Classifier:
    """Our model with their weights, in evaluation mode."""
    model = Classifier(config(**changes), 260).eval()
    state = model.state_dict()
    for name, parts in our_weights(theirs).items():
        joined = torch.cat([part.detach().flatten() for part in parts])
        state[name] = joined.view(state[name].shape)
    model.load_state_dict(state)
    return model
