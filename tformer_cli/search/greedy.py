"""Greedy search: the most probable token at every step.

It is what `beam_search` does with one slot, written so that it can be read at a glance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tformer_cli.model.cache import filled_from_the_end
from tformer_cli.search.hypothesis import Hypothesis, scored_hypothesis
from tformer_cli.search.source_batches import longest_translations
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID

if TYPE_CHECKING:
    from torch import Tensor

    from tformer_cli.search.config import DecodingConfig
    from tformer_cli.search.engine import DecodingModel


@torch.inference_mode()
def greedy_search(
    model: DecodingModel, source: Tensor, source_mask: Tensor, config: DecodingConfig
) -> list[list[Hypothesis]]:
    """Translates a batch, one hypothesis a sentence.

    Args:
        source: (B, S) source token ids, each sentence ended by its end of sentence.
        source_mask: (B, S) boolean, True at tokens.
    """
    limits = longest_translations(source, source_mask, config, model.max_positions)
    memory = model.encode(source, source_mask)
    cache = model.start_cache(memory, source_mask, 1, max(limits) + 1)
    found: list[Hypothesis | None] = [None] * len(limits)
    tokens: list[list[int]] = [[] for _ in limits]
    steps: list[list[float]] = [[] for _ in limits]
    active = list(range(len(limits)))
    last = torch.full((len(active),), BOS_ID, device=source.device)
    while active:
        logits = model.decode_step(last, cache).float()
        # the ids before the end of sentence (padding, unknown, beginning) are never generated
        best_logits, best = logits[:, EOS_ID:].max(dim=-1)
        normalizer = logits.logsumexp(dim=-1)
        eos = (logits[:, EOS_ID] - normalizer).clamp(max=0.0).tolist()
        best_log_probabilities = (best_logits - normalizer).clamp(max=0.0).tolist()
        continuing = []
        for row, (sentence, token) in enumerate(
            zip(active, best.add(EOS_ID).tolist(), strict=True)
        ):
            if token != EOS_ID and len(tokens[sentence]) < limits[sentence]:
                tokens[sentence].append(token)
                steps[sentence].append(best_log_probabilities[row])
                continuing.append(row)
            else:
                steps[sentence].append(eos[row])
                found[sentence] = scored_hypothesis(
                    tokens[sentence], steps[sentence], config, is_finished=token == EOS_ID
                )
        last = best.add(EOS_ID)
        if continuing and len(continuing) < len(active):
            continuing = filled_from_the_end(continuing)
            rows = torch.tensor(continuing, device=source.device)
            cache.reorder(rows, rows)
            last = last[rows]
        active = [active[row] for row in continuing]
    return [[hypothesis] for hypothesis in found if hypothesis is not None]
