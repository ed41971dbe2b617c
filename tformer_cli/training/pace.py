"""Estimate of a run's duration on this machine, from its own first steps."""

from torch import Tensor

from tformer_cli.training.events import PaceMeasured

_SECONDS, _STEPS = 1.0, 4
"""Least duration and least number of steps of the measurement."""


class Pace:
    """Measures the first steps of a run, or of its resumption, and extrapolates them once.

    Its very first step does not count: it takes memory and loads code. Nothing else is as honest
    as real steps: the share of the hardware's limit that training reaches differs from machine
    to machine, and with what else runs there.
    """

    def __init__(self) -> None:
        """Waits for the first step."""
        self._first: tuple[int, float, float] | None = None
        self.is_measuring = True
        """Whether steps are still measured."""

    def wait_for(self, loss: Tensor | float) -> None:
        """Waits until the device has computed a step, while steps are measured."""
        if self.is_measuring:
            float(loss)

    def after_step(self, step: int, seconds: float, share_done: float) -> PaceMeasured | None:
        """Takes notice of a step.

        Args:
            step: steps made.
            seconds: of the run.
            share_done: of the run, by the nearest of its limits; 0 where it has none.

        Returns:
            What to tell, once: where enough was measured, and the run has a limit to reach.
        """
        if not self.is_measuring:
            return None
        if self._first is None:
            self._first = step, seconds, share_done
            return None
        n_steps, elapsed, share = (
            now - then for now, then in zip((step, seconds, share_done), self._first, strict=True)
        )
        if n_steps < _STEPS or elapsed < _SECONDS:
            return None
        self.is_measuring = False
        if share <= 0.0:
            return None
        left = (1.0 - share_done) / share
        before = self._first[0] - 1
        return PaceMeasured(
            step=before,
            n_steps=step - before + round(left * n_steps),
            seconds=(left + (n_steps + 1) / n_steps) * elapsed,
        )
