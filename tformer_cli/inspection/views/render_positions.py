"""Position vectors as JSON (schema `tformer.positions/1`), npz, SVG and a page."""

import io
import json
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element, SubElement

import numpy as np
from torch import Tensor

from tformer_cli.inspection.figures.heads_svg import draw_cells, draw_text
from tformer_cli.inspection.views.positions import SCHEMA, PositionsRecord, PositionTable, facts_of
from tformer_cli.inspection.views.render_json import rounded
from tformer_cli.inspection.views.static_page import escaped, render_page

_FONT = "font-family:system-ui,-apple-system,'Segoe UI','Noto Sans',sans-serif"
_MARGIN, _WIDTH = 24.0, 720.0


def render_positions_json(record: PositionsRecord) -> str:
    """Renders everything as one line of JSON, without the line end."""
    tables = [
        {
            "stack": table.stack,
            "squared_norms": [rounded(value) for value in table.squared_norms.tolist()],
            "distance_from_sinusoids": rounded(table.distance_from_sinusoids),
            "cosine_with_sinusoids": rounded(table.cosine_with_sinusoids),
            "share_by_offset": rounded(table.share_by_offset),
            "by_offset": [
                {name: rounded(value) for name, value in vars(one).items()}
                for one in table.by_offset
            ],
            "table": [[rounded(value) for value in row] for row in table.table.tolist()],
        }
        for table in record.tables
    ]
    data = {"schema": SCHEMA, "model": vars(record.model), "kind": record.kind, "tables": tables}
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def render_positions_npz(record: PositionsRecord) -> bytes:
    """Renders tables and similarities, `STACK.table` (P, D) and `STACK.similarity` (P, P)."""
    arrays = {}
    for table in record.tables:
        arrays[f"{table.stack}.table"] = table.table.float().numpy()
        arrays[f"{table.stack}.similarity"] = table.similarity.float().numpy()
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def render_positions_svg(record: PositionsRecord) -> str:
    """Renders heat maps: positions by dimensions, and the similarity of every two positions."""
    root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "style": _FONT})
    background = SubElement(root, "rect", {"fill": "#ffffff"})
    y = _MARGIN
    for table in record.tables:
        y = _section(root, record.kind, table, y)
    size = {"width": f"{_WIDTH + 2 * _MARGIN:g}", "height": f"{y:.6g}"}
    root.attrib.update(size, viewBox=f"0 0 {size['width']} {size['height']}")
    background.attrib.update(size)
    return ET.tostring(root, encoding="unicode") + "\n"


def render_positions_html(record: PositionsRecord) -> str:
    """Renders the maps and the numbers as a page without a script."""
    parts = [
        f"<h1>Positions of {escaped(record.model.name)}</h1><p class='facts'>{record.kind}</p>",
        f'<section class="card">{render_positions_svg(record)}</section>',
    ]
    for table in record.tables:
        rows = "".join(
            f'<tr><th scope="row">{one.offset}</th><td>{one.mean:.4f}</td>'
            f"<td>{one.smallest:.4f}</td><td>{one.largest:.4f}</td></tr>"
            for one in table.by_offset
        )
        parts.append(
            '<section class="card"><div class="scroll"><table><caption>PE(p)·PE(p+k) by offset k, '
            f"{table.stack}</caption><thead><tr><th>k</th><th>mean</th><th>smallest</th>"
            f"<th>largest</th></tr></thead><tbody>{rows}</tbody></table></div></section>"
        )
    return render_page(f"Positions of {record.model.name}", "\n".join(parts))


def _section(root: Element, kind: str, table: PositionTable, y: float) -> float:
    """Draws the maps of one table; returns where they end."""
    draw_text(root, _name(kind, table), _MARGIN, y + 14, 14.0, weight="600")
    y += 24
    for name, fact in facts_of(table):
        draw_text(root, f"{name}: {fact}", _MARGIN, y + 10, 11.0, fill="#5c6370")
        y += 16
    n_positions, width = table.table.shape
    y = _map(
        root, "row: position, column: dimension; light −, dark +", shares(table.table), _WIDTH, y
    )
    side = min(_WIDTH, _WIDTH * max(n_positions / width, 0.5))
    low, high = table.similarity.min(), table.similarity.max()
    caption = f"PE·PEᵀ, row and column: position; light {low:.3g}, dark {high:.3g}"
    spread = (table.similarity - low) / (high - low).clamp(min=1e-30)
    return _map(root, caption, spread, side, y)


def _map(root: Element, caption: str, values: Tensor, width: float, y: float) -> float:
    draw_text(root, caption, _MARGIN, y + 22, 11.0)
    y += 30
    cell = width / values.shape[1]
    height = min(cell, 14.0) * values.shape[0] if cell > 2 else 6.0 * values.shape[0]
    scale = f"translate({_MARGIN:g} {y:.6g}) scale({cell:.6g} {height / values.shape[0]:.6g})"
    group = SubElement(root, "g", {"transform": scale, "shape-rendering": "crispEdges"})
    draw_cells(group, values, "cross")
    return y + height + 16


def shares(values: Tensor) -> Tensor:
    """Maps numbers to 0 … 1, with 0 in the middle."""
    largest = max(values.abs().max().item(), 1e-30)
    return (values / largest + 1) / 2


def _name(kind: str, table: PositionTable) -> str:
    whose = "encoder and decoder" if table.stack == "both" else table.stack
    return f"{kind.capitalize()} positions, {whose}"
