"""The functions of `import tformer`: open a model, train one, score translations."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from tformer_cli.api.calls import as_streams, check_arguments, log_note
from tformer_cli.errors import UsageError
from tformer_cli.search.opening import settings_of_load
from tformer_cli.text.lines import given_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Unpack

    from tformer_cli.api.model import LoadedModel
    from tformer_cli.evaluate.evaluate import Evaluation
    from tformer_cli.kinds.kind import Progress
    from tformer_cli.recipe import Recipe
    from tformer_cli.search.keywords import LoadSettings
    from tformer_cli.train.train import TrainingResult
    from tformer_cli.trainer.events import TrainingEvent, TrainingObserver


@check_arguments
def load(model: Path | str, **settings: Unpack[LoadSettings]) -> LoadedModel:
    """Opens a model to translate, to score and to look into, as often as you like.

    Nothing that holds for the whole process is changed. Notes, such as about a slower engine, go to
    the logger "tformer". Settings of the search hold for all calls, and None takes those of the
    model.

    Args:
        model: a model directory, or a foreign model.

    Raises:
        UsageError: if a setting is impossible.
        ArtifactError: if the model cannot be used.
    """
    from tformer_cli.api.model import load_model

    _check_named("model", model)
    if settings.get("adapter") is not None:
        _check_named("adapter", settings["adapter"])
    # Models of other kinds refuse settings of the search: they get those that were given
    known = settings_of_load()
    options: dict[str, Any] = {
        name: value for name, value in settings.items() if not _is_default(value, known[name][1])
    }
    # The model is opened once more to look into it, perhaps in another process
    options |= {n: tuple(value) for n, value in options.items() if known[n][1] == ()}
    return load_model(model, tell=log_note, **options)


def _describe_settings(document: str) -> str:
    """Adds the settings to the docstring of `load`, a section for each group of options."""
    sections = dict[str, str]()
    for name, (row, _) in settings_of_load().items():
        shown = getattr(row, "shown_default", None) or "none"
        default = "" if shown in ("none", "the model's") else f" Default: {shown}."
        text = f"{row.help}{default}".replace(" Repeatable.", "").replace("MODEL", "the model")
        text = re.sub(r"--([a-z][a-z-]*)", lambda option: option[1].replace("-", "_"), text)
        lines = textwrap.fill(
            f"{name}: {text}", 92, subsequent_indent="    ", break_on_hyphens=False
        )
        panel = row.panel or "Common"
        sections[panel] = sections.get(panel, "") + textwrap.indent(f"{lines}\n", "    ")
    groups = "".join(f"{panel}:\n{rows}\n" for panel, rows in sections.items())
    return inspect.cleandoc(document).replace("Raises:", f"{groups}Raises:")


load.__doc__ = _describe_settings(load.__doc__ or "")


def _is_default(value: object, default: object) -> bool:
    """Returns whether a setting has its default; an equal value of another type is none."""
    if default == ():
        return isinstance(value, list | tuple) and not value
    return type(value) is type(default) and value == default


def _check_named(argument: str, path: object) -> None:
    if not isinstance(path, str | PathLike):
        raise UsageError(f"{argument}: is {type(path).__name__}; name a directory")
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
