"""A prefix that ends within a word, made one that the search can be given: whole tokens.

"La vieil" cut into tokens by itself is nothing that the model has seen in training, which knows
"vieille" as other tokens, and what follows is accordingly odd. So the tokens of the last word are
found with the model: among those that spell the typed letters, the last one perhaps beyond them,
the most probable one after the other.
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
    """True of a prefix whose last word may go on."""
    return prefix[-1:].isalnum()


@torch.inference_mode()
def complete_prefix(model: Transformer, tokenizer: Tokenizer, text: str, prefix: str) -> str:
    """Gives the prefix with its last word completed; as it is if no tokens spell that."""
    side = tokenizer.target
    before, _, begun = prefix.rpartition(" ")
    prefix_ids = list(side.encode_phrases([before])[0]) if before else []
    source = ended_source(tokenizer.source.encode(text), eos=model.source_eos)
    # tokens of a first word have a space before them in most vocabularies, but not in all
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
    """The tokens that spell letters, each the most probable one; none if there is no way."""
    ids: list[int] = []
    while letters:  # a whole pass each time, but words have few tokens
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
