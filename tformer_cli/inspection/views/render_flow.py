"""Sources of generated tokens as JSON Lines (schema `tformer.flow/1`) and as a page."""

import json
from collections.abc import Sequence
from typing import Any

from tformer_cli.inspection.views.flow import (
    METHOD_NAMES,
    METHODS,
    SCHEMA,
    Flow,
    FlowRecord,
    Method,
)
from tformer_cli.inspection.views.render_json import describe, rounded
from tformer_cli.inspection.views.static_page import bar, chips, escaped, render_page
from tformer_cli.inspection.weighting.weighting import WEIGHTINGS

CONVENTIONS = (
    "Position i has read target.input_pieces[0] to [i] and predicts target.pieces[i]. "
    "source[j] is the share of source.pieces[j], prefix[j] of target.input_pieces[j]; together "
    "they sum to 1, and source_share is the sum of source."
)


def render_flow_json(record: FlowRecord) -> str:
    """Renders a sentence as one line of JSON, without the line end; a blank one is empty."""
    data = describe(record.sentence)
    del data["axes"], data["residual"], data["weighting"]
    n_positions = len(record.sentence.target_pieces) if record.flows else 0
    data |= {
        "schema": SCHEMA,
        "conventions": CONVENTIONS,
        "methods": {
            method: {
                "meaning": WEIGHTINGS[method].meaning,
                "source": WEIGHTINGS[method].source,
                "residual": rounded(flow.residual),
                "source_share": rounded(flow.source_share),
            }
            for method, flow in record.flows.items()
        },
        "positions": [_position(record, position) for position in range(n_positions)],
    }
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _position(record: FlowRecord, position: int) -> dict[str, Any]:
    sentence = record.sentence
    data: dict[str, Any] = {
        "position": position,
        "read": sentence.input_pieces[position],
        "piece": sentence.target_pieces[position],
    }
    for method, flow in record.flows.items():
        data[method] = {
            "source_share": rounded(flow.source_shares[position]),
            "source": [rounded(share) for share in flow.source[position].tolist()],
            "prefix": [rounded(share) for share in flow.prefix[position, : position + 1].tolist()],
        }
    return data


def render_flow_html(records: Sequence[FlowRecord], method: Method = "alti") -> str:
    """Renders sentences as one page without a script; blank ones are skipped.

    Args:
        records: the sentences.
        method: whose shares are shown first; the other's are folded away.
    """
    shown = [record for record in records if record.flows]
    model = escaped(records[0].sentence.model.name) if records else ""
    heading = (
        "<h1>What each written token is made of</h1>"
        f'<p class="facts">{model}. Each row is a decoder position, named by the token it writes: '
        "the share of the source, with a bar, then the shares of every source token and of every "
        "target token read so far, in hundredths; a row sums to 100.</p>"
    )
    return render_page("Flow", heading + "\n".join(_section(r, method) for r in shown))


def _section(record: FlowRecord, first: Method) -> str:
    sentence = record.sentence
    name = "Given target" if sentence.is_forced else "Translation"
    pair = (
        f'<div class="pair"><span>Source</span><div>{chips(sentence.source_pieces)}</div>'
        f"<span>{name}</span><div>{chips(sentence.target_pieces)}</div></div>"
    )
    others = [method for method in METHODS if method != first]
    folded = "".join(
        f"<details><summary>{METHOD_NAMES[method]}</summary>{_table(record, method)}</details>"
        for method in others
    )
    return f'<section class="card">{pair}{_table(record, first)}{folded}</section>'


def _table(record: FlowRecord, method: Method) -> str:
    sentence, flow, weighting = record.sentence, record.flows[method], WEIGHTINGS[method]
    caption = (
        f"{escaped(METHOD_NAMES[method])} ({escaped(weighting.source)}): mean share of the source "
        f"{flow.source_share:.2f}; residual {flow.residual:.1e}"
    )
    columns = (
        f'<tr><th></th><th></th><th></th><th scope="colgroup" colspan="{flow.source.shape[1]}" '
        f'style="text-align:left">source</th><th scope="colgroup" '
        f'colspan="{flow.prefix.shape[1]}" style="text-align:left">prefix</th></tr>'
        '<tr><th scope="col">writes</th><th scope="col">source</th><th></th>'
        + "".join(
            f'<th scope="col" style="padding:2px 5px">{escaped(piece)}</th>'
            for piece in (*sentence.source_pieces, *sentence.input_pieces)
        )
        + "</tr>"
    )
    rows = "".join(_row(sentence.target_pieces[i], flow, i) for i in range(len(flow.source)))
    return (
        f'<div class="scroll"><table><caption>{caption}</caption><thead>{columns}</thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _row(piece: str, flow: Flow, position: int) -> str:
    share = flow.source_shares[position]
    source = "".join(_cell(s, "--share") for s in flow.source[position].tolist())
    prefix = flow.prefix[position].tolist()
    read = "".join(_cell(s, "--plus") for s in prefix[: position + 1])
    later = '<td class="masked"></td>' * (len(prefix) - position - 1)
    return (
        f'<tr><th scope="row">{escaped(piece)}</th><td>{share:.2f}</td>{bar(share)}'
        f"{source}{read}{later}</tr>"
    )


def _cell(share: float, color: str) -> str:
    # two fifths of a row on one token are already much: they have the full tint
    tint = min(1.0, 2.5 * share)
    style = f"padding:2px 5px;background:rgb(var({color})/{tint:.2f})"
    return f'<td style="{style}">{100 * share:.0f}</td>'
