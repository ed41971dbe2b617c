"""Search under constraints: the phrases of `search.constraints` are said, or are not, at once.

A hypothesis is filed by how many tokens of the required phrases it has said, and at every step the
slots are shared out among these files, as in dynamic beam allocation (Post & Vilar 2018): so
hypotheses that have said more are not crowded out by more probable ones that have said less. A
hypothesis may end only when it has said them all, and one that could no longer do so within the
length limit is dropped.
"""

from __future__ import annotations

import math
import re
from codecs import getincrementaldecoder
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tformer_cli.search.hypothesis import Hypothesis, is_certain, length_divisor, worst_wanted
from tformer_cli.text.tokenizer import EOS_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from tformer_cli.search.config import DecodingConfig
    from tformer_cli.search.constraints import Constraints

    Scores = NDArray[np.float32]

WIDER = 8
"""Times the beam of a second try, where constraints left the first one no way."""
SPARE_CANDIDATES = 16
"""Tokens examined beyond the beam's, to replace those that are banned."""


@dataclass(frozen=True, slots=True)
class _Live:
    """A hypothesis at work."""

    slot: int
    tokens: tuple[int, ...] = ()
    steps: tuple[float, ...] = ()
    total: float = 0.0
    text: bytes = b""
    met: frozenset[int] = frozenset()
    """Required phrases that were said."""
    begun: int = -1
    """The required phrase that is being said; -1: none."""
    n_begun: int = 0
    """Number of its tokens that were."""
    just_met: int = -1
    """The required phrase that has just ended in a word, and is not met if the word continues."""
    is_doubtful: bool = False
    """True if it ends in a banned phrase, so that it must continue with the same word."""
    has_ended: bool = False
    """True if its last step is the end of sentence."""


class Steps(Protocol):
    """The decoding of one sentence, a position at a time."""

    def step(
        self, parents: Sequence[int], histories: Sequence[tuple[int, ...]]
    ) -> tuple[Scores, Scores]:
        """Decodes one more position: scores (R, V), -inf where forbidden, and log-probabilities."""


def satisfying_search(
    start: Callable[[int, int], Steps],
    limit: int,
    config: DecodingConfig,
    constraints: Constraints,
    n_forced: int = 0,
) -> list[Hypothesis]:
    """Searches under constraints, and once more with a wider beam if there was no way."""
    for beam_size in (config.beam_size, WIDER * config.beam_size):
        steps = start(beam_size, limit + 1)
        wider = replace(config, beam_size=beam_size)
        found = constrained_search(steps, limit, wider, constraints, n_forced)
        if found:
            break
    return found


def constrained_search(
    steps: Steps,
    limit: int,
    config: DecodingConfig,
    constraints: Constraints,
    n_forced: int = 0,
) -> list[Hypothesis]:
    """Translates one sentence; see `satisfying_search`.

    Behind a prefix, rules that are part of the scores do not stop a required token.
    """
    search = _Search(steps, limit, config, constraints, n_forced)
    while search.live:
        search.step()
    return sorted(search.found, key=lambda found: -found.score)[: config.n_searched]


