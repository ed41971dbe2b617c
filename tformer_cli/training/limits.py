"""Limits of a run, and the share of it that is done."""

from tformer_cli.training.config import TrainingConfig, ValidationConfig
from tformer_cli.training.state import TrainingState


def share_done(config: TrainingConfig, state: TrainingState, epochs: float) -> float:
    """Computes how much of a run is over by the nearest of its limits; 0 where it has none.

    Args:
        config: the limits.
        state: where the run stands.
        epochs: passes over the corpora, with the fraction of the present one.
    """
    shares = [used / limit for _, used, limit in _limits(config, state, epochs)]
    return min(1.0, max(shares, default=0.0))


def end_reason(
    config: TrainingConfig, validation: ValidationConfig, state: TrainingState, epochs: float
) -> str:
    """Gives the reason why a run is over; an empty text if it is not."""
    for name, used, limit in _limits(config, state, epochs):
        if used >= limit:
            return f"{name} = {limit} is reached"
    patience = validation.patience
    if patience and state.validations_since_best(validation) >= patience:
        return f"early stopping, no better {validation.metric} for validation.patience = {patience}"
    return ""


def _limits(
    config: TrainingConfig, state: TrainingState, epochs: float
) -> list[tuple[str, float, float]]:
    """Name, what is used up and how much there is, of each limit that is set."""
    limits = [
        ("max_steps", state.step, config.max_steps),
        ("max_epochs", epochs, config.max_epochs),
        ("max_tokens", state.tokens, config.max_tokens),
        ("max_minutes", state.seconds / 60.0, config.max_minutes),
    ]
    return [(name, used, limit) for name, used, limit in limits if limit]
