"""`lens.safetensors` of a model directory: maps by which a lens reads its earlier layers.

It holds `KIND.LAYER.weight` (D, D) and `KIND.LAYER.bias` (D), float32, and in its header what the
weights were that the maps were fitted to, and how they did. `tformer inspect-layers --tune`
writes it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tformer_cli.artifacts.config_file import LENS
from tformer_cli.artifacts.tensors import save_tensors
from tformer_cli.artifacts.weights_file import open_tensors
from tformer_cli.errors import ArtifactError

FORMAT = "tformer lens/1"
Maps = Mapping[str, tuple[Tensor, Tensor]]
"""Weight (D, D) and bias (D) of each earlier layer, by a name such as enc.0."""


@dataclass(frozen=True, kw_only=True)
class StoredMaps:
    """Maps of earlier layers."""

    maps: Maps
    weights: str
    """SHA-256 of the weights that they belong to."""
    agreement: Mapping[str, Mapping[str, float]]
    """By the same names: of `untuned` and `tuned` the share of held-out tokens predicted alike."""


def store_maps(path: Path, stored: StoredMaps) -> None:
    """Writes the maps into a model directory and changes no other file."""
    tensors: dict[str, Tensor] = {}
    for name, (weight, bias) in stored.maps.items():
        tensors |= {f"{name}.weight": weight, f"{name}.bias": bias}
    agreement = json.dumps({name: dict(shares) for name, shares in stored.agreement.items()})
    header = {"format": FORMAT, "weights": stored.weights, "agreement": agreement}
    save_tensors(path / LENS, tensors, header)


def read_maps(path: Path) -> StoredMaps | None:
    """Reads the lens maps of a model directory; None if none were fitted."""
    file = path / LENS
    if not file.exists():
        return None
    with open_tensors(file, "pt") as opened:
        header: dict[str, str] = opened.metadata() or {}
        # Copied: the library's are where the file is mapped, which may be written over later
        tensors = {name: opened.get_tensor(name).clone() for name in opened.keys()}  # noqa: SIM118
    names = sorted({name.rpartition(".")[0] for name in tensors})
    maps = {n: (tensors.get(f"{n}.weight"), tensors.get(f"{n}.bias")) for n in names}
    agreement = _agreement(header.get("agreement", ""))
    whole = {
        name: (weight, bias)
        for name, (weight, bias) in maps.items()
        if weight is not None
        and bias is not None
        and weight.shape == (len(bias), len(bias))
        and bool(torch.isfinite(weight).all() and torch.isfinite(bias).all())
    }
    if (
        header.get("format") != FORMAT
        or not whole
        or not maps.keys() == whole.keys() == agreement.keys()
    ):
        raise ArtifactError(
            f"{file}: is damaged, or holds no maps; remove it, and run "
            f"`tformer inspect-layers {path} --tune FILE` again"
        )
    return StoredMaps(maps=whole, weights=header.get("weights", ""), agreement=agreement)


def _agreement(text: str) -> dict[str, dict[str, float]]:
    try:
        agreement: Any = json.loads(text)
        return {
            name: {way: float(values[way]) for way in ("untuned", "tuned")}
            for name, values in agreement.items()
        }
    except (ValueError, TypeError, AttributeError, LookupError):
        return {}
