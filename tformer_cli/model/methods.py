"""The methods a model chooses from, one row each. Free of torch.

A row holds every trait of its method that somebody reads: `config` refuses by it, `weight_shapes`
counts by it, inspections draw by it. Nobody else compares names. To add a method, write its class,
add its name to the type and its row to the table below. Kernels and exports have allow-lists, which
refuse a method that they do not name.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

Config: TypeAlias = Any
"""A `ModelConfig`, whose module imports this one."""
Shapes = dict[str, tuple[int, ...]]
"""Shapes of weights by their names."""

PositionKind = Literal[
    "sinusoidal", "learned", "rotary", "relative", "alibi", "segments", "none", "table"
]


class PositionRow(NamedTuple):
    """A method of positions."""

    made_by: str
    """Dotted name of its class."""
    arguments: Callable[[Config, bool], dict[str, Any]] = lambda _, __: {}
    """Arguments of the class, from the settings and whether the stack is causal."""
    stack_shapes: Callable[[Config], Shapes] | None = None
    """Its weights in a stack, by their names behind "…_input.positions."."""
    layer_shapes: Callable[[Config, int], Shapes] | None = None
    """Its weights in a self-attention of some heads, by their names behind ".relative."."""
    is_fixed: bool = False
    """Its weights are stored, but not trained: only imported models have it."""
    sees: Literal["place", "distance", "nothing"] = "nothing"
    """Which counts: a token's own place, or how far a key is from a query."""
    is_formula: bool = False
    """Its vectors are sinusoids: `inspect-positions` compares them with the formula."""
    needs_even_width: bool = False
    """d_model must be even, for sines and cosines alternate."""
    needs_even_heads: bool = False
    """The width of a head must be even, for numbers turn in pairs."""
    needs_product: bool = False
    """It is part of a product of queries and keys, which the similarity must be."""
    is_compilable: bool = True
    """torch can compile it: no shape depends on the values of a tensor."""
    settings: tuple[str, ...] = ()
    """Settings that only this method has."""

    @property
    def needs_self_attention(self) -> bool:
        """True if a decoder without self-attention would have weights that nothing reads."""
        has_weights = self.stack_shapes is not None or self.layer_shapes is not None
        return self.sees == "distance" and has_weights


def _sizes(config: Config, _: bool) -> dict[str, Any]:
    return {"max_positions": config.n_positions, "d_model": config.d_model}


def _table_shape(config: Config) -> Shapes:
    return {"table": (config.n_positions, config.d_model)}


def _segment_shapes(config: Config, n_heads: int) -> Shapes:
    heads = (n_heads, config.head_width)
    projection = (n_heads * config.head_width, config.d_model)
    return {"projection": projection, "content": heads, "position": heads}


POSITIONS: Mapping[PositionKind, PositionRow] = {
    "sinusoidal": PositionRow(
        "tformer_cli.model.positions:SinusoidalPositions",
        _sizes,
        sees="place",
        is_formula=True,
        needs_even_width=True,
    ),
    "learned": PositionRow(
        "tformer_cli.model.positions:TablePositions",
        lambda *of: {**_sizes(*of), "is_learned": True},
        _table_shape,
        sees="place",
    ),
    "rotary": PositionRow(
        "tformer_cli.model.positions:RotaryPositions",
        lambda config, _: {
            "max_positions": config.n_positions,
            "head_width": config.head_width,
            "base": config.rotary_base,
        },
        sees="distance",
        is_formula=True,
        needs_even_heads=True,
        settings=("rotary_base",),
    ),
    "relative": PositionRow(
        "tformer_cli.model.positions:RelativePositions",
        lambda config, is_causal: {
            "n_heads": config.n_heads,
            "n_buckets": config.relative_buckets,
            "far": config.relative_distance,
            "is_causal": is_causal,
        },
        lambda config: {"table": (config.relative_buckets, config.n_heads)},
        sees="distance",
        settings=("relative_buckets", "relative_distance"),
    ),
    "alibi": PositionRow(
        "tformer_cli.model.positions:LinearBiases",
        lambda config, _: {"n_heads": config.n_heads},
        sees="distance",
    ),
    "segments": PositionRow(
        "tformer_cli.model.positions:SegmentPositions",
        lambda config, is_causal: {"d_model": config.d_model, "is_causal": is_causal},
        layer_shapes=_segment_shapes,
        sees="distance",
        needs_even_width=True,
        needs_product=True,
        is_compilable=False,
    ),
    "none": PositionRow("tformer_cli.model.positions:Positions"),
    "table": PositionRow(
        "tformer_cli.model.positions:TablePositions",
        lambda *of: {**_sizes(*of), "is_learned": False},
        _table_shape,
        is_fixed=True,
        sees="place",
    ),
}

