"""Positions: added to embeddings, turning queries and keys, or added to the scores.

A method of positions is a `Positions` that overrides one of four hooks. Every stack has one, which
its embedding and the self-attention of all its layers share; cross-attention compares positions of
two languages and takes none of it.
"""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tformer_cli.model.config import ROTARY_BASE, ModelConfig
from tformer_cli.model.methods import POSITIONS, load_method
from tformer_cli.model.operations import repeatable_linear

if TYPE_CHECKING:
    from collections.abc import Callable

Places = slice | Tensor
"""Positions in a sentence: start … stop - 1 of all sentences, or a tensor of integers."""


class Positions(nn.Module):
    """Positions that change nothing; a method overrides the hooks that it needs."""

    turns = False
    """True if `rotate_heads` does anything."""
    biases = False
    """True if `bias` does anything."""
    formulas: tuple[str, ...] = ()
    """Formulas of what `rotate_heads` or `bias` does, to be shown: of q and k, or of b_j."""

    def rows(self, start: int, stop: int, device: torch.device) -> Tensor | None:
        """Returns (stop - start, D) vectors that are added to embeddings; None: nothing is."""
        del start, stop, device
        return None

    def prepare(self, n_positions: int, device: torch.device) -> None:
        """Makes tables of all positions, so that no later call has to."""
        self.rows(0, n_positions, device)

    def rotate_heads(self, heads: Tensor, at: Places) -> Tensor:
        """Changes queries or keys before they are compared.

        Args:
            heads: (…, Q, E) queries or keys.
            at: their positions; as a tensor broadcastable to (…, Q).

        Returns:
            (…, Q, E).
        """
        del at
        return heads

    def turns_of(self, n_positions: int) -> Tensor:
        """Returns (n_positions, E) cosines, then sines, by which `rotate_heads` turns pairs."""
        raise NotImplementedError

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Computes what is added to the scaled scores.

        Args:
            queries: (…, Q) positions of the queries.
            keys: (K) positions of the keys.

        Returns:
            (…, H, Q, K).
        """
        raise NotImplementedError

    def of_layer(self, n_heads: int, head_width: int) -> "SegmentTerms | None":
        """Makes the parameters of one layer of H heads of width E; None: it has none."""
        del n_heads, head_width
        return None

    def draw(self, deviation: float) -> None:
        """Draws the weights of a new model; others stay as they were made."""

    def vectors(self, n_positions: int) -> Tensor | None:
        """Returns (n_positions, ·) what stands for each position, to look at; None: nothing."""
        return self.rows(0, n_positions, torch.device("cpu"))


def sinusoids(n_positions: int, width: int, base: float = ROTARY_BASE) -> Tensor:
    """Computes the fixed position vectors of Vaswani et al. 2017, section 3.5.

    PE(p, 2i) = sin(p / base^(2i/D)) and PE(p, 2i+1) = cos(p / base^(2i/D)), computed in float64 and
    rounded once, so that late positions keep their digits. The paper's base is 10,000.

    Returns:
        (n_positions, width) float32.
    """
    position = torch.arange(n_positions, dtype=torch.float64).unsqueeze(1)
    even = torch.arange(0, width, 2, dtype=torch.float64)
    angle = position * torch.exp(-math.log(base) * even / width)
    # two (P, D/2) -> (P, D/2, 2) -> (P, D): sine and cosine alternate
    return torch.stack((torch.sin(angle), torch.cos(angle)), dim=-1).flatten(1).float()


class SinusoidTable:
    """Sinusoids, computed as far as they were asked for; no parameter, not in the weights file."""

    def __init__(self, max_positions: int, width: int, base: float = ROTARY_BASE) -> None:
        """Prepares a table of at most `max_positions` rows, (·, width)."""
        self._base = base
        self._max_positions = max_positions
        self._width = width
        self._table = torch.empty(0, width, device="cpu")

    def rows(self, start: int, stop: int, device: torch.device) -> Tensor:
        """Returns rows start … stop - 1 of `sinusoids`, (stop - start, width)."""
        if self._table.shape[0] < stop or self._table.device != device:
            # twice as many as needed, for the next sentence may be longer
            n_positions = min(max(256, 2 * stop), max(stop, self._max_positions))
            with torch.inference_mode(mode=False):  # a later training step uses it, too
                self._table = sinusoids(n_positions, self._width, self._base).to(device)
        return self._table[start:stop]

    def at(self, places: Places, device: torch.device) -> Tensor:
        """Returns the rows of some positions, (…, width)."""
        if isinstance(places, slice):
            return self.rows(places.start, places.stop, device)
        # Looking for the last one would wait for a GPU: there all rows are made
        stop = self._max_positions if places.is_cuda else int(places.max()) + 1
        return self.rows(0, stop, device)[places]


class SinusoidalPositions(Positions):
    """Sinusoids, added to embeddings."""

    def __init__(self, max_positions: int, d_model: int) -> None:
        super().__init__()
        self._sinusoids = SinusoidTable(max_positions, d_model)

    def rows(self, start: int, stop: int, device: torch.device) -> Tensor:
        """Returns the vectors of positions start … stop - 1, (stop - start, D)."""
        return self._sinusoids.rows(start, stop, device)


class TablePositions(Positions):
    """One vector for each position, added to embeddings: learned, or fixed and stored."""

    table: Tensor
    """(max_positions, D) the vectors."""

    def __init__(self, max_positions: int, d_model: int, *, is_learned: bool) -> None:
        """Creates a table of zeros: a parameter that is trained, or a buffer."""
        super().__init__()
        table = torch.zeros(max_positions, d_model)
        if is_learned:
            self.table = nn.Parameter(table)
        else:
            self.register_buffer("table", table)  # stored, but not trained

    def rows(self, start: int, stop: int, device: torch.device) -> Tensor:
        """Returns the vectors of positions start … stop - 1, (stop - start, D)."""
        return self.table[start:stop].to(device)

    def draw(self, deviation: float) -> None:
        """Draws a learned table; a fixed one is imported."""
        if isinstance(self.table, nn.Parameter):
            nn.init.normal_(self.table, std=deviation)


class RotaryPositions(Positions):
    """Queries and keys that turn with their position (Su et al. 2021, "RoFormer", section 3.2).

    Numbers i and i + E/2 of a head are the two sides of an arrow, which position p turns by the
    angle p·ω_i with ω_i = base^(-2i/E), the base 10,000 in the paper. So q·k depends on how far
    apart both are and not on where. The halves of a head are paired as in the models of GPT-NeoX
    and of LLaMA at Hugging Face; the paper and Meta's files pair neighbors, which is the same after
    sorting rows of W_Q and W_K.
    """

    turns = True

    def __init__(self, max_positions: int, head_width: int, base: float = ROTARY_BASE) -> None:
        super().__init__()
        self._sinusoids = SinusoidTable(max_positions, head_width, base)
        self.formulas = (
            "q'_i = q_i·cos(p·ω_i) − q_{i+d/2}·sin(p·ω_i)",
            "q'_{i+d/2} = q_{i+d/2}·cos(p·ω_i) + q_i·sin(p·ω_i)",
            f"ω_i = {base:g}^(−2i/d_k), p the position of q; k_j likewise, by its own position",
        )

    def prepare(self, n_positions: int, device: torch.device) -> None:
        """Makes the table of angles."""
        self._sinusoids.rows(0, n_positions, device)

    def rotate_heads(self, heads: Tensor, at: Places) -> Tensor:
        """Turns queries or keys (…, Q, E) by the angles of their positions."""
        rows = self._sinusoids.at(at, heads.device)
        sine, cosine = rows[..., 0::2], rows[..., 1::2]
        first, second = heads.chunk(2, dim=-1)
        # float32 even of bfloat16: a late position's angle has no digits to spare
        turned = (first * cosine - second * sine, second * cosine + first * sine)
        return torch.cat(turned, dim=-1).to(heads.dtype)

    def turns_of(self, n_positions: int) -> Tensor:
        """Returns (n_positions, E) cosines, then sines, of numbers i and i + E/2 of a head."""
        rows = self._sinusoids.rows(0, n_positions, torch.device("cpu"))
        return torch.cat((rows[:, 1::2], rows[:, 0::2]), dim=1)

    def vectors(self, n_positions: int) -> Tensor:
        """Returns (n_positions, E) sine and cosine of each pair's angle, where an arrow ends up."""
        return self._sinusoids.rows(0, n_positions, torch.device("cpu"))


