"""Two models compared as JSON Lines (schema `tformer.headdiff/1`), as SVG and as a page."""

import json
from collections.abc import Callable, Sequence
from typing import Any
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element, SubElement

from torch import Tensor

from tformer_cli.inspection.capture.heads import KIND_NAMES
from tformer_cli.inspection.comparison.diff import SCHEMA, HeadChange, HeadDiff
from tformer_cli.inspection.comparison.distance import LARGEST
from tformer_cli.inspection.figures.heads_svg import display_width, draw_text
from tformer_cli.inspection.figures.palette import color, signed_color
from tformer_cli.inspection.views.render_json import rounded
from tformer_cli.inspection.views.static_page import bar, chips, escaped, render_page
from tformer_cli.wording import count_of

LEVELS = 64
"""Shades of a map on each side of 0."""
MAPS_DRAWN = 8
"""Most pairs whose maps a picture shows; of more, those that have changed most."""
_FONT = "font-family:system-ui,-apple-system,'Segoe UI','Noto Sans',sans-serif"
_MARGIN, _GAP = 24.0, 26.0
ColorOf = Callable[[float], tuple[int, int, int]]


def render_diff_json(diff: HeadDiff, change: HeadChange, *, with_map: bool = False) -> str:
    """Renders a pair of heads as one line of JSON, without the line end.

    Args:
        diff: the comparison it is of.
        change: the pair, or a head without a counterpart, whose other side is null.
        with_map: whether to add the shown sentence's difference B − A, a list of rows.
    """
    match = change.match
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": change.kind,
        "a": None if match.first is None else str(match.first),
        "b": None if match.second is None else str(match.second),
        "divergence": _rounded(match.divergence),
        "divergence_in_place": _rounded(match.divergence_in_place),
        "role_a": change.first_role,
        "role_b": change.second_role,
        "has_moved": match.has_moved,
        "has_changed_role": change.has_changed_role,
        "matching": diff.matching,
        "n_sentences": diff.n_sentences,
        "models": {"a": vars(diff.first), "b": vars(diff.second)},
    }
    if with_map and match.divergence is not None:
        record = diff.shown[0]
        data["source"], data["target"] = record.source, record.target
        data["rows"] = list(record.row_labels(change.kind))
        data["columns"] = list(record.column_labels(change.kind))
        rows = diff.difference(change).tolist()
        data["difference"] = [[rounded(value) for value in row] for row in rows]
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def render_diff_svg(diff: HeadDiff) -> str:
    """Renders the maps of A, of B and B − A, of the pairs that have changed most."""
    root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "style": _FONT})
    SubElement(root, "title").text = "Heads of two models: A, B and B − A"
    background = SubElement(root, "rect", {"fill": "#ffffff"})
    y, width = _MARGIN, 640.0
    for text in (diff.shown[0].source, diff.shown[0].target):
        y += 19
        draw_text(root, text, _MARGIN, y, 15.0)
    for change in drawn(diff):
        right, y = _row(root, diff, change, y + _GAP)
        width = max(width, right)
    size = {"width": f"{width + _MARGIN:.6g}", "height": f"{y + _MARGIN:.6g}"}
    root.attrib.update(size, viewBox=f"0 0 {size['width']} {size['height']}")
    background.attrib.update(size)
    return ET.tostring(root, encoding="unicode") + "\n"


def render_diff_html(diff: HeadDiff) -> str:
    """Renders the table of pairs and the maps as a page without a script."""
    sentence = diff.shown[0]
    heading = (
        "<h1>Heads of two models</h1>"
        f'<p class="facts">A: {escaped(diff.first.name)}, step {diff.first.step}. '
        f"B: {escaped(diff.second.name)}, step {diff.second.step}. {escaped(summary_of(diff))}</p>"
    )
    names = ("A", "B", "divergence", "", "role in A", "role in B", "")
    head = "".join(f'<th scope="col" style="text-align:left">{name}</th>' for name in names)
    rows = "".join(map(_table_row, diff.changes))
    table = (
        '<section class="card"><div class="scroll"><table><caption>Divergence: mean Jensen–Shannon '
        f"divergence of rows in nats, 0 to {LARGEST:.3f}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div></section>"
    )
    maps = (
        f'<section class="card"><div class="pair"><span>Source</span><div>'
        f"{chips(sentence.source_pieces)}</div><span>Target</span><div>"
        f"{chips(sentence.target_pieces)}</div></div>{render_diff_svg(diff)}</section>"
    )
    return render_page("Heads of two models", heading + table + maps)


def drawn(diff: HeadDiff) -> list[HeadChange]:
    """The pairs whose maps are drawn: the most changed ones, the most changed first."""
    paired = [change for change in diff.changes if change.match.divergence is not None]
    return sorted(paired, key=lambda change: -(change.match.divergence or 0.0))[:MAPS_DRAWN]


