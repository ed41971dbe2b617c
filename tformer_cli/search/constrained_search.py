"""Search under constraints: the phrases of `search.constraints` are said, or are not, at once.

A hypothesis is filed by how many tokens of the required phrases its text lacks, and at every step
the slots are shared out among these files, as in dynamic beam allocation (Post & Vilar 2018): so
hypotheses that lack less are not crowded out by more probable ones that lack more. What a text
lacks is read from the text itself, so phrases may be nested, overlap, and be cut into any tokens. A
hypothesis may end only when it lacks nothing, and one that could no longer end within the length
limit is dropped.
"""

from __future__ import annotations

import math
from codecs import getincrementaldecoder
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tformer_cli.search.constraints import ends_of, holds, in_word, unsatisfied_phrases
from tformer_cli.search.hypothesis import Hypothesis, is_certain, length_divisor, worst_wanted
from tformer_cli.text.tokenizer import EOS_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from tformer_cli.search.config import DecodingConfig
    from tformer_cli.search.constraints import Constraints

    Scores = NDArray[np.float32]

MOST_FILES = 4
"""Files of hypotheses that have as many slots as the beam each; more of them share these slots."""
WIDER, WIDEST = 8, 1 << 14
"""Times the beam of a second try, where constraints left the first one no way, and the most."""
SPARE_CANDIDATES = 16
"""Tokens examined beyond the beam's: slots are more than it has, and some tokens are banned."""


