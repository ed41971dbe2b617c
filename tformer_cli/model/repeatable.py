"""Products on the CPU that give a row the same bits whatever is computed beside it.

In float32 a line's translation must not depend on its neighbors. The libraries that torch calls
choose their kernels by shapes and addresses, so some shapes round differently. Measured with MKL
and oneDNN on a processor with AVX2 and without AVX-512, on 1 to 32 threads:

===================================  ===========================================================
fewer than 4 rows times a matrix     have kernels of their own; with several threads, so have the
                                     few that are left when rows are divided among them
fewer than 11 columns of a result    have a kernel that is chosen by the number of rows
vectors that are not 4·n wide        lie at addresses that are not multiples of 16 bytes, and which
                                     of them do depends on the place in the batch
a single pair of matrices            is divided among the threads, where several are shared out
products of whole batches            are oneDNN's or not by the size of the batch
===================================  ===========================================================

So rows, columns and widths are padded with zeros, which add nothing, a single pair is computed
twice, and attention leaves oneDNN aside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn import functional

from tformer_cli.model.runtime import StandardProducts

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

ROWS = 4
"""The number of rows is padded to a multiple of this ..."""
FEW_ROWS = 1024
"""... below this: with so many no thread is left with less than `ROWS`, and padding would cost."""
FEWEST_COLUMNS = 16
"""Results with fewer columns are padded to this many."""
WIDTH = 4
"""Vectors are padded to a multiple of this many numbers."""


def by_rows(product: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    """Applies a product to the rows of (…, K), a few of them padded to a multiple of `ROWS`.

    Args:
        product: maps (R, K) to (R, N), each row by itself.
        values: (…, K).

    Returns:
        (…, N).
    """
    n_rows = values.shape[:-1].numel()
    n_missing = -n_rows % ROWS
    if n_rows >= FEW_ROWS or not n_missing or values.device.type != "cpu":
        return product(values)
    rows = functional.pad(values.reshape(n_rows, -1), (0, 0, 0, n_missing))
    return product(rows)[:n_rows].view(*values.shape[:-1], -1)


def by_sentence(
    attention: Callable[..., Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout_rate: float = 0.0,
) -> Tensor:
    """Applies attention, each sentence with bits of its own.

    Args:
        attention: `plain_attention` or `fused_attention`.
        query: (B, H, Q, E) queries.
        key: (B, H, K, E) keys.
        value: (B, H, K, E) values.
        mask: boolean, broadcastable to (B, H, Q, K), or None.
        dropout_rate: chance of dropping a weight.

    Returns:
        (B, H, Q, E).
    """
    if query.device.type != "cpu":
        return attention(query, key, value, mask, dropout_rate)
    n_sentences, n_heads, _, width = query.shape
    scale = width**-0.5
    if missing := -width % WIDTH:
        query, key, value = (functional.pad(part, (0, missing)) for part in (query, key, value))
    if n_sentences * n_heads == 1:
        query, key, value = (part.expand(2, -1, -1, -1) for part in (query, key, value))
    with StandardProducts():
        context = attention(query, key, value, mask, dropout_rate, scale=scale)
    return context[:n_sentences, ..., :width]
