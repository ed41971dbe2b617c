"""`doubt.json` of a model directory: how its translations' signals become P(wrong).

`tformer calibrate` writes it; numbers and names only.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tformer_cli.artifacts.config_file import DOUBT, read_json
from tformer_cli.errors import ArtifactError
from tformer_cli.files.atomic import write_text
from tformer_cli.structure import StructureError, structure

SCHEMA = "tformer.doubt/2"
EARLIER = ("tformer.doubt/1",)
"""Schemas of earlier versions, whose signals are computed no more."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A fitted model of doubt: log odds Σ v · z + Σ w · z² + b, z = (signal - mean) / deviation."""

    schema: str
    step: int
    """Step of the model's training that it was fitted at."""
    signals: tuple[str, ...]
    means: tuple[float, ...]
    deviations: tuple[float, ...]
    weights: tuple[float, ...]
    """v of each signal, then w of each."""
    intercept: float
    log_ratio: float
    """Mean of log (target tokens / source tokens) of right translations."""
    lines: int
    below: float
    """Lines whose sentence chrF was below this were wrong."""
    broken: float
    """Share of lines broken on purpose that was assumed."""
    scores: Mapping[str, float]
    """AUROC, calibration error and the like on lines that it was not fitted to."""
    search: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the search that it was fitted to; see `inspect.doubt.search_of`."""


def store_calibration(path: Path, calibration: Calibration) -> None:
    """Writes it into a model directory and changes no other file."""
    text = json.dumps(asdict(calibration), separators=(",", ":"), ensure_ascii=False)
    write_text(path / DOUBT, text + "\n")


def read_calibration(path: Path) -> Calibration | None:
    """Reads the calibration of a model directory; None if there is none."""
    file = path / DOUBT
    if not file.exists():
        return None
    values = read_json(path, file)
    if values.get("schema") in EARLIER:
        raise ArtifactError(
            f"{file}: was written by an earlier version; run `tformer calibrate` again"
        )
    try:
        doubt = structure(Calibration, values)
    except StructureError as error:
        raise _damage_error(file, str(error)) from None
    sizes = {len(array) for array in (doubt.signals, doubt.means, doubt.deviations)}
    is_whole = sizes == {len(doubt.weights) / 2}
    if doubt.schema != SCHEMA or not is_whole:
        raise _damage_error(file, "its parts do not belong together")
    numbers = (*doubt.means, *doubt.deviations, *doubt.weights, doubt.intercept, doubt.log_ratio)
    # Division by 0 or infinity would give no probability, but no error either
    if not all(map(math.isfinite, numbers)) or not all(
        deviation > 0 for deviation in doubt.deviations
    ):
        raise _damage_error(file, "holds numbers that cannot be")
    return doubt


def _damage_error(file: Path, problem: str) -> ArtifactError:
    return ArtifactError(f"{file}: {problem}; remove it, and run `tformer calibrate` again")


def copy_calibration(model: Path, other: Path) -> None:
    """Copies it, if there is one, to another directory of the same model."""
    if (model / DOUBT).is_file():
        write_text(other / DOUBT, (model / DOUBT).read_text("utf-8"))
