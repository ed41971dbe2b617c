"""Metrics of a run that can be drawn, and their horizontal axes."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class MetricName(StrEnum):
    """Names of the metrics."""

    loss = "loss"
    validation_loss = "validation_loss"
    bleu = "bleu"
    chrf = "chrf"
    perplexity = "perplexity"
    validation_perplexity = "validation_perplexity"
    learning_rate = "learning_rate"
    gradient_norm = "gradient_norm"
    tokens_per_second = "tokens_per_second"
    hardware_share = "hardware_share"
    padding = "padding"


class XName(StrEnum):
    """Horizontal axis of a curve."""

    step = "step"
    time = "time"
    tokens = "tokens"
    epochs = "epochs"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A value that changes while a run continues."""

    label: str
    """Title in a panel."""
    kind: Literal["report", "validation"]
    """Kind of the entries of `metrics.jsonl` that have it."""
    key: str
    """Its key there."""
    is_logarithmic: bool = False
    """True if its axis is."""
    starts_at_zero: bool = False
    """True if its axis does, whatever the values."""


METRICS: dict[MetricName, Metric] = {
    MetricName.loss: Metric(label="Training loss (smoothed, nats)", kind="report", key="loss"),
    MetricName.validation_loss: Metric(
        label="Validation loss (nats)", kind="validation", key="loss"
    ),
    MetricName.bleu: Metric(label="BLEU", kind="validation", key="bleu", starts_at_zero=True),
    MetricName.chrf: Metric(label="chrF", kind="validation", key="chrf", starts_at_zero=True),
    MetricName.perplexity: Metric(
        label="Training perplexity", kind="report", key="perplexity", is_logarithmic=True
    ),
    MetricName.validation_perplexity: Metric(
        label="Validation perplexity", kind="validation", key="perplexity", is_logarithmic=True
    ),
    MetricName.learning_rate: Metric(
        label="Learning rate", kind="report", key="learning_rate", starts_at_zero=True
    ),
    MetricName.gradient_norm: Metric(
        label="Gradient norm", kind="report", key="gradient_norm", is_logarithmic=True
    ),
    MetricName.tokens_per_second: Metric(
        label="Target tokens/s", kind="report", key="tokens_per_second", starts_at_zero=True
    ),
    MetricName.hardware_share: Metric(
        label="Share of the hardware's limit",
        kind="report",
        key="hardware_share",
        starts_at_zero=True,
    ),
    MetricName.padding: Metric(
        label="Share of padding", kind="report", key="padding", starts_at_zero=True
    ),
}
"""Every metric by its name."""

DEFAULT_METRICS = (
    MetricName.loss,
    MetricName.learning_rate,
    MetricName.tokens_per_second,
    MetricName.validation_loss,
    MetricName.bleu,
    MetricName.chrf,
)
"""Metrics drawn by default: a line of training, a line of validation."""
