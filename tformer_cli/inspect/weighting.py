"""Kinds of numbers in a map: attention weights, or one of the measures that go beyond them.

Weights and norms belong to a head. Rollout and ALTI combine all heads of a layer and every layer
before it, so they have one map per layer, which is named ``enc.L``, ``dec.L`` or ``cross.L``.
"""

from typing import Literal

from tformer_cli.heads.names import KIND_NAMES, Kind
from tformer_cli.settings import dataclass

WeightingName = Literal["alpha", "norm", "rollout", "alti"]


@dataclass(frozen=True, kw_only=True)
class Weighting:
    """Kind of a map's numbers."""

    name: WeightingName  # Its name: the value of ``--weights``
    meaning: str
    source: str
    conventions: str  # Instructions for reading a map; part of all output
    sums: str  # Sum of rows, as a sentence for the page
    residual: str  # Quantities that the residual of a record compares
    kind_names: dict[Kind, str]
    is_of_layers: bool = False  # True if there is one map a layer instead of one a head
    is_share: bool = True  # Numbers up to 1; else shaded relative to the largest

    @property
    def of(self) -> str:
        return "layers" if self.is_of_layers else "heads"


_AXES = (
    "In dec and cross, row i is the decoder position that predicts target token i+1. "
    "Layers and heads count from 0."
)
_LAYER_WEIGHTS = (
    "Row = position after the layer, column = token; in enc and cross a source token, in dec "
    "a target token that the decoder has read. One map per layer, for all its heads and all "
    "layers before it. Rows of enc sum to 1; row i of dec and row i of cross of a layer "
    f"together sum to 1. {_AXES}"
)
_FLOW_KINDS: dict[Kind, str] = {
    "enc": "encoder, from source tokens",
    "dec": "decoder, from the target prefix",
    "cross": "decoder, from source tokens",
}

ALPHA = Weighting(
    name="alpha",
    meaning="attention weights, softmax(Q·Kᵀ/√d_k)",
    source="Vaswani et al. 2017",
    conventions=(
        "Row = query, column = key; rows sum to 1 and cells that a position may not see are "
        f"exactly 0. {_AXES}"
    ),
    sums="Every row sums to 1.",
    residual="max |A·V − context|: the output of these weights and that of the model's attention",
    kind_names=KIND_NAMES,
)
NORM = Weighting(
    name="norm",
    meaning="‖A_ij f(x_j)‖₂, the length of what a head adds to the output",
    source="Kobayashi et al. 2020",
    conventions=(
        "Row = query, column = key; a number is ‖A_ij f(x_j)‖₂, the length of what key j adds to "
        "query i, with f(x) = (x·W_V + b_V)·W_O of the head. Rows do not sum to 1; cells that a "
        "position may not see are exactly 0. Metrics and roles use rows scaled to sum 1. "
        f"{_AXES}"
    ),
    sums="Rows do not sum to 1.",
    residual="max |Σ A·f(x) + b_O − output|: these vectors and the output of the model's attention",
    kind_names=KIND_NAMES,
    is_share=False,
)
ROLLOUT = Weighting(
    name="rollout",
    meaning="attention rollout: products over the layers of ½ mean weights + ½ identity",
    source="Abnar & Zuidema 2020",
    conventions=(
        f"{_LAYER_WEIGHTS} In cross-attention, the decoder's own state counts ½ as well, so "
        "after n decoder layers the source always has 1 − 2^−n."
    ),
    sums="Rows of enc, and of dec and cross together, sum to 1.",
    residual="max |A·V − context| of all layers up to the map's",
    kind_names=_FLOW_KINDS,
    is_of_layers=True,
)
ALTI = Weighting(
    name="alti",
    meaning=(
        "ALTI+ contributions: how much closer each token brings the output, rolled out "
        "over the layers"
    ),
    source="Ferrando et al. 2022",
    conventions=_LAYER_WEIGHTS,
    sums="Rows of enc, and of dec and cross together, sum to 1.",
    residual="max |Σ T(x) + biases − output| of all layers up to the map's",
    kind_names=_FLOW_KINDS,
    is_of_layers=True,
)
WEIGHTINGS: dict[WeightingName, Weighting] = {w.name: w for w in (ALPHA, NORM, ROLLOUT, ALTI)}
