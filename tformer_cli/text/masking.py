"""Masked texts (Devlin et al. 2019, BERT, section 3.1 and appendix A.1)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from tformer_cli.errors import DataError
from tformer_cli.text.batching import Batch
from tformer_cli.text.tokenizer import EOS_ID, PAD_ID, Tokenizer

N_SPECIAL = 4
"""`<pad> <unk> <s> </s>`, the first ids of every vocabulary."""


@dataclass(frozen=True, kw_only=True)
class Masking:
    """Shares of tokens to predict, and their replacements."""

    mask_id: int
    vocab_size: int
    """V, entries of the vocabulary."""
    # not all become the mask, which a fine-tuned model never reads (section 3.1)
    share: float = 0.15
    hidden_share: float = 0.8
    """Share of the chosen ones that become the mask."""
    random_share: float = 0.1
    """Share of the chosen ones that become a random token."""

    def batch(self, texts: Sequence[Sequence[int]], rng: np.random.Generator) -> Batch:
        longest = max(map(len, texts), default=0) + 1
        source = np.full((len(texts), longest), PAD_ID, np.int64)
        target = np.full_like(source, PAD_ID)
        for row, text in enumerate(texts):
            ids = np.array(text, np.int64)
            masked, chosen = self._mask_tokens(ids, rng)
            source[row, : len(ids)] = masked
            source[row, len(ids)] = EOS_ID
            target[row, chosen] = ids[chosen]
        read = torch.from_numpy(source)
        return Batch(
            source=read,
            source_mask=read != PAD_ID,
            target_input=read,
            target_output=torch.from_numpy(target),
        )

    def _mask_tokens(
        self,
        ids: NDArray[np.int64],
        rng: np.random.Generator,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The ids with some in their place hidden, and the places of the chosen ones."""
        places = np.flatnonzero((ids >= N_SPECIAL) & (ids != self.mask_id))
        if not len(places):  # a text of unknown words
            places = np.arange(len(ids))
        n_chosen = min(len(places), max(1, round(self.share * len(places))))
        chosen = rng.choice(places, n_chosen, replace=False)
        masked = ids.copy()
        draws = rng.random(n_chosen)
        # a token below the mask's id, or one above it
        others = rng.integers(N_SPECIAL, max(self.vocab_size - 1, N_SPECIAL + 1), n_chosen)
        others = others + (others >= self.mask_id)
        masked[chosen] = np.where(
            draws < self.hidden_share,
            self.mask_id,
            np.where(draws < self.hidden_share + self.random_share, others, ids[chosen]),
        )
        return masked, chosen


def masking_of(tokenizer: Tokenizer) -> Masking:
    mask = tokenizer.source.mask_id
    if mask is None:
        raise DataError(
            "tokenizer: has no token for gaps, which masked language models need; train it with "
            "the recipe, or start from a masked language model"
        )
    return Masking(mask_id=mask, vocab_size=tokenizer.vocab_size)
