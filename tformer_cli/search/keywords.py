"""Types of keyword arguments for type checkers, written from the settings by a test.

`TFORMER_WRITE_KEYWORDS=1 pytest -n0 tests/test_settings.py -k keyword` does.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypedDict

from tformer_cli.search.config import (
    Engine,
    EnsembleSpace,
    PrecisionChoice,
    SentenceRule,
    TooLong,
)


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


class LoadSettings(DecodingOverrides, total=False):
    """Keyword arguments of `tformer.load`: those of `OpeningSettings`, and of the search."""

    device: str
    precision: PrecisionChoice
    engine: Engine
    threads: int
    seed: int
    too_long: TooLong
    adapter: Path | str | None
    source_language: str | None
    target_language: str | None
    split_sentences: SentenceRule | None
    heads: Sequence[str]
    shortlist: str | None
    banned: Sequence[str]
    ensemble: Sequence[Path | str]
    ensemble_weights: Sequence[float] | None
    ensemble_space: EnsembleSpace


class TranslatorOptions(LoadSettings, total=False):
    """Keyword arguments of `open_model`."""

    tell: Callable[[str], None] | None
    before_torch: Callable[[], None] | None
