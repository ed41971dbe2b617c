"""The decoder's predictions at each position, and those of each of its layers (logit lens).

The logit lens (nostalgebraist 2020) reads the hidden state of a layer as if it were the last: the
decoder's final norm, where there is one, then the output projection. For the last layer that is the
model's own output, bit for bit.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tformer_cli.inspection.capture.forced import forced_pass
from tformer_cli.inspection.heads.metrics import Measure, entropies
from tformer_cli.inspection.record import HeadsRecord
from tformer_cli.model.transformer import Transformer

SCHEMA = "tformer.logits/1"
MEASURES = {
    "p": Measure(
        "probability", "How probable the model found the token that it wrote, from 0 to 1"
    ),
    "rank": Measure("rank", "The token's place among all tokens by probability: 1 is the first"),
    "entropy": Measure(
        "uncertainty", "The entropy of the distribution, in nats: 0 means that one token is certain"
    ),
    "first": Measure(
        "first at layer", "The layer from which on the written token is the most probable one"
    ),
}
"""Columns of a table of positions."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A token of the vocabulary at one position."""

    id: int
    """Its id."""
    piece: str
    """Its label."""
    probability: float
    """Its probability."""


@dataclass(frozen=True, kw_only=True)
class LensReading:
    """Prediction of one decoder layer at one position."""

    layer: int
    """The layer, from 0."""
    top: Candidate
    """Its most probable token."""
    probability: float
    """The probability it gives the token that stands there in the end."""
    rank: int
    """That token's place by probability, from 1."""


@dataclass(frozen=True, kw_only=True)
class PositionLogits:
    """The distribution over the next token at one decoder position."""

    position: int
    """The position, from 0."""
    read: str
    """The label of the token it has read last."""
    chosen: Candidate
    """The token of the translation that stands there."""
    log_probability: float
    """log p of that token, natural logarithm."""
    rank: int
    """Its place by probability, from 1."""
    entropy: float
    """Entropy of the distribution in nats."""
    top: tuple[Candidate, ...]
    """The most probable tokens."""
    lens: tuple[LensReading, ...]
    """Predictions of each layer; none if the lens was not asked for."""

    @property
    def first_layer(self) -> int | None:
        """The layer from which on the token is the most probable one; None if it is not at last."""
        first = None
        for reading in reversed(self.lens):
            if reading.rank > 1:
                break
            first = reading.layer
        return first


@dataclass(frozen=True, kw_only=True)
class LogitsRecord:
    """The distributions of all positions of a sentence."""

    sentence: HeadsRecord
    """The sentence and its translation."""
    positions: tuple[PositionLogits, ...]
    """A distribution for each decoder position; none for a blank line."""


@torch.inference_mode()
def layer_logits(
    model: Transformer, source_ids: Sequence[int], target_input_ids: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Computes the model's logits and those of the lens in one forced pass.

    Args:
        model: the model, in evaluation mode.
        source_ids: (S) source tokens, the end of sentence last.
        target_input_ids: (T) what the decoder reads, the begin of sentence first.

    Returns:
        (T, V) the model's logits, and (L, T, V) those of every decoder layer, on the CPU.
    """
    hidden: list[Tensor] = []

    def note(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:  # noqa: ARG001
        hidden.append(output)

    with ExitStack() as listeners:
        for layer in model.decoder.layers:
            listeners.callback(layer.register_forward_hook(note).remove)
        logits = model.project(forced_pass(model, source_ids, target_input_ids))
    lens = [model.project(model.decoder.final_norm(state))[0].cpu() for state in hidden]
    return logits[0].cpu(), torch.stack(lens)


def read_logits(
    model: Transformer,
    sentence: HeadsRecord,
    labels: Sequence[str],
    *,
    n_top: int,
    with_lens: bool,
) -> LogitsRecord:
    """Reads the distributions of every position of a sentence.

    Args:
        model: the model, in evaluation mode.
        sentence: a sentence that was inspected; a blank one has no positions.
        labels: (V) the label of every token of the vocabulary.
        n_top: most probable tokens to keep.
        with_lens: whether every layer is read too.
    """
    if sentence.maps is None:
        return LogitsRecord(sentence=sentence, positions=())
    maps = sentence.maps
    logits, lens = layer_logits(model, maps.source_ids, maps.target_input_ids)
    # float64 keeps the digits of small probabilities
    rows = torch.log_softmax(logits.double(), dim=-1)
    layers = torch.softmax(lens.double(), dim=-1)[: len(lens) if with_lens else 0]
    return LogitsRecord(
        sentence=sentence,
        positions=tuple(
            _position(place, sentence, rows[place], layers[:, place], labels, n_top)
            for place in range(len(rows))
        ),
    )


def _position(
    place: int,
    sentence: HeadsRecord,
    log_probabilities: Tensor,
    layers: Tensor,
    labels: Sequence[str],
    n_top: int,
) -> PositionLogits:
    token = sentence.captured.target_ids[place]
    probabilities = log_probabilities.exp()
    top = probabilities.sort(descending=True, stable=True).indices[:n_top].tolist()
    readings = [
        LensReading(
            layer=layer,
            top=_candidate(int(of_layer.argmax()), of_layer, labels),
            probability=of_layer[token].item(),
            rank=_rank(token, of_layer),
        )
        for layer, of_layer in enumerate(layers)
    ]
    return PositionLogits(
        position=place,
        read=sentence.input_pieces[place],
        chosen=_candidate(token, probabilities, labels),
        log_probability=log_probabilities[token].item(),
        rank=_rank(token, probabilities),
        entropy=entropies(probabilities[None]).item(),
        top=tuple(_candidate(i, probabilities, labels) for i in top),
        lens=tuple(readings),
    )


def _candidate(token: int, probabilities: Tensor, labels: Sequence[str]) -> Candidate:
    return Candidate(id=token, piece=labels[token], probability=probabilities[token].item())


def _rank(token: int, probabilities: Tensor) -> int:
    """The place of a token by probability, from 1; of equal ones the smaller id is first."""
    probability = probabilities[token]
    ahead = (probabilities > probability).sum() + (probabilities[:token] == probability).sum()
    return int(ahead) + 1
