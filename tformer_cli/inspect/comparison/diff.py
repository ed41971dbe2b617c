"""Two models head by head: who is whose counterpart, who has moved, who does another job.

Both models read the same sentences and the same targets, so their maps have the same rows and
columns, and may be subtracted.
"""

from dataclasses import dataclass

from torch import Tensor

from tformer_cli.heads.names import HeadId, HeadLayout, Kind
from tformer_cli.heads.roles import Role, role_of
from tformer_cli.inspect.comparison.matching import (
    HeadDistances,
    HeadMatch,
    Matching,
    match_heads,
)
from tformer_cli.inspect.record import HeadsRecord, ModelSummary
from tformer_cli.wording import count_of

Metrics = dict[HeadId, dict[str, float]]
"""The metrics of each head of a model."""
MAPS_DRAWN = 8
"""Most pairs whose maps a picture shows; of more, those that have changed most."""


@dataclass(frozen=True, kw_only=True)
class HeadChange:
    """A pair of heads and their roles."""

    match: HeadMatch
    first_role: Role | None
    """Role of the first model's head; None where there is no head."""
    second_role: Role | None

    @property
    def has_changed_role(self) -> bool:
        roles = self.first_role, self.second_role
        return None not in roles and self.first_role != self.second_role

    @property
    def kind(self) -> Kind:
        head = self.match.first or self.match.second
        if head is None:
            raise ValueError("a match has at least one head")
        return head.kind


@dataclass(frozen=True, kw_only=True)
class HeadDiff:
    """Changes of every head between two models."""

    first: ModelSummary
    second: ModelSummary
    matching: Matching
    """True if heads were paired within their layer or across layers."""
    n_sentences: int
    changes: tuple[HeadChange, ...]
    """The heads of A, then those that only B has; by kind."""
    rare_reason: str = ""
    """Reason why no head could have the role "rare"; empty if one could."""
    shown: tuple[HeadsRecord, HeadsRecord]
    """A sentence as A and as B read it, with the same target, whose maps can be subtracted."""

    @property
    def most_changed(self) -> HeadChange | None:
        """The pair with the largest divergence, the first of several; None without pairs."""
        paired = [change for change in self.changes if change.match.divergence is not None]
        return max(paired, key=lambda change: change.match.divergence or 0.0, default=None)

    def difference(self, change: HeadChange) -> Tensor:
        """(Q, K) weights of B's head less those of A's, from −1 to 1; rows sum to 0."""
        if change.match.first is None or change.match.second is None:
            raise ValueError("a head without a counterpart has no difference")
        before, after = self.shown
        return after.captured.weights(change.match.second) - before.captured.weights(
            change.match.first
        )


def changes_of(
    layouts: tuple[HeadLayout, HeadLayout],
    distances: HeadDistances,
    metrics: tuple[Metrics, Metrics],
    kinds: list[Kind],
    matching: Matching,
) -> list[HeadChange]:
    """Pairs the heads of both models and names their roles by the means of their metrics."""

    def role(known: Metrics, head: HeadId | None) -> Role | None:
        return None if head is None else role_of(known[head])

    return [
        HeadChange(
            match=match,
            first_role=role(metrics[0], match.first),
            second_role=role(metrics[1], match.second),
        )
        for kind in kinds
        for match in match_heads(*layouts, distances, kind, matching)
    ]


def drawn(diff: HeadDiff) -> list[HeadChange]:
    """The pairs whose maps are drawn: the most changed ones, the most changed first."""
    paired = [change for change in diff.changes if change.match.divergence is not None]
    return sorted(paired, key=lambda change: -(change.match.divergence or 0.0))[:MAPS_DRAWN]


def summary_of(diff: HeadDiff) -> str:
    """Sums a comparison up in a sentence or two."""
    divergences = [c.match.divergence for c in diff.changes if c.match.divergence is not None]
    moved = sum(change.match.has_moved for change in diff.changes)
    changed = sum(change.has_changed_role for change in diff.changes)
    how = "within their layer" if diff.matching == "layer" else "across layers"
    mean = sum(divergences) / len(divergences) if divergences else 0.0
    text = (
        f"{count_of(diff.n_sentences, 'sentence')}; "
        f"{count_of(len(divergences), 'head')} paired {how}, mean divergence {mean:.4f}; "
        f"{moved} moved, {changed} changed role"
    )
    only = {
        "A": [str(c.match.first) for c in diff.changes if c.match.second is None],
        "B": [str(c.match.second) for c in diff.changes if c.match.first is None],
    }
    parts = [f"only in {side}: {', '.join(heads)}" for side, heads in only.items() if heads]
    if diff.rare_reason and any(change.kind == "enc" for change in diff.changes):
        parts.append(f"rare-word heads are not classified: {diff.rare_reason}")
    return "; ".join([text, *parts])
