"""The report as one HTML file: the heads page with a tab for each of the other inspections.

The data of the tabs are added to those of `render_html`. Numbers are rounded to what is shown; of
long vectors the first components are kept, as the whole ones would be most of the file.
"""

import base64
import json
from importlib.resources import files
from typing import Any

import torch

from tformer_cli.inspection.page.heads_data import heads_data, page_texts
from tformer_cli.inspection.page.page_source import fill_page
from tformer_cli.inspection.views.flow import METHOD_NAMES, Flow, Method
from tformer_cli.inspection.views.logits import MEASURES, PositionLogits
from tformer_cli.inspection.views.positions import PositionsRecord, PositionTable, facts_of
from tformer_cli.inspection.views.report import LOSS, Report, SentenceReport
from tformer_cli.inspection.walkthrough.step import Step, StepRecord, Table
from tformer_cli.inspection.weighting.weighting import ALPHA, WEIGHTINGS

TITLE = "Inspection report"
SAMPLE = "sample-report.json"
"""Name of the report that ships with the package, among the guides."""
COMPONENTS = 8
"""Components of a vector that are kept of each walk-through."""
ROWS = 64
"""Rows of a table that are kept."""
MAP_TABLES = ("attention",)
"""Tables of a walk-through that are omitted, as the first tab has them as maps."""
DIGITS = 4
"""Decimal places of what is shown with three."""


def render_report(report: Report) -> str:
    """Renders a report as a page; the same report gives the same bytes."""
    return fill_page(TITLE, report_data(report))


def sample_page() -> str:
    """Puts the report that ships with the package into the page of now, without any model.

    Its numbers are those of a quickstart model and were written by
    ``python tests/inspection/write_sample_report.py runs/quickstart``.
    """
    stored = files("tformer_cli").joinpath("guide", SAMPLE).read_text(encoding="utf-8")
    return fill_page(TITLE, json.loads(stored) | report_texts())


def report_texts() -> dict[str, Any]:
    """Makes what a report says of any model and sentence."""
    terms = {**MEASURES, "loss": LOSS}
    return page_texts(ALPHA) | {"terms": {name: one._asdict() for name, one in terms.items()}}


def report_data(report: Report) -> dict[str, Any]:
    """Makes the data of a report, as `page/data.js` and the tabs read them."""
    data = heads_data([sentence.heads for sentence in report.sentences])
    data |= {"modelHash": report.model_hash, "positions": _positions(report.positions)}
    data |= report_texts()
    shown = [sentence for sentence in report.sentences if sentence.heads.heads]
    for of_heads, sentence in zip(data["sentences"], shown, strict=True):
        of_heads |= _tabs(sentence)
    return data


def _tabs(sentence: SentenceReport) -> dict[str, Any]:
    """The data of every tab that is about a sentence."""
    data: dict[str, Any] = {
        "steps": [_walk_through(record) for record in sentence.steps],
        "logits": [_position(position) for position in sentence.logits.positions],
        "flow": [_flow(method, flow) for method, flow in sentence.flow.flows.items()],
    }
    if sentence.ablation is not None:
        data["ablation"] = {
            "loss": _rounded(sentence.ablation.loss),
            "n_tokens": sentence.ablation.n_tokens,
            "effects": {
                str(head): float(f"{effect:.4g}")
                for head, effect in sentence.ablation.effects.items()
            },
        }
    return data


def _walk_through(record: StepRecord) -> dict[str, Any]:
    return {
        "head": str(record.head),
        "row": record.row,
        "token": record.token,
        "where": record.where,
        "norm": record.norm,
        "difference": record.difference,
        "n_checks": sum(len(step.checks) for step in record.steps),
        "steps": [_step(step) for step in record.steps],
    }


def _step(step: Step) -> dict[str, Any]:
    tables = (t for t in step.tables if not t.is_detail and t.name not in MAP_TABLES)
    return {
        "number": step.number,
        "name": step.name,
        "title": step.title,
        "formulas": step.formulas,
        "says": step.says,
        "worked": step.worked,
        "difference": step.difference,
        "checks": [[check.what, check.difference] for check in step.checks],
        "tables": [_table(table) for table in tables],
    }


def _table(table: Table) -> dict[str, Any]:
    width = table.values.shape[1]
    kept = width if table.columns else min(width, COMPONENTS)
    return {
        "caption": table.caption,
        "rows": table.rows[:ROWS],
        "columns": table.columns,
        "width": width,
        "share": table.share_column,
        "marked": table.marked_row,
        "values": [
            [None if value == float("-inf") else _rounded(value) for value in row]
            for row in table.values[:ROWS, :kept].tolist()
        ],
    }


def _position(position: PositionLogits) -> dict[str, Any]:
    return {
        "piece": position.chosen.piece,
        "p": _rounded(position.chosen.probability),
        "rank": position.rank,
        "entropy": _rounded(position.entropy),
        "first": position.first_layer,
        "top": [[one.piece, _rounded(one.probability)] for one in position.top],
        "lens": [
            [reading.top.piece, _rounded(reading.top.probability), reading.rank]
            for reading in position.lens
        ],
    }


def _flow(method: Method, flow: Flow) -> dict[str, Any]:
    """Shares in 8 bits; of the prefix those that a position has read, after all of the source."""
    rows = [
        torch.cat((source, prefix[: position + 1]))
        for position, (source, prefix) in enumerate(zip(flow.source, flow.prefix, strict=True))
    ]
    numbers = (torch.cat(rows).double() * 255).round().int().numpy().astype("u1")
    return {
        "name": METHOD_NAMES[method],
        "meaning": WEIGHTINGS[method].meaning,
        "source": WEIGHTINGS[method].source,
        "residual": flow.residual,
        "shares": [_rounded(share) for share in flow.source_shares],
        "values": base64.b64encode(numbers.tobytes()).decode("ascii"),
    }


def _positions(record: PositionsRecord) -> dict[str, Any]:
    return {
        "kind": record.kind,
        "tables": [_position_table(table) for table in record.tables],
    }


def _position_table(table: PositionTable) -> dict[str, Any]:
    """A table of position vectors: steps of 1/127 of the largest number, in 8 bits."""
    scale = max(table.table.abs().max().item(), 1e-30)
    numbers = (table.table / scale * 127).round().int().numpy().astype("i1")
    return {
        "stack": table.stack,
        "n_positions": table.table.shape[0],
        "width": table.table.shape[1],
        "scale": scale,
        "values": base64.b64encode(numbers.tobytes()).decode("ascii"),
        "facts": facts_of(table),
        "by_offset": [float(f"{one.mean:.6g}") for one in table.by_offset],
    }


def _rounded(value: float) -> float:
    return round(value, DIGITS) + 0.0  # -0.0 becomes 0.0
