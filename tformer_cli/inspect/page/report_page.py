"""The page of any views: that of the report with all its tabs, or that of one view alone.

The data of each tab are what its view makes of them, for a sentence or for the whole model; those
of the heads' maps, which are the first tab of a report, come from `heads_data`.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from tformer_cli.inspect.page.heads_data import heads_data, page_texts
from tformer_cli.inspect.page.page_source import fill_page
from tformer_cli.inspect.record import HeadsRecord
from tformer_cli.inspect.view import SentenceView, View
from tformer_cli.inspect.views import all_views
from tformer_cli.inspect.weighting.weighting import ALPHA

TITLE = "Inspection report"
SAMPLE = "sample-report.json"
"""Name of the report that ships with the package, among the guides."""


@dataclass(frozen=True, kw_only=True)
class SentenceReport:
    """All of the inspection of one sentence that is not blank."""

    heads: HeadsRecord
    """Its tokens, its maps and the heads that are shown."""
    views: Mapping[str, Any]
    """What each view has read of it, by the view's name."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """A model and some sentences."""

    model_hash: str
    """SHA-256 of the model's weights file."""
    views: Mapping[str, Any]
    """What each view has read of the model, by the view's name."""
    sentences: tuple[SentenceReport, ...]
    """The sentences; at least one."""


def render_report(report: Report) -> str:
    """Renders a report as a page; the same report gives the same bytes."""
    return _page(TITLE, report_data(report))


def render_view(view: View[Any], records: Iterable[Any], options: object) -> str:
    """Renders the page of one view, without the maps of the heads."""
    found = list(records)
    data = report_texts()
    if isinstance(view, SentenceView):
        shown = [one for one in found if one.sentence.maps is not None]
        data |= heads_data([replace(one.sentence, heads=(), extras=None) for one in shown])
        for of_sentence, one in zip(data["sentences"], shown, strict=True):
            of_sentence["views"] = {view.name: view.tab(one, options, is_alone=True)}
    else:
        (record,) = found
        model = getattr(record, "model", None)
        data |= {"model": None if model is None else vars(model), "sentences": []}
        data["views"] = {view.name: view.tab(record, options, is_alone=True)}
    return _page(view.title, data)


def sample_page() -> str:
    """Puts the report that ships with the package into the page of now, without any model.

    Its numbers are those of a quickstart model and were written by
    ``python tests/inspect/write_sample_report.py runs/quickstart``.
    """
    stored = files("tformer_cli").joinpath("guide", SAMPLE).read_text(encoding="utf-8")
    return _page(TITLE, json.loads(stored) | report_texts())


def report_texts() -> dict[str, Any]:
    """Makes what a report says of any model and sentence."""
    terms = {
        name: {"label": label, "meaning": meaning}
        for view in all_views().values()
        for name, (label, meaning) in view.terms.items()
    }
    return page_texts(ALPHA) | {"terms": terms}


def report_data(report: Report) -> dict[str, Any]:
    """Makes the data of a report, as `page/data.js` and the tabs read them."""
    shown = [sentence for sentence in report.sentences if sentence.heads.heads]
    data = heads_data([sentence.heads for sentence in shown])
    data |= {"modelHash": report.model_hash, "views": _tabs(report.views)} | report_texts()
    for of_heads, sentence in zip(data["sentences"], shown, strict=True):
        of_heads["views"] = _tabs(sentence.views)
    return data


def _tabs(records: Mapping[str, Any]) -> dict[str, Any]:
    """The data of every tab that a report has."""
    views = all_views()
    return {name: views[name].tab(record, None, is_alone=False) for name, record in records.items()}


def _page(title: str, data: Mapping[str, Any]) -> str:
    return fill_page(title, data, [view.script for view in all_views().values() if view.script])
