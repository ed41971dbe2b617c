"""The weights of one sentence as arrays: safetensors and npz, the same bytes for the same maps.

`enc.L` (H, S, S), `dec.L` (H, T, T) and `cross.L` (H, T, S), float32. Where heads were selected, H
counts the selected ones of the layer, and the metadata's `heads` says which they are. Maps that are
of layers (the metadata's `weighting` says so) have no H, and there is no `heads`.
"""

import io
import json

import numpy as np
from numpy.typing import NDArray

from tformer_cli.artifacts.weights_file import write_arrays
from tformer_cli.heads.names import Kind
from tformer_cli.inspect.json_lines import describe
from tformer_cli.inspect.record import HeadsRecord

Arrays = dict[str, NDArray[np.float32]]


def render_safetensors(record: HeadsRecord) -> bytes:
    """Renders a sentence as a safetensors file; the metadata are in `__metadata__`."""
    file = io.BytesIO()
    write_arrays(file, weight_arrays(record), metadata_of(record))
    return file.getvalue()


def render_npz(record: HeadsRecord) -> bytes:
    """Renders a sentence as an npz file; its array `metadata` holds the metadata as JSON text."""
    metadata = np.array(json.dumps(metadata_of(record), ensure_ascii=False))
    file = io.BytesIO()
    arrays = weight_arrays(record)
    np.savez(file, allow_pickle=False, metadata=metadata, **arrays)
    return file.getvalue()


def weight_arrays(record: HeadsRecord) -> Arrays:
    """Stacks the selected heads of each layer under the layer's name."""
    is_of_layers = record.weighting.is_of_layers
    return {
        f"{kind}.{layer}": record.captured.layers(kind)[layer][0 if is_of_layers else heads].numpy()
        for (kind, layer), heads in _heads_by_layer(record).items()
    }


def metadata_of(record: HeadsRecord) -> dict[str, str]:
    """The metadata: what the JSON Lines say, each entry as JSON text, and which heads there are."""
    heads = {f"{k}.{layer}": heads for (k, layer), heads in _heads_by_layer(record).items()}
    data = (
        describe(record) if record.weighting.is_of_layers else {**describe(record), "heads": heads}
    )
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in data.items()
    }


def _heads_by_layer(record: HeadsRecord) -> dict[tuple[Kind, int], list[int]]:
    layers: dict[tuple[Kind, int], list[int]] = {}
    for head in record.heads:
        layers.setdefault((head.kind, head.layer), []).append(head.head)
    return layers
