"""A walk-through as one HTML file without a script: every number, formulas, checks, a worksheet."""

import math
import re

from tformer_cli.inspection.capture.heads import KIND_NAMES
from tformer_cli.inspection.views.static_page import bar, chips, escaped, render_page
from tformer_cli.inspection.walkthrough.quiz import Blank, Quiz
from tformer_cli.inspection.walkthrough.step import Step, StepRecord, Table

STRONGEST_TINT = 0.5
"""Share of color behind the largest number of a table."""
DETAIL_CELLS = 8192
"""Larger tables that are details are omitted of the page; the JSON has them."""
_SUBSCRIPT = re.compile(r"_([A-Za-z]+|\d+)")
_SYMBOL = re.compile(r"\b([dbW])_([kO])\b")
_POWER = re.compile(r"e\^\(([^()]*)\)|e\^\((\S*)\)")


def render_step_html(
    record: StepRecord, quiz: Quiz | None = None, *, with_answers: bool = True
) -> str:
    """Renders a walk-through as a page.

    Args:
        record: the walk-through.
        quiz: the blanks of a worksheet; None shows everything.
        with_answers: whether the answers stand, folded up, at the end of the worksheet.
    """
    parts = [_heading(record), _index(record), *(_step(step, quiz) for step in record.steps)]
    if quiz is not None and with_answers:
        parts.append(_answers(quiz))
    return render_page(f"{record.head}, {record.token}", "\n".join(parts))


def _heading(record: StepRecord) -> str:
    sentence, head = record.sentence, record.head
    name = "Given target" if sentence.is_forced else "Translation"
    is_source = head.kind == "enc"
    n_checks = sum(len(step.checks) for step in record.steps)
    does = "reads" if is_source else "writes"
    weight = sentence.captured.weights(head)[record.row, record.key].item()
    return (
        f"<h1>{head}: {escaped(KIND_NAMES[head.kind])}, step by step</h1>\n"
        f'<div class="pair"><span>Source</span><bdi class="text">{escaped(sentence.source)}</bdi>'
        f'<span>{name}</span><bdi class="text">{escaped(sentence.target)}</bdi></div>\n'
        f"<p>When the model {does} <b><bdi>{escaped(record.token)}</bdi></b>, this head gives "
        f"{weight:.0%} of its attention to <b><bdi>{escaped(record.key_piece)}</bdi></b>. Below is "
        "every number that leads there; orange is above 0, blue below.</p>\n"
        f'<div class="pair"><span>Source tokens</span><div>'
        f"{chips(sentence.source_pieces, record.row if is_source else None)}</div>"
        f"<span>{'Target' if sentence.is_forced else 'Translation'} tokens</span><div>"
        f"{chips(sentence.target_pieces, None if is_source else record.row)}</div></div>\n"
        f"<details><summary>About these numbers</summary>"
        f'<p class="facts">{escaped(sentence.model.name)}, {record.norm}-norm, layer {head.layer}, '
        f"head {head.head}; {escaped(record.where)}. Worked out: {escaped(record.example)}. "
        f"{n_checks} comparisons with the model's own "
        f"numbers, largest difference {record.difference:.1e}.</p></details>"
    )


def _index(record: StepRecord) -> str:
    """Lists the steps, each a link within the page."""
    entries = "".join(
        f'<li value="{step.number}">'
        f'<a href="#step-{step.number}">{_with_symbols(step.title)}</a></li>'
        for step in record.steps
    )
    return f'<nav class="card index" aria-label="Steps"><h2>Steps</h2><ol>{entries}</ol></nav>'


def _step(step: Step, quiz: Quiz | None) -> str:
    check = ""
    if step.difference is not None:
        compared = "; ".join(f"{c.what}: {c.difference:.1e}" for c in step.checks)
        check = (
            f'<span class="check" title="{escaped(compared)}">✓ as the model, max difference '
            f"{step.difference:.1e}</span>"
        )
    formulas = "".join(f'<p class="formula">{_formula(text)}</p>' for text in step.formulas)
    worked = f'<p class="worked">e.g. {escaped(step.worked)}</p>' if step.worked else ""
    tables = "".join(
        _table(table, quiz)
        for table in step.tables
        if not table.is_detail or table.values.numel() <= DETAIL_CELLS
    )
    return (
        f'<section class="card" id="step-{step.number}"><div class="top">'
        f'<span class="number">{step.number}</span>'
        f"<h2>{_with_symbols(step.title)}</h2>{check}</div>{formulas}"
        f'<p class="says">{_with_symbols(step.says)}</p>{tables}{worked}</section>'
    )


def _formula(text: str) -> str:
    """Writes a formula with its subscripts and powers."""
    powers = _POWER.sub(r"e<sup>\1\2</sup>", escaped(text))
    return _SUBSCRIPT.sub(r"<sub>\1</sub>", powers)


def _with_symbols(text: str) -> str:
    """Escapes a text of ours and writes d_k, W_O and the like as symbols."""
    return _SYMBOL.sub(r"\1<sub>\2</sub>", escaped(text))


def _table(table: Table, quiz: Quiz | None) -> str:
    n_columns = table.values.shape[1]
    columns = table.columns or tuple(map(str, range(n_columns)))
    are_ours = table.share_column is not None or table.name == "scaled"
    written = _with_symbols if are_ours else escaped
    heads = "".join(f'<th scope="col">{written(column)}</th>' for column in columns)
    finite = table.values[table.values.isfinite()]
    largest = finite.abs().max().item() if finite.numel() else 0.0
    rows = []
    for place, (label, values) in enumerate(zip(table.rows, table.values.tolist(), strict=True)):
        cells = "".join(
            _cell(value, largest, quiz, is_plain=bool(table.columns)) for value in values
        )
        if table.share_column is not None:
            share = values[table.share_column]
            is_hidden = quiz is not None and quiz.blank_of(share) is not None
            cells += bar(0.0 if is_hidden else share)
        marked = ' class="on"' if place == table.marked_row else ""
        rows.append(f'<tr{marked}><th scope="row">{escaped(label)}</th>{cells}</tr>')
    drawn = (
        f'<div class="scroll"><table><caption>{escaped(table.caption)}</caption>'
        f"<thead><tr><th></th>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
    if not table.is_detail:
        return drawn
    return f"<details><summary>{escaped(table.caption)}</summary>{drawn}</details>"


def _cell(value: float, largest: float, quiz: Quiz | None, *, is_plain: bool) -> str:
    blank = None if quiz is None else quiz.blank_of(value)
    if blank is not None:
        field = f'<input aria-label="blank {blank.number}">'
        return f'<td class="blank"><b>({blank.number})</b>{field}</td>'
    if math.isinf(value):
        return '<td class="masked">−∞</td>'
    shown = f"{value:z.3f}".replace("-", "−")
    tint = STRONGEST_TINT * abs(value) / largest if largest else 0.0
    if tint < 0.02 or (is_plain and value < 0):
        return f"<td>{shown}</td>"
    sign = "share" if is_plain else "plus" if value > 0 else "minus"
    return f'<td style="background:rgb(var(--{sign})/{tint:.2f})">{shown}</td>'


def _answers(quiz: Quiz) -> str:
    def row(blank: Blank) -> str:
        return (
            f'<tr><th scope="row">({blank.number})</th><td>{blank.value:.3f}</td>'
            f'<td class="text">step {blank.step}, {escaped(blank.what)}</td></tr>'
        )

    rows = "".join(map(row, quiz.blanks))
    return (
        '<section class="card"><details><summary>Answers</summary><table><tbody>'
        f"{rows}</tbody></table></details></section>"
    )
