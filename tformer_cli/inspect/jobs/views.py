"""Reads any view of the table: of sentences or of a model."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from tformer_cli.artifacts.model_directory import ModelDirectory, load_model_directory
from tformer_cli.inspect.jobs.heads import HeadInspector, subject_of
from tformer_cli.inspect.jobs.reader import InspectionOptions, open_for_inspection
from tformer_cli.inspect.record import HeadsRecord
from tformer_cli.inspect.view import CAPTURED, ModelView, SentenceView
from tformer_cli.inspect.views import VIEWS
from tformer_cli.kinds.stored_model import Opened


def inspect_view(
    name: str,
    model: Path | str | ModelDirectory,
    lines: Iterable[str] = (),
    *,
    targets: Iterable[str] | None = None,
    settings: dict[str, Any] | None = None,
    **options: Unpack[InspectionOptions],
) -> Iterator[Any]:
    view = VIEWS[name]
    chosen = view.Options(**(settings or {}))
    if isinstance(view, ModelView):
        return iter([read_model(view, model, chosen)])
    assert isinstance(view, SentenceView)  # noqa: S101
    rank = getattr(chosen, "rank", 1)
    opened = open_for_inspection(model, hypothesis=rank, tasks=view.tasks, **options)
    return read_sentences(view, opened, lines, targets, chosen)


def read_sentences(
    view: SentenceView[Any],
    opened: Opened,
    lines: Iterable[str],
    targets: Iterable[str] | None,
    options: Any,  # noqa: ANN401 - the view's own
) -> Iterator[Any]:
    inspector, read = sentence_reader(view, opened, options)
    return map(read, inspector.inspect(lines, targets))


def sentence_reader(
    view: SentenceView[Any], opened: Opened, options: object
) -> tuple[HeadInspector, Callable[[HeadsRecord], Any]]:
    """Returns what captures the maps of a sentence, and what reads them by a view."""
    subject = replace(subject_of(opened.directory), translator=opened.translator)
    inspector = HeadInspector(opened, **capture_options(options), by_kernels=not view.needs_model)
    return inspector, partial(view.read, subject, options=options)


def capture_options(options: object) -> dict[str, Any]:
    """Returns the options of a view that `HeadInspector` takes."""
    return {name: value for name, value in vars(options).items() if name in CAPTURED}


def read_model(
    view: ModelView[Any],
    model: Path | str | ModelDirectory,
    options: Any,  # noqa: ANN401 - the view's own
) -> Any:  # noqa: ANN401 - the view's own
    """Reads a view of a model on the CPU, without its search; see `inspect_view`."""
    if not isinstance(model, ModelDirectory):
        from tformer_cli.foreign.import_model import resolve_model

        model = load_model_directory(resolve_model(model, weights="float32"), tasks=view.tasks)
    return view.read(subject_of(model), options)
