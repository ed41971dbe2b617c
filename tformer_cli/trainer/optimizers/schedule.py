"""Learning rate and batches a step, by the share of the run that is done; limits of a run."""

import math
from dataclasses import replace

from tformer_cli.trainer.config import TrainingConfig, ValidationConfig
from tformer_cli.trainer.resuming.state import TrainingState

LARGEST_FACTOR = 16.0
"""Beyond some size, larger batches lower no noise that matters (McCandlish et al. 2018, "An
empirical model of large-batch training"): the rule is taken no further."""


def scaled_to_batch(config: TrainingConfig, factor: float) -> TrainingConfig:
    """Returns the settings of a run whose batches have κ = `factor` times the tokens.

    The square-root rule of Malladi et al. 2022, "On the SDEs and scaling rules for adaptive
    gradient algorithms": the learning rate times √κ, and warm-up, which keeps its tokens, over κ.
    The linear rule (Goyal et al. 2017) is SGD's: the length of an adaptive step does not grow with
    its gradient. Nor does that of Muon's. β₁, β₂ and ε, which that paper changes a little, stay.
    """
    factor = min(max(1.0, factor), LARGEST_FACTOR)
    if factor == 1.0:
        return config
    # "noam" counts steps: with fewer of them in warm-up its peak is √κ times as high by itself
    is_raised = config.schedule == "noam" and config.warmup_steps > 0
    return replace(
        config,
        learning_rate=config.learning_rate * (1.0 if is_raised else math.sqrt(factor)),
        warmup_steps=min(config.warmup_steps, max(1, round(config.warmup_steps / factor))),
    )


def learning_rate(
    config: TrainingConfig, step: int, share_done: float, d_model: int, seconds: float = 0.0
) -> float:
    # With w warm-up steps and peak η:
    # - noam: η · D^-1/2 · min(step^-1/2, step · w^-3/2) (Vaswani et al. 2017, section 5.3)
    # - inverse_sqrt: η · min(step/w, √(w/step)), the same curve with its peak at η
    # - linear: η · min(step/w, 1 - share)
    # - cosine: η · min(step/w, (1 + cos(π · share)) / 2)
    # - constant: η · step/w, then η
    # In a run bounded by time w is at most `warmup_length`; noam's peak stays that of the recipe.
    warmup = warmup_length(config, step, seconds)
    peak = config.learning_rate
    if config.schedule == "noam":
        start = step * warmup**-1.5 if warmup else math.inf
        shortened = math.sqrt(warmup / config.warmup_steps) if warmup else 1.0
        return float(peak * d_model**-0.5 * shortened * min(step**-0.5, start))
    rise = step / warmup if warmup else 1.0
    match config.schedule:
        case "inverse_sqrt":
            return peak * (rise if step <= warmup else math.sqrt((warmup or 1) / step))
        case "linear":
            return peak * min(rise, max(0.0, 1.0 - share_done))
        case "cosine":
            return peak * min(rise, 0.5 * (1.0 + math.cos(math.pi * min(1.0, share_done))))
        case _:
            return peak * min(rise, 1.0)


def batches_per_step(config: TrainingConfig, share_done: float) -> int:
    # More batches lower the noise of the gradient as a smaller learning rate does, at fewer steps
    # (Smith et al. 2018, "Don't decay the learning rate, increase the batch size").
    reached = [factor for share, factor in config.batch_growth if share_done >= share]
    return config.accumulate * (reached[-1] if reached else 1)


def largest_share(config: TrainingConfig, world_size: int) -> float:
    """Returns the largest share of a batch that a process computes at a time, in any step."""
    # Fewer batches than processes are cut, so that each process has as many tokens
    n_batches = config.accumulate * max((1, *dict(config.batch_growth).values()))
    return min(1.0, n_batches / world_size)


def warmup_length(config: TrainingConfig, step: int, seconds: float) -> float:
    # In a run bounded by time that is at most `warmup_share` of the steps that will be made, at the
    # speed so far. So the rise ends in time however slow the machine is, and without memory: a
    # resumption needs only the step and the seconds.
    if not (config.max_minutes and seconds > 0.0):
        return config.warmup_steps
    share = seconds / (60.0 * config.max_minutes)
    return min(config.warmup_steps, config.warmup_share * step / share)


def share_done(config: TrainingConfig, state: TrainingState, epochs: float) -> float:
    """Computes how much of a run is over by the nearest of its limits; 0 where it has none."""
    shares = [used / limit for _, used, limit in _limits(config, state, epochs)]
    return min(1.0, max(shares, default=0.0))


def end_reason(
    config: TrainingConfig, validation: ValidationConfig, state: TrainingState, epochs: float
) -> str:
    for name, used, limit in _limits(config, state, epochs):
        # From --max-time in seconds: 10s is a sixth of a minute
        if used >= limit and name == "max_minutes" and limit != round(limit, 4):
            return f"{60 * limit:.6g} seconds of training are reached"
        if used >= limit:
            return f"{name} = {limit} is reached"
    patience = validation.patience
    if patience and state.validations_since_best(validation) >= patience:
        return f"early stopping, no better {validation.metric} for validation.patience = {patience}"
    return ""


def _limits(
    config: TrainingConfig, state: TrainingState, epochs: float
) -> list[tuple[str, float, float]]:
    """Name, used amount and total of each limit that is set."""
    limits = [
        ("max_steps", state.step, config.max_steps),
        ("max_epochs", epochs, config.max_epochs),
        ("max_tokens", state.tokens, config.max_tokens),
        ("max_minutes", (state.seconds + state.seconds_to_end) / 60.0, config.max_minutes),
    ]
    return [(name, used, limit) for name, used, limit in limits if limit]
