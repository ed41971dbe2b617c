"""Settings of the search: the recipe's `[decoding]` table and the options of `translate`."""

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, Literal, TypedDict, get_args

from tformer_cli.allow_list import ANY, unknown_setting

Engine = Literal["tformer", "compiled", "torch"]
"""Decoding engines."""
PrecisionChoice = Literal["auto", "float32", "bfloat16", "int8"]
"""Precisions to translate in; "auto" is the type that the weights are stored in."""
TORCH_BATCH_TOKENS = 4096
"""Where settings leave the choice."""
LARGEST_LENGTH_PENALTY = 10.0
"""Beyond it the divisor of a long translation leaves the range of numbers."""
MOST_HYPOTHESES = 10_000
"""Of one sentence; more than any machine has memory for."""


@dataclass(frozen=True, kw_only=True)
class DecodingConfig:
    """How translations are searched for. Kept in the model directory as its defaults."""

    beam_size: int = 5
    """Hypotheses kept for each sentence; 1 is greedy search."""
    length_penalty: float = 0.6
    """Exponent α of ((5 + T)/6)^α, which divides log-probabilities (Wu et al. 2016)."""
    n_best: int = 1
    """Translations returned for each sentence."""
    max_length: int = 0
    """Longest translation in tokens (0: only `max_length_ratio` and the model limit it)."""
    max_length_ratio: float = 3.0
    """A translation has at most this many times the source's tokens, plus 20."""
    batch_tokens: int = 0
    """Source tokens decoded together (0: as many as are fastest; a model directory's 4096, the
    default of earlier versions, is 0)."""
    length_normalization: Literal["gnmt", "average"] = "gnmt"
    """What log-probabilities are divided by: "gnmt" is `length_penalty`'s formula, "average" the
    number of tokens."""
    coverage_penalty: float = 0.0
    """β of the coverage penalty of beam search (Wu et al. 2016; 0: off)."""
    min_length: int = 0
    """Fewest tokens of a translation."""
    min_length_ratio: float = 0.0
    """A translation has at least this many times the source's tokens."""
    no_repeat_ngram: int = 0
    """Length of token n-grams that must not occur twice in a translation (0: off)."""
    repetition_penalty: float = 1.0
    """Factor on the log-probability of tokens already generated (Keskar et al. 2019; 1: off)."""
    sampling: bool = False
    """Draw translations at random instead of searching for the best."""
    temperature: float = 1.0
    """Sampling: logits are divided by it; below 1 the distribution is sharper."""
    top_k: int = 0
    """Sampling: draw from the k most probable tokens only (0: all)."""
    top_p: float = 1.0
    """Sampling: draw from the smallest set of tokens with this total probability (nucleus)."""
    diversity_groups: int = 1
    """Diverse beam search: groups of the beam (Vijayakumar et al. 2018)."""
    diversity_penalty: float = 0.5
    """Diverse beam search: penalty of a token for each hypothesis of earlier groups with it."""
    risk: Literal["none", "chrf", "bleu"] = "none"
    """Minimum Bayes risk decoding: rank candidates by their mean score against all others."""
    candidates: int = 32
    """Sampling: translations drawn for minimum Bayes risk decoding."""
    distinct_texts: bool = False
    """Return only the first of several hypotheses with the same text."""

    def __post_init__(self) -> None:
        for name in ("beam_size", "n_best", "candidates"):
            self._check(
                name, 1 <= getattr(self, name) <= MOST_HYPOTHESES, f"1 to {MOST_HYPOTHESES}"
            )
        self._check("diversity_groups", self.diversity_groups >= 1, "at least 1")
        for name in ("batch_tokens", "max_length", "min_length", "no_repeat_ngram", "top_k"):
            self._check(name, getattr(self, name) >= 0, "at least 0")
        for name in ("min_length_ratio", "coverage_penalty", "diversity_penalty"):
            self._check(name, 0.0 <= getattr(self, name) < math.inf, "a number of at least 0")
        for name in ("max_length_ratio", "temperature"):
            self._check(name, 0.0 < getattr(self, name) < math.inf, "a number above 0")
        largest = LARGEST_LENGTH_PENALTY
        self._check(
            "length_penalty", 0.0 <= self.length_penalty <= largest, f"from 0 to {largest:g}"
        )
        self._check("repetition_penalty", 1.0 <= self.repetition_penalty <= 1e6, "from 1 to 1e6")
        self._check("top_p", 0.0 < self.top_p <= 1.0, "above 0 and at most 1")
        if 0 < self.max_length < self.min_length:
            raise ValueError(
                f"min_length: must be at most max_length = {self.max_length}, "
                f"but is {self.min_length}"
            )
        if self.n_best > self.n_candidates:
            source = "candidates" if self.sampling else "beam_size"
            raise ValueError(
                f"n_best: must be at most {source} = {self.n_candidates}, but is {self.n_best}; "
                f"raise the {source.replace('_', ' ')}"
            )
        if self.beam_size % self.diversity_groups and not self.sampling:
            raise ValueError(
                f"diversity_groups: must divide beam_size = {self.beam_size}, "
                f"but is {self.diversity_groups}"
            )

    @property
    def torch_batch_tokens(self) -> int:
        """Source tokens of a batch of torch's, to which every operator is an effort."""
        return self.batch_tokens or TORCH_BATCH_TOKENS

    @property
    def n_candidates(self) -> int:
        """Hypotheses a search can give at most."""
        if not self.sampling:
            return self.beam_size
        return self.n_best if self.risk == "none" else self.candidates

    @property
    def n_searched(self) -> int:
        """Hypotheses that are asked of the search, from which `n_best` are chosen."""
        return self.n_best if self.risk == "none" and not self.distinct_texts else self.n_candidates

    def _check(self, name: str, holds: bool, what: str) -> None:
        if not holds:
            raise ValueError(f"{name}: must be {what}, but is {getattr(self, name)}")


