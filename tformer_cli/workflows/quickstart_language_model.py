"""The quickstart of a language model: built-in sentences, a small decoder, and what it writes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tformer_cli.data.corpora import read_corpus
from tformer_cli.files.atomic import write_text
from tformer_cli.inspection.page.heads_data import render_html
from tformer_cli.recipe import Recipe
from tformer_cli.training.events import TrainingObserver
from tformer_cli.workflows.evaluate_texts import TextEvaluation, evaluate_texts
from tformer_cli.workflows.generate import generate_texts
from tformer_cli.workflows.inspection.heads import inspect_heads
from tformer_cli.workflows.opening.generator import open_generator
from tformer_cli.workflows.quickstart import FAMOUS, PAGE
from tformer_cli.workflows.train import TrainingResult, train
from tformer_cli.workflows.training.tasks import Progress

PROMPTS = ("", "", "", "The old", "My sister", "The animal didn't cross")
"""Beginnings of texts that are continued; of an empty one the whole text is the model's."""
_SEED = 1


@dataclass(frozen=True, kw_only=True)
class LanguageModelResult:
    """Result of the quickstart."""

    training: TrainingResult
    """The run."""
    evaluation: TextEvaluation
    """Scores on sentences that training never shows."""
    n_test: int
    """How many they are."""
    samples: tuple[tuple[str, str], ...]
    """What it has written: a prompt and what follows it."""
    page: Path
    """The page of heads, of the two sentences of the quickstart of translation."""


def quickstart_language_model(
    run: Path,
    *,
    recipe: Recipe,
    device: str = "auto",
    observers: Sequence[TrainingObserver] = (),
    progress: Progress | None = None,
) -> LanguageModelResult:
    """Trains on the built-in corpus, scores its test set, writes samples and the heads page.

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
    held_out = replace(recipe.data.train[0], built_in="test")
    texts = [pair.target for pair in read_corpus(held_out, "")]
    evaluation = evaluate_texts(open_generator(run, device=device), texts)
    written = generate_texts(run, PROMPTS, seed=_SEED, device=device)
    page = run / PAGE
    write_text(page, render_html(list(inspect_heads(run, FAMOUS, device=device, for_page=True))))
    return LanguageModelResult(
        training=training,
        evaluation=evaluation,
        n_test=len(texts),
        samples=tuple((one.prompt, one.texts[0].text) for one in written),
        page=page,
    )
