"""The quickstarts: a built-in corpus, a small model, its scores and its heads, start to end."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from tformer_cli.artifacts.config_file import DOUBT, FREQUENCIES, TASKS, TOKENIZER
from tformer_cli.errors import ArtifactError
from tformer_cli.evaluate.evaluate import (
    Evaluation,
    LabelEvaluation,
    TextEvaluation,
    evaluate_classifier,
    evaluate_model,
    evaluate_texts,
)
from tformer_cli.files.atomic import write_text
from tformer_cli.inspect.jobs.align import store_measured_heads
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.inspect.jobs.views import inspect_view
from tformer_cli.inspect.pages import render_html, render_view
from tformer_cli.inspect.views import VIEWS
from tformer_cli.kinds.kind import Progress
from tformer_cli.kinds.lines.generate import generate_texts
from tformer_cli.kinds.opening import open_model
from tformer_cli.recipe import Recipe, has_run
from tformer_cli.sockets import load_place
from tformer_cli.text.corpora import SentencePair, read_corpus
from tformer_cli.train.train import TrainingResult, check_recipe, train
from tformer_cli.trainer.events import TrainingObserver

# The noun that "it" means decides between "il" and "elle". Neither sentence is ever trained on.
FAMOUS = (
    "The animal didn't cross the street because it was too tired.",
    "The animal didn't cross the street because it was too wide.",
)
# Beginnings of texts that are continued; of an empty one the whole text is the model's.
PROMPTS = ("", "", "", "The old", "My sister", "The animal didn't cross")
# Examples of the test that are shown.
N_TRANSLATIONS, N_LABELED = 5, 6
PAGE = "heads.html"
# The model itself as a page, and what writes it; pages read no pictures.
LIVE_PAGE, EXPORT_PAGE = "page.html", "tformer_cli.plugins.page.export:export_page"
# Files that training writes before its recipe: a run that ended there is begun again.
BEFORE_A_RUN = (TOKENIZER, FREQUENCIES)
_SEED = 1
AnyEvaluation = TypeVar("AnyEvaluation", Evaluation, LabelEvaluation, TextEvaluation[Any])


class Tested(NamedTuple, Generic[AnyEvaluation]):
    """A trained model on what training never shows."""

    evaluation: AnyEvaluation
    samples: tuple[tuple[str, ...], ...]
    """Some examples: what was given, what the model made of it, and the right answer if one is."""
    page: str


@dataclass(frozen=True, kw_only=True)
class QuickstartResult(Generic[AnyEvaluation]):
    """Result of a quickstart."""

    training: TrainingResult
    n_test: int
    evaluation: AnyEvaluation
    samples: tuple[tuple[str, ...], ...]
    page: Path
    live_page: Path | None
    """The model as a page that computes it; None for images."""


def quickstart(
    run: Path,
    *,
    recipe: Recipe,
    device: str = "auto",
    observers: Sequence[TrainingObserver] = (),
    progress: Progress | None = None,
) -> QuickstartResult[Any]:
    """Trains on a built-in corpus, tests on its test set, scores and writes the pages."""
    _check_place(recipe, run)
    training = train(recipe, run, device=device, observers=observers, progress=progress)
    if training.was_finished:  # perhaps before heads were measured
        training = replace(training, aligned=store_measured_heads(recipe, run))
        if not (run / DOUBT).is_file():
            from tformer_cli.train.calibration import calibrate_run
            from tformer_cli.train.data import validation_pairs

            state, valid = training.state, validation_pairs(recipe)
            calibrate_run(recipe, run, valid, state.tokens, state.device or device)
    pairs = held_out_pairs(recipe)
    tested = TESTS[recipe.task.kind](run, pairs, device)
    page = run / PAGE
    write_text(page, tested.page)
    live_page = None if TASKS[recipe.task.kind].reads == "images" else run / LIVE_PAGE
    if live_page is not None:
        load_place(EXPORT_PAGE)(run, live_page)
    return QuickstartResult(
        training=training,
        n_test=len(pairs),
        evaluation=tested.evaluation,
        samples=tested.samples,
        page=page,
        live_page=live_page,
    )


def _check_place(recipe: Recipe, run: Path) -> None:
    """Checks that the run directory does not hold a newcomer's own files."""
    check_recipe(recipe, run, more="")
    if has_run(run) or not run.is_dir():
        return
    names = sorted(path.name for path in run.iterdir() if not path.name.startswith("."))
    others = [name for name in names if name not in BEFORE_A_RUN]
    if others:
        shown = ", ".join(others[:3]) + (" and others" if len(others) > 3 else "")
        raise ArtifactError(f"{run}: holds other files ({shown}); name a new directory")