def summary_of(diff: HeadDiff) -> str:
    """Sums a comparison up in a sentence or two."""
    divergences = [c.match.divergence for c in diff.changes if c.match.divergence is not None]
    moved = sum(change.match.has_moved for change in diff.changes)
    changed = sum(change.has_changed_role for change in diff.changes)
    how = "within their layer" if diff.matching == "layer" else "across layers"
    mean = sum(divergences) / len(divergences) if divergences else 0.0
    text = (
        f"{count_of(diff.n_sentences, 'sentence')}; "
        f"{count_of(len(divergences), 'head')} paired {how}, mean divergence {mean:.4f}; "
        f"{moved} moved, {changed} changed role"
    )
    only = {
        "A": [str(c.match.first) for c in diff.changes if c.match.second is None],
        "B": [str(c.match.second) for c in diff.changes if c.match.first is None],
    }
    parts = [f"only in {side}: {', '.join(heads)}" for side, heads in only.items() if heads]
    if diff.rare_reason and any(change.kind == "enc" for change in diff.changes):
        parts.append(f"rare-word heads are not classified: {diff.rare_reason}")
    return "; ".join([text, *parts])


def _rounded(value: float | None) -> float | None:
    return None if value is None else rounded(value)


def _table_row(change: HeadChange) -> str:
    match = change.match
    told = [part for part, holds in _told(change) if holds]
    cells = [
        f"<td>{'–' if match.divergence is None else format(match.divergence, '.4f')}</td>",
        bar((match.divergence or 0.0) / LARGEST),
        f'<td class="text">{change.first_role or "–"}</td>',
        f'<td class="text">{change.second_role or "–"}</td>',
        f'<td class="text">{", ".join(told)}</td>',
    ]
    return (
        f'<tr><th scope="row">{match.first or "–"}</th>'
        f'<td class="text">{match.second or "–"}</td>{"".join(cells)}</tr>'
    )


def _told(change: HeadChange) -> list[tuple[str, bool]]:
    return [("moved", change.match.has_moved), ("another role", change.has_changed_role)]


def _row(root: Element, diff: HeadDiff, change: HeadChange, y: float) -> tuple[float, float]:
    """Draws three maps beside each other; returns the right and the lower edge."""
    before, after = diff.shown
    kind, match = change.kind, change.match
    if match.first is None or match.second is None:
        raise ValueError("a head without a counterpart has no difference")
    title = (
        f"{KIND_NAMES[kind].capitalize()}: {match.first} in A, {match.second} in B, "
        f"divergence {match.divergence:.4f}"
    )
    draw_text(root, title, _MARGIN, y + 12, 13.0, weight="600")
    y += 18
    difference = diff.difference(change)
    largest = max(difference.abs().max().item(), 1e-30)
    labels = before.row_labels(kind), before.column_labels(kind)
    panels: tuple[tuple[str, Tensor, ColorOf], ...] = (
        ("A", before.captured.weights(match.first), lambda value: color(kind, value)),
        ("B", after.captured.weights(match.second), lambda value: color(kind, value)),
        (
            f"B − A: orange more, blue less, up to {largest:.2f}",
            difference / largest,
            signed_color,
        ),
    )
    x, lower = _MARGIN, y
    for caption, values, color_of in panels:
        right, bottom = _panel(root, caption, values, color_of, labels, (x, y))
        x, lower = right + _GAP, max(lower, bottom)
    return x - _GAP, lower


def _panel(
    root: Element,
    caption: str,
    values: Tensor,
    color_of: ColorOf,
    labels: tuple[Sequence[str], Sequence[str]],
    corner: tuple[float, float],
) -> tuple[float, float]:
    """Draws a map with its labels; returns the right and the lower edge."""
    n_rows, n_keys = values.shape
    cell = min(20.0, max(6.0, 300 / max(n_rows, n_keys)))
    font = min(12.0, cell * 0.9)
    label_width, label_height = (max(map(display_width, part)) * font * 0.6 + 8 for part in labels)
    left, top = corner[0] + label_width, corner[1] + 18 + label_height
    draw_text(root, caption, left, corner[1] + 14, 11.0, fill="#5c6370")
    for i, label in enumerate(labels[0]):
        draw_text(root, label, left - 5, top + (i + 0.5) * cell + font * 0.35, font, anchor="end")
    for j, label in enumerate(labels[1]):
        x = left + (j + 0.5) * cell + font * 0.35
        turn = f"rotate(-90 {x:.6g} {top - 5:.6g})"
        draw_text(root, label, x, top - 5, font, transform=turn)
    scale = f"translate({left:.6g} {top:.6g}) scale({cell:.6g})"
    group = SubElement(root, "g", {"transform": scale, "shape-rendering": "crispEdges"})
    _cells(group, values, color_of)
    frame = {"width": str(n_keys), "height": str(n_rows), "fill": "none", "stroke": "#b9bec8"}
    SubElement(group, "rect", frame | {"vector-effect": "non-scaling-stroke"})
    return max(left + n_keys * cell, left + 6.2 * len(caption)), top + n_rows * cell


def _cells(group: Element, values: Tensor, color_of: ColorOf) -> None:
    """Draws the cells, each a unit square, those of one shade as one path."""
    paths: dict[int, list[str]] = {}
    for i, row in enumerate((values * LEVELS).round().int().tolist()):
        for j, level in enumerate(row):
            if level:
                paths.setdefault(level, []).append(f"M{j} {i}h1v1h-1z")
    for level in sorted(paths):
        fill = "#{:02x}{:02x}{:02x}".format(*color_of(level / LEVELS))
        SubElement(group, "path", {"fill": fill, "d": "".join(paths[level])})
