"""Names of a layer's modules in Hugging Face's translation models, which fairseq gave them."""

from tformer_cli.model.adapter_config import AdaptedPart

MODULES = {
    "self_attention.in_projection": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention.out_projection": ("self_attn.out_proj",),
    "self_attention_norm": ("self_attn_layer_norm",),
    "cross_attention.in_projection": (
        "encoder_attn.q_proj",
        "encoder_attn.k_proj",
        "encoder_attn.v_proj",
    ),
    "cross_attention.out_projection": ("encoder_attn.out_proj",),
    "cross_attention_norm": ("encoder_attn_layer_norm",),
    "feed_forward.inner": ("fc1",),
    "feed_forward.outer": ("fc2",),
    "feed_forward_norm": ("final_layer_norm",),
}
"""Names of the modules that one of tformer's consists of there, in the order of its rows."""


_PLACES = {"query": 0, "key": 1, "value": 2}


def library_name(part: AdaptedPart) -> str:
    """The name of a part in the library's classes: `model.encoder.layers.0.self_attn.q_proj`.

    A part that those classes do not have, as the gate of a feed-forward layer, keeps its own name.
    """
    stack, layers, number, module = part.module.split(".", 3)
    own = part.name.rpartition(".")[2]
    names = MODULES.get(module, (own,))
    return ".".join(("model", stack, layers, number, names[_PLACES.get(own, 0)]))
