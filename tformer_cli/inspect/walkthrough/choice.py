"""The heads and tokens of a sentence that are worth working through where none are asked for."""

from collections.abc import Sequence

import torch

from tformer_cli.errors import UsageError
from tformer_cli.heads.names import KINDS, HeadId
from tformer_cli.inspect.record import HeadsRecord
from tformer_cli.inspect.walkthrough.tokens import find_token

EXAMPLE_WEIGHT = 0.7
"""The largest weight of a row that is good to work out by hand; ours."""
EXAMPLE_LETTERS = 3
"""Letters of a token that people know as a word, or the greatest part of one; ours."""


def row_of(token: str, labels: Sequence[str]) -> int | None:
    """Position of a token; None if a sentence does not have it."""
    try:
        return find_token(token, labels)
    except UsageError:
        return None


def first_heads(record: HeadsRecord) -> tuple[HeadId, ...]:
    """Returns the first head of each kind that is shown, the cross-attention's in front."""
    return tuple(head for kind in reversed(KINDS) for head in record.ordered(kind)[:1])


def example_row(record: HeadsRecord, head: HeadId) -> int:
    """Finds a row of a head that is worth working out: one key wins and others still count.

    It is the row whose largest weight on a word is nearest to `EXAMPLE_WEIGHT`. Begin and end of
    sentence are not words, neither as a row's name nor as a key. Rows named by at least
    `EXAMPLE_LETTERS` letters come first. A sentence with nothing else has its first row. Of a text
    with gaps it is the first gap's.
    """
    if record.gaps:
        return record.gaps[0].position
    weights = record.captured.weights(head)
    first_row, first_key = (1, 1) if head.kind == "dec" else (0, 0)
    last_key = weights.shape[1] if head.kind == "dec" else weights.shape[1] - 1
    words = weights[first_row:-1, first_key:last_key]
    if words.numel() == 0:
        return 0
    distances = (words.amax(dim=1) - EXAMPLE_WEIGHT).abs()
    labels = record.row_labels(head.kind)[first_row:-1]
    is_long = torch.tensor([sum(map(str.isalpha, one)) >= EXAMPLE_LETTERS for one in labels])
    return first_row + int((distances + ~is_long).argmin())
