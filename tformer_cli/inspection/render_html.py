r"""The heads page: one HTML file that opens from the disk with the network cut.

The page comes from `page_source`; here the data of the heads are made. Weights are fixed-point
numbers in base64, round(65535·A / `largest`) in 16 bits, where `largest` is 1 of shares: they are
within 7.7e-6 of A. A sentence whose maps would take more than `LARGEST_MAPS` so has 8 bits,
round(255·A / `largest`), within 2e-3. Of the decoder's
masked maps only the visible triangle is kept.
"""

import base64
from collections.abc import Sequence
from typing import Any

import torch

from tformer_cli.inspection.heads import HeadId
from tformer_cli.inspection.metrics import METRIC_MEANINGS
from tformer_cli.inspection.page_source import fill_page
from tformer_cli.inspection.palette import DARK_RAMPS, LIGHT_RAMPS
from tformer_cli.inspection.record import HeadsRecord
from tformer_cli.inspection.roles import ROLES
from tformer_cli.inspection.weighting import ALPHA

LARGEST_MAPS = 1_280_000
"""Bytes of base64 that the maps of a sentence may take with 16 bits."""


def render_html(records: Sequence[HeadsRecord]) -> str:
    """Renders the page of some sentences; blank ones, and those without a head, are left out."""
    weighting = records[0].weighting if records else ALPHA
    title = "Layers" if weighting.is_of_layers else "Attention heads"
    if weighting is not ALPHA:
        title += f": {weighting.name}"
    return fill_page(title, heads_data(records))


def heads_data(records: Sequence[HeadsRecord]) -> dict[str, Any]:
    """Makes the data of the heads, as `page/data.js` reads them."""
    weighting = records[0].weighting if records else ALPHA
    return {
        "model": vars(records[0].model) if records else None,
        "weighting": {
            "name": weighting.name,
            "meaning": weighting.meaning,
            "source": weighting.source,
            "sums": weighting.sums,
            "residual": weighting.residual,
            "isOfLayers": weighting.is_of_layers,
            "isShare": weighting.is_share,
        },
        "conventions": weighting.conventions,
        "kinds": weighting.kind_names,
        "metrics": METRIC_MEANINGS,
        "roles": {rule.role: rule.meaning for rule in ROLES},
        "ramps": {"light": LIGHT_RAMPS, "dark": DARK_RAMPS},
        "sentences": [_sentence(record) for record in records if record.heads],
    }


def bits_of(record: HeadsRecord) -> int:
    """Chooses how many bits a weight of a sentence has on the page."""
    cells = sum(_visible(record, head).numel() for head in record.heads)
    return 16 if cells * 2 * 4 / 3 <= LARGEST_MAPS else 8


def _sentence(record: HeadsRecord) -> dict[str, Any]:
    bits = bits_of(record)
    return {
        "index": record.index,
        "source": record.source,
        "target": record.target,
        "isForced": record.is_forced,
        "score": record.score,
        "rank": record.rank,
        "isLive": record.mode == "live",
        "residual": record.captured.residual,
        "largest": record.largest,
        "sourcePieces": record.source_pieces,
        "targetPieces": record.target_pieces,
        "inputPieces": record.input_pieces,
        "rare": record.rare.positions,
        "rareReason": record.rare.reason,
        "bits": bits,
        "heads": [_head(record, head, bits) for head in record.heads],
        "first": record.heads.index(record.clearest_head()),
    }


def _head(record: HeadsRecord, head: HeadId, bits: int) -> dict[str, Any]:
    metrics = record.metrics[head]
    return {
        "id": str(head),
        "kind": head.kind,
        "layer": head.layer,
        "head": None if record.weighting.is_of_layers else head.head,
        "role": record.role(head),
        "metrics": {name: float(f"{value:.4g}") for name, value in metrics.items()},
        "weights": _packed(_visible(record, head), bits),
    }


def _visible(record: HeadsRecord, head: HeadId) -> torch.Tensor:
    """The shades that are stored: all, or those of the visible triangle."""
    shades = record.shades(head)
    if head.kind != "dec":
        return shades
    rows, columns = torch.tril_indices(*shades.shape)
    return shades[rows, columns]


def _packed(weights: torch.Tensor, bits: int) -> str:
    numbers = (weights.double() * (2**bits - 1)).round().int().flatten().numpy()
    return base64.b64encode(numbers.astype(f"<u{bits // 8}").tobytes()).decode("ascii")
