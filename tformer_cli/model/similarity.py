"""How alike a query and a key are: what attention takes the softmax of, before positions and mask.

Every similarity is scale·q'·k'ᵀ + bias, of what it makes of queries and keys: so kernels, caches,
taps and views serve each of them. A similarity is a `Similarity` that overrides hooks, and a row of
`methods.SIMILARITIES`.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from tformer_cli.model.methods import SIMILARITIES, SimilarityKind, load_method

FIRST_FACTOR, LARGEST_FACTOR = 10.0, 100.0
"""Factor of cosines at first, and the largest that it may become (Liu et al. 2022)."""


class Similarity(nn.Module):
    """The scaled dot product q·k/√E (Vaswani et al. 2017, section 3.2.1)."""

    formulas: tuple[str, ...] = ()
    """Formulas of a similarity that is not this one, to be shown: q', k'_j and s_j."""
    scale: float
    """Factor of the product of queries and keys; 0 where a bias is all there is."""

    def __init__(self, n_heads: int, head_width: int) -> None:
        """Prepares the comparison of queries and keys of H heads of width E."""
        super().__init__()
        del n_heads  # only some similarities learn something for each head
        self.scale = head_width**-0.5

    def queries(self, heads: Tensor) -> Tensor:
        """Changes queries (B, H, Q, E), turned by their positions, before they are multiplied."""
        return heads

    def keys(self, heads: Tensor) -> Tensor:
        """Changes keys (B, H, K, E), likewise; what it returns is what caches keep."""
        return heads

    def bias(self, query: Tensor, key: Tensor) -> Tensor | None:
        """Computes what is added to the scaled product.

        Args:
            query: (B, H, Q, E) what `queries` returned.
            key: (B, H, K, E) what `keys` returned.

        Returns:
            Broadcastable to (B, H, Q, K); None: nothing is added.
        """
        del query, key
        return None


class DotProduct(Similarity):
    """The product q·k, not scaled (Luong et al. 2015, section 3.1; T5)."""

    formulas = ("s_j = q·k_j, not divided by √d_k",)

    def __init__(self, n_heads: int, head_width: int) -> None:
        super().__init__(n_heads, head_width)
        self.scale = 1.0


class Cosine(Similarity):
    """The cosine of the angle between q and k times a factor g, which each head learns.

    As in Swin Transformer V2 (Liu et al. 2022, section 3.2): g begins at 10 and is at most 100.
    """

    formulas = ("q' = g·q / |q|", "k'_j = k_j / |k_j|", "s_j = q'·k'_j = g·cos(q, k_j), g learned")

    def __init__(self, n_heads: int, head_width: int) -> None:
        super().__init__(n_heads, head_width)
        self.scale = 1.0
        self.log_factor = nn.Parameter(torch.full((n_heads,), math.log(FIRST_FACTOR)))

    def queries(self, heads: Tensor) -> Tensor:
        """Scales queries to the length g."""
        # Learned as a logarithm, a factor stays positive
        factor = self.log_factor.clamp(max=math.log(LARGEST_FACTOR)).exp()
        return functional.normalize(heads, dim=-1) * factor.view(-1, 1, 1).to(heads.dtype)

    def keys(self, heads: Tensor) -> Tensor:
        """Scales keys to the length 1."""
        return functional.normalize(heads, dim=-1)


class Distance(Similarity):
    """The negative squared Euclidean distance -|q - k|² / 2√E.

    |q - k|² = |q|² - 2·q·k + |k|², and |q|², which all keys of a query have in common, changes no
    weight: what is left is the scaled dot product minus |k|² / 2√E. Of keys that are equally long
    it has the paper's weights.
    """

    formulas = (
        "s_j = −|q − k_j|² / 2√d_k = q·k_j / √d_k − |k_j|² / 2√d_k − |q|² / 2√d_k",
        "c_j = −|k_j|² / 2√d_k; the last term is that of all keys and changes no weight",
    )

    def bias(self, query: Tensor, key: Tensor) -> Tensor:
        """Computes -|k|² / 2√E, (B, H, 1, K)."""
        del query
        return (key.square().sum(dim=-1) * (-0.5 * self.scale)).unsqueeze(-2)


class Additive(Similarity):
    """v·tanh(q + k) with a learned v of each head (Bahdanau et al. 2015, appendix A.1.2).

    Their W_a and U_a are W_Q and W_K. It needs memory for Q·K·E numbers.
    """

    formulas = ("s_j = v·tanh(q + k_j) = Σ_i v_i·tanh(q_i + k_ji), v learned",)

    def __init__(self, n_heads: int, head_width: int) -> None:
        super().__init__(n_heads, head_width)
        self.scale = 0.0  # the bias is all there is
        self.vector = nn.Parameter(torch.empty(n_heads, head_width))
        nn.init.normal_(self.vector, std=head_width**-0.5)

    def bias(self, query: Tensor, key: Tensor) -> Tensor:
        """Computes the scores, (B, H, Q, K)."""
        # Every query with every key: (B, H, Q, K, E)
        compared = torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3))
        return (compared * self.vector[:, None, None]).sum(dim=-1)


def make_similarity(kind: SimilarityKind, n_heads: int, head_width: int) -> Similarity:
    """Makes the similarity of H heads of width E."""
    similarity: Similarity = load_method(SIMILARITIES[kind])(n_heads, head_width)
    return similarity
