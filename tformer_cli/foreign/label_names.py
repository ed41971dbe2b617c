"""Names of the labels of a foreign classifier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tformer_cli.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def label_names(
    file: Path, settings: Mapping[str, Any], n_labels: int, notes: list[str]
) -> tuple[str, ...]:
    """Reads the names of labels; numbered ones where a config.json names others, or not all.

    Of names that are alike, as ImageNet has two, the later ones get their number.
    """
    if n_labels < 2:
        raise ArtifactError(
            f"{file}: has one output, a number and no label; import a model of two labels or more"
        )
    named = settings.get("id2label")
    if by_timm := settings.get(
        "label_names", (settings.get("pretrained_cfg") or {}).get("label_names")
    ):
        is_list = isinstance(by_timm, list)
        named = {str(n): name for n, name in enumerate(by_timm)} if is_list else by_timm
    named = named if isinstance(named, dict) else {}
    names = [str(named.get(str(place), "")).strip() for place in range(n_labels)]
    if len(named) == n_labels and all(names):
        seen: set[str] = set()
        for place, name in enumerate(names):
            names[place] = name if name not in seen else f"{name} ({place})"
            seen.add(names[place])
        if len(seen) == n_labels:
            return tuple(names)
    notes.append(f"config.json does not name its {n_labels} labels; they are LABEL_0 and so on")
    return tuple(f"LABEL_{place}" for place in range(n_labels))
