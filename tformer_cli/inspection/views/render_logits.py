"""The distributions of a sentence as JSON Lines (schema `tformer.logits/1`) and as a page."""

import json
from collections.abc import Sequence
from typing import Any

from tformer_cli.inspection.views.logits import SCHEMA, Candidate, LogitsRecord, PositionLogits
from tformer_cli.inspection.views.render_json import describe, rounded
from tformer_cli.inspection.views.static_page import bar, chips, escaped, render_page

NUMBERS = ("p", "rank", "entropy", "first from layer")
"""Columns of the page that hold numbers."""
TO_THE_LEFT = ' style="text-align:left"'


def render_logits_json(record: LogitsRecord) -> str:
    """Renders a sentence as one line of JSON, without the line end; a blank one is empty."""
    data = describe(record.sentence)
    del data["axes"], data["residual"], data["weighting"]
    data |= {
        "schema": SCHEMA,
        "conventions": "Position i has read target.input_pieces[i] and predicts target.pieces[i]; "
        "probabilities are of the model's softmax, ranks count from 1, layers from 0.",
        "positions": [_position(position) for position in record.positions],
    }
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def render_logits_html(records: Sequence[LogitsRecord]) -> str:
    """Renders sentences as one page without a script; blank ones are skipped."""
    shown = [record for record in records if record.positions]
    model = escaped(records[0].sentence.model.name) if records else ""
    heading = (
        "<h1>What the decoder would write</h1>"
        f'<p class="facts">{model}. Each row is a decoder position: the token it has read last, '
        "the token it writes with its probability and rank, the entropy of its distribution "
        "in nats, and the most probable tokens.</p>"
    )
    return render_page("Logits", heading + "\n".join(map(_section, shown)))


def _position(position: PositionLogits) -> dict[str, Any]:
    data: dict[str, Any] = {
        "position": position.position,
        "read": position.read,
        "piece": position.chosen.piece,
        "id": position.chosen.id,
        "probability": rounded(position.chosen.probability),
        "log_probability": rounded(position.log_probability),
        "rank": position.rank,
        "entropy": rounded(position.entropy),
        "top": [_candidate(candidate) for candidate in position.top],
    }
    if position.lens:
        data["first_layer"] = position.first_layer
        data["lens"] = [
            {
                "layer": reading.layer,
                "top": _candidate(reading.top),
                "probability": rounded(reading.probability),
                "rank": reading.rank,
            }
            for reading in position.lens
        ]
    return data


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {
        "piece": candidate.piece,
        "id": candidate.id,
        "probability": rounded(candidate.probability),
    }


def _section(record: LogitsRecord) -> str:
    sentence = record.sentence
    name = "Given target" if sentence.is_forced else "Translation"
    pair = (
        f'<div class="pair"><span>Source</span><div>{chips(sentence.source_pieces)}</div>'
        f"<span>{name}</span><div>{chips(sentence.target_pieces)}</div></div>"
    )
    n_top = len(record.positions[0].top)
    heads = ["read", "writes", "p", "", "rank", "entropy", *(f"{n + 1}." for n in range(n_top))]
    rows = "".join(map(_row, record.positions))
    tables = _table("Each position", heads, rows)
    if record.positions[0].lens:
        n_layers = len(record.positions[0].lens)
        heads = ["writes", *(f"layer {n}" for n in range(n_layers)), "first from layer"]
        caption = "The logit lens: what each layer would have written (marked: what is written)"
        tables += _table(caption, heads, "".join(map(_lens_row, record.positions)))
    return f'<section class="card">{pair}{tables}</section>'


def _table(caption: str, heads: Sequence[str], rows: str) -> str:
    cells = "".join(
        f'<th scope="col"{"" if head in NUMBERS else TO_THE_LEFT}>{head}</th>' for head in heads
    )
    return (
        f'<div class="scroll"><table><caption>{caption}</caption><thead><tr>{cells}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _row(position: PositionLogits) -> str:
    chosen = position.chosen
    top = "".join(_candidate_cell(c, is_on=c.id == chosen.id) for c in position.top)
    return (
        f'<tr><th scope="row">{escaped(position.read)}</th>'
        f'<td class="text">{escaped(chosen.piece)}</td><td>{chosen.probability:.3f}</td>'
        f"{bar(chosen.probability)}<td>{position.rank}</td><td>{position.entropy:.2f}</td>{top}</tr>"
    )


def _lens_row(position: PositionLogits) -> str:
    cells = "".join(
        _candidate_cell(reading.top, is_on=reading.rank == 1) for reading in position.lens
    )
    first = "–" if position.first_layer is None else str(position.first_layer)
    label = escaped(position.chosen.piece)
    return f'<tr><th scope="row">{label}</th>{cells}<td>{first}</td></tr>'


def _candidate_cell(candidate: Candidate, *, is_on: bool) -> str:
    tint = 0.5 * candidate.probability
    style = "" if is_on else f' style="background:rgb(var(--share)/{tint:.2f})"'
    marked = "text on" if is_on else "text"
    text = f"{escaped(candidate.piece)} {candidate.probability:.2f}"
    return f'<td class="{marked}"{style}>{text}</td>'
