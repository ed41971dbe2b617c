"""Scoring texts: how probable each line is to a language model, so that odd ones can be found."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from tformer_cli.errors import ArtifactError
from tformer_cli.kinds.lines.evaluate_texts import log_probabilities
from tformer_cli.kinds.opening.encoder import fitting, source_ids
from tformer_cli.search.formats import TSV_ENDS
from tformer_cli.text.lines import given_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tformer_cli.kinds.lines.score import ScoreFormat
    from tformer_cli.kinds.opening.encoder import OpenedEncoder
    from tformer_cli.kinds.opening.generator import OpenedGenerator

LINES_AT_ONCE = 1024
MASKED_LINES_AT_ONCE = 16
"""Of which each is read as often as it has tokens."""


@dataclass(frozen=True, slots=True)
class ScoredText:
    """A text and the log-probabilities of its tokens."""

    index: int
    """Number of the line, from 0."""
    text: str
    token_ids: tuple[int, ...]
    """Its tokens."""
    token_log_probabilities: tuple[float, ...]
    """ln p of each, and of the text's end if the model has texts that end; without `<s>` the first
    token has none."""
    n_bytes: int
    """Bytes of the text; its end, where it is predicted, is one."""
    is_truncated: bool = False
    """True if the text was longer than a masked language model takes; its end was cut off."""

    @property
    def log_probability(self) -> float:
        """Σ ln p."""
        return math.fsum(self.token_log_probabilities)

    @property
    def bits_per_byte(self) -> float:
        """-Σ log₂ p by the bytes of the text; 0 of an empty one without an end."""
        return abs(self.log_probability) / math.log(2.0) / max(1, self.n_bytes)


def score_text_lines(opened: OpenedGenerator, lines: Iterable[str]) -> Iterator[ScoredText]:
    """Scores each line by itself, some at a time, in windows of what the model takes.

    Args:
        opened: from `open_generator`.
        lines: the texts.

    Raises:
        TypeError: if the lines are one string, or hold something else.
    """
    directory = opened.directory
    window = directory.config.max_positions
    numbered = enumerate(given_lines(lines))
    while buffer := list(islice(numbered, LINES_AT_ONCE)):
        encoded = directory.tokenizer.target.encode_phrases([text for _, text in buffer])
        found = log_probabilities(opened, encoded, window, window)
        for (index, text), ids, steps in zip(buffer, encoded, found, strict=True):
            n_bytes = len(text.encode("utf-8", "replace")) + directory.config.target_eos
            yield ScoredText(index, text, tuple(ids), tuple(steps), n_bytes)


def score_masked_lines(opened: OpenedEncoder, lines: Iterable[str]) -> Iterator[ScoredText]:
    """Scores each line by its pseudo-log-likelihood, some at a time.

    That is Σ ln p of each token where it alone is hidden (Salazar et al. 2020, "Masked Language
    Model Scoring", equation 1): a pass for each token, and no probability of the whole text.

    Args:
        opened: from `open_encoder`, with a masked language model.
        lines: the texts.

    Raises:
        TypeError: if the lines are one string, or hold something else.
        ArtifactError: if the model's tokenizer has no token for gaps.
    """
    directory = opened.directory
    side = directory.tokenizer.source
    mask = side.mask_id
    if mask is None:
        raise ArtifactError(
            f"{directory.path}: its tokenizer has no token for gaps; name another model"
        )
    numbered = enumerate(given_lines(lines))
    while buffer := list(islice(numbered, MASKED_LINES_AT_ONCE)):
        encoded, _ = source_ids(directory, [text for _, text in buffer], buffer[0][0])
        read = fitting(directory, encoded, "truncate", buffer[0][0])
        hidden: list[list[int]] = []
        gaps: list[tuple[int, int]] = []
        own: list[tuple[int, ...]] = []
        for ids, whole in zip(read, encoded, strict=True):
            stop = min(len(ids), len(whole) - len(side.end))
            own.append(tuple(ids[len(side.start) : stop]))
            for place in range(len(side.start), stop):
                hidden.append([*ids[:place], mask, *ids[place + 1 :]])
                gaps.append((place, ids[place]))
        steps = iter(_gap_log_probabilities(opened, hidden, gaps))
        for (index, text), ids, tokens, whole in zip(buffer, read, own, encoded, strict=True):
            n_bytes = len(text.encode("utf-8", "replace"))
            found = tuple(islice(steps, len(tokens)))
            yield ScoredText(index, text, tokens, found, n_bytes, len(ids) < len(whole))


def _gap_log_probabilities(
    opened: OpenedEncoder, texts: Sequence[Sequence[int]], gaps: Sequence[tuple[int, int]]
) -> list[float]:
    """Computes ln p of a token at a gap of every text, by the kernels if they can."""
    compiled, head = opened.compiled, opened.token_head
    if compiled is None or head is None:
        from tformer_cli.search.encoding import gap_log_probabilities

        return gap_log_probabilities(
            opened.directory.masked_model, texts, gaps, precision=opened.precision
        )

    def take(number: int, hidden: NDArray[np.float32]) -> float:
        place, token = gaps[number]
        return float(head.log_probabilities(hidden[place])[token])

    return compiled.each(texts, take)


def format_text_score(scored: ScoredText, output_format: ScoreFormat) -> str:
    """Writes a scored text as a line, without its end.

    Args:
        scored: the text.
        output_format: "text": the log-probability; "tsv": index, text, log-probability, bits per
            byte; "jsonl": an object with the tokens' log-probabilities, too.
    """
    if output_format == "text":
        return f"{scored.log_probability:.6f}"
    if output_format == "tsv":
        numbers = (f"{scored.log_probability:.6f}", f"{scored.bits_per_byte:.6f}")
        return "\t".join((str(scored.index), scored.text.translate(TSV_ENDS), *numbers))
    record: dict[str, Any] = {
        "index": scored.index,
        "text": scored.text,
        "log_probability": scored.log_probability,
        "bits_per_byte": scored.bits_per_byte,
        "token_ids": list(scored.token_ids),
        "token_log_probabilities": list(scored.token_log_probabilities),
    }
    if scored.is_truncated:
        record["truncated"] = True
    return json.dumps(record, ensure_ascii=False)
