"""The functions of `import tformer`: open a model, train one, score translations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from tformer_cli.api.calls import as_streams, check_arguments
from tformer_cli.errors import UsageError
from tformer_cli.search.opening import OpeningSettings
from tformer_cli.text.lines import given_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Literal

    from tformer_cli.api.model import LoadedModel
    from tformer_cli.evaluate.evaluate import Evaluation
    from tformer_cli.kinds.kind import Progress
    from tformer_cli.recipe import Recipe
    from tformer_cli.search.config import (
        Engine,
        EnsembleSpace,
        PrecisionChoice,
        SentenceRule,
        TooLong,
    )
    from tformer_cli.train.train import TrainingResult
    from tformer_cli.trainer.events import TrainingEvent, TrainingObserver


@check_arguments
def load(
    model: Path | str,
    *,
    # opening: written by tests/test_settings.py
    device: str = "auto", precision: PrecisionChoice = "auto", engine: Engine = "tformer",
    threads: int = 0, seed: int = 1, too_long: TooLong = "split", adapter: Path | None = None,
    source_language: str | None = None, target_language: str | None = None,
    split_sentences: SentenceRule | None = None, heads: Sequence[str] = (),
    shortlist: str | None = None, banned: Sequence[str] = (), ensemble: Sequence[Path] = (),
    ensemble_weights: Sequence[float] | None = None, ensemble_space: EnsembleSpace = "probability",
    tell: Callable[[str], None] | None = None, before_torch: Callable[[], None] | None = None,
    beam_size: int | None = None, length_penalty: float | None = None, n_best: int | None = None,
    max_length: int | None = None, max_length_ratio: float | None = None,
    batch_tokens: int | None = None, length_normalization: Literal["gnmt", "average"] | None = None,
    coverage_penalty: float | None = None, min_length: int | None = None,
    min_length_ratio: float | None = None, no_repeat_ngram: int | None = None,
    repetition_penalty: float | None = None, sampling: bool | None = None,
    temperature: float | None = None, top_k: int | None = None, top_p: float | None = None,
    diversity_groups: int | None = None, diversity_penalty: float | None = None,
    risk: Literal["none", "chrf", "bleu"] | None = None, candidates: int | None = None,
    distinct_texts: bool | None = None,
) -> LoadedModel:  # fmt: skip
    """Opens a model to translate, to score and to look into, as often as you like.

    Nothing that holds for the whole process is changed. Other arguments are options of the
    commands, which their help and the guides explain; None takes the model's own setting.

    Args:
        model: a model directory, or a foreign model.

    Raises:
        UsageError: if a setting is impossible.
        ArtifactError: if the model cannot be used.
    """
    arguments = locals()
    from tformer_cli.api.model import load_model

    _check_named("model", model)
    _check_named("adapter", adapter)
    arguments["adapter"] = None if adapter is None else Path(adapter)
    arguments["ensemble"] = [Path(path) for path in ensemble]
    # Models of other kinds refuse settings of the search: they get those that were given
    return load_model(
        arguments.pop("model"),
        **{name: value for name, value in arguments.items() if not _is_default(name, value)},
    )


def _is_default(name: str, value: object) -> bool:
    """Returns whether a setting has its default; an equal value of another type is none."""
    default = getattr(OpeningSettings, name, None)
    if default == ():
        return isinstance(value, list | tuple) and not value
    return type(value) is type(default) and value == default


def _check_named(argument: str, path: object) -> None:
    # An empty path is that of the current directory
    if path == "":
        raise UsageError(f"{argument}: is empty; name a directory")


@check_arguments
def train(
    recipe: Recipe | Mapping[str, Any] | Path | str,
    run: Path | str,
    *,
    changes: Mapping[str, Any] | None = None,
    start: Path | str | None = None,
    device: str = "auto",
    fresh: bool = False,
    observers: Sequence[TrainingObserver | Callable[[TrainingEvent], object]] = (),
    progress: Progress | None = None,
    tell: Callable[[str], None] | None = None,
) -> TrainingResult:
    """Trains a model, or continues with an interrupted run; `load` opens the run directory.

    Args:
        recipe: a TOML file, the name of a shipped recipe, or tables as nested mappings.
        run: the run directory.
        changes: keys of the recipe with other values, such as ``{"training.max_steps": 100}``.
        start: the model whose weights to start from.
        device: "auto", "cpu", "cuda" or "cuda:N".
        fresh: whether to remove an earlier run in the directory first.
        observers: functions, or objects with a method `notify`, which are called with every report,
            validation and checkpoint; see `tformer_cli.trainer.events`.
        progress: called with the progress of preparing the data.
        tell: called with lines about what `start` decides.

    Raises:
        RecipeError: if the recipe is impossible, or the directory holds a run of another one.
        DataError: if a corpus cannot be read, or has changed since the run began.
        ArtifactError: if the run directory cannot be used.
        Interrupted: on SIGINT or SIGTERM; the state is saved.
    """
    from tformer_cli.recipe import Recipe, load_recipe, make_recipe
    from tformer_cli.train.start import completion
    from tformer_cli.train.train import train as run_recipe

    _check_kind(recipe, Recipe)
    _check_named("run", run)
    changed = dict(changes or {})
    if start is not None:
        changed["model.from"] = str(start)
    run, kept = Path(run), None if start is None else changed.keys()
    complete = completion(run, tell or (lambda _: None), fresh=fresh, kept=kept)
    if isinstance(recipe, Path | str):
        # JSON strings, numbers and lists are also valid TOML
        overrides = [f"{key}={_format_change(key, value)}" for key, value in changed.items()]
        recipe = load_recipe(str(recipe), overrides, complete)
    elif changed:
        raise UsageError(
            "changes: only for a recipe file; write them into the mapping, start as from"
        )
    elif not isinstance(recipe, Recipe):
        recipe = make_recipe(recipe, "recipe", complete)
    observing = [
        cast("TrainingObserver", item if hasattr(item, "notify") else SimpleNamespace(notify=item))
        for item in observers
    ]
    return run_recipe(
        recipe, run, device=device, fresh=fresh, observers=observing, progress=progress
    )


def _check_kind(recipe: object, resolved: type) -> None:
    if not isinstance(recipe, resolved | Mapping | Path | str):
        raise UsageError(
            f"recipe: is {type(recipe).__name__}; give a TOML file, the name of a recipe, or tables"
        )


def _format_change(key: str, value: object) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        raise UsageError(
            f"changes: {key} is {type(value).__name__}; a recipe takes text, numbers and lists of "
            "them"
        ) from None


@check_arguments
def evaluate(
    hypotheses: Iterable[str],
    references: Iterable[str] | Iterable[Iterable[str]],
    *,
    lowercase: bool = False,
    tokenize: str = "13a",
) -> Evaluation:
    """Scores translations by BLEU, chrF and TER; `LoadedModel.evaluate` makes them, too.

    Args:
        hypotheses: translations, raw and detokenized.
        references: a reference of each, or several lists of them.
        lowercase: whether BLEU and chrF ignore case; TER always does.
        tokenize: sacreBLEU's tokenizer for BLEU.

    Raises:
        DataError: if there are more or fewer references.
        TypeError: if texts are not lists of strings.
    """
    from tformer_cli.evaluate.evaluate import score_hypotheses

    texts = list(given_lines(hypotheses, "hypotheses"))
    return score_hypotheses(texts, as_streams(references), lowercase=lowercase, tokenize=tokenize)
