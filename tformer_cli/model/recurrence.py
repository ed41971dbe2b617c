"""A recurrent cell in place of a decoder's self-attention: the simpler simple recurrent unit.

Its state is one vector a layer, so that a step costs the same at every position and no keys and
values are kept.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tformer_cli.model.attention import EVERYTHING, Mask
from tformer_cli.model.operations import Linear


class Recurrence(nn.Module):
    """SSRU: c_t = f_t ⊙ c_{t-1} + (1 - f_t) ⊙ (x_t·W), h_t = max(0, c_t), c_0 = 0.

    The forget gate is f_t = σ(x_t·W_f + b_f). Source: Kim et al. 2019, "From Research to Production
    and Back: Ludicrously Fast Neural Machine Translation", after the SRU of Lei et al. 2018.
    """

    def __init__(self, d_model: int, *, bias: bool = True) -> None:
        """Creates a cell of width D.

        Args:
            d_model: D.
            bias: whether the forget gate has a bias.
        """
        super().__init__()
        self.input = Linear(d_model, d_model, bias=False)
        self.forget = Linear(d_model, d_model, bias=bias)

    def forward(self, hidden: Tensor, mask: Mask = EVERYTHING) -> Tensor:
        """Maps (B, T, D) to (B, T, D); a position reads itself and those before it.

        Args:
            hidden: (B, T, D).
            mask: with spans: sentences that lie one after the other. Else it hides nothing here,
                since padding comes last.
        """
        gate, new = self._gate_and_new(hidden)
        longest = hidden.shape[1]
        if mask.spans is not None and mask.spans.positions is not None:
            is_first = mask.spans.positions == 0
            gate = gate.masked_fill(is_first[:, None], 0.0)  # the sentence before is forgotten
            # Sentences are shorter than the row, so fewer rounds are enough
            longest = int(mask.spans.positions.max()) + 1
        return torch.relu(cumulative(gate, new, longest))

    def step(self, hidden: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """Computes one position of every row.

        Args:
            hidden: (B, W, D).
            state: (B, W, D) c of the position before; None at the first.

        Returns:
            Output h and state c, (B, W, D) each.
        """
        gate, new = self._gate_and_new(hidden)
        state = new if state is None else gate * state + new
        return torch.relu(state), state

    def _gate_and_new(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Computes f and (1 - f) ⊙ (x·W), at least in float32, as sums over a sentence need."""
        gate, values = self.forget(hidden), self.input(hidden)
        gate = gate.to(torch.promote_types(gate.dtype, torch.float32))
        # torch's kernel rounds the last values of a tensor otherwise; see `swish`
        is_trained = torch.is_grad_enabled()
        gate = torch.sigmoid(gate) if is_trained else 1.0 / (1.0 + torch.exp(-gate))
        return gate, (1.0 - gate) * values

    if TYPE_CHECKING:
        __call__ = forward


def cumulative(gate: Tensor, new: Tensor, longest: int) -> Tensor:
    """Computes c_t = gate_t ⊙ c_{t-1} + new_t of all positions at once.

    Two neighboring steps are one step with the product of their gates. So each round looks back
    twice as far as the one before, and log₂ of the longest sentence rounds are enough (Hillis and
    Steele 1986, "Data Parallel Algorithms"). What a position gets does not depend on how many
    follow it.

    Args:
        gate: (B, T, D); where one is 0, a new sequence begins.
        new: (B, T, D).
        longest: positions of the longest sequence.

    Returns:
        (B, T, D).
    """
    distance = 1
    while distance < longest:
        # (B, T, D): values of `distance` positions before; 0 before the first
        earlier = nn.functional.pad(new[:, :-distance], (0, 0, distance, 0))
        earlier_gate = nn.functional.pad(gate[:, :-distance], (0, 0, distance, 0))
        new, gate = torch.addcmul(new, gate, earlier), gate * earlier_gate
        distance *= 2
    return new
