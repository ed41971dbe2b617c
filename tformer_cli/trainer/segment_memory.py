"""Memory of earlier segments, while a language model trains on a continuing text."""

from collections.abc import Mapping

import torch
from torch import Tensor

from tformer_cli.model.transformer import Transformer
from tformer_cli.text.loading.loader import LoaderPosition
from tformer_cli.text.tokenizer import BOS_ID

_LAYER, _POSITION = "memory.layer.", "memory.position"
"""Names of what each layer remembers, and of where in the data that was, in a checkpoint."""


class SegmentMemory:
    """States of the tokens before the next batch, for each layer (B, M, D), without gradients.

    They depend on the weights at that time, so a checkpoint must store them.
    """

    def __init__(self) -> None:
        self.states: list[Tensor] = []
        """For each layer; empty at the beginning of a text."""

    def clear(self) -> None:
        self.states = []

    def read(self, model: Transformer, tokens: Tensor, *, begins: bool) -> Tensor:
        """Reads the next segment (B, T) of each row; returns the last hidden states (B, T, D).

        Nothing comes before a segment that begins its text.
        """
        if begins:
            self.clear()
        earlier = [states[: len(tokens)] for states in self.states]
        hidden, self.states = model.read_on(tokens, earlier, segment=tokens.shape[1])
        return hidden

    def tensors(self, position: LoaderPosition) -> dict[str, Tensor]:
        """Names the memory's tensors and their place in the data, for a checkpoint."""
        named = {f"{_LAYER}{layer}": states for layer, states in enumerate(self.states)}
        return {**named, _POSITION: torch.tensor([position.epoch, position.batch])}

    def restore(self, tensors: Mapping[str, Tensor], position: LoaderPosition) -> None:
        """Restores what `tensors` named."""
        # The memory is dropped if it belongs to another place in the data, as after a rollback,
        # which continues after the batches that diverged.
        self.clear()
        if tensors[_POSITION].tolist() == [position.epoch, position.batch]:
            n_layers = sum(name.startswith(_LAYER) for name in tensors)
            self.states = [tensors[f"{_LAYER}{layer}"].clone() for layer in range(n_layers)]


def begins_text(tokens: Tensor) -> bool:
    """Returns whether each row of a segment (B, T) begins its text with `<s>`."""
    return bool((tokens[:, 0] == BOS_ID).all())
