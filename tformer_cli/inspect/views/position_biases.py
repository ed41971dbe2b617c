"""Scores of each head by how far a key is from the query: what positions add, or what they make."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tformer_cli.inspect.json_lines import plain
from tformer_cli.show.document import Block, Room, text
from tformer_cli.show.palette import hex_color
from tformer_cli.show.svg import MARGIN, draw_map, draw_text
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

    from torch import Tensor

    from tformer_cli.heads.names import Inspected
    from tformer_cli.model.embedding import PositionedEmbedding

COLUMN, OFFSET_COLUMN = 9, 7
"""Characters of a head's number and of an offset."""


@dataclass(frozen=True)
class PositionBiases:
    """The biases of one stack, which all its layers have, or mean scores of one layer."""

    stack: str
    """"encoder" or "decoder"."""
    offsets: tuple[int, ...]
    """Offsets j − i of key j from query i; the decoder has none behind the query."""
    biases: Tensor
    """(H, offsets) float64, what is added to the score of each head, or the mean score itself."""
    layer: int | None = None
    """The layer whose scores were measured (see `position_scores`); None of biases."""

    @property
    def chosen_offsets(self) -> list[int]:
        """Places of the offsets 0 and ± powers of two."""
        return [
            place
            for place, offset in enumerate(self.offsets)
            if not abs(offset) & (abs(offset) - 1) or not offset
        ]

    @property
    def name(self) -> str:
        """The stack, and the layer if it is of one."""
        return self.stack if self.layer is None else f"{self.stack}, layer {self.layer}"

    @property
    def says(self) -> str:
        """Says what the numbers are."""
        if self.layer is None:
            return "added to the score of key j for query i, in all layers"
        return "mean score of key j for query i among random tokens, less its mean over offsets"

    @property
    def data(self) -> dict[str, Any]:
        """Makes JSON data."""
        return {
            "stack": self.stack,
            **({} if self.layer is None else {"layer": self.layer}),
            "offsets": list(self.offsets),
            "heads": plain(self.biases),
        }


def stack_inputs(model: Inspected) -> Iterator[tuple[str, PositionedEmbedding]]:
    """Yields the name of each stack that a model has, and what embeds its tokens."""
    for stack in ("encoder", "decoder"):
        if (given := getattr(model, f"{stack}_input", None)) is not None:
            yield stack, given


def read_biases(model: Inspected, n_positions: int) -> tuple[PositionBiases, ...]:
    """Reads the biases of positions of both stacks, of offsets below `n_positions`."""
    import torch

    found = []
    for stack, given in stack_inputs(model):
        if not given.positions.biases:
            continue
        # the query in the middle: all offsets are before or behind it
        last = n_positions - 1
        keys = torch.arange(n_positions if stack == "decoder" else 2 * n_positions - 1)
        with torch.inference_mode():
            biases = given.positions.bias(torch.tensor([last]), keys)[:, 0].cpu().double()
        found.append(PositionBiases(stack, tuple((keys - last).tolist()), biases))
    return tuple(found)


def bias_blocks(title: str, biases: PositionBiases, room: Room) -> Iterator[Block]:
    """The biases at chosen offsets, a column a head, as many as fit."""
    n_heads = len(biases.biases)
    n_shown = min(n_heads, max(1, (room.width - OFFSET_COLUMN) // COLUMN))
    heads = " " * OFFSET_COLUMN + "".join(f"{head:{COLUMN}}" for head in range(n_shown))
    yield text((title, "bold"))
    yield text(f"{biases.says}; row: offset j − i, column: head")
    yield text((heads, "bold"))
    for place in biases.chosen_offsets:
        numbers = "".join(f"{value:{COLUMN}.3f}" for value in biases.biases[:n_shown, place])
        yield text(f"{biases.offsets[place]:{OFFSET_COLUMN}}{numbers}")
    if n_shown < n_heads:
        yield text(f"{count_of(n_heads - n_shown, 'more head')}: --format json")


def draw_biases(root: Element, name: str, biases: PositionBiases, width: float, y: float) -> float:
    """Draws a map of heads by offsets; returns where it ends."""
    draw_text(root, name, MARGIN, y + 14, 14.0, weight="600")
    low, high = biases.biases.min(), biases.biases.max()
    caption = (
        f"row: head, column: offset j − i from {biases.offsets[0]} to {biases.offsets[-1]}; "
        f"light {low:.3g}, dark {high:.3g}"
    )
    if biases.layer is not None:
        caption = f"{biases.says}; {caption}"
    draw_text(root, caption, MARGIN, y + 34, 11.0)
    spread = (biases.biases - low) / (high - low).clamp(min=1e-30)
    cell = width / len(biases.offsets), 14.0
    draw_map(root, spread.tolist(), partial(hex_color, "cross"), (MARGIN, y + 44), cell)
    return y + 60 + 14.0 * len(biases.biases)
