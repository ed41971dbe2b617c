"""Doubt of a finished run, fitted to held-out pairs where that is cheap next to the training."""

from collections.abc import Sequence
from itertools import accumulate, takewhile
from pathlib import Path
from time import monotonic

from tformer_cli.errors import TformerError
from tformer_cli.kinds.opening import open_model
from tformer_cli.recipe import Recipe
from tformer_cli.sockets import load_place
from tformer_cli.text.corpora import SentencePair
from tformer_cli.text.tokenizer import Tokenizer, read_tokenizer
from tformer_cli.wording import count_of

CALIBRATE = "tformer_cli.plugins.instruments.jobs.calibrate:calibrate"
MOST_PAIRS, LEAST_PAIRS = 500, 200
LARGEST_SHARE = 0.05
"""Share of the training that a calibration may cost."""
CPU_RATE, GPU_RATE = 3.0, 0.05
"""Tokens of hypotheses that a search reads in the time of a token of training, at least: eleven
with the quickstart's model and the compiled engine. A search fills a GPU less than training."""


def calibrate_run(
    recipe: Recipe, run: Path, pairs: Sequence[SentencePair], n_tokens: int, device: str
) -> str:
    """Fits doubt to the first of the validation pairs, and stores it in the run.

    The cost is estimated by counting tokens, not by a clock: with the same seed the same files are
    written.

    Args:
        recipe: the recipe of the run.
        run: the run directory, which holds the final model.
        pairs: the validation pairs.
        n_tokens: target tokens of the training.
        device: the device of the training.

    Returns:
        A sentence on what was done, or why nothing was; empty for a model that does not translate.
    """
    if recipe.task.kind != "translate":
        return ""
    start = monotonic()
    advice = f"`tformer calibrate {run} -i FILE --reference FILE` does it"
    try:
        budget = LARGEST_SHARE * n_tokens * (CPU_RATE if device == "cpu" else GPU_RATE)
        pairs = pairs[:MOST_PAIRS]
        chosen = affordable_pairs(pairs, read_tokenizer(run), recipe.decoding.beam_size, budget)
        if len(chosen) < min(LEAST_PAIRS, len(pairs)):
            why = f"it would cost over {LARGEST_SHARE:.0%} of so short a training"
            return f"doubt is not calibrated, as {why}; {advice}"
        opened = open_model(run, "translate", device=device, n_best=1)
        sources, references = [pair.source for pair in chosen], [pair.target for pair in chosen]
        load_place(CALIBRATE)(opened, sources, references)
    except TformerError as error:  # too few pairs, or none that it translates well
        return f"doubt is not calibrated: {error}"
    count = count_of(len(chosen), "held-out pair")
    return f"doubt is calibrated by {count} in {monotonic() - start:.1f} s"


def affordable_pairs(
    pairs: Sequence[SentencePair], tokenizer: Tokenizer, beam_size: int, budget: float
) -> Sequence[SentencePair]:
    """Returns the first pairs whose calibration needs no more tokens than the budget."""
    # Each line is translated as it is and, in one of four ways, broken; and scored once
    n_passes = 2 * beam_size + 1
    lengths = (len(tokenizer.target.encode(pair.target)) + 1 for pair in pairs)
    costs = accumulate(n_passes * length for length in lengths)
    return pairs[: sum(1 for _ in takewhile(budget.__ge__, costs))]
