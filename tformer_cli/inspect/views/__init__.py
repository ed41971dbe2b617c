"""The views: one file each, and a row here; see `inspect.view`."""

from typing import Any

from tformer_cli.inspect.view import View
from tformer_cli.sockets import Socket

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
