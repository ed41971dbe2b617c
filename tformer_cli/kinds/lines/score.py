"""Scoring given translations with a model directory, and ranking n-best lists again."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import chain, groupby, islice, zip_longest
from typing import TYPE_CHECKING, Any, Literal

from tformer_cli.errors import DataError, TformerError
from tformer_cli.recipe import load_recipe
from tformer_cli.search.formats import TSV_ENDS, read_record
from tformer_cli.search.hypothesis import longest_source
from tformer_cli.text.lines import given_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from tformer_cli.kinds.opening.translator import Opened
    from tformer_cli.search.hypothesis import Hypothesis

ScoreFormat = Literal["text", "tsv", "jsonl"]
PAIRS_AT_ONCE = 1024
_MOSES_LINE = re.compile(r"(\d+) \|\|\| (.*?) \|\|\|(?: (.*?))??(?: \|\|\| .*)?")


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


@dataclass
class ScoreCounts:
    """Counts of a stream of scored pairs; they grow as the stream continues."""

    lines: int = 0
    """Pairs scored."""
    truncated: int = 0
    """Pairs with a truncated side."""
    cut: int = 0
    """Targets that the tokenizer cut into tokens, which were not given."""


def score_lines(
    opened: Opened,
    sources: Iterable[str],
    targets: Iterable[str],
    counts: ScoreCounts | None = None,
) -> Iterator[ScoredPair]:
    """Scores translations by forced decoding, line by line, some at a time.

    Args:
        opened: from `open_translator`; its length and coverage penalties count.
        sources: source sentences.
        targets: a translation of each.
        counts: counts every pair.

    Raises:
        DataError: if one side has more lines.
    """
    counts = counts if counts is not None else ScoreCounts()
    pairs = aligned_pairs(given_lines(sources, "sources"), given_lines(targets, "targets"))
    while buffer := list(islice(pairs, PAIRS_AT_ONCE)):
        yield from scored_pairs(opened, buffer, counts)


def rank_again(
    opened: Opened, sources: Sequence[str], lines: Iterable[str], name: str, counts: ScoreCounts
) -> Iterator[str]:
    """Ranks the translations of an n-best list by the model's scores.

    Args:
        opened: from `open_translator`.
        sources: the source sentences that the list's indices count from 0.
        lines: ``index ||| translation ||| features ||| score``, those of an index together; or
            objects of JSONL, whose "token_ids" are scored where they are given.
        name: the list's name, for messages.
        counts: counts every translation.

    Yields:
        The list's lines, best first for each index, with the model's log-probability added to the
        features and its score in place of theirs; in JSONL both in place of theirs.

    Raises:
        DataError: naming the line that does not fit an n-best list.
    """
    lines = iter(lines)
    first = next(lines, "")
    is_jsonl = first.startswith("{")
    lines = chain([first] if first else [], lines)
    if is_jsonl:
        for number, line in enumerate(lines, 1):
            record = read_record(line, f"{name}, line {number}")
            yield _ranked(opened, record, sources, f"{name}, line {number}", counts)
        return
    entries = (_entry(line, number, name, sources) for number, line in enumerate(lines, 1))
    for index, group in groupby(entries, key=lambda entry: entry[0]):
        candidates = list(group)
        pairs = [(sources[index], text) for _, text, _ in candidates]
        scored = zip(candidates, scored_pairs(opened, pairs, counts), strict=True)
        for (_, text, features), pair in sorted(scored, key=lambda item: -item[1].result.score):
            result = pair.result
            added = f"{features} ForcedLogProbability= {result.log_probability:.6f}".lstrip()
            yield f"{index} ||| {text} ||| {added} ||| {result.score:.6f}"


def _ranked(
    opened: Opened,
    record: dict[str, Any],
    sources: Sequence[str],
    where: str,
    counts: ScoreCounts,
) -> str:
    """Ranks the translations of an object of JSONL; what it has besides is kept."""
    index = record.get("index")
    listed = record.get("hypotheses", [record])
    if not (type(index) is int and isinstance(listed, list) and listed):
        raise DataError(
            f'{where}: has no "index" or no "hypotheses"; name what translate --n-best N --format '
            "jsonl wrote"
        )
    _check_index(index, sources, where)
    n_tokens = opened.directory.tokenizer.vocab_size
    given: list[Sequence[int] | None] = []
    for one in listed:
        if not isinstance(one, dict) or not isinstance(one.get("translation"), str):
            raise DataError(f'{where}: has a hypothesis without "translation"; write its text')
        ids = one.get("token_ids")
        is_list = isinstance(ids, list) and all(type(token) is int for token in ids)
        if ids is not None and not (is_list and all(0 <= token < n_tokens for token in ids)):
            raise DataError(
                f'{where}: "token_ids" are not of this model, which has {n_tokens} tokens; name '
                "the model that wrote them, or leave them out"
            )
        # Parts of a line each end in a token of their own, so together they are no translation
        given.append(ids if record.get("parts", 1) == 1 else None)
    pairs = [(sources[index], one["translation"]) for one in listed]
    scored = zip(listed, scored_pairs(opened, pairs, counts, given), strict=True)
    found = [
        {**one, "score": pair.result.score, "log_probability": pair.result.log_probability}
        | (
            {"token_log_probabilities": list(pair.result.token_log_probabilities)}
            if "token_log_probabilities" in one
            else {}
        )
        for one, pair in sorted(scored, key=lambda item: -item[1].result.score)
    ]
    ranked = {**record, **found[0]} | ({"hypotheses": found} if "hypotheses" in record else {})
    return json.dumps(ranked, ensure_ascii=False)


def format_score(pair: ScoredPair, output_format: ScoreFormat) -> str:
    """Writes a scored pair as a line, without its end.

    Args:
        pair: the scored pair.
        output_format: "text": the log-probability; "tsv": index, source, target, log-probability,
            score; "jsonl": an object with the tokens' log-probabilities, too.
    """
    result = pair.result
    if output_format == "text":
        return f"{result.log_probability:.6f}"
    if output_format == "tsv":
        texts = (text.translate(TSV_ENDS) for text in (pair.source, pair.target))
        numbers = (f"{result.log_probability:.6f}", f"{result.score:.6f}")
        return "\t".join((str(pair.index), *texts, *numbers))
    record = {
        "index": pair.index,
        "source": pair.source,
        "target": pair.target,
        "log_probability": result.log_probability,
        "score": result.score,
        "token_ids": list(result.token_ids),
        "token_log_probabilities": list(result.token_log_probabilities),
    }
    if pair.is_truncated:
        record["truncated"] = True
    return json.dumps(record, ensure_ascii=False)


def scored_pairs(
    opened: Opened,
    pairs: Sequence[tuple[str, str]],
    counts: ScoreCounts,
    targets_ids: Sequence[Sequence[int] | None] = (),
) -> list[ScoredPair]:
    """Scores pairs of sentences, all at once; `counts` has the number of the first.

    Args:
        opened: from `open_translator`.
        pairs: the texts of each.
        counts: counts every pair.
        targets_ids: tokens of the targets where they are given; None: the tokenizer's own.
    """
    tokenizer = opened.directory.tokenizer
    longest = longest_source(opened.directory.config.max_positions)
    whole = [
        side.encode_batch(list(texts))
        for side, texts in zip(
            (tokenizer.source, tokenizer.target), zip(*pairs, strict=True), strict=True
        )
    ]
    given = targets_ids or [None] * len(pairs)
    whole[1] = [own if ids is None else list(ids) for own, ids in zip(whole[1], given, strict=True)]
    sources, targets = ([ids[:longest] for ids in side] for side in whole)
    results = opened.translator.score(sources, targets)
    scored = []
    for pair, result, lengths in zip(
        pairs, results, zip(*(map(len, side) for side in whole), strict=True), strict=True
    ):
        is_truncated = max(lengths) > longest
        scored.append(ScoredPair(counts.lines, *pair, result, is_truncated))
        counts.lines += 1
        counts.truncated += is_truncated
    counts.cut += sum(ids is None for ids in given)
    return scored


def was_cut_at_random(model: Path) -> bool:
    """Returns whether a model was trained with BPE dropout, by the recipe in its run directory.

    Such a model often writes other pieces than its tokenizer cuts the same text into.
    """
    try:
        return load_recipe(str(model / "recipe.toml")).tokenizer.bpe_dropout > 0
    except TformerError:
        return False


def aligned_pairs(
    sources: Iterable[str],
    targets: Iterable[str],
    names: tuple[str, str] = ("--source", "--target-file"),
) -> Iterator[tuple[str, str]]:
    """Yields each source with its target.

    Args:
        sources: the one side.
        targets: the other.
        names: what messages call the two.

    Raises:
        DataError: if one side has more lines.
    """
    for number, (source, target) in enumerate(zip_longest(sources, targets), 1):
        if source is None or target is None:
            raise DataError(
                f"{names[source is not None]}: has no line {number}, but the other text has; give "
                "texts whose lines correspond"
            )
        yield source, target


def _entry(line: str, number: int, name: str, sources: Sequence[str]) -> tuple[int, str, str]:
    """Reads a line of an n-best list: index, translation, features."""
    match = _MOSES_LINE.fullmatch(line)
    if match is None:
        raise DataError(
            f"{name}, line {number}: is not a line of an n-best list; write index ||| "
            "translation ||| features ||| score"
        )
    index = int(match[1])
    _check_index(index, sources, f"{name}, line {number}")
    return index, match[2], match[3] or ""


def _check_index(index: int, sources: Sequence[str], where: str) -> None:
    if not 0 <= index < len(sources):
        raise DataError(
            f"{where}: names source line {index}, but there are {len(sources)}; give the source "
            "that the list was made from (indices count from 0)"
        )
