"""Data of records: as files of JSON have them, and packed as the page unpacks them."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import is_dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from tformer_cli.heads.names import HeadId

if TYPE_CHECKING:
    from collections.abc import Mapping

Bits = Literal[8, 16, 24]  # Sizes of a number on the page
LONG_LIST = 16  # Shorter lists of numbers are not packed
DIGITS = 6  # Significant digits of every number: more than float32 weights carry would say nothing


def get_attributes(record: object, names: str) -> dict[str, Any]:
    """Maps attributes: ``name``, ``key=path.to.it``, or ``*path``, whose entries join them."""
    values: dict[str, Any] = {}
    for name in names.split():
        key, _, path = name.partition("=")
        value = attrgetter(path or key.lstrip("*"))(record)
        if key.startswith("*"):
            values |= vars(value) if is_dataclass(value) else value
        else:
            values[key] = value
    return values


def to_json(record: object, names: str) -> dict[str, Any]:
    """Makes JSON data with `get_attributes`: one line of names describes the output of a view."""
    return {name: jsonable(value) for name, value in get_attributes(record, names).items()}


def npz_bytes(arrays: dict[str, Any]) -> bytes:
    import numpy as np

    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def json_line(data: Mapping[str, Any]) -> str:
    """Writes data as one line of JSON, without the line end."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def round6(value: float) -> float:
    """Rounds to `DIGITS` significant digits."""
    return float(f"{value:.{DIGITS}g}")


def jsonable(value: Any) -> Any:
    """Makes JSON data of records, tensors and names of heads; fractions are rounded."""
    if isinstance(value, float):
        return round6(value)
    if is_dataclass(value):
        return {name: jsonable(item) for name, item in vars(value).items()}
    if isinstance(value, dict):
        return {name: jsonable(item) for name, item in value.items()}
    if isinstance(value, HeadId):
        return str(value)
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    return jsonable(value.tolist()) if hasattr(value, "tolist") else value


def pack_for_page(value: Any, bits: Bits = 16) -> Any:
    """Packs JSON data for the page, which unpacks them as it reads; see `page/data.js`.

    Objects of the same names become columns, and long lists of fractions fixed-point numbers. In a
    list of lists each is within 1/254 (8 bits), 1/65534 (16) or some 6e-8 (24) of the largest;
    in a plain list it has 16 bits.
    """
    if isinstance(value, dict):
        return {name: pack_for_page(item, bits) for name, item in value.items()}
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
        columns = {name: pack_for_page([item[name] for item in value], bits) for name in names[0]}
        return {"columns": columns}
    return [pack_for_page(item, bits) for item in value]


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
