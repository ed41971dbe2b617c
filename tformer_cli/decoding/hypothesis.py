"""Hypotheses that a search returns: token ids with their log-probability and score."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One candidate translation in token ids, ended by the end of sentence."""

    token_ids: tuple[int, ...]
    """The target tokens without beginning and end of sentence."""
    log_probability: float
    """Σ log p of the tokens and of the end of sentence, natural logarithm."""
    score: float
    """`log_probability` after the length penalty; hypotheses are ranked by it."""
    token_log_probabilities: tuple[float, ...]
    """log p of every token in turn; the last is that of the end of sentence. Empty where the engine
    does not tell."""
    is_finished: bool
    """False where the length limit ended it although the model preferred to continue."""

    @property
    def n_tokens(self) -> int:
        """T of the length penalty: the tokens and the end of sentence."""
        return len(self.token_ids) + 1
