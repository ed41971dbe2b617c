"""The views: one file each, and a row here; see `inspect.view`."""

from typing import Any

from tformer_cli.errors import UsageError
from tformer_cli.inspect.view import ModelView, SentenceView, View
from tformer_cli.sockets import Socket
from tformer_cli.wording import did_you_mean, suggestions

REPORT = "tformer_cli.plugins.instruments.jobs.report:inspect_report"
"""Reads a few sentences by all views."""
_CORE = "corpus", "heads", "timeline"
_INSTRUMENTS = (
    *("ablation", "circuit", "decision", "diff", "flow", "image", "layers", "logits"),
    *("positions", "probe", "step"),
)
_FOLDERS = {
    **dict.fromkeys(_CORE, "tformer_cli.inspect.views"),
    **dict.fromkeys(_INSTRUMENTS, "tformer_cli.plugins.instruments.views"),
}
VIEWS: Socket[View[Any]] = Socket(
    "views", View, {name: f"{_FOLDERS[name]}.{name}:VIEW" for name in sorted(_FOLDERS)}
)


def find_view(name: str) -> SentenceView[Any] | ModelView[Any]:
    """Finds a view of sentences or of a model; raises a UsageError that lists them."""
    view = VIEWS.get(name)
    if isinstance(view, SentenceView | ModelView):
        return view
    known = [n for n, v in VIEWS.items() if isinstance(v, SentenceView | ModelView)]
    hint = did_you_mean(suggestions(name, known)) or f"use {', '.join(known)}"
    raise UsageError(f'view: "{name}" is no view of sentences or of a model; {hint}')
