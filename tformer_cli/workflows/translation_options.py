"""Options of a translator: decoding engine, precision and search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

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


class SearchOverrides(TypedDict, total=False):
    """Fields of `DecodingConfig` that may differ from a model's defaults; None: as if not given."""

    beam_size: int | None
    length_penalty: float | None
    max_length: int | None
    max_length_ratio: float | None
    batch_tokens: int | None
    length_normalization: Literal["gnmt", "average"] | None
    coverage_penalty: float | None
    min_length: int | None
    min_length_ratio: float | None
    no_repeat_ngram: int | None
    repetition_penalty: float | None
    sampling: bool | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    diversity_groups: int | None
    diversity_penalty: float | None
    risk: Literal["none", "chrf", "bleu"] | None
    candidates: int | None
    distinct_texts: bool | None


class DecodingOverrides(SearchOverrides, total=False):
    """All of them."""

    n_best: int | None


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
