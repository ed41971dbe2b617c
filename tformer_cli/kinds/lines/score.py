"""Probabilities of given translations, labels or texts, one function a kind; n-best lists."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING, Any, Literal, cast

from tformer_cli.errors import ArtifactError, DataError, TformerError
from tformer_cli.kinds import kind_of
from tformer_cli.kinds.lines.classify import score_labels
from tformer_cli.kinds.lines.generate import log_probabilities
from tformer_cli.kinds.lines.job import (
    LineResult,
    aligned_pairs,
    computed_by_buffer,
    fitting,
    source_ids,
    usual_buffer,
)
from tformer_cli.recipe import load_recipe
from tformer_cli.search.formats import OUR_FIELDS, TSV_ENDS, json_line, moses_text, read_record
from tformer_cli.search.hypothesis import Hypothesis, longest_source
from tformer_cli.show.notebook import html_table
from tformer_cli.text.lines import given_lines
from tformer_cli.wording import is_blank, is_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from tformer_cli.kinds.lines.job import Damaged
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.search.pooled import TokenHead

ScoreFormat = Literal["text", "tsv", "jsonl"]
PAIRS_AT_ONCE = 1024
MASKED_LINES_AT_ONCE = 16
"""Each is read as often as it has tokens."""
_NOTHING = Hypothesis((), 0.0, 0.0, (), is_finished=True)
"""The translation of a blank line by another."""
_IN_ALIGNMENTS = frozenset("0123456789-=:,.e+ ")


@dataclass(frozen=True, slots=True)
class ScoredPair:
    """A pair of sentences and its log-probabilities by a model."""

    index: int
    """Number of the line, from 0."""
    source: str
    target: str
    result: Hypothesis
    """The target's tokens, log-probabilities and score."""
    is_truncated: bool
    """True if a side was longer than the model takes; its end was cut off."""
    is_retokenized: bool = True
    """True if the target's tokens were not given, so that the tokenizer made them."""

    @property
    def text(self) -> str:
        """The target."""
        return self.target

    def __str__(self) -> str:
        return self.line("text")

    def _repr_html_(self) -> str:
        row = (self.target, self.result.log_probability, self.result.score)
        return html_table(self.source, ("target", "log-probability", "score"), [row])

    def line(self, output_format: ScoreFormat) -> str:
        """Writes it as a line, without its end."""
        result = self.result
        if output_format == "text":
            return f"{result.log_probability:.6f}"
        if output_format == "tsv":
            texts = (text.translate(TSV_ENDS) for text in (self.source, self.target))
            numbers = (f"{result.log_probability:.6f}", f"{result.score:.6f}")
            return "\t".join((str(self.index), *texts, *numbers))
        record = {
            "index": self.index,
            "source": self.source,
            "target": self.target,
            "log_probability": result.log_probability,
            "score": result.score,
            "token_ids": list(result.token_ids),
            "token_log_probabilities": list(result.token_log_probabilities),
        }
        if self.is_truncated:
            record["truncated"] = True
        return json.dumps(record, ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredText(LineResult):
    """A text and the log-probabilities of its tokens."""

    token_ids: tuple[int, ...]
    token_log_probabilities: tuple[float, ...]
    """ln p of each, and of a predicted end; without `<s>` the first token has none."""
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

    def line(self, output_format: ScoreFormat) -> str:
        """Writes it as a line, without its end."""
        if output_format == "text":
            return f"{self.log_probability:.6f}"
        if output_format == "tsv":
            numbers = (f"{self.log_probability:.6f}", f"{self.bits_per_byte:.6f}")
            return "\t".join((str(self.index), self.text.translate(TSV_ENDS), *numbers))
        return self.object_line(
            {
                "log_probability": self.log_probability,
                "bits_per_byte": self.bits_per_byte,
                "token_ids": list(self.token_ids),
                "token_log_probabilities": list(self.token_log_probabilities),
            }
        )


def scored_lines(
    opened: Opened, lines: Iterable[Any], damaged: Damaged = "error"
) -> Iterator[list[Any]]:
    """Scores lines as a model of its kind can, a buffer at a time."""
    scorers: dict[str, tuple[Callable[..., list[Any]], int | None]] = {
        "translations": (score_pairs, PAIRS_AT_ONCE),
        "labels": (partial(score_labels, damaged=damaged), None),
        "text": (score_texts, PAIRS_AT_ONCE),
        "gaps": (score_masked, MASKED_LINES_AT_ONCE),
    }
    score, size = scorers[kind_of(opened.config).measured_by]
    size = size or usual_buffer(opened.directory)
    yield from computed_by_buffer(lines, partial(score, opened), size)


def score_lines(
    opened: Opened, sources: Iterable[str], targets: Iterable[str]
) -> Iterator[ScoredPair]:
    """Scores translations by forced decoding, with the penalties of the opened model."""
    pairs = aligned_pairs(given_lines(sources, "sources"), given_lines(targets, "targets"))
    return chain.from_iterable(scored_lines(opened, pairs))


def score_pairs(
    opened: Opened,
    pairs: Sequence[tuple[str, str]],
    first_index: int = 0,
    targets_ids: Sequence[Sequence[int] | None] = (),
) -> list[ScoredPair]:
    """Scores pairs of sentences; `targets_ids` are tokens of the targets where they are given."""
    tokenizer = opened.directory.tokenizer
    longest = longest_source(opened.config.max_positions)
    whole = [
        side.encode_batch(list(texts))
        for side, texts in zip(
            (tokenizer.source, tokenizer.target), zip(*pairs, strict=True), strict=True
        )
    ]
    written = targets_ids or [None] * len(pairs)
    # Tokens that were written count: the tokenizer might cut the same text otherwise
    whole[1] = [
        own if ids is None else list(ids) for own, ids in zip(whole[1], written, strict=True)
    ]
    sources, targets = ([ids[:longest] for ids in side] for side in whole)
    results = opened.translator.score(sources, targets)
    results = [
        _NOTHING if all(map(is_blank, pair)) else result
        for pair, result in zip(pairs, results, strict=True)
    ]
    lengths = [max(map(len, pair)) for pair in zip(*whole, strict=True)]
    rows = zip(pairs, results, lengths, written, strict=True)
    return [
        ScoredPair(index, *pair, result, length > longest, ids is None)
        for index, (pair, result, length, ids) in enumerate(rows, first_index)
    ]


def score_texts(opened: Opened, texts: Sequence[str], first_index: int = 0) -> list[ScoredText]:
    """Scores each text by itself, in windows that the model takes."""
    # Without overlap: each token is read once, as in training
    window = opened.config.max_positions
    read = ["" if is_blank(text) else text for text in texts]
    encoded = opened.directory.tokenizer.target.encode_phrases(read)
    rows = zip(texts, encoded, log_probabilities(opened, encoded, window, window), strict=True)
    return [
        ScoredText(
            index=index,
            text=text,
            token_ids=tuple(ids),
            token_log_probabilities=tuple(steps),
            # A predicted end is one
            n_bytes=len(text.encode("utf-8", "replace")) + opened.config.target_eos,
        )
        for index, (text, ids, steps) in enumerate(rows, first_index)
    ]


def score_masked(opened: Opened, texts: Sequence[str], first_index: int = 0) -> list[ScoredText]:
    """Scores texts by their pseudo-log-likelihood.

    That is Σ ln p of each token where only it is hidden (Salazar et al. 2020, "Masked Language
    Model Scoring", equation 1): a pass for each token, and no probability of the whole text.
    """
    directory = opened.directory
    side = directory.tokenizer.source
    mask = side.mask_id
    if mask is None:
        raise ArtifactError(
            f"{directory.path}: its tokenizer has no token for gaps; name another model"
        )
    encoded, _ = source_ids(directory, texts, first_index)
    read = fitting(directory, encoded, "truncate", first_index)
    hidden: list[list[int]] = []
    gaps: list[tuple[int, int]] = []
    own: list[tuple[int, ...]] = []
    for ids, whole in zip(read, encoded, strict=True):
        # Every text has the same first and last tokens
        stop = min(len(ids), len(whole) - len(side.end))
        own.append(tuple(ids[len(side.start) : stop]))
        for place in range(len(side.start), stop):
            hidden.append([*ids[:place], mask, *ids[place + 1 :]])
            gaps.append((place, ids[place]))
    steps = iter(_gap_log_probabilities(opened, hidden, gaps))
    return [
        ScoredText(
            index=index,
            text=text,
            token_ids=tokens,
            token_log_probabilities=tuple(islice(steps, len(tokens))),
            n_bytes=len(text.encode("utf-8", "replace")),
            is_truncated=len(ids) < len(whole),
        )
        for index, (text, ids, tokens, whole) in enumerate(
            zip(texts, read, own, encoded, strict=True), first_index
        )
    ]


def _gap_log_probabilities(
    opened: Opened, texts: Sequence[Sequence[int]], gaps: Sequence[tuple[int, int]]
) -> list[float]:
    """Computes ln p of a token at a gap of every text, by the kernels if they can."""
    if opened.compiled is None:
        from tformer_cli.search.encoding import gap_log_probabilities

        model = opened.directory.masked_model
        return gap_log_probabilities(model, texts, gaps, precision=opened.products)
    head = cast("TokenHead", opened.head)

    def take(number: int, hidden: NDArray[np.float32]) -> float:
        place, token = gaps[number]
        return float(head.log_probabilities(hidden[place])[token])

    return opened.compiled.each(texts, take)


@dataclass(frozen=True, slots=True)
class RankedLine:
    """A line of an n-best list in its new place."""

    text: str
    is_truncated: int
    """Number of its translations with a side that was cut off."""
    is_retokenized: int
    """Number of texts that came without tokens."""

    def line(self, _: ScoreFormat) -> str:
        return self.text


def rank_again(
    opened: Opened, sources: Sequence[str], lines: Iterable[str], name: str
) -> Iterator[RankedLine]:
    """Ranks the translations of an n-best list by the model's scores."""
    # The format shows in the first line; a stream cannot be opened twice to look
    lines = iter(lines)
    first = next(lines, "")
    is_jsonl = first.startswith("{")
    lines = chain([first] if first else [], lines)
    if is_jsonl:
        for number, line in enumerate(lines, 1):
            where = f"{name}, line {number}"
            yield _rank_record(opened, read_record(line, where), sources, where)
        return
    # Indices come in runs, so one line's hypotheses are held at a time, and not the list
    entries = (_entry(line, number, name, sources) for number, line in enumerate(lines, 1))
    for index, group in groupby(entries, key=lambda entry: entry[0]):
        candidates = list(group)
        pairs = [(sources[index], text) for _, text, _ in candidates]
        scored = zip(candidates, score_pairs(opened, pairs), strict=True)
        for (_, text, features), pair in sorted(scored, key=lambda item: -item[1].result.score):
            result = pair.result
            added = f"{features} ForcedLogProbability= {result.log_probability:.6f}".lstrip()
            shown = f"{index} ||| {moses_text(text)} ||| {added} ||| {result.score:.6f}"
            yield RankedLine(shown, pair.is_truncated, pair.is_retokenized)


def _rank_record(
    opened: Opened,
    record: dict[str, Any],
    sources: Sequence[str],
    where: str,
) -> RankedLine:
    """Ranks the translations of a JSONL object; its other fields are kept."""
    index = record.get("index")
    listed = [record] if record.get("hypotheses") is None else record["hypotheses"]
    if not (type(index) is int and isinstance(listed, list) and listed):
        raise DataError(
            f'{where}: has no "index" or no "hypotheses"; name a file that translate --n-best '
            "N --format jsonl wrote"
        )
    _check_index(index, sources, where)
    n_tokens = opened.directory.tokenizer.vocab_size
    targets_ids: list[Sequence[int] | None] = []
    for hypothesis in listed:
        if not isinstance(hypothesis, dict) or not isinstance(hypothesis.get("translation"), str):
            raise DataError(f'{where}: has a hypothesis without "translation"; write its text')
        ids = hypothesis.get("token_ids")
        is_list = isinstance(ids, list) and all(type(token) is int for token in ids)
        if ids is not None and not (is_list and all(0 <= token < n_tokens for token in ids)):
            raise DataError(
                f'{where}: "token_ids" are not of this model, which has {n_tokens} tokens; name '
                "the model that wrote them, or leave them out"
            )
        # Every part of a line has its end, which a translation has only once
        targets_ids.append(ids if record.get("parts") in (None, 1) else None)
    pairs = [(sources[index], hypothesis["translation"]) for hypothesis in listed]
    scored = score_pairs(opened, pairs, targets_ids=targets_ids)
    rows = sorted(zip(listed, scored, strict=True), key=lambda item: -item[1].result.score)
    hypotheses = [
        {**hypothesis, "score": pair.result.score, "log_probability": pair.result.log_probability}
        | (
            {"token_log_probabilities": list(pair.result.token_log_probabilities)}
            if "token_log_probabilities" in hypothesis
            else {}
        )
        for hypothesis, pair in rows
    ]
    # A field of a hypothesis that is no result of ours replaces none of its line
    best = {name: value for name, value in hypotheses[0].items() if name in OUR_FIELDS}
    ranked = {**record, **best} | ({"hypotheses": hypotheses} if listed != [record] else {})
    return RankedLine(
        json_line(ranked),
        sum(pair.is_truncated for pair in scored),
        sum(pair.is_retokenized for pair in scored),
    )


def was_cut_at_random(model: Path) -> bool:
    """Returns whether a model was trained with BPE dropout, by its recipe."""
    try:
        # Such a model often writes other pieces than its tokenizer cuts the same text into
        return load_recipe(str(model / "recipe.toml")).tokenizer.bpe_dropout > 0
    except TformerError:
        return False


def _entry(line: str, number: int, name: str, sources: Sequence[str]) -> tuple[int, str, str]:
    """Reads a line of an n-best list: index, translation, features."""
    index, *fields = re.split(r" \|\|\|(?= |\Z)", line)
    fields = [field.removeprefix(" ") for field in fields]
    # The fields after a text show where it ends: other programs may write ||| inside a text
    ends = (
        end for end in range(1, len(fields)) if _is_behind_text(fields[end:], is_first=end == 1)
    )
    if not re.fullmatch(r"[0-9]{1,18}", index) or (end := next(ends, 0)) == 0:
        raise DataError(
            f"{name}, line {number}: is not a line of an n-best list; write index ||| "
            "translation ||| features ||| score, the features as name= number"
        )
    _check_index(int(index), sources, f"{name}, line {number}")
    return int(index), " ||| ".join(fields[:end]), fields[end]


def _is_behind_text(fields: Sequence[str], *, is_first: bool) -> bool:
    """Returns whether fields may be features, a score and alignments; text may be some of them.

    Fields that do not directly follow the text must have a name and a score: otherwise another
    reading is as likely.
    """
    features, *scores = fields
    has_names = "=" in features or ":" in features
    return (
        all("=" in word or ":" in word or is_number(word) for word in features.split())
        and all(map(is_number, scores[:1]))
        and all(_IN_ALIGNMENTS.issuperset(score) for score in scores[1:])
        and (is_first or bool(has_names and scores))
    )


def _check_index(index: int, sources: Sequence[str], where: str) -> None:
    if not 0 <= index < len(sources):
        raise DataError(
            f"{where}: names source line {index}, but there are {len(sources)}; give the source "
            "that the list was made from (indices count from 0)"
        )
