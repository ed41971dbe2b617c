"""The quickstart of a model of images: the built-in shapes, and where its heads look."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tformer_cli.data.config import CorpusConfig
from tformer_cli.data.corpora import SentencePair, read_corpus
from tformer_cli.files.atomic import write_text
from tformer_cli.inspection.views import all_views
from tformer_cli.recipe import Recipe
from tformer_cli.training.events import TrainingObserver
from tformer_cli.workflows.classify import LabelEvaluation, evaluate_classifier, open_classifier
from tformer_cli.workflows.inspection.views import inspect_view
from tformer_cli.workflows.quickstart import PAGE
from tformer_cli.workflows.train import TrainingResult, train
from tformer_cli.workflows.training.tasks import Progress

N_SAMPLES = 6
"""Test pictures whose labels are shown, and whose heads are on the page."""


@dataclass(frozen=True, kw_only=True)
class ShapesResult:
    """Result of the quickstart."""

    training: TrainingResult
    """The run."""
    evaluation: LabelEvaluation
    """Scores on pictures that training never shows."""
    samples: tuple[tuple[str, str, str], ...]
    """Some of them: name, label given, right label."""
    page: Path
    """The page of heads over these pictures."""


def quickstart_shapes(
    run: Path,
    *,
    recipe: Recipe,
    device: str = "auto",
    observers: Sequence[TrainingObserver] = (),
    progress: Progress | None = None,
) -> ShapesResult:
    """Trains on the built-in shapes, scores the test and writes the page of heads.

    Args:
        run: the run directory; a finished or interrupted run is taken up.
        recipe: recipe of the run; its first corpus is one of shapes.
        device: "auto", "cpu", "cuda" or "cuda:N".
        observers: observers of training events.
        progress: called with the progress of preparing the data.

    Raises:
        TformerError: as `train` does.
    """
    training = train(recipe, run, device=device, observers=observers, progress=progress)
    pairs = unseen_shapes(recipe)
    names, kinds = [pair.source for pair in pairs], [pair.target for pair in pairs]
    evaluation = evaluate_classifier(open_classifier(run, device=device), names, kinds)
    samples = tuple(zip(names, evaluation.predicted, kinds, strict=True))[:N_SAMPLES]
    view = all_views()["image"]
    records = inspect_view("image", run, [name for name, *_ in samples], device=device)
    page = run / PAGE
    write_text(page, view.page(records, view.Options()))
    return ShapesResult(training=training, evaluation=evaluation, samples=samples, page=page)


def unseen_shapes(recipe: Recipe) -> list[SentencePair]:
    """Names the test split of the shapes that the recipe trains on."""
    trained = recipe.data.train[0]
    return list(
        read_corpus(CorpusConfig(shapes="test", pairs=trained.pairs, seed=trained.seed), "")
    )
