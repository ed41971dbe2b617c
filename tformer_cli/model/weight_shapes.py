"""Names and shapes of a model's weights, computed from its settings. Free of torch."""

import math

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.methods import NORMS, POSITIONS, SIMILARITIES, Shapes


def parameter_shapes(config: ModelConfig, vocab_size: int) -> Shapes:
    """Names the weights of a model, as in its `state_dict()`, with the shape of each.

    An encoder layer has one attention, one feed-forward layer and a norm for each; a decoder layer
    two attentions, or a recurrent unit in place of the first; that of a language model only
    the first. Pre-norm adds a final norm to each stack. A classifier has the encoder, perhaps a
    pooler, and a row for each label; one of images embeds patches by a product. A masked language
    model has a transformation with its norm and rows of tokens, its own or the embeddings.
    H·E = D unless heads were pruned or have another width.
    """
    stacks = {"encoder": config.n_encoder_layers, "decoder": config.n_decoder_layers}
    sides = [side for side, n_layers in stacks.items() if n_layers]
    shapes = _outer_shapes(config, vocab_size)
    if (positions := POSITIONS[config.positions].stack_shapes) is not None:
        own = positions(config).items()
        shapes |= {f"{side}_input.positions.{name}": shape for side in sides for name, shape in own}
    layers = _LayerShapes(config, shapes)
    for side in sides:
        layers.add_stack(side)
    if config.is_encoder_only:
        layers.add_head()
    # Biases are collected apart, for one setting removes all of them
    return shapes | layers.vectors if config.bias else shapes


def _outer_shapes(config: ModelConfig, vocab_size: int) -> Shapes:
    """Shapes of the embeddings and of what gives the logits."""
    d = config.d_model
    shapes: Shapes = {}
    if not config.is_decoder_only and not config.reads_images:
        shapes["source_embedding.weight"] = (config.source_vocab_size or vocab_size, d)
    has_own_target = config.tied_embeddings in ("decoder", "none") and not config.is_encoder_only
    if config.is_decoder_only or has_own_target:
        shapes["target_embedding.weight"] = (vocab_size, d)
    n_outputs = config.n_outputs or vocab_size
    is_labeled = config.n_outputs > 0
    has_head = not config.is_encoder_only or config.head != "none"
    if is_labeled or config.tied_embeddings in ("inputs", "none"):
        shapes["output_projection.weight"] = (n_outputs, config.pooled_width)
    if has_head and (config.output_bias or (config.is_encoder_only and config.bias)):
        shapes["output_bias"] = (n_outputs,)
    return shapes


class _LayerShapes:
    """Collects the shapes of layers: matrices in the given shapes, biases in `vectors`."""

    def __init__(self, config: ModelConfig, shapes: Shapes) -> None:
        self._config = config
        self._shapes = shapes
        self.vectors: Shapes = {}

    def add_stack(self, side: str) -> None:
        """Adds the layers of a stack and the norms around them."""
        config = self._config
        if config.reads_images:
            self._add_projection(f"{side}_input.patches", config.d_model, config.ids_per_token)
        if config.class_token:
            self._shapes[f"{side}_input.class_token"] = (config.d_model,)
        if config.embedding_norm:
            self._add_norm(f"{side}_input.norm")
        for number, attentions in enumerate(self._attentions(side)):
            layer = f"{side}.layers.{number}"
            for kind, n_heads in attentions.items():
                self._add_attention(f"{layer}.{kind}", n_heads)
            if "self_attention" not in attentions:
                self._add_recurrence(f"{layer}.recurrence")
            self._add_projection(f"{layer}.feed_forward.inner", config.d_ff, config.d_model)
            self._add_projection(f"{layer}.feed_forward.outer", config.d_model, config.d_ff)
            if config.gated:
                self._add_projection(f"{layer}.feed_forward.gate", config.d_ff, config.d_model)
            self._add_norm(f"{layer}.feed_forward_norm")
        if config.has_final_norm:
            self._add_norm(f"{side}.final_norm")

    def add_head(self) -> None:
        """Adds the head between an encoder and its rows of labels or tokens."""
        d, width = self._config.d_model, self._config.pooled_width
        if self._config.pooler != "none":
            self._add_projection("pooler", width, width)
        if self._config.head == "tokens":
            self._add_projection("transform", d, d)
            self._add_norm("transform_norm")

    def _attentions(self, side: str) -> list[dict[str, int]]:
        """Each layer's attentions with their numbers of heads."""
        heads = self._config.layer_heads
        if side == "encoder":
            return [{"self_attention": n} for n in heads.encoder]
        layers: list[dict[str, int]] = [{} for _ in range(self._config.n_decoder_layers)]
        for layer, n_heads in zip(layers, heads.cross, strict=False):  # none: decoder-only
            layer["cross_attention"] = n_heads
        for layer, n_heads in zip(layers, heads.decoder, strict=False):  # none if recurrent
            layer["self_attention"] = n_heads
        return layers

    def _add_projection(self, name: str, n_outputs: int, n_inputs: int) -> None:
        self._shapes[f"{name}.weight"] = (n_outputs, n_inputs)
        self.vectors[f"{name}.bias"] = (n_outputs,)

    def _add_norm(self, name: str) -> None:
        self._shapes[f"{name}.weight"] = (self._config.d_model,)
        if NORMS[self._config.norm_kind].has_bias:
            self.vectors[f"{name}.bias"] = (self._config.d_model,)

    def _add_attention(self, name: str, n_heads: int) -> None:
        config, d, width = self._config, self._config.d_model, self._config.head_width
        relative = POSITIONS[config.positions].layer_shapes
        if relative is not None and name.endswith("self_attention"):
            for part, shape in relative(config, n_heads).items():
                self._shapes[f"{name}.relative.{part}"] = shape
        if config.projections:
            # W_Q, W_K and W_V share a matrix
            n_rows = (n_heads + 2 * (config.n_key_heads or n_heads)) * width
            self._add_projection(f"{name}.in_projection", n_rows, d)
            self._add_projection(f"{name}.out_projection", d, n_heads * width)
        for part, shape in SIMILARITIES[config.similarity].shapes(n_heads, width).items():
            self._shapes[f"{name}.similarity.{part}"] = shape
        self._add_norm(f"{name}_norm")

    def _add_recurrence(self, name: str) -> None:
        d = self._config.d_model
        self._shapes[f"{name}.input.weight"] = (d, d)
        self._add_projection(f"{name}.forget", d, d)
        self._add_norm(f"{name}_norm")


def parameter_count(config: ModelConfig, vocab_size: int) -> int:
    """Counts trainable parameters."""
    shapes = parameter_shapes(config, vocab_size)
    return sum(math.prod(shape) for name, shape in shapes.items() if not is_fixed(config, name))


def is_fixed(config: ModelConfig, name: str) -> bool:
    """Tells whether a weight is stored, but not trained: a buffer of positions."""
    return POSITIONS[config.positions].is_fixed and "_input.positions." in name
