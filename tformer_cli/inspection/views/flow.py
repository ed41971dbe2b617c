"""Sources of each generated token: shares of the source and of the prefix, by two methods.

The last decoder layer's rows of what `rollout` multiplies together: attention rollout (Abnar &
Zuidema 2020) and ALTI+ (Ferrando et al. 2022). Row i holds the shares, together 1, of every source
token and of every target token read so far in the state that predicts target token i + 1. The share
of the whole source against the prefix tells how far the model translates or continues by itself: by
ALTI+, that is. In rollout each cross-attention counts ½ whatever it does, so with L decoder layers
the source always has 1 − 2^−L; only how that is shared among the tokens says something.
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from tformer_cli.inspection.capture.forced import AttentionMaps
from tformer_cli.inspection.record import HeadsRecord
from tformer_cli.inspection.weighting.maps import weighted_maps
from tformer_cli.model.transformer import Transformer

SCHEMA = "tformer.flow/1"
Method = Literal["alti", "rollout"]
METHODS: tuple[Method, ...] = ("alti", "rollout")
METHOD_NAMES: dict[Method, str] = {"alti": "ALTI+", "rollout": "attention rollout"}


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Shares of the tokens in the decoder's last states, of 1, by one method."""

    source: Tensor
    """(T, S) shares of the source tokens."""
    prefix: Tensor
    """(T, T) shares of the tokens that the decoder has read; 0 of what comes later."""
    residual: float
    """By how much what was multiplied misses the model's own numbers; see `weighting`."""

    @property
    def source_shares(self) -> list[float]:
        """(T) share of the whole source at each position; the rest is the prefix's."""
        shares: list[float] = self.source.sum(dim=-1).tolist()
        return shares

    @property
    def source_share(self) -> float:
        """Mean share of the source over all positions."""
        return self.source.sum(dim=-1).mean().item()


@dataclass(frozen=True, kw_only=True)
class FlowRecord:
    """Sources of the tokens of one translation."""

    sentence: HeadsRecord
    """The sentence and its translation."""
    flows: dict[Method, Flow]
    """By each method; none for a blank line."""

    def largest(self, method: Method, position: int, n: int) -> list[tuple[str, str, float]]:
        """Finds the tokens with the largest shares of a position.

        Returns:
            At most `n` of ("source" or "prefix", label, share), the largest first.
        """
        flow, sentence = self.flows[method], self.sentence
        sides = (
            ("source", sentence.source_pieces, flow.source),
            ("prefix", sentence.input_pieces[: position + 1], flow.prefix),
        )
        found = [
            (side, label, share)
            for side, labels, shares in sides
            for label, share in zip(labels, shares[position].tolist(), strict=False)
        ]
        return sorted(found, key=lambda one: -one[2])[:n]


def read_flow(model: Transformer, sentence: HeadsRecord) -> FlowRecord:
    """Reads what the tokens of a translation are made of.

    Args:
        model: the model, in evaluation mode.
        sentence: a sentence that was inspected; a blank one has no flow.
    """
    if sentence.maps is None:
        return FlowRecord(sentence=sentence, flows={})
    maps = sentence.maps
    flows = {method: _last_layer(weighted_maps(model, maps, method)) for method in METHODS}
    return FlowRecord(sentence=sentence, flows=flows)


def _last_layer(maps: AttentionMaps) -> Flow:
    return Flow(source=maps.cross[-1][0], prefix=maps.dec[-1][0], residual=maps.residual)
