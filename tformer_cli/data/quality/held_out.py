"""Sentences that training must not see, and how to recognize them."""

from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np

from tformer_cli.data.quality.keys import key_of, normalized
from tformer_cli.data.quality.minhash import SimilarTexts, signatures_of_texts

READ_AT_ONCE = 4096
"""Sentences whose signatures are computed together."""


class HeldOut:
    """Keys of sentences, and their signatures where what is nearly the same is looked for."""

    def __init__(self, sentences: Iterable[str] = (), *, near: bool = False) -> None:
        """Takes sentences, blank ones aside."""
        keys, parts = set[int](), [signatures_of_texts([])]
        filled = (sentence for sentence in sentences if sentence.strip())
        while some := list(islice(filled, READ_AT_ONCE)):
            new = {key_of(normalized(one)): one for one in some}
            if near:
                parts.append(signatures_of_texts([new[key] for key in new.keys() - keys]))
            keys |= new.keys()
        self.keys = frozenset(keys)
        self._similar = SimilarTexts(np.concatenate(parts)) if near and keys else None

    def nearly(self, texts: Sequence[str]) -> list[float]:
        """Returns how similar each text is to a sentence; 0 if not nearly the same."""
        if self._similar is None:
            return [0.0] * len(texts)
        found: list[float] = self._similar.similarities(texts).tolist()
        return found
