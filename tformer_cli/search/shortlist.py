"""Lexical shortlists: the few target tokens that the translation of a source may consist of.

Output projection and softmax over about 1,000 instead of all tokens take a fraction of the time,
which is much of a small model's. Source: Jean et al. 2015, "On Using Very Large Target Vocabulary
for Neural Machine Translation", section 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tformer_cli.text.tokenizer import EOS_ID

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Shortlist:
    """For each source token the target tokens that may translate it."""

    first: int
    """The first ids of the target vocabulary, which belong to every sentence's list."""
    offsets: NDArray[np.int64]
    """(V + 1) where the list of each source token begins in `targets`, and the last one ends."""
    targets: NDArray[np.int32]
    """Target ids, list after list."""

    def candidates(self, tokens: Iterable[int], more: Iterable[int] = ()) -> tuple[int, ...]:
        """Returns what the translation of a sentence may consist of."""
        n_lists = len(self.offsets) - 1
        known = [token for token in {*tokens, EOS_ID} if token < n_lists]
        lists = [self.targets[self.offsets[one] : self.offsets[one + 1]] for one in known]
        # Special tokens among them: without its end a translation would never stop
        always = np.arange(max(self.first, EOS_ID + 1))
        # Ascending and each once, as `Sentence.candidates` must be
        joined = np.unique(np.concatenate([always, np.fromiter(more, np.int64), *lists]))
        return tuple(joined.tolist())
