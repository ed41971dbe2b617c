"""Settings of a Transformer, and the named presets. Free of torch."""

import math
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

from tformer_cli.model.methods import (
    IS_BEFORE,
    POOLINGS,
    POSITIONS,
    SIMILARITIES,
    Activation,
    Norm,
    NormKind,
    Pooling,
    PositionKind,
    SimilarityKind,
    name_choices,
)

TiedEmbeddings = Literal["all", "decoder", "inputs", "none"]
FinalNorm = Literal["pre-norm", "always"]
DecoderCell = Literal["attention", "ssru"]
Head = Literal["labels", "tags", "tokens", "none"]
Pooler = Literal["none", "tanh", "relu"]
Precision = Literal["float32", "bfloat16"]
"""Numbers that products are computed in."""


# Far beyond any use; a damaged or hostile file must not make the program allocate without end.
RANGES = {
    "d_model": (1, 1 << 16),
    "n_heads": (1, 1 << 10),
    "d_head": (0, 1 << 16),
    "d_ff": (1, 1 << 18),
    "n_encoder_layers": (0, 1000),
    "n_decoder_layers": (0, 1000),
    "n_labels": (0, 1 << 20),
    "patch_size": (0, 1 << 10),
    "image_shift": (0, 1 << 10),
    "max_positions": (2, 1 << 20),
    "source_vocab_size": (0, 1 << 24),
    "n_key_heads": (0, 1 << 10),
    "relative_buckets": (4, 1 << 16),
    "relative_distance": (2, 1 << 20),
    "memory": (0, 1 << 20),
}
_LARGEST_BASE = 1e12
_LARGEST_IMAGE = (1 << 13, 1 << 13, 4)
_MOST_PATCHES = 1 << 16
PLAIN_TRANSLATION: Mapping[str, Container[object]] = MappingProxyType(
    {
        "n_encoder_layers": range(1, RANGES["n_encoder_layers"][1] + 1),
        "n_decoder_layers": range(1, RANGES["n_decoder_layers"][1] + 1),
        # only language models have these
        "target_bos": (True,),
        "target_eos": (True,),
        "memory": (0,),
        # only encoders
        "head": ("labels",),
        "n_labels": (0,),
        "pooling": ("mean",),
        "pooler": ("none",),
        "unit_length": (False,),
        # only classifiers of images
        "patch_size": (0,),
        "image_size": ((),),
        "class_token": (False,),
        "image_mean": ((),),
        "image_std": ((),),
        "image_shift": (0,),
        "image_flip": (False,),
        # of layers unlike the paper's
        "d_head": (0,),
        "n_key_heads": (0,),
        "projections": (True,),
        "similarity": ("scaled",),
        "norm_kind": ("layer",),
        "gated": (False,),
        "decoder_cell": ("attention",),
    }
)
"""Settings of a translation model of the paper's layers that set it apart from other Transformers.

The allow-lists of engines and exports begin with it, so that a setting that none of them knows is
added here, with its neutral value, and nowhere else."""
ROTARY_BASE = 10_000.0
"""The base of Su et al. 2021."""


