"""Inspected sentences as JSON Lines, schema `tformer.heads/1`: one object a sentence."""

from __future__ import annotations

import base64
import json
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, Literal

from tformer_cli.heads.names import HeadId
from tformer_cli.text.pharaoh import format_links

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tformer_cli.heads.names import Kind
    from tformer_cli.inspect.record import HeadsRecord

SCHEMA = "tformer.heads/1"
AXES: dict[Kind, tuple[str, str]] = {
    "enc": ("source.pieces", "source.pieces"),
    "dec": ("target.pieces", "target.input_pieces"),
    "cross": ("target.pieces", "source.pieces"),
}
"""Labels of the rows and columns of each kind."""
Bits = Literal[8, 16, 24]
"""Sizes of a number on the page."""
LONG_LIST = 16
"""Shorter lists of numbers are not packed."""
DIGITS = 6
"""Significant digits of every number: more than float32 weights carry would say nothing."""


def describe(record: HeadsRecord) -> dict[str, Any]:
    """Tells all about a sentence but its heads, as JSON data."""
    maps = record.maps
    label = {"label": record.target or None, "probability": plain(record.probability)}
    return {
        "schema": SCHEMA,
        "index": record.index,
        "model": vars(record.model),
        "source": {
            "text": record.source,
            "pieces": list(record.source_pieces),
            "ids": _source_ids(record),
        },
        **(label if record.is_pooled else {}),
        **({"gaps": plain(record.gaps)} if record.has_places else {}),
        "target": {
            "text": record.target,
            "pieces": list(record.target_pieces),
            "ids": [] if maps is None else list(maps.target_ids),
            "input_pieces": list(record.input_pieces),
            "input_ids": [] if maps is None else list(maps.target_input_ids),
            "is_forced": record.is_forced,
            "rank": record.rank,
            "score": None if record.score is None else rounded(record.score),
        },
        "align": _alignment(record),
        "weighting": {
            "name": record.weighting.name,
            "of": "layers" if record.weighting.is_of_layers else "heads",
            "meaning": record.weighting.meaning,
            "source": record.weighting.source,
            "residual": record.weighting.residual,
        },
        "conventions": record.weighting.conventions,
        "axes": {kind: list(labels) for kind, labels in AXES.items()},
        "rare": {"positions": list(record.rare.positions), "reason": record.rare.reason or None},
        "mode": record.mode,
        "residual": None if maps is None else rounded(maps.residual),
        **({"segment": maps.segment} if maps is not None and maps.segment else {}),
    }


def _source_ids(record: HeadsRecord) -> list[int]:
    """The ids of the pieces; none of images, whose ids are of pixels."""
    return [] if record.maps is None or record.is_image else list(record.maps.source_ids)


def json_line(data: Mapping[str, Any]) -> str:
    """Writes data as one line of JSON, without the line end."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def rounded(value: float) -> float:
    """Rounds to `DIGITS` significant digits."""
    return float(f"{value:.{DIGITS}g}")


def plain(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Makes JSON data of records, tensors and names of heads; fractions are rounded."""
    if isinstance(value, float):
        return rounded(value)
    if is_dataclass(value):
        return {name: plain(item) for name, item in vars(value).items()}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, HeadId):
        return str(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return plain(value.tolist()) if hasattr(value, "tolist") else value


def _alignment(record: HeadsRecord) -> dict[str, Any] | None:
    """The word alignment, as Pharaoh links."""
    aligned = record.aligned
    if aligned is None:
        return None
    return {
        "heads": aligned.choice.heads,
        "convention": aligned.convention,
        "is_stored": aligned.choice.reason == "stored",
        "source_words": list(aligned.source),
        "target_words": list(aligned.target),
        "pharaoh": format_links(aligned.links),
    }


def packed(value: Any, bits: Bits = 16) -> Any:  # noqa: ANN401 - JSON
    """Packs JSON data for the page, which unpacks them as it reads; see `page/data.js`.

    Objects of the same names become columns, and long lists of fractions fixed-point numbers. In a
    list of lists each is within 1/254 (8 bits), 1/65534 (16) or some 6e-8 (24) of the largest;
    in a plain list it has 16 bits.
    """
    if isinstance(value, dict):
        return {name: packed(item, bits) for name, item in value.items()}
    if not isinstance(value, list):
        return value
    if _are_numbers(value):
        return _fixed_point(value, 16) if len(value) >= LONG_LIST else value
    if all(isinstance(item, list) and all(map(_is_number, item)) for item in value):
        numbers = [number for item in value for number in item]
        if _are_numbers(numbers) and len(numbers) >= LONG_LIST:
            return {"rows": [len(item) for item in value], **_fixed_point(numbers, bits)}
        return value
    names = [tuple(item) if isinstance(item, dict) else () for item in value]
    if len(value) > 1 and names[0] and len(set(names)) == 1:
        columns = {name: packed([item[name] for item in value], bits) for name in names[0]}
        return {"columns": columns}
    return [packed(item, bits) for item in value]


def _is_number(value: object) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool)


def _are_numbers(values: list[Any]) -> bool:
    """True of numbers that are not all whole: those are counts and ids, which stay exact."""
    return all(map(_is_number, values)) and any(isinstance(item, float) for item in values)


def _fixed_point(values: list[float], bits: Bits) -> dict[str, Any]:
    """Writes numbers as parts of the largest, signed, little-endian, in base64."""
    largest = max(map(abs, values)) or 1.0
    most, n_bytes = 2 ** (bits - 1) - 1, bits // 8
    parts = (round(item / largest * most) for item in values)
    data = b"".join(part.to_bytes(n_bytes, "little", signed=True) for part in parts)
    text = base64.b64encode(data).decode("ascii")
    return {"fixed": text, "bytes": n_bytes, "largest": largest}