class _Search:
    def __init__(
        self,
        steps: Steps,
        limit: int,
        config: DecodingConfig,
        constraints: Constraints,
        n_forced: int,
    ) -> None:
        self._steps = steps
        self._limit = limit
        self._config = config
        self._constraints = constraints
        self._n_forced = n_forced
        self._n_required = sum(map(len, constraints.required))
        self.found: list[Hypothesis] = []
        self.live = [_Live(0)] if self._n_required <= self._limit else []

    def step(self) -> None:
        """Lets every live hypothesis grow by one token."""
        scores, own = self._steps.step(
            [hypothesis.slot for hypothesis in self.live],
            [hypothesis.tokens for hypothesis in self.live],
        )
        candidates = [
            grown
            for row, hypothesis in enumerate(self.live)
            for grown in self._grown(hypothesis, row, scores[row], own[row])
        ]
        chosen = self._shared_out(candidates)
        self.found += [self._finished(one) for one in chosen if one.has_ended]
        self.live = [one for one in chosen if not one.has_ended]
        if self._is_certain():
            self.live = []

    def _grown(self, hypothesis: _Live, row: int, scores: Scores, own: Scores) -> Iterator[_Live]:
        """Yields a hypothesis' continuations, its end among them."""
        n_tokens = min(self._config.beam_size + SPARE_CANDIDATES, len(scores))
        wanted = {token: float(scores[token]) for token in _best(scores, n_tokens)}
        due = self._due(hypothesis)
        if EOS_ID not in wanted:
            due.append(EOS_ID)
        for token in due:
            gain = float(scores[token])
            # A rule that forbids a required token gives way
            wanted[token] = float(own[token]) if math.isinf(gain) and token != EOS_ID else gain
        for token, gain in wanted.items():
            if math.isinf(gain):
                continue
            after = self._ended if token == EOS_ID else self._after
            if grown := after(hypothesis, row, token, gain, float(own[token])):
                yield grown

    def _due(self, hypothesis: _Live) -> list[int]:
        """Tokens that would continue with required phrases, or begin one; none in a prefix."""
        # A prefix decides the token, so phrases have no say yet
        if len(hypothesis.tokens) < self._n_forced:
            return []
        required = self._constraints.required
        due = [phrase[0] for i, phrase in enumerate(required) if i not in hypothesis.met]
        if hypothesis.begun >= 0:
            due.append(required[hypothesis.begun][hypothesis.n_begun])
        return due

    def _after(
        self, hypothesis: _Live, row: int, token: int, gain: float, value: float
    ) -> _Live | None:
        """Returns a hypothesis with one more token, or None where it must not have it."""
        text = hypothesis.text + self._constraints.token_bytes[token]
        written = _written(text)
        finished, ended = self._constraints.finished_ban, self._constraints.ban
        # A phrase at the very end may still become another word: `is_doubtful` marks it
        if finished is not None and finished.search(written):
            return None
        before = self._settled(hypothesis, token)
        met, begun, n_begun = self._progress(before, token)
        # A token ends at most one phrase, because only one is begun at a time
        (new,) = met - before.met or (-1,)
        grown = _Live(
            slot=row,
            tokens=(*hypothesis.tokens, token),
            steps=(*hypothesis.steps, value),
            total=hypothesis.total + gain,
            text=text,
            met=met,
            begun=begun,
            n_begun=n_begun,
            just_met=new if _ends_in_word(text) else -1,
            is_doubtful=ended is not None and ended.search(written) is not None,
        )
        # What can no longer say all of them within the limit would only take slots
        n_left = self._n_required - self._n_said(grown)
        return grown if len(grown.tokens) + n_left <= self._limit else None

    def _settled(self, hypothesis: _Live, token: int) -> _Live:
        """Takes a phrase back whose last word continues with the token."""
        if hypothesis.just_met < 0 or not _continues_word(self._constraints.token_bytes[token]):
            return hypothesis
        return replace(hypothesis, met=hypothesis.met - {hypothesis.just_met})

    def _progress(self, hypothesis: _Live, token: int) -> tuple[frozenset[int], int, int]:
        """Describes which phrases are met, which is begun, and how far, after one more token."""
        required, met = self._constraints.required, hypothesis.met
        begun, n_begun = hypothesis.begun, hypothesis.n_begun
        if begun < 0 or required[begun][n_begun] != token:
            n_begun = 0
            fitting = [
                i
                for i, phrase in enumerate(required)
                if i not in met and phrase[0] == token and self._may_begin(hypothesis, token)
            ]
            begun = max(fitting, key=lambda i: len(required[i]), default=-1)
        if begun < 0:
            return met, -1, 0
        if n_begun + 1 == len(required[begun]):
            return met | {begun}, -1, 0
        return met, begun, n_begun + 1

    def _may_begin(self, hypothesis: _Live, token: int) -> bool:
        """Returns whether a token here is the beginning of a word, if it is part of one."""
        return not (
            _ends_in_word(hypothesis.text) and _continues_word(self._constraints.token_bytes[token])
        )

    def _n_said(self, hypothesis: _Live) -> int:
        said = sum(len(self._constraints.required[i]) for i in hypothesis.met)
        return said + hypothesis.n_begun

    def _ended(
        self,
        hypothesis: _Live,
        row: int,
        token: int,  # noqa: ARG002 - the end of sentence; called like `_after`
        gain: float,
        value: float,
    ) -> _Live | None:
        """Returns a hypothesis with its end, or None where it must not end."""
        if len(hypothesis.met) < len(self._constraints.required):
            return None
        pattern = self._constraints.ban
        if pattern is not None and pattern.search(hypothesis.text.decode("utf-8", "replace")):
            return None
        return replace(
            hypothesis,
            slot=row,
            steps=(*hypothesis.steps, value),
            total=hypothesis.total + gain,
            has_ended=True,
        )

    def _finished(self, hypothesis: _Live) -> Hypothesis:
        steps = hypothesis.steps
        score = hypothesis.total / length_divisor(len(steps), self._config)
        is_finished = len(hypothesis.tokens) < self._limit
        return Hypothesis(hypothesis.tokens, math.fsum(steps), score, steps, is_finished)

    def _shared_out(self, candidates: Sequence[_Live]) -> list[_Live]:
        """Chooses who gets a slot: the best of each file in turn, the fullest file first.

        As in `beam_search`, a hypothesis that ends competes with the others, and keeps its slot.
        Half of the slots, rounded up, are for hypotheses that do not end in a banned phrase: few
        words continue such a one, so all could come to nothing at once.
        """
        n_slots = self._config.beam_size - len(self.found)
        files: dict[int, list[_Live]] = {}
        for candidate in sorted(candidates, key=lambda candidate: -candidate.total):
            files.setdefault(self._n_said(candidate), []).append(candidate)
        ordered = [files[n_said] for n_said in sorted(files, reverse=True)]
        turns = [one for turn in zip_longest(*ordered) for one in turn if one is not None]
        doubtful = [one for one in turns if one.is_doubtful][n_slots // 2 :]
        if doubtful:
            late = {id(one) for one in doubtful}
            turns = [*(one for one in turns if id(one) not in late), *doubtful]
        return turns[:n_slots]

    def _is_certain(self) -> bool:
        """Returns whether no live hypothesis can come among the first that are wanted."""
        worst = worst_wanted((found.score for found in self.found), self._config.n_searched)
        best = max((hypothesis.total for hypothesis in self.live), default=-math.inf)
        divisor = length_divisor(self._limit + 1, self._config)
        return not math.isinf(worst) and is_certain(worst, best, divisor)


def _best(scores: Scores, n: int) -> list[int]:
    """Returns the n tokens with the highest scores (V), best first; of equal ones the smaller."""
    # A partition is linear in the vocabulary; only the n best need sorting
    some = np.argpartition(-scores, n - 1)[:n]
    ranked: list[int] = some[np.lexsort((some, -scores[some]))].tolist()
    return ranked


def _continues_word(token: bytes) -> bool:
    """True if a token would continue with a word: it begins with a letter or part of one."""
    # From 0x80 on a byte is part of a character, and a token may hold only a part
    return bool(token) and (token[0] >= 0x80 or token[:1].isalnum() or token[:1] == b"_")


def _written(text: bytes) -> str:
    """The text of bytes as it is written; a character that is not complete yet is left out."""
    # Not final, so that it waits for the rest of a character instead of replacing it
    return getincrementaldecoder("utf-8")("replace").decode(text)


def _ends_in_word(text: bytes) -> bool:
    return re.search(r"\w\Z", text.decode("utf-8", "ignore")) is not None