class LayerHeads(NamedTuple):
    """Numbers of heads of each layer, by the kind of its attention."""

    encoder: tuple[int, ...]
    """Self-attention of each encoder layer."""
    decoder: tuple[int, ...]
    """Masked self-attention of each decoder layer; empty where a recurrent unit is in its place."""
    cross: tuple[int, ...]
    """Cross-attention of each decoder layer; empty without an encoder."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The shape of a Transformer; the defaults are the paper's base model.

    Without encoder layers it is a language model: a decoder without cross-attention.
    Without decoder layers it is only an encoder, whose `head` makes it a classifier with a label
    for the whole text, a masked language model, or what turns texts into vectors.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3 and table 3.
    """

    d_model: int = 512
    """Width of embeddings, of every sub-layer's output and of the residual stream."""
    n_heads: int = 8
    """Attention heads of every layer."""
    d_head: int = 0
    """Width of a head, the paper's d_k and d_v (0: `d_model / n_heads`)."""
    n_key_heads: int = 0
    """Heads of keys and values, which groups of `n_heads` / `n_key_heads` query heads share
    (Ainslie et al. 2023; 0: each has its own)."""
    projections: bool = True
    """Attention has the projections W_Q, W_K, W_V and W_O; false: heads compare and sum their parts
    of the hidden states themselves."""
    d_ff: int = 2048
    """Inner width of the position-wise feed-forward layers."""
    n_encoder_layers: int = 6
    """Encoder layers; 0: a decoder-only language model."""
    n_decoder_layers: int = 6
    """Decoder layers."""
    dropout: float = 0.1
    """Dropout on every sub-layer's output and on the sum of embedding and position."""
    attention_dropout: float = 0.0
    """Dropout on the attention weights (the paper has none)."""
    activation_dropout: float = 0.0
    """Dropout after the feed-forward activation (the paper has none)."""
    norm: Norm = "post"
    """Layer norm after the residual sum ("post", the paper) or before each sub-layer ("pre")."""
    norm_kind: NormKind = "layer"
    """Layer norm, or "rms": what is normed is divided by its root mean square, without bias, as in
    T5 and LLaMA (Zhang & Sennrich 2019)."""
    norm_epsilon: float = 1e-5
    """Added to the variance in layer norms, to the mean square in the others."""
    activation: Activation = "relu"
    """Feed-forward activation; "gelu" is the exact form x·Φ(x), "gelu-tanh" its approximation by
    tanh (GPT-2, T5), "swish" is x·σ(x), or SiLU."""
    gated: bool = False
    """The activation of a third product multiplies the inner one (Shazeer 2020): SwiGLU
    with "swish", GEGLU with one of the others."""
    positions: PositionKind = "sinusoidal"
    """Sinusoids of the paper's section 3.5, one learned vector a position, or "rotary": queries and
    keys are turned (Su et al. 2021). "relative" (T5's learned biases) and "alibi" (Press et al.
    2022) add to the scores by how far a key is away; "segments" adds what each query makes of
    sinusoids of the distance (Transformer-XL, Dai et al. 2019). "none": no positions. "table":
    fixed vectors in the weights file, of imported models only."""
    rotary_base: float = ROTARY_BASE
    """Rotary positions turn pair i of a head of width E by position / base^(2i/E)."""
    relative_buckets: int = 32
    """Distances that relative positions tell apart; in the encoder half of them each way."""
    relative_distance: int = 128
    """From this distance on all keys are in the last bucket of relative positions."""
    memory: int = 0
    """Tokens before a segment that a language model attends to besides the segment: it reads a text
    in segments of at most `max_positions` (Dai et al. 2019; 0: it reads no more than one)."""
    similarity: SimilarityKind = "scaled"
    """Similarity of queries and keys: "scaled" is q·k / √d_k (the paper), "dot" q·k, "cosine" the
    angle's cosine times a factor that each head learns, "distance" -|q - k|² / 2√d_k, "additive"
    v·tanh(q + k) with a learned v (Bahdanau et al. 2015)."""
    max_positions: int = 1024
    """Longest sentence in tokens, specials included, that the model reads or writes."""
    tied_embeddings: TiedEmbeddings = "all"
    """"all": one matrix for both embeddings and the output projection (the paper, section 3.4);
    "decoder": target embedding and output projection share one; "inputs": both embeddings do (T5
    1.1); "none": three matrices."""
    bias: bool = True
    """Biases in attention projections, feed-forward layers and layer norms."""
    encoder_heads: tuple[int, ...] = ()
    """Heads of each encoder layer where layers differ, as after pruning; a head stays as wide as it
    was (empty: `n_heads` everywhere)."""
    decoder_heads: tuple[int, ...] = ()
    """The same of the decoder's self-attention."""
    cross_heads: tuple[int, ...] = ()
    """The same of cross-attention."""
    bias_heads: tuple[int, ...] = ()
    """Which head's bias of positions each head of self-attention has, encoder layers first, where
    heads were pruned from a model with such biases (empty: each its own)."""
    output_bias: bool = False
    """A bias for each token, added to the logits."""
    final_norm: FinalNorm = "pre-norm"
    """Norm at the end of both stacks: of pre-norm models only, or "always"."""
    embedding_norm: bool = False
    """Layer norm of the sum of embedding and position, before its dropout (as in mBART)."""
    scale_embeddings: bool = True
    """Embeddings are multiplied by √d_model (the paper, section 3.4)."""
    source_vocab_size: int = 0
    """Tokens of the source language where it has a vocabulary of its own, which training finds out
    (0: one joint vocabulary)."""
    source_eos: bool = True
    """Source sentences end with `</s>`; false for imported models that never saw it there."""
    target_bos: bool = True
    """Texts of a language model begin with `<s>`; false for imported models that begin with the
    text itself."""
    target_eos: bool = True
    """Texts of a language model end with `</s>`; false where they are cut out of a stream."""
    decoder_cell: DecoderCell = "attention"
    """Unit that reads the target's past in a decoder layer: masked self-attention, or "ssru", a
    recurrent unit whose steps cost the same at every position (Kim et al. 2019)."""
    head: Head = "labels"
    """The head of an encoder-only model: "labels", a classifier; "tags", a label for each word;
    "tokens", which predicts the tokens
    at masked positions (Devlin et al. 2019, BERT); "none", for the vectors of texts."""
    n_labels: int = 0
    """Labels of a classifier (0: as many as its training data have)."""
    pooling: Pooling = "mean"
    """How an encoder-only model pools its output where a text or image is to be one vector: the
    "mean" of all tokens, or the "first" token's state. With a class token the mean is that of the
    patches, and "first-and-mean" both, one behind the other."""
    pooler: Pooler = "none"
    """Layer between a classifier's vector and its labels: "tanh" or "relu" of W·x + b, then
    dropout, as in BERT and RoBERTa, or in DistilBERT."""
    unit_length: bool = False
    """Vectors of texts are divided by their length, in encoders made for that
    (Reimers & Gurevych 2019, Sentence-BERT)."""
    patch_size: int = 0
    """Pixels of a side of the square patches of images, which are the tokens then (Dosovitskiy et
    al. 2021; 0: tokens are those of texts)."""
    image_size: tuple[int, ...] = ()
    """Height, width and channels of images, whatever the size of their files (empty: those of the
    training data, which must all be alike)."""
    class_token: bool = False
    """A learned vector in front of the patches, for pooling = "first"."""
    image_mean: tuple[float, ...] = ()
    """Mean of each channel, of pixels from 0 to 1, that is subtracted (empty: that of the training
    data)."""
    image_std: tuple[float, ...] = ()
    """Standard deviation of each channel that pixels are divided by (empty: that of the training
    data)."""
    image_shift: int = 0
    """Augmentation: each image is moved by up to this many pixels in either direction while
    training; its edges are repeated."""
    image_flip: bool = False
    """Augmentation: half of the images are mirrored, left to right, while training."""

    def __post_init__(self) -> None:
        for name, (least, most) in RANGES.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise ValueError(f"{name}: must be {least} to {most}, but is {value}")
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            value = getattr(self, name)
            if not 0.0 <= value < 1.0:
                raise ValueError(f"{name}: must be at least 0 and below 1, but is {value}")
        if not 0.0 < self.norm_epsilon <= 1.0:
            raise ValueError(
                f"norm_epsilon: must be above 0 and at most 1, but is {self.norm_epsilon}"
            )
        if self.d_model % self.n_heads and not self.d_head:
            raise ValueError(
                f"n_heads: {self.n_heads} does not divide d_model = {self.d_model}; "
                f"choose a number of heads that does"
            )
        if self.is_encoder_only and self.is_decoder_only:
            raise ValueError("n_decoder_layers: the encoder or the decoder must have layers")
        # A setting without effect is an error: its user expects one
        for owner, is_owner, names in _OWNERS:
            if not is_owner(self):
                self._check_defaults(owner, names)
        own = POSITIONS[self.positions].settings
        for kind, row in POSITIONS.items():
            others = tuple(name for name in row.settings if name not in own)
            self._check_defaults(f'positions = "{kind}"', others)
        self._check_key_heads()
        self._check_layer_heads()
        self._check_embeddings()
        self._check_positions()
        self._check_images()

    def _check_defaults(self, owner: str, names: tuple[str, ...]) -> None:
        for name in names:
            if getattr(self, name) != getattr(ModelConfig, name):
                raise ValueError(f"{name}: only for {owner}; omit it")

    def _check_positions(self) -> None:
        row = POSITIONS[self.positions]
        if row.needs_even_width and self.d_model % 2:
            raise ValueError(
                f"d_model: {self.positions} positions need an even width, but it is {self.d_model}"
            )
        if row.needs_product and not SIMILARITIES[self.similarity].is_product:
            products = name_choices(name for name, row in SIMILARITIES.items() if row.is_product)
            raise ValueError(
                f'positions: "{self.positions}" are of a product of queries and keys; choose '
                f'similarity = {products}, but it is "{self.similarity}"'
            )
        if row.needs_even_heads and self.head_width % 2:
            raise ValueError(
                f"{'d_head' if self.d_head else 'n_heads'}: {self.positions} positions need heads "
                f"of an even width, but {'it' if self.d_head else 'd_model / n_heads'} is "
                f"{self.head_width}"
            )
        if not 1.0 < self.rotary_base <= _LARGEST_BASE:
            raise ValueError(
                f"rotary_base: must be above 1 and at most {_LARGEST_BASE:g}, but is "
                f"{self.rotary_base:g}"
            )
        if self.relative_buckets % 2:
            raise ValueError(
                "relative_buckets: must be even, half of them for each direction, but is "
                f"{self.relative_buckets}"
            )
        # Half the buckets hold a distance each, and logarithms the rest
        if self.relative_distance <= self.relative_buckets // 2:
            raise ValueError(
                f"relative_distance: must be above {self.relative_buckets // 2}, half of "
                f"relative_buckets, but is {self.relative_distance}"
            )
        if row.needs_self_attention and self.decoder_cell != "attention":
            raise ValueError(
                f'positions: "{self.positions}" needs self-attention, but decoder_cell = '
                f'"{self.decoder_cell}" has none; choose others'
            )
        if self.memory and self.decoder_cell != "attention":
            raise ValueError('memory: needs decoder_cell = "attention"; omit one of the two')
        # Absolute positions would come twice: in the memory and in the segment
        if self.memory and row.sees == "place":
            others = name_choices(name for name, row in POSITIONS.items() if row.sees == "distance")
            raise ValueError(
                f'memory: needs positions that say how far a token is away, but "{self.positions}" '
                f"begin anew in each segment; choose {others}"
            )

    def _check_embeddings(self) -> None:
        if self.source_vocab_size and self.tied_embeddings in ("all", "inputs"):
            raise ValueError(
                'source_vocab_size: a vocabulary of its own needs tied_embeddings = "decoder" or '
                f'"none", but it is "{self.tied_embeddings}"'
            )
        # an encoder has one embedding, and an output projection only if it predicts tokens
        ties = ("all", "none") if self.head == "tokens" else ("all",)
        if self.is_encoder_only and self.tied_embeddings not in ties:
            raise ValueError(
                "tied_embeddings: with n_decoder_layers = 0 there is no target; omit it"
            )

    @property
    def head_width(self) -> int:
        """E, the width of a head."""
        return self.d_head or self.d_model // self.n_heads

    @property
    def compile_obstacle(self) -> str:
        """The setting with which torch cannot compile layers for all lengths; empty: none."""
        if self.memory:
            return "model.memory"
        if self.decoder_cell == "ssru":  # as many rounds as the longest sentence needs
            return f'model.decoder_cell = "{self.decoder_cell}"'
        is_compilable = POSITIONS[self.positions].is_compilable
        return "" if is_compilable else f'model.positions = "{self.positions}"'

    @property
    def is_decoder_only(self) -> bool:
        """True of a language model, which has no encoder and no source."""
        return self.n_encoder_layers == 0

    @property
    def is_encoder_only(self) -> bool:
        """True if the model has no decoder and no target to write."""
        return self.n_decoder_layers == 0

    @property
    def reads_images(self) -> bool:
        """True if its tokens are the patches of images."""
        return self.patch_size > 0

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches of an image; zeros where its size is not known."""
        height, width, _ = self.image_size or (0, 0, 0)
        return height // max(1, self.patch_size), width // max(1, self.patch_size)

    @property
    def ids_per_token(self) -> int:
        """Ids of the data that make a token: 1, or the pixel values of a patch."""
        return self.patch_size**2 * self.image_size[2] if self.image_size else 1

    @property
    def n_positions(self) -> int:
        """Rows of positions: of the longest sentence, or of an image and its class token."""
        if not self.reads_images:
            return self.max_positions
        return self.grid[0] * self.grid[1] + self.class_token

    @property
    def longest_source(self) -> int:
        """Most ids of a source without special tokens; all images have as many."""
        return math.prod(self.image_size) if self.reads_images else self.max_positions - 1

    @property
    def ends_sources(self) -> bool:
        """True if what is read ends with `</s>`."""
        return self.source_eos and not self.reads_images

    @property
    def pooled_width(self) -> int:
        """Width of what a classifier compares with its labels."""
        return self.d_model * (2 if POOLINGS[self.pooling].is_joined else 1)

    @property
    def n_outputs(self) -> int:
        """Labels, where there is a row for each; 0: there is one for each token, or none at all."""
        return self.n_labels if self.head in ("labels", "tags") else 0

    @property
    def ends_targets(self) -> bool:
        """True if what is learned to be written ends with `</s>`."""
        return self.target_eos and not self.is_encoder_only

    @property
    def longest_text(self) -> int:
        """Positions of the longest text: a model with a memory reads on from segment to segment."""
        return RANGES["max_positions"][1] if self.memory else self.n_positions

    @property
    def key_width(self) -> int:
        """G·E, the width of all heads of keys."""
        return (self.n_key_heads or self.n_heads) * self.head_width

    @property
    def is_pre_norm(self) -> bool:
        """True if a norm stands before each sub-layer."""
        return IS_BEFORE[self.norm]

    @property
    def has_final_norm(self) -> bool:
        """True if both stacks end with a norm."""
        return self.is_pre_norm or self.final_norm == "always"

    @property
    def layer_heads(self) -> LayerHeads:
        """The heads of every layer."""
        in_encoder = (self.n_heads,) * self.n_encoder_layers
        in_decoder = (self.n_heads,) * self.n_decoder_layers
        return LayerHeads(
            self.encoder_heads or in_encoder,
            () if self.decoder_cell == "ssru" else self.decoder_heads or in_decoder,
            () if self.is_decoder_only else self.cross_heads or in_decoder,
        )

    def _check_images(self) -> None:
        if POOLINGS[self.pooling].is_joined and not self.class_token:
            raise ValueError(f'pooling: "{self.pooling}" needs class_token = true')
        if not self.reads_images:
            return
        if not self.is_encoder_only or self.is_decoder_only:
            raise ValueError("patch_size: images need n_decoder_layers = 0 and encoder layers")
        if self.head in ("tags", "tokens"):
            raise ValueError('head: images have no tokens to predict; choose "labels" or "none"')
        self._check_image_size()
        for name in ("image_mean", "image_std"):
            values = getattr(self, name)
            if values and self.image_size and len(values) != self.image_size[2]:
                raise ValueError(
                    f"{name}: must be one number for each of {self.image_size[2]} channels, but "
                    f"is {list(values)}"
                )
        if not all(value > 0.0 for value in self.image_std):
            raise ValueError(f"image_std: must be above 0, but is {list(self.image_std)}")

    def _check_image_size(self) -> None:
        size, patch = self.image_size, self.patch_size
        if not size:
            return
        is_sound = len(size) == 3 and all(
            1 <= n <= most for n, most in zip(size, _LARGEST_IMAGE, strict=True)
        )
        if not is_sound:
            raise ValueError(
                f"image_size: must be height, width and channels, at most {list(_LARGEST_IMAGE)}, "
                f"but is {list(size)}"
            )
        if size[0] % patch or size[1] % patch:
            raise ValueError(
                f"patch_size: {patch} does not divide an image of {size[0]}×{size[1]} pixels; "
                "choose a number that does, or another image_size"
            )
        if self.n_positions > _MOST_PATCHES:
            raise ValueError(
                f"patch_size: an image of {size[0]}×{size[1]} pixels has {self.n_positions:,} "
                f"patches, more than {_MOST_PATCHES:,}; choose larger ones"
            )

    def self_attention_biases(self) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        """Splits `bias_heads` by encoder and decoder layers; all are empty where it is."""
        heads, rest = self.layer_heads, self.bias_heads
        sides: tuple[list[tuple[int, ...]], list[tuple[int, ...]]] = [], []
        for side, layers in zip(sides, (heads.encoder, heads.decoder), strict=True):
            for n_heads in layers:
                side.append(rest[:n_heads])
                rest = rest[n_heads:]
        return sides

    def _check_key_heads(self) -> None:
        if self.n_key_heads and self.n_heads % self.n_key_heads:
            raise ValueError(
                f"n_key_heads: {self.n_key_heads} does not divide n_heads = {self.n_heads}; choose "
                "a number that does"
            )
        if self.n_key_heads and not self.projections:
            raise ValueError(
                "n_key_heads: without projections every head has its own keys; leave it at 0"
            )
        if self.d_head and not self.projections:
            raise ValueError(
                "d_head: without projections heads are parts of the hidden states; leave it at 0"
            )

    def _check_layer_heads(self) -> None:
        if self.decoder_heads and self.decoder_cell != "attention":
            raise ValueError(
                f'decoder_heads: with decoder_cell = "{self.decoder_cell}" the decoder has no '
                "self-attention; leave it empty"
            )
        for name, n_layers in (
            ("encoder_heads", self.n_encoder_layers),
            ("decoder_heads", self.n_decoder_layers),
            ("cross_heads", self.n_decoder_layers),
        ):
            heads = getattr(self, name)
            if heads and len(heads) != n_layers:
                raise ValueError(f"{name}: must name {n_layers} layers, but names {len(heads)}")
            if not all(0 <= n_heads <= self.n_heads for n_heads in heads):
                raise ValueError(
                    f"{name}: must be 0 to n_heads = {self.n_heads}, but is {list(heads)}"
                )
        # Pruning takes a head with its rows of projections and its keys
        is_special = self.n_key_heads or not self.projections
        if is_special and any((self.encoder_heads, self.decoder_heads, self.cross_heads)):
            name = "n_key_heads" if self.n_key_heads else "projections"
            raise ValueError(f"{name}: needs the same heads in every layer; name none for some")
        in_all = sum(self.layer_heads.encoder) + sum(self.layer_heads.decoder)
        if self.bias_heads and len(self.bias_heads) != in_all:
            raise ValueError(
                f"bias_heads: must name {in_all} heads, those of self-attention, but names "
                f"{len(self.bias_heads)}"
            )
        if not all(0 <= head < self.n_heads for head in self.bias_heads):
            raise ValueError(f"bias_heads: must be below n_heads = {self.n_heads}")


_OWNERS: tuple[tuple[str, Callable[[ModelConfig], bool], tuple[str, ...]], ...] = (
    (
        "language models (n_encoder_layers = 0)",
        lambda config: config.is_decoder_only,
        ("target_bos", "target_eos", "memory"),
    ),
    (
        "models with a source (n_encoder_layers above 0)",
        lambda config: not config.is_decoder_only,
        ("cross_heads", "source_vocab_size"),
    ),
    (
        "encoders without a decoder (n_decoder_layers = 0)",
        lambda config: config.is_encoder_only,
        ("head", "n_labels", "pooling", "pooler", "unit_length"),
    ),
    (
        'classifiers and taggers (head = "labels" or "tags")',
        lambda config: config.head in ("labels", "tags"),
        ("n_labels",),
    ),
    ('classifiers (head = "labels")', lambda config: config.head == "labels", ("pooler",)),
    (
        "models with a target (n_decoder_layers above 0)",
        lambda config: not config.is_encoder_only,
        ("decoder_heads", "cross_heads", "decoder_cell", "output_bias", "source_vocab_size"),
    ),
    (
        "image models (set patch_size)",
        lambda config: config.reads_images,
        ("image_size", "image_mean", "image_std", "image_shift", "image_flip", "class_token"),
    ),
    (
        "text models (patch_size = 0)",
        lambda config: not config.reads_images,
        ("max_positions", "source_eos", "scale_embeddings"),
    ),
)
"""Models that settings belong to: in others these must keep their defaults."""


def _preset(
    d_model: int, n_heads: int, d_ff: int, n_layers: int, **dropout: float
) -> Mapping[str, float]:
    return MappingProxyType(
        {
            "d_model": d_model,
            "n_heads": n_heads,
            "d_ff": d_ff,
            "n_encoder_layers": n_layers,
            "n_decoder_layers": n_layers,
            **dropout,
        }
    )


PRESETS = MappingProxyType(
    {
        "tiny": _preset(128, 4, 512, 3),
        "small": _preset(256, 4, 1024, 3),
        "base": _preset(512, 8, 2048, 6, dropout=0.1),
        "big": _preset(1024, 16, 4096, 6, dropout=0.3),
    }
)
"""Named shapes. "base" and "big" are those of Vaswani et al. 2017, table 3 (big's dropout 0.3 is
the English-German one; English-French used 0.1)."""
