"""Reports of a run's last steps."""

from tformer_cli.model.flops import training_flops_per_token
from tformer_cli.model.transformer import Transformer
from tformer_cli.training.events import StepReport
from tformer_cli.training.hardware_limit import HardwareLimit
from tformer_cli.training.state import TrainingState
from tformer_cli.training.window import Window


def step_report(
    window: Window,
    state: TrainingState,
    *,
    epoch: float,
    share_done: float,
    learning_rate: float,
    limit: HardwareLimit,
    model: Transformer,
    n_passes: int = 1,
) -> StepReport:
    """Sums up the steps since the last report.

    Args:
        window: those steps.
        state: of the run after them, its time brought up to date.
        epoch: passes over the corpora so far.
        share_done: of the run, from 0 to 1.
        learning_rate: of the last step.
        limit: of what the hardware can do, all processes together.
        model: whose arithmetic is compared with it.
        n_passes: how often each batch goes through it.
    """
    tokens_per_second = window.n_target_tokens / max(1e-9, state.seconds - window.start)
    flops = training_flops_per_token(model.config, model.vocab_size, *window.mean_lengths)
    return StepReport(
        step=state.step,
        epoch=epoch,
        loss=window.mean_loss,
        perplexity=window.perplexity,
        learning_rate=learning_rate,
        gradient_norm=float(window.last_norm),
        tokens_per_second=tokens_per_second,
        padding=window.padding,
        tokens=state.tokens,
        seconds=state.seconds,
        share_done=share_done,
        hardware_share=limit.share_of(n_passes * tokens_per_second * flops),
    )