class RelativePositions(Positions):
    """A learned number of each head for how far a key is from a query, added to the score (T5).

    Source: Raffel et al. 2020, section 2.1. Distances j - i are told apart one by one up to half
    the buckets of a direction, and beyond by their logarithm; from `far` on all are in the last
    bucket. In a causal stack all buckets hold keys before the query; else half of them do.
    """

    biases = True
    formulas = ("b_j = B[bucket(j − i)], learned, i the position of q",)
    table: Tensor
    """(buckets, H) the bias of every head."""

    def __init__(self, n_heads: int, n_buckets: int, far: int, *, is_causal: bool) -> None:
        """Creates a table of zeros for `n_buckets` distances below `far`."""
        super().__init__()
        self._far, self._is_causal = far, is_causal
        self.table = nn.Parameter(torch.zeros(n_buckets, n_heads))

    def buckets(self, distances: Tensor) -> Tensor:
        """Returns the rows of the table for distances j - i, of any shape."""
        n_buckets = len(self.table)
        if self._is_causal:
            first, distances = torch.zeros_like(distances), (-distances).clamp(min=0)
        else:
            n_buckets //= 2
            first, distances = n_buckets * (distances > 0), distances.abs()
        n_exact = n_buckets // 2
        share = torch.log(distances / n_exact) / math.log(self._far / n_exact)
        # of the distance 0 a logarithm of 0, which is not used
        farther = n_exact + (share.clamp(min=0.0) * (n_buckets - n_exact)).long()
        return first + torch.where(distances < n_exact, distances, farther.clamp(max=n_buckets - 1))

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Returns the bias of queries at (…, Q) to keys at (K), (…, H, Q, K)."""
        # (…, Q, K) -> (…, Q, K, H) -> (…, H, Q, K)
        return self.table[self.buckets(keys - queries.unsqueeze(-1))].movedim(-1, -3)

    def draw(self, deviation: float) -> None:
        """Draws the biases."""
        nn.init.normal_(self.table, std=deviation)


def slopes(n_heads: int) -> list[float]:
    """Computes the slope of each head of Press et al. 2022, "Train Short, Test Long", section 3.

    Of H = 2ⁿ heads they are 2^(-8h/H), h = 1 … H. Others have those of the next smaller power of
    two and then every second one of twice as many heads, as in the authors' code.
    """
    power = 1 << (n_heads.bit_length() - 1)
    values = [2.0 ** (-8.0 * head / power) for head in range(1, power + 1)]
    return values + [2.0 ** (-4.0 * head / power) for head in range(1, 2 * (n_heads - power), 2)]


class LinearBiases(Positions):
    """A bias that falls with the distance, each head with its slope (ALiBi, Press et al. 2022).

    Head h adds -m_h·|i - j| to the score of query i and key j, alike in both directions.
    """

    biases = True
    formulas = ("b_j = −m·|i − j|, m the slope of the head, i the position of q",)

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        # Neither parameter nor buffer: weights files hold nothing that a formula gives
        self._slopes = torch.tensor(slopes(n_heads), device="cpu")

    def prepare(self, n_positions: int, device: torch.device) -> None:
        """Moves the slopes."""
        del n_positions
        self._slopes = self._slopes.to(device)

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Returns the bias of queries at (…, Q) to keys at (K), (…, H, Q, K)."""
        self._slopes = self._slopes.to(keys.device)
        # (…, Q, K) -> (…, 1, Q, K)
        distances = (keys - queries.unsqueeze(-1)).abs().unsqueeze(-3)
        return -self._slopes.view(-1, 1, 1) * distances


