r"""The heads page: one HTML file that opens from the disk with the network cut.

The page is `page.html`; here its data are put in. They are JSON in a script element, where every
``<`` is written ``\u003c``, so that no token can end the element. Weights are 16-bit fixed-point
numbers, round(65535·A), in base64; of the decoder's masked maps only the visible triangle is kept.
"""

import base64
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import torch

from tformer_cli.inspection.heads import KIND_NAMES, HeadId
from tformer_cli.inspection.metrics import METRIC_MEANINGS
from tformer_cli.inspection.palette import DARK_RAMPS, LIGHT_RAMPS
from tformer_cli.inspection.record import CONVENTIONS, HeadsRecord
from tformer_cli.inspection.roles import ROLES, role_of

SLOT = "{{data}}"
"""Where the data go in `page.html`."""
FULL_SCALE = 65535
"""The number that stands for weight 1."""


def render_html(records: Sequence[HeadsRecord]) -> str:
    """Renders the page of some sentences; blank ones are left out.

    The same records give the same bytes: the page holds no time and no name of the machine.
    """
    shown = [record for record in records if record.heads]
    data = {
        "model": vars(records[0].model) if records else None,
        "conventions": CONVENTIONS,
        "kinds": KIND_NAMES,
        "metrics": METRIC_MEANINGS,
        "roles": {rule.role: rule.meaning for rule in ROLES},
        "ramps": {"light": LIGHT_RAMPS, "dark": DARK_RAMPS},
        "sentences": [_sentence(record) for record in shown],
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    # Lone surrogates, from a shell's argument that is not UTF-8, have no place in a file.
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return page().replace(SLOT, whole, 1)


def page() -> str:
    """Reads the empty page from the package."""
    return files("tformer_cli.inspection").joinpath("page.html").read_text(encoding="utf-8")


def _sentence(record: HeadsRecord) -> dict[str, Any]:
    return {
        "index": record.index,
        "source": record.source,
        "target": record.target,
        "isForced": record.is_forced,
        "score": record.score,
        "residual": record.captured.residual,
        "sourcePieces": record.source_pieces,
        "targetPieces": record.target_pieces,
        "inputPieces": record.input_pieces,
        "heads": [_head(record, head) for head in record.heads],
        "first": record.heads.index(record.clearest_head()),
    }


def _head(record: HeadsRecord, head: HeadId) -> dict[str, Any]:
    metrics = record.metrics[head]
    return {
        "id": str(head),
        "kind": head.kind,
        "layer": head.layer,
        "head": head.head,
        "role": role_of(metrics),
        "metrics": {name: float(f"{value:.4g}") for name, value in metrics.items()},
        "weights": _packed(record, head),
    }


def _packed(record: HeadsRecord, head: HeadId) -> str:
    weights = record.captured.weights(head)
    if head.kind == "dec":
        rows, columns = torch.tril_indices(*weights.shape)
        weights = weights[rows, columns]
    numbers = (weights.double() * FULL_SCALE).round().int().flatten().numpy().astype("<u2")
    return base64.b64encode(numbers.tobytes()).decode("ascii")
