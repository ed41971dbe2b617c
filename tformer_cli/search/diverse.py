"""Diverse beam search: groups of hypotheses that keep out of each other's way.

Source: Vijayakumar et al. 2018, "Diverse beam search for improved description of complex scenes",
with Hamming diversity. The beam is divided into G groups that choose one after the other at every
step. A token loses λ for each hypothesis of an earlier group that continues with it. That decides
what a group chooses; the final scores of its hypotheses are the model's own.

A group is searched like a separate sentence: pseudo-sentence = sentence · G + group.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from tformer_cli.search.beam_search import BeamSearch, Continuations
from tformer_cli.search.hypothesis import length_divisor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from tformer_cli.search.config import DecodingConfig
    from tformer_cli.search.engine import DecodingModel
    from tformer_cli.search.hypothesis import Hypothesis
    from tformer_cli.search.processors import ScoreProcessor, StepRows


@torch.inference_mode()
def diverse_beam_search(
    model: DecodingModel,
    source: Tensor,
    source_mask: Tensor,
    config: DecodingConfig,
    processors: Sequence[ScoreProcessor] = (),
) -> list[list[Hypothesis]]:
    """Translates a batch with `config.diversity_groups` groups of hypotheses.

    Args:
        source: (B, S) source token ids, each sentence ended by its end of sentence.
        source_mask: (B, S) boolean, True at tokens.
    """
    n_groups = config.diversity_groups
    search = _GroupSearch(model, config, processors)
    search.start(
        source.repeat_interleave(n_groups, dim=0), source_mask.repeat_interleave(n_groups, dim=0)
    )
    while search.is_running:
        search.step()
    groups = search.finish()
    return [
        _merged(groups[first : first + n_groups], config)
        for first in range(0, len(groups), n_groups)
    ]


class _Diversity:
    """Takes λ from a token for each hypothesis of an earlier group that continues with it."""

    def __init__(self, penalty: float, n_groups: int) -> None:
        self._penalty = penalty
        self._n_groups = n_groups
        self._counts: Tensor | None = None

    def __call__(self, scores: Tensor, rows: StepRows) -> Tensor:
        """See `ScoreProcessor`."""
        if self._counts is None:
            return scores
        return scores.sub_(self._counts[rows.sentences // self._n_groups], alpha=self._penalty)

    def start(self, n_sentences: int, vocab_size: int, device: torch.device) -> None:
        """Forgets the groups of the step before."""
        self._counts = torch.zeros(n_sentences, vocab_size, device=device)

    def count(self, sentences: Tensor, tokens: Tensor, is_kept: Tensor) -> None:
        """Remembers the tokens (B', C) that a group continues with, in sentences (B')."""
        if self._counts is not None:
            weights = is_kept.to(self._counts.dtype)
            index = sentences.unsqueeze(1).expand_as(tokens)
            self._counts.index_put_((index, tokens), weights, accumulate=True)


class _GroupSearch(BeamSearch):
    """Beam search over pseudo-sentences, the groups of a sentence one after the other."""

    def __init__(
        self, model: DecodingModel, config: DecodingConfig, processors: Sequence[ScoreProcessor]
    ) -> None:
        self._n_groups = config.diversity_groups
        self._diversity = _Diversity(config.diversity_penalty, self._n_groups)
        size = config.beam_size // self._n_groups
        shared = replace(config, beam_size=size, n_best=size, diversity_groups=1)
        super().__init__(model, shared, [*processors, self._diversity])

    def _choose(self, logits: Tensor) -> tuple[Continuations, Tensor | None]:
        names = torch.tensor(self._active, device=logits.device)
        sentences, groups = names // self._n_groups, names % self._n_groups
        self._diversity.start(int(sentences.max()) + 1, logits.shape[1], logits.device)
        chosen, own_ends = super()._choose(logits)
        for group in range(1, self._n_groups):
            before = groups == group - 1
            self._diversity.count(
                sentences[before], chosen.token[before], self._is_kept(chosen)[before]
            )
            later, later_ends = super()._choose(logits)
            is_later = (groups >= group).unsqueeze(1)
            chosen = Continuations(
                torch.where(is_later, later.total, chosen.total),
                torch.where(is_later, later.token_log_probability, chosen.token_log_probability),
                torch.where(is_later, later.token, chosen.token),
                torch.where(is_later, later.slot, chosen.slot),
            )
            if own_ends is not None and later_ends is not None:
                own_ends = torch.where(is_later, later_ends, own_ends)
        return chosen, own_ends


def _merged(groups: Sequence[Sequence[Hypothesis]], config: DecodingConfig) -> list[Hypothesis]:
    """Joins the groups of a sentence, ranked by the model's log-probabilities."""
    different = {hypothesis.token_ids: hypothesis for group in groups for hypothesis in group}
    scored = [
        replace(found, score=found.log_probability / length_divisor(found.n_tokens, config))
        for found in different.values()
    ]
    return sorted(scored, key=lambda found: -found.score)[: config.n_searched]
