"""Data of the page as it reads them, the oracle of `inspect.data.pack_for_page`."""

import base64
import json
import re

import numpy as np


def page_data(page):
    """The data that a page holds, as they are packed."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)
    return json.loads(found[1])


def unpack_json(value):
    """Unpacks JSON data: columns to objects, fixed-point numbers to lists."""
    if isinstance(value, list):
        return [unpack_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"columns"}:
        columns = {name: unpack_json(items) for name, items in value["columns"].items()}
        rows = zip(*columns.values(), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]
    if set(value) - {"rows"} == {"fixed", "bytes", "largest"}:
        size, data = value["bytes"], base64.b64decode(value["fixed"])
        parts = (data[at : at + size] for at in range(0, len(data), size))
        whole = [int.from_bytes(part, "little", signed=True) for part in parts]
        numbers = np.array(whole) * (value["largest"] / (2 ** (8 * size - 1) - 1))
        if "rows" not in value:
            return numbers.tolist()
        return [part.tolist() for part in np.split(numbers, np.cumsum(value["rows"])[:-1])]
    return {name: unpack_json(item) for name, item in value.items()}
