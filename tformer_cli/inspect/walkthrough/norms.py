"""A norm of the residual stream computed again in float64, with the words for it."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tformer_cli.model.norms import Norm


@dataclass(frozen=True, kw_only=True)
class NormTrace:
    """A norm of one position: γ ⊙ (r − μ) / √(σ² + ε) + β (Ba et al. 2016), or without μ and β."""

    before: Tensor
    """(D) r."""
    is_centered: bool
    """True of a layer norm; an RMS norm takes no mean off and adds no β."""
    mean: float
    """μ; 0 of an RMS norm."""
    deviation: float
    """√(σ² + ε), with the variance that divides by D; of an RMS norm √(mean(r²) + ε)."""
    scale: Tensor
    """(D) γ."""
    shift: Tensor
    """(D) β."""
    after: Tensor
    """(D) the result."""

    @property
    def name(self) -> str:
        """The norm as formulas write it."""
        return "LN" if self.is_centered else "RMS"

    def formula(self, of: str) -> str:
        """Writes the formula of the norm of x or r."""
        if self.is_centered:
            return f"LN({of}) = γ·({of} − μ) / √(σ² + ε) + β"
        return f"RMS({of}) = γ·{of} / √(mean({of}²) + ε)"

    @property
    def numbers(self) -> str:
        """The numbers that all components have in common."""
        if self.is_centered:
            return f"Here μ = {self.mean:.4f} and √(σ² + ε) = {self.deviation:.4f}."
        return f"Here √(mean(r²) + ε) = {self.deviation:.4f}."

    @property
    def rows(self) -> tuple[tuple[str, Tensor], ...]:
        """The steps of the norm, each with its label."""
        standardized = (self.before - self.mean) / self.deviation
        if self.is_centered:
            return (
                ("(r − μ)/√(σ²+ε)", standardized),
                ("γ", self.scale),
                ("β", self.shift),
                ("LN(r)", self.after),
            )
        return ("r/√(mean(r²)+ε)", standardized), ("γ", self.scale), ("RMS(r)", self.after)


def normed(rows: Tensor, norm: Norm) -> Tensor:
    """Norms rows (Q, D)."""
    mean, deviation = _mean_and_deviation(rows, norm)
    scale, shift = _scale_and_shift(norm)
    return (rows - mean) / deviation * scale + shift


def norm_trace(before: Tensor, norm: Norm) -> NormTrace:
    """Takes down every number of a norm of one position (D)."""
    mean, deviation = _mean_and_deviation(before, norm)
    scale, shift = _scale_and_shift(norm)
    return NormTrace(
        before=before,
        is_centered=isinstance(norm, nn.LayerNorm),
        mean=mean.item(),
        deviation=deviation.item(),
        scale=scale,
        shift=shift,
        after=normed(before, norm),
    )


def _mean_and_deviation(rows: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
    mean = rows.mean(dim=-1, keepdim=True)
    if not isinstance(norm, nn.LayerNorm):
        mean = torch.zeros_like(mean)
    epsilon = norm.eps or 0.0
    return mean, ((rows - mean).square().mean(dim=-1, keepdim=True) + epsilon).sqrt()


def _scale_and_shift(norm: Norm) -> tuple[Tensor, Tensor]:
    scale = norm.weight.detach().cpu().double()
    shift = torch.zeros_like(scale) if norm.bias is None else norm.bias.detach().cpu().double()
    return scale, shift
