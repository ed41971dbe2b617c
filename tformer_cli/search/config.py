"""Settings of the search: the recipe's `[decoding]` table and the options of `translate`."""

from collections.abc import Container, Mapping
from dataclasses import fields, replace
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar, get_args

from tformer_cli.settings import (
    ANY,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    Limits,
    Option,
    at_least,
    between,
    check_limits,
    dataclass,
    declare,
    declared_options,
    literal_values,
    types_of,
    unknown_setting,
)

Default = TypeVar("Default")
Engine = Literal["tformer", "compiled", "torch"]
"""Decoding engines."""
PrecisionChoice = Literal["auto", "float32", "bfloat16", "int8"]
TooLong = Literal["split", "truncate", "error"]
EnsembleSpace = Literal["probability", "log"]
SentenceRule = Literal["rule", "sentencex", "none"]
"""Ways of finding the ends of sentences; "none": lines are not split."""
"""Precisions to translate in; "auto" is the type that the weights are stored in."""
TORCH_BATCH_TOKENS = 4096
"""Default if the settings leave the choice."""
LARGEST_LENGTH_PENALTY = 10.0
"""Beyond it the divisor of a long translation leaves the range of numbers."""
MOST_HYPOTHESES = 10_000
"""Limit per sentence; more than any machine has memory for."""
Level = Literal["beam", "plain", "kernels", "torch"]
"""Searches; each supports what the one before it supports. beam: greedy and beam search
without any other rule. plain: also what numbers describe (limits, divisors by length, hypotheses
wanted), and choices among what a search found. kernels: also rules that forbid tokens, and
sampling. torch: every rule."""


@dataclass(frozen=True, kw_only=True)
class SearchOption(Option):
    """An option of the search: which searches know it, and its words for language models."""

    known_to: Level
    """The first search that knows its values; those before it know only the default."""
    of_prompts: str | Option = ""
    """The help sentence, or all of the option, for language models; empty: the same."""
    needs_source: bool = False
    """True if language models do not have it."""
    needs_sampling: bool = False
    """True if a search that does not sample does not look at it."""


def _setting(
    default: Default,
    help_text: str,
    known_to: Level,
    panel: str = "Common",
    **details: Any,  # noqa: ANN401
) -> Default:
    details = {"shown_default": "the model's", **details}
    return declare(default, SearchOption(help_text, panel, known_to=known_to, **details))


_sampling = partial(_setting, known_to="beam", panel="Sampling", needs_sampling=True)


