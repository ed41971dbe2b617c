"""Options of a translator: decoding engine, precision and search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tformer_cli.decoding.config import DecodingOverrides
from tformer_cli.model.config import Precision

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tformer_cli.decoding.ensemble import EnsembleSpace
    from tformer_cli.decoding.translator import TooLong

Engine = Literal["tformer", "compiled", "torch", "continuous", "ctranslate2"]
"""Decoding engines."""
PrecisionChoice = Precision | Literal["auto", "int8"]
"""Choices of the precision; "auto" is the type that the weights are stored in."""


class TranslatorOptions(DecodingOverrides, total=False):
    """Keyword arguments of `open_translator`."""

    device: str
    precision: PrecisionChoice
    engine: Engine
    threads: int
    seed: int
    too_long: TooLong
    banned: Sequence[str]
    ensemble: Sequence[Path]
    ensemble_weights: Sequence[float] | None
    ensemble_space: EnsembleSpace
    heads: Sequence[str]
    tell: Callable[[str], None] | None
