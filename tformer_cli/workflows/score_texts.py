"""Scoring texts with a language model: how probable each line is, so that odd ones can be found."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from tformer_cli.data.given_lines import given_lines
from tformer_cli.decoding.formats import TSV_ENDS
from tformer_cli.workflows.evaluate_texts import log_probabilities

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tformer_cli.workflows.opening.generator import OpenedGenerator
    from tformer_cli.workflows.score import ScoreFormat

LINES_AT_ONCE = 1024


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
    return json.dumps(record, ensure_ascii=False)