POSITION_SETTINGS = tuple(name for row in POSITIONS.values() for name in row.settings)
"""Settings that only some methods have: tables of what is known name the methods."""

SimilarityKind = Literal["scaled", "dot", "cosine", "distance", "additive"]


class SimilarityRow(NamedTuple):
    """A similarity of queries and keys."""

    made_by: str
    """Dotted name of its class."""
    shapes: Callable[[int, int], Shapes] = lambda _, __: {}
    """Its weights in an attention of H heads of width E, by their names behind ".similarity."."""
    is_product: bool = False
    """It is a product of queries and keys as they are, but for a factor."""


SIMILARITIES: Mapping[SimilarityKind, SimilarityRow] = {
    "scaled": SimilarityRow("tformer_cli.model.similarity:Similarity", is_product=True),
    "dot": SimilarityRow("tformer_cli.model.similarity:DotProduct", is_product=True),
    "cosine": SimilarityRow(
        "tformer_cli.model.similarity:Cosine", lambda n_heads, _: {"log_factor": (n_heads,)}
    ),
    "distance": SimilarityRow("tformer_cli.model.similarity:Distance"),
    "additive": SimilarityRow(
        "tformer_cli.model.similarity:Additive",
        lambda n_heads, head_width: {"vector": (n_heads, head_width)},
    ),
}

NormKind = Literal["layer", "rms"]


class NormRow(NamedTuple):
    """A norm of hidden states."""

    made_by: str
    """Dotted name of its class."""
    has_bias: bool = False
    """It adds a bias where a model has biases."""
    is_centered: bool = False
    """It takes the mean off."""


NORMS: Mapping[NormKind, NormRow] = {
    "layer": NormRow("torch.nn:LayerNorm", has_bias=True, is_centered=True),
    "rms": NormRow("tformer_cli.model.norms:RMSNorm"),
}

Norm = Literal["post", "pre"]
IS_BEFORE: Mapping[Norm, bool] = {"post": False, "pre": True}
"""True if a norm stands before its sub-layer, so that stacks end with one."""

Activation = Literal["relu", "gelu", "gelu-tanh", "swish"]


class ActivationRow(NamedTuple):
    """An activation between the two products of a feed-forward layer."""

    made_by: str
    """Dotted name of its function."""
    formula: str
    """Formula for people, of u."""
    is_in_products: bool = False
    """Products have it built in, as the compiled operations of training have."""


ACTIVATIONS: Mapping[Activation, ActivationRow] = {
    "relu": ActivationRow("torch.nn.functional:relu", "max(0, u)", is_in_products=True),
    "gelu": ActivationRow(
        "torch.nn.functional:gelu", "u·Φ(u)"
    ),  # exactly (Hendrycks & Gimpel 2016)
    "gelu-tanh": ActivationRow(
        "tformer_cli.model.feed_forward:gelu_tanh", "u·(1 + tanh(√(2/π)·(u + 0.044715u³)))/2"
    ),
    "swish": ActivationRow("tformer_cli.model.feed_forward:swish", "u·σ(u) = u / (1 + e^(−u))"),
}

Pooling = Literal["mean", "first", "first-and-mean"]
Part = TypeVar("Part")


class PoolingRow(NamedTuple):
    """A way to make one vector of an encoder's states."""

    has_first: bool = False
    """The first token's state is part of the vector."""
    has_mean: bool = False
    """The mean over the tokens is part of it, behind the first state if that is, too."""

    @property
    def is_joined(self) -> bool:
        """True if both are in the vector, which only images with a class token have."""
        return self.has_first and self.has_mean

    def parts(self, first: Part, mean: Part) -> tuple[Part, ...]:
        """Returns what the vector is made of: the first, the mean, or both."""
        return (first,) * self.has_first + (mean,) * self.has_mean


POOLINGS: Mapping[Pooling, PoolingRow] = {
    "mean": PoolingRow(has_mean=True),
    "first": PoolingRow(has_first=True),
    "first-and-mean": PoolingRow(has_first=True, has_mean=True),
}


def load_method(row: PositionRow | SimilarityRow | NormRow | ActivationRow) -> Any:  # noqa: ANN401
    """Imports the class or function of a row, and torch with it."""
    from pkgutil import resolve_name

    return resolve_name(row.made_by)


def name_choices(names: Iterable[str]) -> str:
    """Writes names to choose from: "a", "b" or "c"."""
    *others, last = (f'"{name}"' for name in names)
    return f"{', '.join(others)} or {last}" if others else last
