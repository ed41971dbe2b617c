"""All of the inspection of a few sentences in one value, ready to be shown."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from tformer_cli.data.batching import Batch
from tformer_cli.inspection.ablation.losses import losses_without_each, to_device
from tformer_cli.inspection.capture.heads import KINDS, HeadId
from tformer_cli.inspection.heads.metrics import Measure
from tformer_cli.inspection.record import HeadsRecord
from tformer_cli.inspection.views.flow import FlowRecord
from tformer_cli.inspection.views.logits import LogitsRecord
from tformer_cli.inspection.views.positions import PositionsRecord
from tformer_cli.inspection.walkthrough.step import StepRecord
from tformer_cli.model.transformer import Transformer

LOSS = Measure(
    "loss without it",
    "By how much the loss of a target token rises, in nats, when this head alone is switched off",
)
"""Effect of switching a head off."""
TELLING_WEIGHT = 0.7
"""The largest weight of a row that is good to work out by hand; ours."""
TELLING_LETTERS = 3
"""Letters of a token that people know as a word, or the greatest part of one; ours."""


@dataclass(frozen=True, kw_only=True)
class SentenceAblation:
    """Loss of one sentence's target without each head."""

    loss: float
    """-ln p of a target token with all heads, the mean over the tokens."""
    n_tokens: int
    """Target tokens, the end of sentence included."""
    effects: Mapping[HeadId, float]
    """For each head by how much the loss of a token changes if that head alone is off."""


@dataclass(frozen=True, kw_only=True)
class SentenceReport:
    """All of the inspection of one sentence that is not blank."""

    heads: HeadsRecord
    """Its tokens, its maps and the heads that are shown."""
    steps: tuple[StepRecord, ...]
    """Walk-throughs, the one of the clearest head first."""
    logits: LogitsRecord
    """The distributions at each decoder position."""
    flow: FlowRecord
    """Sources of each generated token."""
    ablation: SentenceAblation | None
    """Its loss without each head; None if that was not measured."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """A model and some sentences."""

    model_hash: str
    """SHA-256 of the model's weights file."""
    positions: PositionsRecord
    """The model's position vectors."""
    sentences: tuple[SentenceReport, ...]
    """The sentences; at least one."""


def ablate_sentence(
    model: Transformer, record: HeadsRecord, heads: tuple[HeadId, ...]
) -> SentenceAblation:
    """Measures the loss of a sentence's target without each of some heads.

    Args:
        model: the model, in evaluation mode.
        record: a sentence that is not blank.
        heads: the heads that are switched off, one at a time.
    """
    maps = record.captured
    source = torch.tensor([maps.source_ids])
    batch = Batch(
        source=source,
        source_mask=torch.ones_like(source, dtype=torch.bool),
        target_input=torch.tensor([maps.target_input_ids]),
        target_output=torch.tensor([maps.target_ids]),
    )
    on_device = to_device(batch, next(model.parameters()).device)
    whole, without = losses_without_each(model, on_device, heads)
    n_tokens = len(maps.target_ids)
    differences = ((without[:, 0] - whole[0]) / n_tokens).tolist()
    return SentenceAblation(
        loss=whole[0].item() / n_tokens,
        n_tokens=n_tokens,
        effects=dict(zip(heads, differences, strict=True)),
    )


def clearest_heads(record: HeadsRecord) -> tuple[HeadId, ...]:
    """Returns the most confident head of each kind that is shown, the cross-attention's first."""
    found = (record.most_confident(kind) for kind in reversed(KINDS))
    return tuple(head for head in found if head is not None)


def telling_row(record: HeadsRecord, head: HeadId) -> int:
    """Finds a row of a head that is worth working out: one key wins and others still count.

    It is the row whose largest weight on a word is nearest to `TELLING_WEIGHT`. Begin and end of
    sentence are not words, neither as a row's name nor as a key. Rows named by at least
    `TELLING_LETTERS` letters come first. A sentence with nothing else has its first row.
    """
    weights = record.captured.weights(head)
    first_row, first_key = (1, 1) if head.kind == "dec" else (0, 0)
    last_key = weights.shape[1] if head.kind == "dec" else weights.shape[1] - 1
    words = weights[first_row:-1, first_key:last_key]
    if words.numel() == 0:
        return 0
    distances = (words.amax(dim=1) - TELLING_WEIGHT).abs()
    labels = record.row_labels(head.kind)[first_row:-1]
    is_long = torch.tensor([sum(map(str.isalpha, one)) >= TELLING_LETTERS for one in labels])
    return first_row + int((distances + ~is_long).argmin())
