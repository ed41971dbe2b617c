"""The tree of a beam search: which hypotheses it kept at each step, dropped, and finished.

The nodes come from what a `live.RecordingModel` recorded: the most probable next tokens of
every row, and the back-pointers. At each step all continuations of the live hypotheses stand in the
order of their log-probabilities; the first ones take the slots that are left, and one that ends the
sentence takes its slot with it (see `decoding.search.beam_search`). That the search did just this
is checked: each kept hypothesis must have a row in its next step. So a tree is of plain beam search
and greedy search; where another rule decides, there is none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from tformer_cli.search.config import is_beam_search
from tformer_cli.search.hypothesis import length_divisor, longest_translation
from tformer_cli.text.tokenizer import EOS_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tformer_cli.search.config import DecodingConfig

NodeState = Literal["kept", "finished", "dropped"]
"""Lived on for at least a step; ended the sentence; was considered and had no slot."""
N_DROPPED = 3
"""Continuations of a step without a slot that a tree has, the best ones."""


@dataclass(frozen=True, kw_only=True)
class SearchNode:
    """A hypothesis of a search: its last token and where it comes from."""

    parent: int | None
    """Number of the node it continues; None: it is the begin of sentence."""
    step: int
    """Tokens of the hypothesis, the begin of sentence not counted."""
    token: int
    log_probability: float
    state: NodeState
    score: float | None
    """Its log-probability after the length penalty, if it is finished."""


@dataclass(frozen=True, kw_only=True)
class SearchTree:
    """Tree of one search for one sentence."""

    nodes: tuple[SearchNode, ...]
    """Parents before children; of a step the best ones first, those without a slot last."""
    path: tuple[int, ...]
    """The nodes of the hypothesis that is looked at, from the begin of sentence to the end."""
    beam_size: int
    """W, hypotheses kept at once."""
    length_penalty: float
    """The exponent of the length penalty; 0: scores are log-probabilities."""


@dataclass(frozen=True, kw_only=True)
class SearchStep:
    """One step of a search as it was recorded, for its R rows."""

    tokens: list[int]
    """(R) what each row read."""
    parents: list[int]
    """(R) the row of the step before that each row continues."""
    next_tokens: list[list[int]]
    """(R, C) the most probable next tokens of each row, best first; C may be 0."""
    next_log_probabilities: list[list[float]]
    """(R, C) their log-probabilities."""
    end_log_probabilities: list[float]
    """(R) of the end of sentence."""


def n_candidates(config: DecodingConfig) -> int:
    """Number of next tokens of each row that a tree needs."""
    return config.beam_size + N_DROPPED


class _Live(NamedTuple):
    """A live hypothesis."""

    node: int
    row: int
    log_probability: float


@dataclass
class _Growth:
    """A tree that grows, step by step."""

    config: DecodingConfig
    nodes: list[SearchNode] = field(default_factory=list)

    def choose(
        self, live: Sequence[_Live], recorded: SearchStep, n_slots: int, *, is_last: bool
    ) -> list[int]:
        """Adds the continuations of a step; returns the nodes that have a slot."""
        found = []
        for one in live:
            tokens, gains = recorded.next_tokens[one.row], recorded.next_log_probabilities[one.row]
            if is_last:  # as long as a translation may be: only its end remains
                tokens, gains = [EOS_ID], [recorded.end_log_probabilities[one.row]]
            found += [
                (one.log_probability + min(gain, 0.0), one.node, token)
                for token, gain in zip(tokens, gains, strict=True)
            ]
        found.sort(key=lambda item: -item[0])
        kept = []
        for place, (total, parent, token) in enumerate(found[: n_slots + N_DROPPED]):
            step = self.nodes[parent].step + 1
            state: NodeState = "dropped"
            if place < n_slots:
                state = "finished" if token == EOS_ID else "kept"
                kept.append(len(self.nodes))
            score = total / length_divisor(step, self.config) if state == "finished" else None
            self.nodes.append(
                SearchNode(
                    parent=parent,
                    step=step,
                    token=token,
                    log_probability=total,
                    state=state,
                    score=score,
                )
            )
        return kept


def grow_tree(
    steps: Sequence[SearchStep],
    first_row: int,
    target_ids: Sequence[int],
    config: DecodingConfig,
    *,
    n_source_tokens: int,
    max_positions: int,
) -> SearchTree | None:
    """Follows a search from the begin of sentence to where it stopped."""
    if not is_beam_search(config):
        return None
    limit = longest_translation(n_source_tokens, config, max_positions)
    begin = SearchNode(
        parent=None,
        step=0,
        token=steps[0].tokens[first_row],
        log_probability=0.0,
        state="kept",
        score=None,
    )
    growth = _Growth(config, [begin])
    live, n_slots = [_Live(0, first_row, 0.0)], config.beam_size
    for number, recorded in enumerate(steps):
        kept = growth.choose(live, recorded, n_slots, is_last=number == limit)
        unfinished = [node for node in kept if growth.nodes[node].state == "kept"]
        n_slots -= len(kept) - len(unfinished)
        if number + 1 == len(steps):
            break
        rows = _rows_of(unfinished, growth.nodes, live, steps[number + 1])
        if rows is None:
            return None
        live = rows
        if not live:
            break
    path = _path(growth.nodes, [*target_ids, EOS_ID])
    if path is None:
        return None
    return SearchTree(
        nodes=tuple(growth.nodes),
        path=path,
        beam_size=config.beam_size,
        length_penalty=config.length_penalty,
    )


def _rows_of(
    nodes: Sequence[int], tree: Sequence[SearchNode], live: Sequence[_Live], recorded: SearchStep
) -> list[_Live] | None:
    """Finds the row that each kept hypothesis has in the next step; None if one has none.

    A sentence that is done has no rows any more; then nothing is live.
    """
    row_of = {one.node: one.row for one in live}
    places = {
        place: row
        for row, place in reversed(
            list(enumerate(zip(recorded.parents, recorded.tokens, strict=True)))
        )
    }
    rows = []
    for node in nodes:
        parent = tree[node].parent
        row = None if parent is None else places.get((row_of[parent], tree[node].token))
        if row is not None:
            rows.append(_Live(node, row, tree[node].log_probability))
    return rows if len(rows) in (0, len(nodes)) else None


def _path(nodes: Sequence[SearchNode], tokens: Sequence[int]) -> tuple[int, ...] | None:
    """The nodes of a finished hypothesis; None if the tree does not have it."""
    for number, node in enumerate(nodes):
        if node.state != "finished" or node.step != len(tokens):
            continue
        way, at = [], number
        while (parent := nodes[at].parent) is not None:
            way.append(at)
            at = parent
        if [nodes[place].token for place in reversed(way)] == list(tokens):
            return (at, *reversed(way))
    return None
