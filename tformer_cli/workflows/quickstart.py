"""The quickstart: the built-in corpus, a small model, its scores and its heads, start to end."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tformer_cli.data.config import CorpusConfig
from tformer_cli.data.corpora import SentencePair, read_corpus
from tformer_cli.files.atomic import write_text
from tformer_cli.inspection.page.heads_data import render_html
from tformer_cli.recipe import Recipe
from tformer_cli.training.events import TrainingObserver
from tformer_cli.workflows.evaluate import Evaluation, evaluate_model
from tformer_cli.workflows.inspection.heads import inspect_heads
from tformer_cli.workflows.train import TrainingResult, train
from tformer_cli.workflows.training.tasks import Progress

FAMOUS = (
    "The animal didn't cross the street because it was too tired.",
    "The animal didn't cross the street because it was too wide.",
)
"""The noun that "it" means decides between "il" and "elle". Neither sentence is ever trained on."""
N_SAMPLES = 5
"""Test sentences whose translations are shown."""
PAGE = "heads.html"
"""Name of the page of heads in the run directory."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A test sentence, its translation by the model and its reference."""

    source: str
    translation: str
    reference: str


@dataclass(frozen=True, kw_only=True)
class QuickstartResult:
    """Result of the quickstart."""

    training: TrainingResult
    """The run."""
    evaluation: Evaluation
    """Scores on the test set."""
    n_test: int
    """Sentences of the test set."""
    samples: tuple[Sample, ...]
    """Some of them, the two famous ones first."""
    page: Path
    """The page of heads."""


def quickstart(
    run: Path,
    *,
    recipe: Recipe,
    device: str = "auto",
    observers: Sequence[TrainingObserver] = (),
    progress: Progress | None = None,
) -> QuickstartResult:
    """Trains on the built-in corpus, translates its test set, scores it and writes the heads page.

    Args:
        run: the run directory; a finished or interrupted run is taken up.
        recipe: recipe of the run; its first corpus is a built-in one.
        device: "auto", "cpu", "cuda" or "cuda:N".
        observers: observers of training events.
        progress: called with the progress of preparing the data.

    Raises:
        TformerError: as `train` does.
    """
    training = train(recipe, run, device=device, observers=observers, progress=progress)
    pairs = held_out_pairs(recipe)
    sources = [pair.source for pair in pairs]
    evaluation = evaluate_model(run, sources, [[pair.target for pair in pairs]], device=device)
    # The samples: the famous sentences first, then some from all over the test set
    chosen = [sources.index(text) for text in FAMOUS if text in sources]
    chosen += [i for i in _spread(len(pairs)) if i not in chosen][: N_SAMPLES - len(chosen)]
    page = run / PAGE
    # Live: the page then shows the search that found the translation, beam by beam
    shown = inspect_heads(run, FAMOUS, device=device, mode="live", for_page=True)
    write_text(page, render_html(list(shown)))
    return QuickstartResult(
        training=training,
        evaluation=evaluation,
        n_test=len(pairs),
        samples=tuple(
            Sample(
                source=pairs[i].source,
                translation=evaluation.hypotheses[i],
                reference=pairs[i].target,
            )
            for i in chosen
        ),
        page=page,
    )


def held_out_pairs(recipe: Recipe) -> list[SentencePair]:
    """Generates the test split of the corpus that the recipe trains on."""
    trained = recipe.data.train[0]
    corpus = CorpusConfig(built_in="test", pairs=trained.pairs, seed=trained.seed)
    return list(read_corpus(corpus, ""))


def _spread(n_pairs: int) -> list[int]:
    """Numbers of pairs from all over the test set."""
    return [i * n_pairs // 10 for i in range(10)]
