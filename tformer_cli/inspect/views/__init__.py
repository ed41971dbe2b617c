"""The views: one file each, and a row here; see `inspect.view`."""

from typing import Any

from tformer_cli.inspect.view import View
from tformer_cli.sockets import Socket

REPORT = "tformer_cli.inspect.jobs.report:inspect_report"
"""Reads a few sentences by all views."""
VIEWS: Socket[View[Any]] = Socket(
    "views",
    View,
    {
        name: f"tformer_cli.inspect.views.{name}:VIEW"
        for name in (
            *("ablation", "circuit", "corpus", "decision", "diff", "flow", "heads", "image"),
            *("layers", "logits", "positions", "probe", "step", "timeline"),
        )
    },
)
