"""A walk-through as one line of JSON, schema `tformer.step/1`: every number of every step.

Masked cells, −∞, are null, as JSON has no infinity; on a worksheet the blanks are null too, and
`quiz` says which they are.
"""

import json
import math
from typing import Any

from tformer_cli.inspection.views.render_json import describe, rounded
from tformer_cli.inspection.walkthrough.quiz import Quiz
from tformer_cli.inspection.walkthrough.step import SCHEMA, Step, StepRecord, Table


def render_step_json(
    record: StepRecord, quiz: Quiz | None = None, *, with_answers: bool = True
) -> str:
    """Renders a walk-through as one line of JSON, without the line end.

    Args:
        record: the walk-through.
        quiz: the blanks of a worksheet; None shows everything.
        with_answers: whether the blanks' values stand in `quiz`.
    """
    data = describe(record.sentence) | {
        "schema": SCHEMA,
        "head": str(record.head),
        "norm": record.norm,
        "row": record.row,
        "token": record.token,
        "where": record.where,
        "key": record.key,
        "key_piece": record.key_piece,
        "difference": rounded(record.difference),
        "steps": [_step(step, quiz) for step in record.steps],
    }
    if quiz is not None:
        data["quiz"] = [_blank(vars(blank), with_answers) for blank in quiz.blanks]
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _step(step: Step, quiz: Quiz | None) -> dict[str, Any]:
    return {
        "number": step.number,
        "name": step.name,
        "title": step.title,
        "formulas": list(step.formulas),
        "says": step.says,
        "worked": step.worked,
        "checks": [
            {"what": check.what, "difference": rounded(check.difference)} for check in step.checks
        ],
        "tables": [_table(table, quiz) for table in step.tables],
    }


def _table(table: Table, quiz: Quiz | None) -> dict[str, Any]:
    return {
        "name": table.name,
        "caption": table.caption,
        "rows": list(table.rows),
        "columns": list(table.columns),
        "values": [[_value(value, quiz) for value in row] for row in table.values.tolist()],
    }


def _value(value: float, quiz: Quiz | None) -> float | None:
    if math.isinf(value) or (quiz is not None and quiz.blank_of(value) is not None):
        return None
    return rounded(value)


def _blank(blank: dict[str, Any], with_answers: bool) -> dict[str, Any]:
    answer = {"value": rounded(blank["value"])} if with_answers else {}
    return {"number": blank["number"], "step": blank["step"], "what": blank["what"], **answer}
