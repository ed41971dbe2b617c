"""Matching of the heads of two models.

The number of a head in its layer means nothing: exchanging heads (their rows of W_Q, W_K and W_V
and their columns of W_O) leaves what a model computes as it is. So heads are paired by what they
do, within each kind, such that the divergences of all pairs together are the smallest. Exchanging
heads of *different* layers does change a model; so unless told otherwise they are paired within
their layer where both models have as many, and across layers where they have not.

Distance between the maps of two heads: the mean Jensen–Shannon divergence of their rows.

JSD(p, q) = ½ KL(p ‖ m) + ½ KL(q ‖ m) with m = ½ (p + q), which is H(m) − ½ (H(p) + H(q)); in nats,
0 for equal rows and ln 2 for rows without a common key (Lin 1991; of heads Clark et al. 2019,
section 6). Computed in float64 over all rows of all sentences.

Two models head by head: which heads correspond, which moved, and which changed role.

Both models read the same sentences and the same targets, so their maps have the same rows and
columns, and may be subtracted.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tformer_cli.heads.names import KINDS, HeadId, HeadLayout, Kind
from tformer_cli.heads.roles import Role, role_of
from tformer_cli.inspect.capture.maps import AttentionMaps, Weights
from tformer_cli.inspect.heads.metrics import entropies
from tformer_cli.inspect.record import HeadsRecord, ModelSummary
from tformer_cli.wording import count_of

LARGEST = math.log(2)  # The divergence of rows that share no key
Numbers = NDArray[np.float64]


def divergence_sums(first: Weights | Numbers, second: Weights | Numbers) -> Numbers:
    """Sums the divergences of rows of heads (G, Q, K) from those of others (H, Q, K): (G, H)."""
    others = second.astype(np.float64)
    entropy_of_others = entropies(others)
    sums = np.zeros((len(first), len(second)))
    # One head at a time keeps memory at H maps instead of G·H.
    for row, weights in zip(sums, first.astype(np.float64), strict=True):
        divergences = (
            entropies((weights + others) / 2) - (entropies(weights) + entropy_of_others) / 2
        )
        row[:] = np.maximum(divergences, 0.0).sum(axis=-1)
    return sums


class HeadDistances:
    """Running sums of divergences between the heads of two models, over any number of sentences."""

    def __init__(self, first: HeadLayout, second: HeadLayout, kinds: Sequence[Kind]) -> None:
        self._sums: dict[Kind, Numbers] = {
            kind: np.zeros((sum(first.of(kind)), sum(second.of(kind)))) for kind in kinds
        }
        self._n_rows: dict[Kind, int] = dict.fromkeys(kinds, 0)

    def add(self, first: AttentionMaps, second: AttentionMaps) -> None:
        for kind, sums in self._sums.items():
            if not sums.size:
                continue
            weights = (np.concatenate(maps.layers(kind)) for maps in (first, second))
            sums += divergence_sums(*weights)
            self._n_rows[kind] += first.layers(kind)[0].shape[1]

    def means(self, kind: Kind) -> Numbers:
        """(G, H) mean divergence of the heads of a kind, in the order of their layouts."""
        return self._sums[kind] / max(1, self._n_rows[kind])


Matching = Literal["layer", "kind"]  # Pair heads within their layer, or across layers of a kind
OTHER_NUMBER, OTHER_LAYER = 1e-9, 2e-9  # In nats: of heads that look alike, namesakes pair

_FREE = -1  # Number of no row


@dataclass(frozen=True, kw_only=True)
class HeadChange:
    """A head of the first model with its counterpart in the second; one of them may be missing."""

    first: HeadId | None
    second: HeadId | None
    divergence: float | None = None  # Mean Jensen–Shannon divergence of their rows, in nats
    divergence_in_place: float | None = None  # From the other model's head of the same name
    first_role: Role | None = None  # The first model's head; None where there is none
    second_role: Role | None = None

    @property
    def has_moved(self) -> bool:
        return None not in (self.first, self.second) and self.first != self.second

    @property
    def has_changed_role(self) -> bool:
        roles = self.first_role, self.second_role
        return None not in roles and self.first_role != self.second_role

    @property
    def kind(self) -> Kind:
        head = self.first or self.second
        if head is None:
            raise ValueError("a match has at least one head")
        return head.kind


def default_matching(first: HeadLayout, second: HeadLayout) -> Matching:
    """Within layers where both models have as many of each kind, else across them."""
    alike = all(len(first.of(kind)) == len(second.of(kind)) for kind in KINDS)
    return "layer" if alike else "kind"


def match_heads(
    first: HeadLayout, second: HeadLayout, distances: HeadDistances, kind: Kind, matching: Matching
) -> list[HeadChange]:
    costs = distances.means(kind)
    rows = [head for head in first if head.kind == kind]
    columns = [head for head in second if head.kind == kind]
    pairs = dict(_pairs(rows, columns, costs, matching))
    matches = [
        HeadChange(
            first=head,
            second=columns[pairs[row]] if row in pairs else None,
            divergence=float(costs[row, pairs[row]]) if row in pairs else None,
            divergence_in_place=(
                float(costs[row, columns.index(head)]) if head in columns else None
            ),
        )
        for row, head in enumerate(rows)
    ]
    taken = set(pairs.values())
    return matches + [
        HeadChange(first=None, second=head)
        for column, head in enumerate(columns)
        if column not in taken
    ]


def _pairs(
    rows: list[HeadId], columns: list[HeadId], costs: Numbers, matching: Matching
) -> list[tuple[int, int]]:
    names = [
        [
            OTHER_LAYER * (row.layer != column.layer) + OTHER_NUMBER * (row.head != column.head)
            for column in columns
        ]
        for row in rows
    ]
    whole = costs + np.array(names).reshape(costs.shape)
    if matching == "kind":
        return minimal_assignment(whole)
    pairs = []
    for layer in sorted({head.layer for head in rows}):
        in_rows = [place for place, head in enumerate(rows) if head.layer == layer]
        in_columns = [place for place, head in enumerate(columns) if head.layer == layer]
        block = whole[np.ix_(in_rows, in_columns)]
        pairs += [(in_rows[i], in_columns[j]) for i, j in minimal_assignment(block)]
    return pairs


def minimal_assignment(costs: Numbers) -> list[tuple[int, int]]:
    """Pairs rows with columns of costs (N, M), min(N, M) pairs, so that their sum is the least.

    The linear assignment problem, solved by shortest augmenting paths with potentials (the
    Hungarian method; Kuhn 1955, Jonker & Volgenant 1987), in O(n³) steps of which the innermost is
    one over arrays. The same costs give the same pairs, also where several are as good.
    """
    if not np.isfinite(costs).all():
        raise ValueError("every cost must be finite")
    n_rows, n_columns = costs.shape
    if n_rows > n_columns:
        return sorted((row, column) for column, row in minimal_assignment(costs.T))
    row_of = np.full(n_columns, _FREE)
    row_potentials, column_potentials = np.zeros(n_rows), np.zeros(n_columns)
    for row in range(n_rows):
        _augment(costs, row, row_of, row_potentials, column_potentials)
    pairs = [(int(row), column) for column, row in enumerate(row_of) if row != _FREE]
    return sorted(pairs)


def _augment(
    costs: Numbers,
    row: int,
    row_of: NDArray[np.int_],
    row_potentials: Numbers,
    column_potentials: Numbers,
) -> None:
    """Pairs one more row, by Dijkstra's search for the shortest path to a free column.

    All arrays but the costs are brought up to date: along the path pairs are exchanged, and the
    potentials keep every reduced cost at least 0 and that of every pair at 0.
    """
    n_columns = costs.shape[1]
    distances = np.full(n_columns, np.inf)
    came_from = np.full(n_columns, _FREE)
    is_done = np.zeros(n_columns, dtype=bool)
    current, column, length = row, _FREE, 0.0
    while True:
        reached = length + costs[current] - row_potentials[current] - column_potentials
        is_nearer = ~is_done & (reached < distances)
        distances[is_nearer] = reached[is_nearer]
        came_from[is_nearer] = column
        column = int(np.argmin(np.where(is_done, np.inf, distances)))
        length = float(distances[column])
        if row_of[column] == _FREE:
            break
        is_done[column] = True
        current = int(row_of[column])
    row_potentials[row] += length
    row_potentials[row_of[is_done]] += length - distances[is_done]
    column_potentials[is_done] -= length - distances[is_done]
    while column != _FREE:
        before = int(came_from[column])
        row_of[column] = row if before == _FREE else row_of[before]
        column = before


Metrics = dict[HeadId, dict[str, float]]  # The metrics of each head of a model
MAPS_DRAWN = 8  # Most pairs whose maps a picture shows: those that have changed most


@dataclass(frozen=True, kw_only=True)
class HeadDiff:
    """Changes of every head between two models."""

    first: ModelSummary
    second: ModelSummary
    matching: Matching  # True if heads were paired within their layer or across layers
    n_sentences: int
    changes: tuple[HeadChange, ...]  # The heads of A, then those that only B has; by kind
    rare_reason: str = ""  # Reason why no head could have the role "rare"; empty if one could
    shown: tuple[HeadsRecord, HeadsRecord]  # A sentence as A and as B read it, same target

    @property
    def most_changed(self) -> HeadChange | None:
        """The pair with the largest divergence, the first of several; None without pairs."""
        paired = [change for change in self.changes if change.divergence is not None]
        return max(paired, key=lambda change: change.divergence or 0.0, default=None)

    def difference(self, change: HeadChange) -> Weights:
        """(Q, K) weights of B's head minus those of A's, from −1 to 1; rows sum to 0."""
        if change.first is None or change.second is None:
            raise ValueError("a head without a counterpart has no difference")
        before, after = self.shown
        return after.captured.weights(change.second) - before.captured.weights(change.first)


def changes_of(
    layouts: tuple[HeadLayout, HeadLayout],
    distances: HeadDistances,
    metrics: tuple[Metrics, Metrics],
    kinds: list[Kind],
    matching: Matching,
) -> list[HeadChange]:
    def role(known: Metrics, head: HeadId | None) -> Role | None:
        return None if head is None else role_of(known[head])

    return [
        replace(
            match,
            first_role=role(metrics[0], match.first),
            second_role=role(metrics[1], match.second),
        )
        for kind in kinds
        for match in match_heads(*layouts, distances, kind, matching)
    ]


def choose_drawn_changes(diff: HeadDiff) -> list[HeadChange]:
    paired = [change for change in diff.changes if change.divergence is not None]
    return sorted(paired, key=lambda change: -(change.divergence or 0.0))[:MAPS_DRAWN]


def summary_of(diff: HeadDiff) -> str:
    divergences = [c.divergence for c in diff.changes if c.divergence is not None]
    moved = sum(change.has_moved for change in diff.changes)
    changed = sum(change.has_changed_role for change in diff.changes)
    how = "within their layer" if diff.matching == "layer" else "across layers"
    mean = sum(divergences) / len(divergences) if divergences else 0.0
    text = (
        f"{count_of(diff.n_sentences, 'sentence')}; "
        f"{count_of(len(divergences), 'head')} paired {how}, mean divergence {mean:.4f}; "
        f"{moved} moved, {changed} changed role"
    )
    only = {
        "A": [str(c.first) for c in diff.changes if c.second is None],
        "B": [str(c.second) for c in diff.changes if c.first is None],
    }
    parts = [f"only in {side}: {', '.join(heads)}" for side, heads in only.items() if heads]
    if diff.rare_reason and any(change.kind == "enc" for change in diff.changes):
        parts.append(f"rare-word heads are not classified: {diff.rare_reason}")
    return "; ".join([text, *parts])
