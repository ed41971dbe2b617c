"""Names of metrics, and the rules that name the role of a head from its metrics.

Rules are tried on means over rows, for a sentence or a corpus. If several of the roles that measure
a mass on one place hold (previous, self, next, sink), the one with the largest mass wins; the
others are tried in the order of `ROLES`. A role says where a head looks, not how much it matters.
Nothing here imports torch: the command line checks selections of heads by these names.

Rare-word heads attend to the rarest tokens of a sentence.
Voita et al. 2019, section 5.3: of the sentences whose least frequent token is not among the 500
most frequent, such a head points to one of the two least frequent tokens in most rows. Frequencies
are counts of source tokens in the training corpus, or in the inspected corpus.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Literal, NamedTuple

from tformer_cli.settings import dataclass
from tformer_cli.show.document import Block, Facts, Room, SideBySide, Span, Table, Text, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tformer_cli.heads.names import HeadId


FREQUENT = 500  # Tokens that are not rare anywhere (Voita et al. 2019).
RAREST = 2  # Tokens of a sentence that count as its rarest (Voita et al. 2019).
NO_RARE_SENTENCE = f"no token outside the {FREQUENT} most frequent"
"""Reason why sentences of only frequent tokens do not show rare-word heads."""
FEWEST_TOKENS = 6  # In shorter sentences two tokens are too many of them; ours


@dataclass(frozen=True)
class RareTokens:
    """The rarest tokens of a sentence, or why it has none."""

    positions: tuple[int, ...] = ()  # Positions in the source, in order
    reason: str = ""  # Reason why the sentence cannot show rare-word heads; empty if it can


UNKNOWN = RareTokens(reason="no frequencies.json in MODEL; with --corpus, tokens are counted")


class TokenFrequencies:
    """Frequency of each token in source text."""

    def __init__(
        self, counts: Sequence[int] | NDArray[np.int64], mask_id: int | None = None
    ) -> None:
        """Ranks tokens by counts (V); `mask_id`, which stands for a gap, is never rare."""
        import numpy as np

        self._counts = np.asarray(counts, dtype=np.int64)
        self._mask_id = mask_id
        most_frequent = np.argsort(-self._counts, kind="stable")[:FREQUENT]
        self._is_frequent = np.zeros(len(self._counts), dtype=bool)
        self._is_frequent[most_frequent] = True

    def rare_tokens(self, source_ids: Sequence[int]) -> RareTokens:
        """Finds the rarest tokens of a sentence (S); of tokens as rare the first."""
        from tformer_cli.text.tokenizer import without_eos

        tokens = without_eos(source_ids)
        if len(tokens) < FEWEST_TOKENS:
            return RareTokens(reason=f"fewer than {FEWEST_TOKENS} tokens")
        kinds = dict.fromkeys(token for token in tokens if token != self._mask_id)
        rarest = sorted(kinds, key=lambda token: self._counts[token])[:RAREST]
        if not rarest or self._is_frequent[rarest[0]]:
            return RareTokens(reason=NO_RARE_SENTENCE)
        return RareTokens(tuple(place for place, token in enumerate(tokens) if token in rarest))


def rare_positions(
    frequencies: TokenFrequencies | None, source_ids: Sequence[int]
) -> tuple[int, ...]:
    """Finds the places of the rarest of tokens (S); none if frequencies are not known."""
    return () if frequencies is None else frequencies.rare_tokens(source_ids).positions


def count_tokens(sentences: Iterable[Sequence[int]], vocab_size: int) -> NDArray[np.int64]:
    import numpy as np

    tokens = np.fromiter(chain.from_iterable(sentences), dtype=np.int64)
    return np.bincount(tokens, minlength=vocab_size)


class Measure(NamedTuple):
    """Plain name of a number, and its meaning."""

    label: str  # Its name in plain words, as a heading of a table
    meaning: str  # Meaning, in a sentence without a period


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
        "on the memory", "Average weight on tokens of earlier segments, over rows that have any"
    ),
}
"""Every metric with its plain name and its meaning, in the order of the output."""


Role = Literal["previous", "self", "next", "sink", "aligner", "broad", "rare", "other"]
POSITION_MASS = 0.5  # A position has more than this mean weight (Clark et al. 2019, section 3.1).
POSITION_ARGMAX = 0.9  # Or the largest in this share of rows (Voita et al. 2019, section 5.1)
SINK_MASS = 0.6  # Mean weight of a special token (Clark et al. 2019)
ALIGNER_CONFIDENCE = 0.5  # An aligner's rows have more than this weight on one source token; ours
ALIGNER_DIAGONALITY = 0.5  # Ours: confidence p along the diagonal gives about p
BROAD_ENTROPY = (
    0.78  # Share of the largest entropy: the 3.8 nats of Clark et al. 2019, 3.8 / ln 128
)
RARE_ARGMAX = 0.5  # Share of rows that point to one of the two rarest tokens (Voita et al. 2019)
POSITIONS: dict[str, Role] = {"prev": "previous", "self": "self", "next": "next"}


@dataclass(frozen=True, kw_only=True)
class RoleRule:
    """Rule that recognizes a role."""

    role: Role
    meaning: str  # Target of such a head's attention
    formula: str  # The rule, in metrics of `METRICS`, with its threshold
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


SIGNS: dict[Role, tuple[str, str]] = {
    "previous": ("◀", "<"),
    "self": ("●", "o"),
    "next": ("▶", ">"),
    "sink": ("▼", "v"),
    "aligner": ("≡", "="),
    "broad": ("▒", "#"),
    "rare": ("★", "*"),
    "other": ("·", "."),
}
"""The sign of each role, and the one without Unicode."""

ORDER = (
    "Metrics are means over rows. If several of previous, self, next and sink hold, the one with "
    "the largest mass wins; then the first of aligner, broad, rare, other. Token frequencies come "
    "from the model directory (frequencies.json of a run), else with --corpus from that text. "
    "Without them, and in a sentence with no rare token or fewer than 6 tokens, rare-word heads "
    "are not classified. A role says where a head looks, not how much it matters."
)


def sign_of(role: Role, room: Room) -> Span:
    return SIGNS[role][room.is_ascii], "dim" if role == "other" else "bold"


def signed_role(role: Role, room: Room) -> Text:
    return text(sign_of(role, room), f" {role}")


def role_grid(roles: Mapping[HeadId, Role], room: Room, rare_reason: str = "") -> Iterator[Block]:
    yield head_grids({head: text(sign_of(role, room)) for head, role in roles.items()})
    used = set(roles.values())
    named = [f"{signs[room.is_ascii]} {role}" for role, signs in SIGNS.items() if role in used]
    legend: list[Span] = [(f"roles: {', '.join(named)} (--explain)", "dim")]
    if rare_reason and any(head.kind == "enc" for head in roles):
        legend.append((f"\nrare-word heads are not classified: {rare_reason}", "dim"))
    yield text(*legend)


def head_grids(cells: Mapping[HeadId, Text]) -> SideBySide:
    from tformer_cli.heads.names import KIND_NAMES, KINDS, HeadId

    grids = []
    for kind in KINDS:
        layers = sorted({head.layer for head in cells if head.kind == kind})
        numbers = sorted({head.head for head in cells if head.kind == kind})
        rows = [
            [text((f"L{layer}", "dim"))]
            + [cells.get(HeadId(kind, layer, number), Text()) for number in numbers]
            for layer in layers
        ]
        if rows:
            head = ("", *map(str, numbers))
            grids.append(Table(title=KIND_NAMES[kind], head=head, rows=rows, labels=(), gap=1))
    return SideBySide(grids)


def role_rules(room: Room) -> Iterator[Block]:
    rows = []
    for rule in ROLES:
        spans: list[Span] = [f"{rule.meaning}\n", (rule.formula, "bold")]
        if rule.source != "-":
            spans.append((f"\n{rule.source}", "dim"))
        rows.append([text(sign_of(rule.role, room)), rule.role, text(*spans)])
    yield Facts(rows)
    yield text(ORDER, style="dim")