def held_out_pairs(recipe: Recipe) -> list[SentencePair]:
    trained = recipe.data.train[0]
    held_out: dict[str, Any] = {trained.format: "test"}  # its name is that of the split's field
    return list(read_corpus(replace(trained, **held_out), ""))


def _test_translations(run: Path, pairs: Sequence[SentencePair], device: str) -> Tested[Evaluation]:
    """Shows the two famous sentences first, then some from all over the test set."""
    sources = [pair.source for pair in pairs]
    evaluation = evaluate_model(run, sources, [[pair.target for pair in pairs]], device=device)
    chosen = [sources.index(text) for text in FAMOUS if text in sources]
    spread = [i * len(pairs) // 10 for i in range(10)]
    chosen += [i for i in spread if i not in chosen][: N_TRANSLATIONS - len(chosen)]
    # Live: the page then shows the search that found the translation, beam by beam
    shown = inspect_heads(run, FAMOUS, device=device, mode="live", for_page=True)
    samples = tuple((sources[i], evaluation.hypotheses[i], pairs[i].target) for i in chosen)
    return Tested(evaluation, samples, render_html(list(shown)))


def _test_texts(
    run: Path, pairs: Sequence[SentencePair], device: str
) -> Tested[TextEvaluation[Any]]:
    """Shows what the model writes; the page shows the same two sentences as for translation."""
    texts = [pair.target for pair in pairs]
    evaluation = evaluate_texts(open_model(run, "generate", device=device), texts)
    written = generate_texts(run, PROMPTS, seed=_SEED, device=device)
    page = render_html(list(inspect_heads(run, FAMOUS, device=device, for_page=True)))
    return Tested(
        evaluation,
        tuple((generation.prompt, generation.texts[0].text) for generation in written),
        page,
    )


def _test_ratings(run: Path, pairs: Sequence[SentencePair], device: str) -> Tested[LabelEvaluation]:
    """Shows sentences from all over the test set, `ratings.FAMOUS` first; the page shows two."""
    evaluation, rows = _label_texts(run, pairs, device)
    samples = rows[:: max(1, len(rows) // N_LABELED)][:N_LABELED]
    shown = inspect_heads(run, [text for text, *_ in samples[:2]], device=device, for_page=True)
    return Tested(evaluation, samples, render_html(list(shown)))


def _test_shapes(run: Path, pairs: Sequence[SentencePair], device: str) -> Tested[LabelEvaluation]:
    """Shows the first pictures, and on the page where each head looks in them."""
    evaluation, rows = _label_texts(run, pairs, device)
    samples = rows[:N_LABELED]
    view = VIEWS["image"]
    records = inspect_view("image", run, [name for name, *_ in samples], device=device)
    return Tested(evaluation, samples, render_view(view, records, view.Options()))


def _label_texts(
    run: Path, pairs: Sequence[SentencePair], device: str
) -> tuple[LabelEvaluation, tuple[tuple[str, ...], ...]]:
    """The evaluation of a classifier, and of each example its text, its label and the right one."""
    texts, right = [pair.source for pair in pairs], [pair.target for pair in pairs]
    evaluation = evaluate_classifier(open_model(run, "classify", device=device), texts, right)
    return evaluation, tuple(zip(texts, evaluation.predicted, right, strict=True))


TESTS: Mapping[str, Callable[[Path, Sequence[SentencePair], str], Tested[Any]]] = MappingProxyType(
    {
        "translate": _test_translations,
        "language-model": _test_texts,
        "classify": _test_ratings,
        "image": _test_shapes,
    }
)
