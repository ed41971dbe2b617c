"""The position vectors of a model, and what can be said of them.

For sinusoids (Vaswani et al. 2017, section 3.5) PE(p)·PE(q) = Σ_i cos((p − q)·ω_i) depends only on
the offset p − q, and ‖PE(p)‖² = d/2. Learned vectors need not be like that: how much of their
similarity the offset explains, and how far they are from sinusoids, is measured.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from tformer_cli.inspection.record import ModelSummary
from tformer_cli.model.positions import sinusoids
from tformer_cli.model.transformer import Transformer

SCHEMA = "tformer.positions/1"


@dataclass(frozen=True, kw_only=True)
class OffsetSimilarity:
    """PE(p)·PE(p + k) over all positions p, for one offset k."""

    offset: int
    """k."""
    mean: float
    """The mean."""
    smallest: float
    """The smallest."""
    largest: float
    """The largest; for sinusoids all three are one number."""


@dataclass(frozen=True)
class PositionTable:
    """The first position vectors of one stack."""

    stack: str
    """"encoder", "decoder", or "both" where they are the same."""
    table: Tensor
    """(P, D) float64."""
    is_learned: bool = False
    """False if the vectors follow a formula, that of sinusoids."""

    @cached_property
    def similarity(self) -> Tensor:
        """(P, P) PE·PEᵀ."""
        return self.table @ self.table.T

    @cached_property
    def by_offset(self) -> tuple[OffsetSimilarity, ...]:
        """The similarity at every offset from 0 to P − 1."""
        found = []
        for offset in range(len(self.table)):
            values = self.similarity.diagonal(offset)
            found.append(
                OffsetSimilarity(
                    offset=offset,
                    mean=values.mean().item(),
                    smallest=values.min().item(),
                    largest=values.max().item(),
                )
            )
        return tuple(found)

    @property
    def squared_norms(self) -> Tensor:
        """(P) ‖PE(p)‖²."""
        return self.similarity.diagonal()

    @property
    def distance_from_sinusoids(self) -> float:
        """‖PE − sinusoids‖ / ‖sinusoids‖ (Frobenius); about 1.4 for unrelated ones as large."""
        expected = self._sinusoids
        return float((self.table - expected).norm() / expected.norm())

    @property
    def cosine_with_sinusoids(self) -> float:
        """The cosine between both tables as vectors, which does not mind their scale."""
        expected = self._sinusoids
        return float((self.table * expected).sum() / (self.table.norm() * expected.norm()))

    @property
    def share_by_offset(self) -> float:
        """Share of the variance of PE·PEᵀ that the offset alone explains; 1 for sinusoids."""
        n = len(self.table)
        means = torch.tensor([one.mean for one in self.by_offset], dtype=torch.float64)
        offsets = (torch.arange(n)[:, None] - torch.arange(n)[None, :]).abs()
        total = (self.similarity - self.similarity.mean()).square().sum().item()
        left = (self.similarity - means[offsets]).square().sum().item()
        return 1.0 - left / total if total else 1.0

    @property
    def _sinusoids(self) -> Tensor:
        # An odd width, which learned positions may have, leaves the last cosine out.
        n_positions, width = self.table.shape
        return sinusoids(n_positions, width + width % 2)[:, :width].double()


@dataclass(frozen=True, kw_only=True)
class PositionsRecord:
    """The position vectors of a model."""

    model: ModelSummary
    """The model."""
    kind: str
    """As the recipe names it."""
    tables: tuple[PositionTable, ...]
    """One table for both stacks, or one each where they are learned."""


def read_positions(model: Transformer, summary: ModelSummary, n_positions: int) -> PositionsRecord:
    """Reads the first position vectors of a model.

    Args:
        model: the model.
        summary: which model it is.
        n_positions: how many; not more than the model has.
    """
    stacks = {"encoder": model.encoder_input, "decoder": model.decoder_input}
    tables = [
        PositionTable(
            stack, rows.detach().double(), is_learned=bool([*part.positions.parameters()])
        )
        for stack, part in stacks.items()
        if (rows := part.positions.vectors(n_positions)) is not None
    ]
    if tables and not tables[0].is_learned:
        tables = [PositionTable("both", tables[0].table)]
    return PositionsRecord(model=summary, kind=model.config.positions, tables=tuple(tables))


def facts_of(table: PositionTable) -> list[tuple[str, str]]:
    """Lists the measures of a table, each with its name."""
    norms, width = table.squared_norms, table.table.shape[1]
    low, high, mean = norms.min().item(), norms.max().item(), norms.mean().item()
    if not table.is_learned:
        spread = max(one.largest - one.smallest for one in table.by_offset)
        even = f"{mean:.6g}, the same everywhere to {high - low:.1e}; d/2 = {width / 2:.6g}"
        alone = f"depends on the offset k alone, to {spread:.1e}"
        return [
            ("squared norm", even),
            ("PE(p)·PE(p+k)", alone),
            ("from the formula", f"{table.distance_from_sinusoids:.1e} (relative distance)"),
        ]
    uneven = f"{mean:.4g} on average, {low:.4g} to {high:.4g}; of sinusoids d/2 = {width / 2:.6g}"
    share = f"the offset k explains {100 * table.share_by_offset:.1f} % of its variance"
    far = f"relative distance {table.distance_from_sinusoids:.3f}, cosine "
    return [
        ("squared norm", uneven),
        ("PE(p)·PE(p+k)", f"{share} (of sinusoids' 100 %)"),
        ("from sinusoids", f"{far}{table.cosine_with_sinusoids:.3f}"),
    ]
