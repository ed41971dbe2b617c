"""Phrases a translation must hold and phrases it must not hold, at once.

A hypothesis is filed by how many tokens of the required phrases it has said, and at every step the
slots are shared out among these files, as in dynamic beam allocation (Post & Vilar 2018): so
hypotheses that have said more are not crowded out by more probable ones that have said less. A
hypothesis may end only when it has said them all, and one that could no longer do so within the
length limit is dropped.

What counts is the text. A phrase is there where it stands as whole words: required "cat" is not met
by "category", and banned "cat" does not forbid it. `demands.unsatisfied` names what a text lacks.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING

import torch

from tformer_cli.data.tokenizer import BOS_ID, EOS_ID
from tformer_cli.decoding.hypothesis import (
    Hypothesis,
    is_certain,
    length_divisor,
    longest_translation,
    worst_wanted,
)
from tformer_cli.decoding.processors import StepRows, process

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from tformer_cli.decoding.config import DecodingConfig
    from tformer_cli.decoding.demands import Constraints
    from tformer_cli.decoding.engine import DecodingModel
    from tformer_cli.decoding.processors import ScoreProcessor

SPARE_CANDIDATES = 16
"""Tokens looked at beside the beam's, for those that are banned."""


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
    has_ended: bool = False
    """True if its last step is the end of sentence."""


@torch.inference_mode()
def constrained_search(
    model: DecodingModel,
    source: Tensor,
    source_mask: Tensor,
    config: DecodingConfig,
    constraints: Constraints,
    processors: Sequence[ScoreProcessor] = (),
) -> list[Hypothesis]:
    """Translates one sentence.

    Args:
        model: in evaluation mode.
        source: (1, S) source token ids, ended by the end of sentence.
        source_mask: (1, S) boolean, True at tokens.
        config: beam size, length penalty and limits.
        constraints: what the translation must and must not hold.
        processors: rules about the next token; they do not stop a required one.

    Returns:
        At most `config.n_searched` hypotheses, best first; none where the search found no way.
    """
    search = _Search(model, source, source_mask, config, constraints, processors)
    while search.live:
        search.step()
    return sorted(search.found, key=lambda found: -found.score)[: config.n_searched]


class _Search:
    def __init__(
        self,
        model: DecodingModel,
        source: Tensor,
        source_mask: Tensor,
        config: DecodingConfig,
        constraints: Constraints,
        processors: Sequence[ScoreProcessor],
    ) -> None:
        self._model = model
        self._config = config
        self._constraints = constraints
        self._processors = processors
        n_source = int(source_mask.sum()) - 1
        self._limit = longest_translation(n_source, config, model.max_positions)
        self._n_required = sum(map(len, constraints.required))
        self._device = source.device
        self._cache = model.start_cache(
            model.encode(source, source_mask), source_mask, 1, self._limit + 1
        )
        self.found: list[Hypothesis] = []
        self.live = [_Live(0)] if self._n_required <= self._limit else []

    def step(self) -> None:
        """Lets every live hypothesis grow by one token."""
        last = [hypothesis.tokens[-1] if hypothesis.tokens else BOS_ID for hypothesis in self.live]
        logits = self._model.decode_step(torch.tensor(last, device=self._device), self._cache)
        own = logits.float().log_softmax(dim=-1)
        history = [hypothesis.tokens for hypothesis in self.live]
        tokens = torch.tensor(history, dtype=torch.int64, device=self._device)
        names = torch.zeros(len(last), dtype=torch.int64, device=self._device)
        scores = process(self._processors, StepRows(tokens.view(len(last), -1), names, own))
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
        if self.live:
            rows = torch.tensor([hypothesis.slot for hypothesis in self.live], device=self._device)
            self._cache.reorder(rows, torch.zeros(1, dtype=torch.int64, device=self._device))

    def _grown(self, hypothesis: _Live, row: int, scores: Tensor, own: Tensor) -> Iterator[_Live]:
        """Yields a hypothesis' continuations, its end among them."""
        n_tokens = min(self._config.beam_size + SPARE_CANDIDATES, len(scores))
        gains, tokens = scores.topk(n_tokens)
        wanted = dict(zip(tokens.tolist(), gains.tolist(), strict=True))
        due = self._due(hypothesis)
        if EOS_ID not in wanted:
            due.append(EOS_ID)
        for token in due:
            gain = scores[token].item()
            # A rule that forbids a required token gives way
            wanted[token] = own[token].item() if math.isinf(gain) and token != EOS_ID else gain
        values = own[list(wanted)].tolist()
        for (token, gain), value in zip(wanted.items(), values, strict=True):
            if math.isinf(gain):
                continue
            after = self._ended if token == EOS_ID else self._after
            if grown := after(hypothesis, row, token, gain, value):
                yield grown

    def _due(self, hypothesis: _Live) -> list[int]:
        """Tokens that would continue with required phrases, or begin one."""
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
        pattern = self._constraints.finished_ban
        if pattern is not None and pattern.search(text.decode("utf-8", "ignore")):
            return None
        before = self._settled(hypothesis, token)
        met, begun, n_begun = self._progress(before, token)
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
        )
        n_left = self._n_required - self._n_said(grown)
        return grown if len(grown.tokens) + n_left <= self._limit else None

    def _settled(self, hypothesis: _Live, token: int) -> _Live:
        """Takes a phrase back whose last word continues with the token."""
        if hypothesis.just_met < 0 or not _goes_on(self._constraints.token_bytes[token]):
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
            _ends_in_word(hypothesis.text) and _goes_on(self._constraints.token_bytes[token])
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
        if pattern is not None and pattern.search(hypothesis.text.decode("utf-8", "ignore")):
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
        """
        n_slots = self._config.beam_size - len(self.found)
        files: dict[int, list[_Live]] = {}
        for candidate in sorted(candidates, key=lambda candidate: -candidate.total):
            files.setdefault(self._n_said(candidate), []).append(candidate)
        ordered = [files[n_said] for n_said in sorted(files, reverse=True)]
        turns = (one for turn in zip_longest(*ordered) for one in turn if one is not None)
        return [one for one, _ in zip(turns, range(n_slots), strict=False)]

    def _is_certain(self) -> bool:
        """Returns whether no live hypothesis can come among the first that are wanted."""
        worst = worst_wanted((found.score for found in self.found), self._config.n_searched)
        best = max((hypothesis.total for hypothesis in self.live), default=-math.inf)
        divisor = length_divisor(self._limit + 1, self._config)
        return not math.isinf(worst) and is_certain(worst, best, divisor)


def _goes_on(token: bytes) -> bool:
    """True if a token would continue with a word: it begins with a letter or part of one."""
    return bool(token) and (token[0] >= 0x80 or token[:1].isalnum() or token[:1] == b"_")


def _ends_in_word(text: bytes) -> bool:
    return re.search(r"\w\Z", text.decode("utf-8", "ignore")) is not None