@dataclass(frozen=True, slots=True)
class _Live:
    """A hypothesis at work."""

    slot: int
    tokens: tuple[int, ...]
    steps: tuple[float, ...]
    total: float
    text: bytes
    n_left: int
    """Tokens of required phrases that it lacks at least."""
    due: frozenset[int]
    """Tokens that would continue with required phrases, or begin one."""
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
    for beam_size in (config.beam_size, min(WIDER * config.beam_size, WIDEST)):
        steps = start(MOST_FILES * beam_size, limit + 1)
        wider = replace(config, beam_size=beam_size)
        hypotheses = constrained_search(steps, limit, wider, constraints, n_forced)
        if hypotheses:
            break
    return hypotheses


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
    return sorted(search.hypotheses, key=lambda hypothesis: -hypothesis.score)[: config.n_searched]


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
        phrases = constraints.phrases
        # Behind another phrase one may lack fewer tokens, where they overlap
        self._least = [
            min(
                phrase.progress(f" {other.text if other is not phrase else ''}".encode())[0]
                for other in phrases
            )
            for phrase in phrases
        ]
        self.hypotheses: list[Hypothesis] = []
        # The space lets a phrase begin, and belongs to no translation
        first = self._grow(0, (), (), 0.0, b" ")
        self.live = [] if first is None else [first]
        n_files = min(1 + sum(hypothesis.n_left for hypothesis in self.live), MOST_FILES)
        self._n_slots = config.beam_size * n_files

    def step(self) -> None:
        """Lets every live hypothesis grow by one token."""
        scores, own = self._steps.step(
            [hypothesis.slot for hypothesis in self.live],
            [hypothesis.tokens for hypothesis in self.live],
        )
        candidates = [
            grown
            for row, hypothesis in enumerate(self.live)
            for grown in self._continuations(hypothesis, row, scores[row], own[row])
        ]
        chosen = self._share_slots(candidates)
        self.hypotheses += [
            self._finish_hypothesis(hypothesis) for hypothesis in chosen if hypothesis.has_ended
        ]
        self.live = [hypothesis for hypothesis in chosen if not hypothesis.has_ended]
        if self._is_certain():
            self.live = []

    def _continuations(
        self, hypothesis: _Live, row: int, scores: Scores, own: Scores
    ) -> Iterator[_Live]:
        """Yields a hypothesis' continuations, its end among them."""
        n_tokens = min(self._config.beam_size + SPARE_CANDIDATES, len(scores))
        wanted = {token: float(scores[token]) for token in _best(scores, n_tokens)}
        # A prefix decides the token, so phrases have no say yet
        due = hypothesis.due if len(hypothesis.tokens) >= self._n_forced else ()
        for token in (*due, EOS_ID):
            gain = float(scores[token])
            # A rule that forbids a required token gives way
            wanted[token] = float(own[token]) if math.isinf(gain) and token != EOS_ID else gain
        for token, gain in wanted.items():
            if math.isinf(gain):
                continue
            steps, total = (*hypothesis.steps, float(own[token])), hypothesis.total + gain
            if token != EOS_ID:
                text = hypothesis.text + self._constraints.token_bytes[token]
                tokens = (*hypothesis.tokens, token)
                if grown := self._grow(row, tokens, steps, total, text):
                    yield grown
            elif self._may_end(hypothesis.text.decode("utf-8", "replace")):
                yield replace(hypothesis, slot=row, steps=steps, total=total, has_ended=True)

    def _may_end(self, text: str) -> bool:
        return not unsatisfied_phrases(text, self._constraints.texts, self._constraints.banned)

    def _grow(
        self,
        slot: int,
        tokens: tuple[int, ...],
        steps: tuple[float, ...],
        total: float,
        text: bytes,
    ) -> _Live | None:
        """Builds a hypothesis; None if it can no longer meet the demands."""
        written = _decode_text(text)
        ends = [(phrase, ends_of(written, phrase)) for phrase in self._constraints.banned]
        # A phrase at the very end may still become another word: `is_doubtful` marks it
        places = [(phrase, end) for phrase, own in ends for end in own]
        is_broken = any(end < len(written) or not in_word(phrase[-1]) for phrase, end in places)
        if is_broken or self._constraints.cuts_prefix(written):
            return None
        n_left = n_least = 0
        due: set[int] = set()
        for phrase, least in zip(self._constraints.phrases, self._least, strict=True):
            if not holds(written, phrase.text):
                n_lacking, tokens_due = phrase.progress(text)
                n_left += n_lacking
                n_least += min(n_lacking, least)
                due |= tokens_due
        # What can no longer say all of them within the limit would only take slots
        if len(tokens) + n_least > self._limit:
            return None
        return _Live(slot, tokens, steps, total, text, n_left, frozenset(due), bool(places))

    def _finish_hypothesis(self, hypothesis: _Live) -> Hypothesis:
        steps = hypothesis.steps
        score = hypothesis.total / length_divisor(len(steps), self._config)
        is_finished = len(hypothesis.tokens) < self._limit
        return Hypothesis(hypothesis.tokens, math.fsum(steps), score, steps, is_finished)

    def _share_slots(self, candidates: Sequence[_Live]) -> list[_Live]:
        """Shares the slots: the best hypothesis of each file in turn, the fullest file first.

        As in `beam_search`, a hypothesis that ends competes with the others, and keeps its slot.
        Half of the slots, rounded up, are for hypotheses that do not end in a banned phrase: few
        words continue such a hypothesis, so all could fail at once.
        """
        n_slots = self._n_slots - len(self.hypotheses)
        files: dict[int, list[_Live]] = {}
        for candidate in sorted(candidates, key=lambda candidate: -candidate.total):
            files.setdefault(candidate.n_left, []).append(candidate)
        ordered = [files[n_left] for n_left in sorted(files)]
        turns = [live for turn in zip_longest(*ordered) for live in turn if live is not None]
        doubtful = [live for live in turns if live.is_doubtful][n_slots // 2 :]
        if doubtful:
            late = {id(live) for live in doubtful}
            turns = [*(live for live in turns if id(live) not in late), *doubtful]
        return turns[:n_slots]

    def _is_certain(self) -> bool:
        """Returns whether no live hypothesis can come among the first that are wanted."""
        worst = worst_wanted(
            (hypothesis.score for hypothesis in self.hypotheses), self._config.n_searched
        )
        best = max((hypothesis.total for hypothesis in self.live), default=-math.inf)
        divisor = length_divisor(self._limit + 1, self._config)
        return not math.isinf(worst) and is_certain(worst, best, divisor)


def _best(scores: Scores, n: int) -> list[int]:
    """Returns the n tokens with the highest scores (V), best first; of equal ones the smaller."""
    # A partition is linear in the vocabulary; only the n best need sorting
    best = np.argpartition(-scores, n - 1)[:n]
    ranked: list[int] = best[np.lexsort((best, -scores[best]))].tolist()
    return ranked


def _decode_text(text: bytes) -> str:
    """The text of bytes as it is written; without a character that is not complete yet."""
    # Not final, so that it waits for the rest of a character instead of replacing it
    return getincrementaldecoder("utf-8")("replace").decode(text)
