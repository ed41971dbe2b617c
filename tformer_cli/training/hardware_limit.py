"""The share of the hardware's limit that a run reaches."""

import time
from collections.abc import Callable
from typing import Protocol

from tformer_cli.model.runtime import is_out_of_memory

_SHARE_OF_TIME = 0.002
"""Of the run's time that measuring between its steps may take."""


class RateProbe(Protocol):
    """Probe of the hardware, such as `product_probe.ProductProbe`."""

    @property
    def rate(self) -> float:
        """The best so far, in operations a second; 0: not known."""

    def measure(self) -> None:
        """Measures thoroughly."""

    def measure_next(self) -> None:
        """Measures a little, in some milliseconds."""


class HardwareLimit:
    """The most operations a second that were seen, in products by themselves or in training.

    A single measurement says too little: at that moment other work may have had the processor.
    So the limit is measured again and again for a few milliseconds while the run continues, and it
    only rises. Where training is faster than the limit, the limit was wrong: it is measured
    thoroughly once more, and what training has shown to be possible is the least that it can be.
    """

    def __init__(
        self,
        probe: RateProbe,
        n_processes: int = 1,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Measures for the first time.

        Args:
            probe: measures what one process can do.
            n_processes: those that train together, on hardware of the same kind.
            clock: seconds.
        """
        self._probe = probe
        self._n_processes = n_processes
        self._clock = clock
        self._measure(probe.measure)
        self._start = clock()
        self._spent = 0.0
        self._reached = 0.0

    @property
    def rate(self) -> float:
        """Operations a second of all processes together; 0: could not be measured."""
        return max(self._n_processes * self._probe.rate, self._reached)

    def share_of(self, rate: float) -> float:
        """Computes how much of the limit a rate is, from 0 to 1; 0 where the limit is not known.

        To be called between two steps: it may measure, for a five hundredth of the run's time and,
        once in a while, for some tenths of a second beyond.

        Args:
            rate: operations a second of all processes together, which training has reached.
        """
        start = self._clock()
        if self._spent <= _SHARE_OF_TIME * (start - self._start):
            is_wrong = rate > self.rate
            self._measure(self._probe.measure if is_wrong else self._probe.measure_next)
            self._spent += self._clock() - start
        if not self._probe.rate:
            return 0.0
        self._reached = max(self._reached, rate)
        return rate / self.rate

    def _measure(self, measure: Callable[[], None]) -> None:
        try:
            measure()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise  # else training has the memory, and the limit stays what it is