@dataclass(frozen=True, kw_only=True)
class DecodingConfig:
    """How translations are searched for. Kept in the model directory as its defaults."""

    beam_size: Annotated[int, between(1, MOST_HYPOTHESES)] = _setting(
        5,
        "Beam size: hypotheses kept per line. 1 is greedy search.",
        "beam",
        min=1,
        of_prompts="Beam size, to search instead of sampling. 1 is greedy search.",
    )
    length_penalty: Annotated[
        float,
        Limits(
            f"from 0 to {LARGEST_LENGTH_PENALTY:g}",
            {"minimum": 0, "maximum": LARGEST_LENGTH_PENALTY},
        ),
    ] = _setting(
        0.6,
        "Length penalty: the exponent A of ((5 + T)/6)^A, which divides the "
        "log-probability of T tokens.",
        "beam",
        "Search",
        metavar="A",
        min=0.0,
    )
    n_best: Annotated[int, between(1, MOST_HYPOTHESES)] = _setting(
        1, "Translations returned for each sentence.", "beam"
    )
    max_length: Annotated[int, at_least(0)] = _setting(
        0,
        "Longest translation of a sentence, in tokens; a target_prefix does not count.",
        "beam",
        "Search",
        min=1,
        shown_default="the model's, and --max-length-ratio",
        of_prompts=Option(
            help="Maximum number of tokens to add to a prompt.",
            min=1,
            shown_default="the model's, or 200",
        ),
    )
    """Longest translation in tokens (0: only `max_length_ratio` and the model limit it)."""
    max_length_ratio: Annotated[float, POSITIVE] = _setting(
        3.0,
        "Longest translation, in tokens per source token; 20 more are always allowed.",
        "beam",
        "Search",
        needs_source=True,
    )
    batch_tokens: Annotated[int, at_least(0)] = _setting(
        0,
        "Source tokens per batch; 0 picks the fastest.",
        "beam",
        "Large jobs",
        min=0,
        of_prompts="Prompt tokens per batch; 0 picks the fastest.",
    )
    """Source tokens decoded together (0: as many as are fastest; a model directory's 4096, the
    default of earlier versions, is 0)."""
    length_normalization: Literal["gnmt", "average"] = _setting(
        "gnmt",
        "Divide log-probabilities by the length penalty's formula (gnmt) or by the number of "
        "tokens (average).",
        "plain",
        "Search",
    )
    coverage_penalty: Annotated[float, NOT_NEGATIVE] = _setting(
        0.0,
        "Weight of the coverage penalty (Wu et al. 2016), for source tokens that get "
        "little attention.",
        "torch",
        "Search",
        needs_source=True,
    )
    min_length: Annotated[int, at_least(0)] = _setting(
        0,
        "Shortest translation of a sentence, in tokens; a target_prefix does not count.",
        "kernels",
        "Search",
        of_prompts="Minimum number of tokens to add to a prompt.",
    )
    min_length_ratio: Annotated[float, NOT_NEGATIVE] = _setting(
        0.0,
        "Shortest translation, in tokens per source token.",
        "kernels",
        "Search",
        needs_source=True,
    )
    no_repeat_ngram: Annotated[int, at_least(0)] = _setting(
        0, "Never repeat an n-gram of N tokens; 0 allows repetition.", "kernels", "Search"
    )
    repetition_penalty: Annotated[
        float,
        Limits("from 1 to 1e6", {"minimum": 1, "maximum": 1e6}),
    ] = _setting(
        1.0,
        "Multiply the log-probability of tokens already in the translation by X (Keskar "
        "et al. 2019); 1 changes nothing.",
        "torch",
        "Search",
        of_prompts="Multiply the log-probability of tokens already written by X (Keskar et al. "
        "2019); 1 changes nothing.",
    )
    sampling: bool = _setting(
        False,
        "Sample translations instead of searching.",
        "kernels",
        "Sampling",
        of_prompts="Sample texts instead of searching for the best.",
    )
    # "beam": without sampling, or groups, the other settings of sampling and groups change nothing
    temperature: Annotated[float, POSITIVE] = _sampling(
        1.0, "Sampling temperature; below 1, likely tokens become likelier."
    )
    top_k: Annotated[int, at_least(0)] = _sampling(
        0, "Sample from the N most probable tokens; 0 is all."
    )
    top_p: Annotated[float, SHARE] = _sampling(
        1.0, "Nucleus sampling: sample from the fewest tokens whose probabilities sum to X."
    )
    diversity_groups: Annotated[int, at_least(1)] = _setting(
        1,
        "Groups of diverse beam search (Vijayakumar et al. 2018); 1 is plain beam search.",
        "torch",
        "Search",
    )
    diversity_penalty: Annotated[float, NOT_NEGATIVE] = _setting(
        0.5,
        "Penalty on a token for each earlier group that chose it at the same step.",
        "beam",
        "Search",
    )
    risk: Literal["none", "chrf", "bleu"] = _setting(
        "none",
        "Minimum Bayes risk decoding with this utility, over the beam or over sampled candidates.",
        "plain",
        "Sampling",
    )
    candidates: Annotated[int, between(1, MOST_HYPOTHESES)] = _sampling(
        32, "Candidates to sample for minimum Bayes risk decoding with --sampling."
    )
    """Candidates to sample for minimum Bayes risk decoding with `sampling`."""
    distinct_texts: bool = _setting(
        False, "List each text only once in an n-best list.", "plain", "Sampling"
    )

    def __post_init__(self) -> None:
        check_limits(self)
        if 0 < self.max_length < self.min_length:
            raise ValueError(
                f"min_length: must be at most max_length = {self.max_length}, "
                f"but is {self.min_length}"
            )
        if self.min_length_ratio > self.max_length_ratio:
            raise ValueError(
                f"min_length_ratio: must be at most max_length_ratio = {self.max_length_ratio:g}, "
                f"but is {self.min_length_ratio:g}"
            )
        if self.n_best > self.n_candidates:
            source = "candidates" if self.sampling else "beam_size"
            raise ValueError(
                f"n_best: must be at most {source} = {self.n_candidates}, but is {self.n_best}; "
                f"raise the {source.replace('_', ' ')}"
            )
        # Groups of diverse beam search are equally large, so that they share the slots out
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
        # Only minimum Bayes risk decoding compares more samples than it returns
        return self.n_best if self.risk == "none" else self.candidates

    @property
    def n_searched(self) -> int:
        """Hypotheses that are asked of the search, from which `n_best` are chosen."""
        # A choice by texts needs all that the search can give
        return self.n_best if self.risk == "none" and not self.distinct_texts else self.n_candidates


_OPTIONS: Mapping[str, SearchOption] = declared_options(DecodingConfig, SearchOption)


def search_options(*, of_prompts: bool = False) -> dict[str, Option]:
    """Lists the options of a search, or of one of language models, which read no source."""
    # `n_best` is not among them: it belongs to commands that write lists.
    options: dict[str, Option] = {}
    for name, option in _OPTIONS.items():
        if name == "n_best" or (of_prompts and option.needs_source):
            continue
        words = option.of_prompts if of_prompts else ""
        options[name] = (
            words if isinstance(words, Option) else replace(option, help=words or option.help)
        )
    return options


def known_settings(level: Level) -> Mapping[str, Container[Any]]:
    """Returns the allow-list of a search: for each setting the values that it knows."""
    # No search knows a field that is declared without an option.
    levels = get_args(Level)
    types = types_of(DecodingConfig)
    known: dict[str, Container[Any]] = {}
    for field in fields(DecodingConfig):
        if (option := _OPTIONS.get(field.name)) is None:
            continue
        kind = types[field.name]
        choices = (False, True) if kind is bool else literal_values(kind)
        is_known = levels.index(option.known_to) <= levels.index(level)
        known[field.name] = (choices or ANY) if is_known else (field.default,)
    return MappingProxyType(known)


NEED_SAMPLING = tuple(name for name, option in _OPTIONS.items() if option.needs_sampling)
BEAM_SEARCH = known_settings("beam")
PLAIN_SEARCH = known_settings("plain")
KERNEL_SEARCH = known_settings("kernels")
ANY_SEARCH = known_settings("torch")


def is_beam_search(config: DecodingConfig) -> bool:
    """Returns whether beam size, length penalty, n-best and largest lengths are all that is set."""
    return unknown_setting(config, BEAM_SEARCH) is None
