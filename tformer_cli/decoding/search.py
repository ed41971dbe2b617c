"""Choice of the search by a batch's settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tformer_cli.allow_list import ANY, unknown_setting
from tformer_cli.decoding.beam_search import beam_search
from tformer_cli.decoding.config import PLAIN_SEARCH
from tformer_cli.decoding.diverse import diverse_beam_search
from tformer_cli.decoding.greedy import greedy_search
from tformer_cli.decoding.length_penalty import length_divisor
from tformer_cli.decoding.processors import make_processors
from tformer_cli.decoding.sampling import sample
from tformer_cli.decoding.scoring import score_pairs

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from torch import Tensor

    from tformer_cli.decoding.config import DecodingConfig
    from tformer_cli.decoding.hypothesis import Hypothesis
    from tformer_cli.model.transformer import Transformer

KNOWN_SETTINGS: Mapping[str, Container[Any]] = MappingProxyType(
    {
        **PLAIN_SEARCH,
        **dict.fromkeys(
            ("coverage_penalty", "min_length", "min_length_ratio", "no_repeat_ngram",
             "repetition_penalty", "diversity_groups"),
            ANY,
        ),
        "sampling": (False, True),
    }
)  # fmt: skip
"""Settings that `search` knows."""


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """A sentence to translate, and what is asked of its translation."""

    tokens: tuple[int, ...]
    """The source in token ids, without special tokens."""
    key: int = 0
    """Decides what is sampled."""
    prefix: tuple[int, ...] = ()
    """Tokens the translation begins with."""
    required: tuple[str, ...] = ()
    """Phrases the translation holds."""
    banned: tuple[str, ...] = ()
    """Phrases it does not hold."""

    @property
    def is_constrained(self) -> bool:
        """True if it must be searched by itself."""
        return bool(self.required or self.banned)


def search(
    model: Transformer,
    sentences: Sequence[Sentence],
    source: Tensor,
    source_mask: Tensor,
    config: DecodingConfig,
    banned: Sequence[Sequence[int]] = (),
) -> list[list[Hypothesis]]:
    """Translates a batch as its settings say.

    Args:
        model: in evaluation mode.
        sentences: the B sentences and what is asked of each.
        source: (B, S) source token ids, each sentence ended by its end of sentence.
        source_mask: (B, S) boolean, True at tokens.
        config: how to search.
        banned: token sequences that no translation may hold.

    Returns:
        For every sentence at most `config.n_searched` hypotheses, best first; samples in the
        order drawn.

    Raises:
        ValueError: if the search does not know a setting.
    """
    unknown = unknown_setting(config, KNOWN_SETTINGS)
    if unknown is not None:
        raise ValueError(f"the search does not know the setting {unknown}")
    prefixes = [sentence.prefix for sentence in sentences]
    is_plain = unknown_setting(config, PLAIN_SEARCH) is None
    if is_plain and config.beam_size == 1 and not any(banned) and not any(prefixes):
        return greedy_search(model, source, source_mask, config)
    n_groups = 1 if config.sampling else config.diversity_groups
    processors = make_processors(
        config,
        [len(sentence.tokens) for sentence in sentences for _ in range(n_groups)],
        model.config.max_positions,
        source.device,
        banned=banned,
        prefixes=[prefix for prefix in prefixes for _ in range(n_groups)],
    )
    if config.sampling:
        keys = [sentence.key for sentence in sentences]
        return sample(model, source, source_mask, config, keys, processors)
    if n_groups > 1:
        return diverse_beam_search(model, source, source_mask, config, processors)
    if config.coverage_penalty == 0.0:
        return beam_search(model, source, source_mask, config, processors=processors)
    whole = replace(config, n_best=config.beam_size)
    found = beam_search(model, source, source_mask, whole, processors=processors, stops_early=False)
    return [
        _covered(model, sentence, hypotheses, config)
        for sentence, hypotheses in zip(sentences, found, strict=True)
    ]


def _covered(
    model: Transformer,
    sentence: Sentence,
    hypotheses: Sequence[Hypothesis],
    config: DecodingConfig,
) -> list[Hypothesis]:
    """Adds the coverage penalty to the scores of a sentence's hypotheses and ranks them again.

    The attention comes from a forced pass over the finished hypotheses; until then the search goes
    on, because the penalty may put any of them first.
    """
    forced = score_pairs(
        model,
        [sentence.tokens] * len(hypotheses),
        [hypothesis.token_ids for hypothesis in hypotheses],
        config,
        device=next(model.parameters()).device,
    )
    scored = [
        replace(
            found,
            score=found.score
            + given.score
            - given.log_probability / length_divisor(given.n_tokens, config),
        )
        for found, given in zip(hypotheses, forced, strict=True)
    ]
    return sorted(scored, key=lambda found: -found.score)[: config.n_searched]
