"""The quickstart of a classifier: the built-in ratings, a small encoder, and what it never saw."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tformer_cli.data.config import CorpusConfig
from tformer_cli.data.corpora import SentencePair, read_corpus
from tformer_cli.files.atomic import write_text
from tformer_cli.inspection.page.heads_data import render_html
from tformer_cli.recipe import Recipe
from tformer_cli.training.events import TrainingObserver
from tformer_cli.workflows.classify import LabelEvaluation, evaluate_classifier, open_classifier
from tformer_cli.workflows.inspection.heads import inspect_heads
from tformer_cli.workflows.quickstart import PAGE
from tformer_cli.workflows.train import TrainingResult, train
from tformer_cli.workflows.training.tasks import Progress

N_SAMPLES = 6
"""Test sentences whose stars are shown; the first is `ratings.FAMOUS`."""


@dataclass(frozen=True, kw_only=True)
class RatingsResult:
    """Result of the quickstart."""

    training: TrainingResult
    """The run."""
    evaluation: LabelEvaluation
    """Scores on sentences with combinations of words that training never shows."""
    samples: tuple[tuple[str, str, str], ...]
    """Some of them: sentence, stars given, right stars."""
    page: Path
    """The page of heads, of the first two of them."""


def quickstart_ratings(
    run: Path,
    *,
    recipe: Recipe,
    device: str = "auto",
    observers: Sequence[TrainingObserver] = (),
    progress: Progress | None = None,
) -> RatingsResult:
    """Trains on the built-in ratings, scores the held-out ones and writes the heads page.

    Args:
        run: the run directory; a finished or interrupted run is taken up.
        recipe: recipe of the run; its first corpus is one of ratings.
        device: "auto", "cpu", "cuda" or "cuda:N".
        observers: observers of training events.
        progress: called with the progress of preparing the data.

    Raises:
        TformerError: as `train` does.
    """
    training = train(recipe, run, device=device, observers=observers, progress=progress)
    pairs = held_out_ratings(recipe)
    texts, stars = [pair.source for pair in pairs], [pair.target for pair in pairs]
    evaluation = evaluate_classifier(open_classifier(run, device=device), texts, stars)
    rows = list(zip(texts, evaluation.predicted, stars, strict=True))
    step = max(1, len(rows) // N_SAMPLES)
    samples = tuple(rows[::step][:N_SAMPLES])
    page = run / PAGE
    shown = inspect_heads(run, [text for text, *_ in samples[:2]], device=device, for_page=True)
    write_text(page, render_html(list(shown)))
    return RatingsResult(training=training, evaluation=evaluation, samples=samples, page=page)


def held_out_ratings(recipe: Recipe) -> list[SentencePair]:
    """Generates the test split of the ratings that the recipe trains on."""
    trained = recipe.data.train[0]
    return list(
        read_corpus(CorpusConfig(ratings="test", pairs=trained.pairs, seed=trained.seed), "")
    )
