"""One attention head computed again from the model's weights, formula by formula, in float64.

Each number comes from the ones before it (Vaswani et al. 2017, section 3.2):

1. q = x·W_Q + b_Q, k_j = m_j·W_K + b_K, v_j = m_j·W_V + b_V
2. s_j = q·k_j, of q and k_j turned by their positions in a model that does so, or their
   similarity in a model that has another one
3. s_j / √d_k, plus a bias in a model that has one
4. a_j = e^(s_j/√d_k) / Σ e^(s/√d_k) over the keys that may be seen; of the others a_j = 0
5. a_j·v_j
6. z = Σ_j a_j·v_j

The same for all queries and heads at once is softmax(Q·Kᵀ/√d_k)·V; the heads side by side, times
W_O, are the layer's output, which is added to the residual stream. x comes from the embedding in
the first layer and is the model's own further up; `m` is x, or in cross-attention the encoder's
output. In a pre-norm model x is normalized before step 1, in a post-norm one after the sum.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from tformer_cli.heads.names import HeadId, Inspected
from tformer_cli.model.attention import MultiHeadAttention
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.encoder_only import EncoderOnly
from tformer_cli.model.norms import Norm
from tformer_cli.model.operations import IdentityProjection, Linear
from tformer_cli.model.patches import PatchedImages, patches_of
from tformer_cli.plugins.instruments.observed import Observed, exact, place_of
from tformer_cli.plugins.instruments.weighting import LinearNorm


@dataclass(frozen=True, kw_only=True)
class NormTrace:
    """A norm of one position: γ ⊙ (r − μ) / √(σ² + ε) + β (Ba et al. 2016), or without μ and β."""

    before: Tensor  # (D) r
    is_centered: bool  # True of a layer norm; an RMS norm takes no mean off and adds no β
    mean: float  # μ; 0 of an RMS norm
    variance: float  # σ² over D; of an RMS norm mean(r²)
    deviation: float  # √(σ² + ε), variance over D; of an RMS norm √(mean(r²) + ε)
    scale: Tensor  # (D) γ
    shift: Tensor  # (D) β
    after: Tensor  # (D) the result

    @property
    def name(self) -> str:
        return "LN" if self.is_centered else "RMS"

    def formula(self, of: str) -> str:
        if self.is_centered:
            return f"LN({of}) = γ·({of} − μ) / √(σ² + ε) + β"
        return f"RMS({of}) = γ·{of} / √(mean({of}²) + ε)"

    def numbers(self, of: str) -> str:
        if self.is_centered:
            return (
                f"Here μ = {self.mean:.4f}, the variance σ² = {self.variance:.4f} and "
                f"√(σ² + ε) = {self.deviation:.4f}."
            )
        return (
            f"Here mean({of}²) = {self.variance:.4f} and √(mean({of}²) + ε) = {self.deviation:.4f}."
        )

    def rows(self, of: str) -> tuple[tuple[str, Tensor], ...]:
        standardized, result = (self.before - self.mean) / self.deviation, f"{self.name}({of})"
        if self.is_centered:
            return (
                (f"({of} − μ)/√(σ²+ε)", standardized),
                ("γ", self.scale),
                ("β", self.shift),
                (result, self.after),
            )
        return (f"{of}/√(mean({of}²)+ε)", standardized), ("γ", self.scale), (result, self.after)


def normalize_rows(rows: Tensor, norm: Norm) -> Tensor:
    linear = LinearNorm.of(norm, rows)
    return linear.apply(rows) + linear.shift


def norm_trace(before: Tensor, norm: Norm) -> NormTrace:
    linear = LinearNorm.of(norm, before[None])
    return NormTrace(
        before=before,
        is_centered=linear.is_centered,
        mean=before.mean().item() if linear.is_centered else 0.0,
        variance=(
            before.var(correction=0) if linear.is_centered else before.square().mean()
        ).item(),
        deviation=linear.deviation.item(),
        scale=linear.scale,
        shift=linear.shift,
        after=normalize_rows(before[None], norm)[0],
    )


@dataclass(frozen=True, kw_only=True)
class EmbeddingTrace:
    """√d_model · E[token] + PE(position), the input of the first layer.

    Some models leave out the factor, and some apply a layer norm to the sum. For images, W·p + b of
    the pixels p of a patch, or a class token c, replaces the embedding.
    """

    of: Literal["token", "patch", "class token"]
    formula: str  # Formula of what positions are added to, such as ``√d_model · E[token]``
    label: str
    scaled: Tensor  # (D) its value
    pixels: Tensor | None  # (C·P·P) p, as the model normalizes them; None of tokens
    position: Tensor | None  # (D) PE(position); None where positions do something else
    norm: NormTrace | None  # The layer norm of the sum, if there is one

    @property
    def result(self) -> Tensor:
        """(D) x."""
        if self.norm is not None:
            return self.norm.after
        return self.scaled if self.position is None else self.scaled + self.position


@dataclass(frozen=True, kw_only=True)
class HeadTrace:
    """Every number between the input of a layer and its output, for one head and one query."""

    embedding: EmbeddingTrace | None  # Parts of x in the first layer of a stack
    norm_before: NormTrace | None  # The layer norm before the projections (pre-norm models)
    attention: MultiHeadAttention  # The model's own
    stream: Tensor  # (Q, D) the residual stream
    entering: Tensor  # (Q, D) what queries are projected from
    memory: Tensor  # (K, D) what keys and values are projected from
    query: Tensor  # (E) q
    key: Tensor  # (K, E) the k_j
    compared: tuple[Tensor, Tensor] | None  # (E), (K, E) after positions or similarity
    own_bias: Tensor | None  # (K) c_j, the term that the similarity adds to the scaled scores
    bias: Tensor | None  # (K) b_j, what positions add to the scaled scores
    value: Tensor  # (K, E) the v_j
    visible: Tensor  # (K) boolean: which keys the query may see
    scores: Tensor  # (K) q·k_j, for hidden keys too, or its replacement
    scaled: Tensor  # (K) s_j / √d_k with added terms, −∞ where the query may not see
    exponentials: Tensor  # (K) e^(s_j − max s)
    weights: Tensor  # (K) a_j
    weighted: Tensor  # (K, E) a_j·v_j
    context: Tensor  # (E) z
    all_weights: Tensor  # (H, Q, K) softmax(Q·Kᵀ/√d_k) of every head
    all_context: Tensor  # (H, Q, E) the sums of every head and query
    joined: Tensor  # (Q, D) the heads side by side
    share: Tensor  # (D) this head's part of the output: z·W_O's rows of the head
    attended: Tensor  # (Q, D) the layer's output, joined·W_O + b_O
    summed: Tensor  # (Q, D) stream + attended
    norm_after: NormTrace | None  # The layer norm after the sum (post-norm models)

    @property
    def has_bias(self) -> bool:
        return self.attention.in_projection.bias is not None

    @property
    def factor(self) -> float:
        """Factor of q·k_j; 0 where `own_bias` is the score."""
        return self.attention.similarity.scale


def trace_head(
    model: Inspected, observed: Observed, head: HeadId, row: int, read_ids: Sequence[int]
) -> HeadTrace:
    place = place_of(model, head.kind, head.layer)
    embedding, stream = None, observed.stream
    if head.layer == 0 and head.kind != "cross":
        embedding = _embedding(model, head, row, read_ids)
        stream = stream.clone()
        stream[row] = embedding.result
    is_pre_norm = model.config.is_pre_norm
    entering = normalize_rows(stream, place.own_norm) if is_pre_norm else stream
    memory = observed.memory if head.kind == "cross" else entering
    projected = _project(place.attention, entering, memory, observed.query)
    all_weights, all_context = _all_heads(projected, observed.visible)
    joined = all_context.transpose(0, 1).flatten(1)  # (H, Q, E) -> (Q, H, E) -> (Q, H·E)
    out_weight, out_bias = _exact(place.attention.out_projection)
    attended = functional.linear(joined, out_weight, out_bias)
    summed = stream + attended
    numbers = _one_row(projected, head.head, row, observed.visible[row])
    width = projected.queries.shape[-1]
    of_head = out_weight[:, head.head * width : (head.head + 1) * width]
    compared, bias, own_bias = projected.compared, projected.bias, projected.own_bias
    return HeadTrace(
        embedding=embedding,
        attention=place.attention,
        norm_before=norm_trace(stream[row], place.own_norm) if is_pre_norm else None,
        stream=stream,
        entering=entering,
        memory=memory,
        compared=None
        if compared is None
        else (compared[0][head.head, row], compared[1][head.head]),
        own_bias=None if own_bias is None else own_bias[head.head, row],
        bias=None if bias is None else bias[head.head, row],
        visible=observed.visible[row],
        all_weights=all_weights,
        all_context=all_context,
        joined=joined,
        share=functional.linear(numbers["context"], of_head),
        attended=attended,
        summed=summed,
        norm_after=None if is_pre_norm else norm_trace(summed[row], place.own_norm),
        **numbers,
    )


class _Projected(NamedTuple):
    """Queries, keys and values of all heads, and what positions make of them."""

    queries: Tensor  # (H, Q, E)
    keys: Tensor  # (H, K, E)
    values: Tensor  # (H, K, E)
    compared: tuple[Tensor, Tensor] | None  # After positions or similarity
    factor: float
    own_bias: Tensor | None  # (H, Q, K) the term that the similarity adds to the scaled scores
    bias: Tensor | None  # (H, Q, K) what positions add

    def products(self) -> Tensor:
        """Computes (H, Q, K) q·k_j, or its replacement for a similarity without a product."""
        if self.factor == 0.0 and self.own_bias is not None:
            return self.own_bias
        queries, keys = self.compared or (self.queries, self.keys)
        return torch.matmul(queries, keys.transpose(-2, -1))

    def scaled_scores(self) -> Tensor:
        """Computes (H, Q, K) the scaled scores with added terms."""
        scores = self.products()
        if self.factor:
            scores = scores * self.factor
            scores = scores if self.own_bias is None else scores + self.own_bias
        return scores if self.bias is None else scores + self.bias


def _project(
    attention: MultiHeadAttention, entering: Tensor, memory: Tensor, models: Tensor
) -> _Projected:
    """Projects the input; the number of heads and their width are those of the model's queries."""
    n_heads, width = models.shape[0], models.shape[-1]
    queries, *others = (
        # (·, H·E) -> (·, H, E) -> (H, ·, E)
        functional.linear(inputs, weight, bias).view(len(inputs), -1, width).transpose(0, 1)
        for inputs, (weight, bias) in zip(
            (entering, memory, memory), _thirds(attention), strict=True
        )
    )
    keys, values = (part.repeat_interleave(n_heads // len(part), dim=0) for part in others)
    positions, similarity = attention.positions, attention.similarity
    turned = [queries, keys]
    if positions.turns:
        turned = [positions.rotate_heads(heads, slice(0, heads.shape[1])) for heads in turned]
    device = attention.in_projection.weight.device  # where its own terms lie
    with torch.no_grad():
        both = [heads[None].to(device) for heads in turned]
        if attention.relative is not None:
            both[0] = attention.relative.queries(both[0])
        compared = similarity.queries(both[0]), similarity.keys(both[1])
        own_bias = similarity.bias(*compared)
        at = torch.arange(keys.shape[1], device=device)
        bias = attention.position_bias(compared[0], at, at)
        if bias is not None:  # of one sentence
            bias = bias.view(-1, *bias.shape[-2:]).cpu().double()
    if own_bias is not None:
        own_bias = own_bias[0].expand(n_heads, len(entering), len(memory)).cpu()
    is_changed = positions.turns or attention.relative is not None
    is_changed |= compared[0] is not both[0] or compared[1] is not both[1]
    return _Projected(
        queries,
        keys,
        values,
        (compared[0][0].cpu(), compared[1][0].cpu()) if is_changed else None,
        similarity.scale,
        own_bias,
        bias,
    )


def _one_row(projected: _Projected, head: int, row: int, visible: Tensor) -> dict[str, Tensor]:
    query, key, value = projected.queries[head, row], projected.keys[head], projected.values[head]
    scores = projected.products()[head, row]
    scaled = projected.scaled_scores()[head, row].masked_fill(~visible, -math.inf)
    exponentials = torch.exp(scaled - scaled.max())
    weights = exponentials / exponentials.sum()
    weighted = weights[:, None] * value
    numbers = {"query": query, "key": key, "value": value, "scores": scores, "scaled": scaled}
    numbers |= {"exponentials": exponentials, "weights": weights, "weighted": weighted}
    return numbers | {"context": weighted.sum(dim=0)}


def _all_heads(projected: _Projected, visible: Tensor) -> tuple[Tensor, Tensor]:
    """Computes (H, Q, K) the weights and (H, Q, E) the sums of all heads and queries at once."""
    weights = torch.softmax(projected.scaled_scores().masked_fill(~visible, -math.inf), dim=-1)
    return weights, torch.matmul(weights, projected.values)


def _embedding(model: Inspected, head: HeadId, row: int, read_ids: Sequence[int]) -> EmbeddingTrace:
    if isinstance(model, EncoderOnly) or head.kind == "enc":
        stack_input = model.encoder_input
    else:
        stack_input = model.decoder_input
    of: Literal["token", "patch", "class token"] = "token"
    pixels = None
    if isinstance(stack_input, PatchedImages):
        formula, scaled, pixels = _patch(stack_input, model.config, row, read_ids)
        label, of = formula, "class token" if pixels is None else "patch"
    else:
        if isinstance(model, EncoderOnly) or head.kind == "enc":
            matrix: Tensor = model.source_embedding.weight
        else:
            matrix = model.target_matrix
        is_scaled = model.config.scale_embeddings
        formula, label = ("√d_model · E[token]", "√d·E[token]") if is_scaled else ("E[token]",) * 2
        scaled = stack_input.scale * exact(matrix[read_ids[row]])
    rows = stack_input.positions.rows(row, row + 1, next(model.parameters()).device)
    position = None if rows is None else exact(rows[0])
    norm = None
    if stack_input.norm is not None:
        norm = norm_trace(scaled if position is None else scaled + position, stack_input.norm)
    return EmbeddingTrace(
        of=of,
        formula=formula,
        label=label,
        scaled=scaled,
        pixels=pixels,
        position=position,
        norm=norm,
    )


def _patch(
    images: PatchedImages, config: ModelConfig, row: int, pixel_ids: Sequence[int]
) -> tuple[str, Tensor, Tensor | None]:
    """Embeds one patch, or the class token: its formula, (D) its value and (C·P·P) its pixels."""
    if images.class_token is not None and not row:
        return "c", exact(images.class_token), None
    with torch.no_grad():
        whole = images.images(torch.tensor([pixel_ids], device=images.patches.weight.device))
        patch = patches_of(whole, config.patch_size)[0, row - int(config.class_token)]
    pixels, (weight, bias) = exact(patch), _exact(images.patches)
    formula = "W·p" if bias is None else "W·p + b"
    return formula, functional.linear(pixels, weight, bias), pixels


def _thirds(attention: MultiHeadAttention) -> list[tuple[Tensor, Tensor | None]]:
    """The weights and biases of W_Q, W_K and W_V, which share a matrix."""
    weight, bias = _exact(attention.in_projection)
    biases = (None, None, None) if bias is None else bias.split_with_sizes(attention.row_counts)
    return list(zip(weight.split_with_sizes(attention.row_counts), biases, strict=True))


def _exact(linear: Linear | IdentityProjection) -> tuple[Tensor, Tensor | None]:
    bias = None if linear.bias is None else exact(linear.bias)
    return exact(linear.weight), bias
