"""Completes a prefix that ends within a word, so that the search gets whole tokens.

Tokenized as typed, "La vieil" yields tokens that the model never saw in training, where "vieille"
has different ones, and the continuation is odd. So the model picks the tokens of the last word:
at each step the most probable token that spells the typed letters; the last one may go beyond them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tformer_cli.inspect.capture.forced import forced_pass
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, ended_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tformer_cli.model.transformer import Transformer
    from tformer_cli.text.tokenizer import Tokenizer


def ends_within_a_word(prefix: str) -> bool:
    """True if the last word of a prefix may be incomplete."""
    return prefix[-1:].isalnum()


@torch.inference_mode()
def complete_prefix(model: Transformer, tokenizer: Tokenizer, text: str, prefix: str) -> str:
    """Completes the last word of a prefix; returns the prefix unchanged if no tokens spell it."""
    side = tokenizer.target
    before, _, begun = prefix.rpartition(" ")
    prefix_ids = list(side.encode_phrases([before])[0]) if before else []
    source = ended_source(tokenizer.source.encode(text), eos=model.source_eos)
    # In most vocabularies, but not in all, the first token of a word begins with a space
    for start in (f" {begun}", begun):
        word_ids = _spell_word(
            model, source, (BOS_ID, *side.start, *prefix_ids), start.encode(), side.piece_bytes
        )
        whole = side.decode([*prefix_ids, *word_ids]) if word_ids else ""
        if whole.startswith(prefix):
            return whole
    return prefix


def _spell_word(
    model: Transformer,
    source: Sequence[int],
    target: Sequence[int],
    letters: bytes,
    pieces: Sequence[bytes],
) -> list[int]:
    """Most probable tokens that spell `letters`; empty if none do."""
    ids: list[int] = []
    while letters:  # a full forward pass each time, but words have few tokens
        allowed = [
            token
            for token, piece in enumerate(pieces)
            if token > EOS_ID and piece and (piece.startswith(letters) or letters.startswith(piece))
        ]
        room = model.max_positions - len(target) - len(ids)
        if not allowed or room < 1:
            return []
        hidden = forced_pass(model, source, (*target, *ids))
        logits = model.project(hidden[:, -1])[0]
        best = allowed[int(logits[allowed].argmax())]
        ids.append(best)
        letters = letters[len(pieces[best]) :]
    return ids
