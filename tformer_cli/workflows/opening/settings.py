"""Settings of opening a model for translation: device, precision, engine. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast, get_args

from tformer_cli.decoding.config import (
    DecodingOverrides,
    Engine,
    PrecisionChoice,
    type_problem,
)
from tformer_cli.decoding.sentences import SentenceRule
from tformer_cli.decoding.translator import TooLong
from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tformer_cli.decoding.search.models import EnsembleSpace

SEEDS = 2**63
"""Number of seeds there are."""
CHOICES: Mapping[str, tuple[str | None, ...]] = MappingProxyType(
    {
        "precision": get_args(PrecisionChoice),
        "engine": get_args(Engine),
        "too_long": get_args(TooLong),
        "split_sentences": (None, *get_args(SentenceRule)),
        "ensemble_space": ("probability", "log"),  # `EnsembleSpace`, which stands beside torch
    }
)
"""Values of settings that are words: Python's types are no check of them."""


class TranslatorOptions(DecodingOverrides, total=False):
    """Keyword arguments of `open_translator`: those of `OpeningSettings`, and of the search."""

    device: str
    precision: PrecisionChoice
    engine: Engine
    threads: int
    seed: int
    too_long: TooLong
    split_sentences: SentenceRule | None
    banned: Sequence[str]
    adapter: Path | None
    source_language: str | None
    target_language: str | None
    ensemble: Sequence[Path]
    ensemble_weights: Sequence[float] | None
    ensemble_space: EnsembleSpace
    heads: Sequence[str]
    shortlist: str | None
    tell: Callable[[str], None] | None
    before_torch: Callable[[], None] | None


@dataclass(frozen=True, kw_only=True)
class OpeningSettings:
    """How a model is opened, besides its settings for the search.

    Raises:
        UsageError: if a value is impossible, or two exclude each other.
    """

    device: str = "auto"
    """"auto", "cpu", "cuda" or "cuda:N"; a `ModelDirectory` stays where it is."""
    precision: PrecisionChoice = "auto"
    """"float32", "bfloat16", "int8" (on the CPU), or "auto", which is what the weights are stored
    in. In float32 and int8 on a CPU a translation does not depend on what is translated beside it;
    of a GPU see `Translator`."""
    engine: Engine = "tformer"
    """"tformer": the fastest that supports the settings; or the only one that may search, see
    `engines.search_engines`."""
    threads: int = 0
    """CPU threads of engines other than torch (0: as many as torch would use). torch's own are the
    whole process's: `torch.set_num_threads`."""
    seed: int = 1
    """Seed of sampling; greedy and beam search draw nothing."""
    too_long: TooLong = "split"
    """Treatment of lines longer than the model takes: "split", "truncate" or "error"."""
    split_sentences: SentenceRule | None = None
    """Rule by which lines are split into sentences, which are translated one by one; "none": lines
    are translated as they are; None: "rule" where `trained_on_sentences`, else "none"."""
    banned: Sequence[str] = ()
    """Texts whose tokens no translation may hold in a row."""
    adapter: Path | None = None
    """Directory of a low-rank adapter that is added to the weights, or that of its run. Of a
    `ModelDirectory` the files are then read again. `read_adapter` says whether an adapter knows the
    weights that it was trained for: those of peft do not."""
    source_language: str | None = None
    """Code of the language to read, for a model that has tokens for it; None: the model's own."""
    target_language: str | None = None
    """Code of the language to write."""
    ensemble: Sequence[Path] = ()
    """Model directories of the same vocabulary that translate with it."""
    ensemble_weights: Sequence[float] | None = None
    """Weights of the models, the first one's first; None: equal ones."""
    ensemble_space: EnsembleSpace = "probability"
    """Space to average in: probabilities, or their logarithms."""
    heads: Sequence[str] = ()
    """Attention heads to translate with, named as in `inspection.heads.selectors`; the others stay
    switched off in this model. None given: all, and nothing is set."""
    shortlist: str | None = None
    """Path of the lexical shortlist whose tokens translations consist of, or "none"; None: the
    model's own, if its directory has one."""
    tell: Callable[[str], None] | None = None
    """Called with a line about what takes long before the first translation, and with a beam that
    was raised."""
    before_torch: Callable[[], None] | None = None
    """Called before torch computes: where a program sets torch's threads. Opening sets nothing
    that holds for the whole process, and imports torch only for an engine that needs it."""

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                known = ", ".join(filter(None, choices))
                option = f"--{name.replace('_', '-')}"
                raise UsageError(f"{option}: must be one of {known}; found {value!r}")
        for name in ("threads", "seed"):
            if problem := type_problem(getattr(self, name), int):
                raise UsageError(f"--{name}: {problem}")
        if self.threads < 0:
            raise UsageError(f"--threads: must be at least 0, but is {self.threads}")
        if not 0 <= self.seed < SEEDS:
            raise UsageError(f"--seed: must be from 0 to {SEEDS - 1}, but is {self.seed}")
        if self.heads and self.ensemble:
            raise UsageError("--heads: selects heads of one model; omit it or --ensemble")

    def prepare_torch(self) -> None:
        """Calls `before_torch`."""
        if self.before_torch is not None:
            self.before_torch()


def split_options(options: TranslatorOptions) -> tuple[OpeningSettings, DecodingOverrides]:
    """Separates keyword arguments of `open_translator` into those of opening and of the search."""
    names = {field.name for field in fields(OpeningSettings)}
    opening: dict[str, Any] = {name: value for name, value in options.items() if name in names}
    search = {name: value for name, value in options.items() if name not in names}
    return OpeningSettings(**opening), cast("DecodingOverrides", search)