class SegmentPositions(Positions):
    """Sinusoids of distances, which each layer compares with its queries; see `SegmentTerms`."""

    formulas = ("b_j = (q + v)·W_R·R(i − j) / √d_k, v and W_R learned, R(n) sinusoids of n",)

    def __init__(self, d_model: int, *, is_causal: bool) -> None:
        super().__init__()
        self._d_model, self._is_causal = d_model, is_causal
        self._sinusoids = SinusoidTable(0, d_model)

    def of_layer(self, n_heads: int, head_width: int) -> "SegmentTerms":
        """Makes the weights of a layer."""
        return SegmentTerms(n_heads, head_width, self._d_model, self.distances)

    def distances(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Finds how far keys at (K) are before queries at (…, Q).

        Returns:
            (n, D) the sinusoids of n distances, and (…, Q, K) the number of each cell's among them.
            Of a causal stack that of a later key, which is masked, is 0.
        """
        cells = queries.unsqueeze(-1) - keys
        first = 0 if self._is_causal else min(0, int(cells.min()))
        last = max(0, int(cells.max()))
        rows = self._sinusoids.rows(0, max(last, -first) + 1, keys.device)
        if first < 0:  # sin(-x) = -sin(x), at even places
            before = rows[1 : 1 - first].flip(0).clone()
            before[:, 0::2] *= -1.0
            rows = torch.cat((before, rows[: last + 1]))
        return rows, (cells - first).clamp(min=0)


class SegmentTerms(nn.Module):
    """Biases of a layer's scores by distance (Transformer-XL, Dai et al. 2019, section 3.3).

    The score of query i and key j is ((q + u)·k + (q + v)·W_R·R(i - j)) / √E: u and v, learned by
    each head, take the place of the query's own position, R(n) are the sinusoids of a distance. The
    first product is that of attention with the query q + u; the second is a bias.
    """

    formula = "q' = q + u, u learned"
    """Formula of what `queries` does, to be shown."""

    def __init__(
        self,
        n_heads: int,
        head_width: int,
        d_model: int,
        distances: "Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]",
    ) -> None:
        """Makes weights of 0; `distances` is that of `SegmentPositions`."""
        super().__init__()
        self._distances = distances
        self.projection = nn.Parameter(torch.zeros(n_heads * head_width, d_model))
        """(H·E, D) W_R."""
        self.content = nn.Parameter(torch.zeros(n_heads, head_width))
        """(H, E) u."""
        self.position = nn.Parameter(torch.zeros(n_heads, head_width))
        """(H, E) v."""

    def draw(self, _: float) -> None:
        """Draws W_R of all heads as W_K is drawn; u and v are 0."""
        nn.init.xavier_uniform_(self.projection)
        nn.init.zeros_(self.content)
        nn.init.zeros_(self.position)

    def queries(self, heads: Tensor) -> Tensor:
        """Computes q + u of queries (B, H, Q, E)."""
        return heads + self.content.unsqueeze(1).to(heads.dtype)

    def bias(self, query: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
        """Computes (q + v)·W_R·R(i - j), not scaled.

        Args:
            query: (B, H, Q, E) what `queries` returned.
            queries: (…, Q) positions of the queries, or one of all; … nothing or B.
            keys: (K) positions of the keys.

        Returns:
            (B, H, Q, K).
        """
        rows, cells = self._distances(queries, keys)
        # (H·E, D) -> (H, E, D)
        weight = self.projection.view(*self.content.shape, rows.shape[1]).to(query.dtype)
        rows = rows.to(query.dtype)
        # `queries` has added u
        query = query + (self.position - self.content).unsqueeze(1).to(query.dtype)
        # Without gradients head by head, to the same bits in any batch
        if torch.is_grad_enabled() or not len(weight):
            products = torch.matmul(query, torch.matmul(weight, rows.T))
        else:
            pairs = zip(query.unbind(1), weight, strict=True)
            products = torch.stack(
                [_compare_rows(head, matrix, rows) for head, matrix in pairs], dim=1
            )
        # (…, Q, K) -> (…, 1, Q, K) -> (B, H, Q, K)
        cells = cells.unsqueeze(-3).expand(*products.shape[:-1], -1)
        return products.gather(-1, cells)


def _compare_rows(query: Tensor, weight: Tensor, rows: Tensor) -> Tensor:
    """Compares the queries (B, Q, E) of a head with rows (n, D): (B, Q, n), each by itself."""
    if query.shape[1] < query.shape[2]:  # the projections of all rows would cost more
        return repeatable_linear(repeatable_linear(query, weight.T), rows)
    return repeatable_linear(query, rows @ weight.T)


def make_positions(config: ModelConfig, *, is_causal: bool) -> Positions:
    """Makes the positions of a stack; a causal one attends only to what was before."""
    row = POSITIONS[config.positions]
    positions: Positions = load_method(row)(**row.arguments(config, is_causal))
    return positions
