"""Names of metrics, and the rules that name the role of a head from its metrics.

Rules are tried on means over rows, of a sentence or of a corpus. Of the roles that are a mass on
one place (previous, self, next, sink) the one with the largest mass is meant if several hold; the
others are tried in the order of `ROLES`. A role says where a head looks, not whether it matters.
Nothing here imports torch: the command line checks selections of heads by these names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tformer_cli.heads.rare_tokens import FREQUENT


class Measure(NamedTuple):
    """Plain name of a number, and its meaning."""

    label: str
    """Its name in plain words, as a heading of a table."""
    meaning: str
    """Meaning, in a sentence without a period."""


METRICS: dict[str, Measure] = {
    "entropy": Measure(
        "spread, in nats", "How widely a row spreads over the keys: 0 is one single key"
    ),
    "entropy_norm": Measure(
        "spread",
        "How widely a row spreads over the keys: 0 is one single key, 1 is all visible keys alike",
    ),
    "confidence": Measure(
        "largest weight", "The largest weight of a row, on average; the end of sentence not counted"
    ),
    "prev": Measure("on the token before", "Average weight on the token just before"),
    "self": Measure("on the token itself", "Average weight on the token itself"),
    "next": Measure("on the token after", "Average weight on the token just after"),
    "prev_argmax": Measure(
        "points to the token before", "Share of rows whose largest weight is on the token before"
    ),
    "self_argmax": Measure(
        "points to itself", "Share of rows whose largest weight is on the token itself"
    ),
    "next_argmax": Measure(
        "points to the token after", "Share of rows whose largest weight is on the token after"
    ),
    "rare_argmax": Measure(
        "points to a rare word",
        "Share of rows whose largest weight is on one of the sentence's two rarest tokens",
    ),
    "distance": Measure(
        "distance",
        "How far away it looks on average: in tokens, in cross-attention as a share of the whole",
    ),
    "diagonality": Measure(
        "follows word order",
        "How closely later target words look at later source words: 1 is along the diagonal",
    ),
    "monotonicity": Measure(
        "never goes back",
        "Share of rows whose largest weight is not further left than that of the row before",
    ),
    "sink_eos": Measure(
        "on the end of sentence", "Average weight on the source's end of sentence, a place to rest"
    ),
    "sink_bos": Measure(
        "on the start of sentence",
        "Average weight on the target's start of sentence, a place to rest",
    ),
    "memory": Measure(
        "on the memory", "Average weight on tokens of earlier segments, of rows that have any"
    ),
}
"""Every metric with its plain name and what it says, in the order of the output."""


Role = Literal["previous", "self", "next", "sink", "aligner", "broad", "rare", "other"]
POSITION_MASS = 0.5
"""A position has more than this mean weight (Clark et al. 2019, section 3.1)."""
POSITION_ARGMAX = 0.9
"""Or it is the largest in at least this share of rows (Voita et al. 2019, section 5.1)."""
SINK_MASS = 0.6
"""A special token has at least this mean weight (Clark et al. 2019, of special tokens)."""
ALIGNER_CONFIDENCE = 0.5
"""An aligner's rows have more than this weight on one source token; ours."""
ALIGNER_DIAGONALITY = 0.5
"""And follow the source at least so far; ours, as confidence p along the diagonal gives about p."""
BROAD_ENTROPY = 0.78
"""Share of the largest entropy: the 3.8 nats of Clark et al. 2019 for 128 tokens, 3.8 / ln 128."""
RARE_ARGMAX = 0.5
"""More than this share of rows points to one of the two rarest tokens (Voita et al. 2019)."""
POSITIONS: dict[str, Role] = {"prev": "previous", "self": "self", "next": "next"}


@dataclass(frozen=True, kw_only=True)
class RoleRule:
    """Rule that recognizes a role."""

    role: Role
    meaning: str
    """Target of such a head's attention."""
    formula: str
    """The rule, in metrics of `METRICS`, with its threshold."""
    source: str


def _position_rule(metric: str, meaning: str) -> RoleRule:
    return RoleRule(
        role=POSITIONS[metric],
        meaning=meaning,
        formula=f"{metric} > {POSITION_MASS} or {metric}_argmax >= {POSITION_ARGMAX}",
        source="mass: Clark et al. 2019; argmax: Voita et al. 2019",
    )


ROLES: tuple[RoleRule, ...] = (
    _position_rule("prev", "the token before (self-attention)"),
    _position_rule("self", "the token itself (self-attention)"),
    _position_rule("next", "the token after (self-attention)"),
    RoleRule(
        role="sink",
        meaning="the end of the source or the beginning of the target",
        formula=f"sink_eos >= {SINK_MASS} or sink_bos >= {SINK_MASS}",
        source="Clark et al. 2019, special tokens",
    ),
    RoleRule(
        role="aligner",
        meaning="one source token, in the order of the target (cross-attention)",
        formula=(
            f"confidence > {ALIGNER_CONFIDENCE} and diagonality >= {ALIGNER_DIAGONALITY}, "
            "in cross-attention"
        ),
        source="this project's; measure it with inspect-align --gold",
    ),
    RoleRule(
        role="broad",
        meaning="nearly uniform over all tokens",
        formula=f"entropy_norm >= {BROAD_ENTROPY}",
        source="Clark et al. 2019: 3.8 nats of ln 128",
    ),
    RoleRule(
        role="rare",
        meaning="one of the two rarest tokens (encoder)",
        formula=f"rare_argmax > {RARE_ARGMAX}, of tokens outside the top {FREQUENT}",
        source="Voita et al. 2019, section 5.3",
    ),
    RoleRule(role="other", meaning="none of these", formula="no rule applies", source="-"),
)
"""Every role, in the order of a table."""


def role_of(metrics: Mapping[str, float]) -> Role:
    masses: dict[Role, float] = {
        role: metrics.get(metric, 0.0)
        for metric, role in POSITIONS.items()
        if metrics.get(metric, 0.0) > POSITION_MASS
        or metrics.get(f"{metric}_argmax", 0.0) >= POSITION_ARGMAX
    }
    sink = max(metrics.get("sink_eos", 0.0), metrics.get("sink_bos", 0.0))
    if sink >= SINK_MASS:
        masses["sink"] = sink
    if masses:
        return max(masses, key=lambda role: masses[role])
    if (
        metrics.get("diagonality", -1.0) >= ALIGNER_DIAGONALITY
        and metrics.get("confidence", 0.0) > ALIGNER_CONFIDENCE
    ):
        return "aligner"
    if metrics.get("entropy_norm", 0.0) >= BROAD_ENTROPY:
        return "broad"
    return "rare" if metrics.get("rare_argmax", 0.0) > RARE_ARGMAX else "other"