def type_problem(value: object, kind: Any) -> str:  # noqa: ANN401 - a type, or a Literal
    """Says why a Python program's value is not of a setting's type; empty: it is.

    Numbers of other libraries are numbers, too.
    """
    if choices := get_args(kind):
        return "" if value in choices else f"must be one of {', '.join(choices)}; found {value!r}"
    accepted: type = {int: Integral, float: Real}.get(kind, kind)
    if isinstance(value, accepted) and (kind is bool or not isinstance(value, bool)):
        return ""
    return f"must be {kind.__name__}, but is {value!r} ({type(value).__name__})"


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


BEAM_SEARCH: Mapping[str, Container[Any]] = MappingProxyType(
    {
        "beam_size": ANY,
        "length_penalty": ANY,
        "n_best": ANY,
        "max_length": ANY,
        "max_length_ratio": ANY,
        "batch_tokens": ANY,
        "length_normalization": ("gnmt",),
        "coverage_penalty": (0.0,),
        "min_length": (0,),
        "min_length_ratio": (0.0,),
        "no_repeat_ngram": (0,),
        "repetition_penalty": (1.0,),
        "sampling": (False,),
        # the next three are of sampling alone, the penalty of diverse search alone
        "temperature": ANY,
        "top_k": ANY,
        "top_p": ANY,
        "diversity_groups": (1,),
        "diversity_penalty": ANY,
        "risk": ("none",),
        "candidates": ANY,
        "distinct_texts": (False,),
    }
)
"""Settings of greedy and beam search without any other rule: beam size, length penalty,
number of translations and largest lengths."""
PLAIN_SEARCH: Mapping[str, Container[Any]] = MappingProxyType(
    {
        **BEAM_SEARCH,
        "length_normalization": ("gnmt", "average"),
        # both choose among hypotheses that a search has found
        "risk": ("none", "chrf", "bleu"),
        "distinct_texts": (False, True),
    }
)
"""Settings under which a search follows the rules of beam search alone, so that numbers (limits,
divisors by length, hypotheses wanted) describe all of it."""

ANY_SEARCH: Mapping[str, Container[Any]] = MappingProxyType(
    {
        **PLAIN_SEARCH,
        "coverage_penalty": ANY,
        "min_length": ANY,
        "min_length_ratio": ANY,
        "no_repeat_ngram": ANY,
        "repetition_penalty": ANY,
        "sampling": (False, True),
        "diversity_groups": ANY,
    }
)
"""Settings that the search in torch knows. A rule that is added is named in all three tables."""


def is_beam_search(config: DecodingConfig) -> bool:
    """Returns whether beam size, length penalty, n-best and largest lengths are all that is set."""
    return unknown_setting(config, BEAM_SEARCH) is None
