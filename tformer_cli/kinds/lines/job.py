"""Lines as one job: a buffer of texts, names of images or pairs in, a result for each out."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import field
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from tformer_cli.errors import DataError, UsageError
from tformer_cli.settings import dataclass
from tformer_cli.text.lines import buffers
from tformer_cli.text.tokenizer import UNK_ID, untrained_characters
from tformer_cli.wording import is_blank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tformer_cli.artifacts.model_directory import ModelDirectory

TooLong = Literal["truncate", "error"]
Damaged = Literal["error", "skip"]
"""Treatments of images that cannot be read."""
Item = TypeVar("Item")
Result = TypeVar("Result")
# Enough lines for batches of like lengths, few enough that a stream is seen to move
BUFFER_LINES = 1024
BUFFER_IDS = 1 << 22
"""Most ids of a buffer; of texts there are fewer by far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineResult:
    """A line, a text or the name of an image, and how much of it the model read."""

    index: int
    """Number of the line, from 0."""
    text: str
    is_truncated: bool = False
    """True if it was longer than the model takes; its end was cut off."""
    error: str = ""
    """The problem with an image that could not be read."""
    n_unknown: int = 0
    """Words or characters that the model does not know; it reads `<unk>` in their place."""
    n_tokens: int = 0
    """Tokens that the model read; of an image its pixels."""
    untrained: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    """Characters that cut other tokens than the model was trained with; see `Translation`."""

    def object_line(self, fields: dict[str, Any]) -> str:
        """Writes a JSONL object; fields about problems come last."""
        record = {"index": self.index, "text": self.text, **fields}
        if self.is_truncated:
            record["truncated"] = True
        if self.error:
            record["error"] = self.error
        return json.dumps(record, ensure_ascii=False)


COUNTS_OF_TRANSLATIONS = (
    "lines",
    "split",
    "truncated",
    "unsatisfied",
    "unknown",
    "sentences",
    "unseen",
    "untrained",
)
"""Fields of `ResultCounts` that count something of translations."""


@dataclass()
class ResultCounts:
    """Counts of a stream of results of any verb; they grow as the stream continues."""

    lines: int = 0
    split: int = 0
    """Lines that were too long and read in parts."""
    truncated: int = 0
    """Lines that were too long and cut off."""
    unsatisfied: int = 0
    """Lines whose translation lacks a required phrase or holds a banned one."""
    unknown: int = 0
    """Words or characters that the vocabulary lacks; the model read `<unk>`."""
    sentences: int = 0
    """Lines of several sentences, which were translated one by one."""
    unseen: int = 0
    """Lines of mostly words that training never saw."""
    untrained: int = 0
    """Lines of characters that cut other tokens than the model was trained with."""
    untrained_kinds: Counter[str] = field(default_factory=Counter)
    """Kinds of these characters."""
    damaged: int = 0
    """Images that cannot be read."""
    unchanged: int = 0
    """Lines in which there was nothing to do."""
    retokenized: int = 0
    """Targets that came without tokens and were tokenized."""
    moved: int = 0
    """Lines of JSONL with fields that have names of ours."""
    n_best: int = 1
    """Results that are asked for of each line."""
    fewer: int = 0
    """Lines with fewer."""
    first_unseen: Any = None
    """The first translation of unseen words."""

    def add(self, result: Any) -> None:  # noqa: ANN401 - results of every verb
        self.lines += 1
        self.truncated += result.is_truncated
        # What only some verbs know of a line counts for nothing with the others
        self.unknown += getattr(result, "n_unknown", 0)
        self.damaged += bool(getattr(result, "error", ""))
        self.split += getattr(result, "is_too_long", False)
        self.unsatisfied += bool(getattr(result, "unsatisfied", ()))
        self.sentences += getattr(result, "n_sentences", 1) > 1
        self.unchanged += getattr(result, "is_unchanged", False)
        self.retokenized += getattr(result, "is_retokenized", False)
        if untrained := getattr(result, "untrained", {}):
            self.untrained += 1
            self.untrained_kinds.update(untrained)
        is_blank = not getattr(result, "n_parts", getattr(result, "n_tokens", True))
        self.fewer += self.n_best > 1 and not is_blank and len(result) < self.n_best
        if getattr(result, "unseen", ()):
            self.unseen += 1
            self.first_unseen = self.first_unseen or result


class DamagedImage(DataError):  # noqa: N818 - of the image, not of a program
    """An image cannot be read; those before it in its buffer can."""

    n_before = 0


def usual_buffer(directory: ModelDirectory) -> int:
    """Returns the lines of a buffer: as many as usual, but of large images only some."""
    return max(1, min(BUFFER_LINES, BUFFER_IDS // directory.config.longest_source))


def computed_by_buffer(
    lines: Iterable[Item],
    compute: Callable[[list[Item], int], Result],
    buffer_lines: int,
    max_wait: float | None = None,
) -> Iterator[Result]:
    """Computes something of lines as they come, a buffer at a time."""
    first = 0
    for buffer in buffers(lines, buffer_lines, max_wait):
        try:
            yield compute(buffer, first)
        except DamagedImage as error:
            # The results before the image come first, as if the buffer had ended there
            if error.n_before:
                yield compute(buffer[: error.n_before], first)
            raise
        first += len(buffer)


def results_of(
    directory: ModelDirectory, lines: Iterable[Item], compute: Callable[[list[Item], int], Any]
) -> Iterator[Any]:
    """Yields the results of lines one by one, computed in buffers of the usual size."""
    return chain.from_iterable(computed_by_buffer(lines, compute, usual_buffer(directory)))


def each_read(
    directory: ModelDirectory,
    texts: Sequence[str],
    compute: Callable[[list[Sequence[int]]], Sequence[Result]],
    *,
    first_index: int = 0,
    too_long: TooLong = "truncate",
    damaged: Damaged = "error",
) -> Iterator[tuple[dict[str, Any], Result | None]]:
    """Reads texts or images and computes results for those that are not blank."""
    ids, problems = source_ids(directory, texts, first_index, damaged)
    read = fitting(directory, ids, too_long, first_index)
    side = directory.tokenizer.source
    there = [number for number, tokens in enumerate(read) if tokens]
    is_text = () if directory.config.reads_images else set(there)
    results = dict(zip(there, compute([read[number] for number in there]), strict=True))
    for number, text in enumerate(texts):
        fields = {
            "index": first_index + number,
            "text": text,
            "is_truncated": len(ids[number]) > len(read[number]),
            "error": problems.get(number, ""),
            # The ids of an image are its pixels, and no pixel is unknown
            "n_unknown": 0 if directory.config.reads_images else ids[number].count(UNK_ID),
            "n_tokens": len(read[number]),
            "untrained": untrained_characters([text], side) if number in is_text else {},
        }
        yield fields, results.get(number)


def source_ids(
    directory: ModelDirectory, texts: Sequence[str], first_index: int, damaged: Damaged = "error"
) -> tuple[list[list[int]], dict[int, str]]:
    """Returns the ids of texts or images, none of a blank one, and problems by their places."""
    side = directory.tokenizer.source
    # Invisible characters have ids in some vocabularies, but nothing to label or to embed
    lines = ["" if is_blank(text) else text for text in texts]
    if not directory.config.reads_images:
        return side.encode_batch(lines), {}
    ids: list[list[int]] = []
    problems = {}
    for place, text in enumerate(lines):
        try:
            ids.append(side.encode(text))
        except DataError as error:
            if damaged == "error":
                image = DamagedImage.of("line {}: {}", first_index + place + 1, error)
                image.n_before = place
                raise image from None
            ids.append([])
            problems[place] = str(error)
    return ids, problems


def fitting(
    directory: ModelDirectory, ids: Sequence[Sequence[int]], too_long: TooLong, first_index: int
) -> list[Sequence[int]]:
    """Cuts texts off where a model takes no more."""
    if too_long not in get_args(TooLong):  # Python programs may give any word
        raise UsageError.of("{too_long}: must be truncate or error; found {!r}", too_long)
    longest = directory.config.longest_source
    for number, tokens in enumerate(ids, first_index + 1) if too_long == "error" else ():
        if len(tokens) > longest:
            raise DataError.of(
                "line {}: has {} tokens, but the model takes {}; shorten it, or "
                "{too_long truncate}",
                number,
                len(tokens),
                longest,
            )
    return [tokens[:longest] for tokens in ids]


def aligned_pairs(
    sources: Iterable[str],
    targets: Iterable[str],
    names: tuple[str, str] = ("--source", "--target-file"),
) -> Iterator[tuple[str, str]]:
    """Yields each source with its target; `names` is what messages call the two sides."""
    # Lengths are compared as lines come: a stream cannot be counted before
    for number, (source, target) in enumerate(zip_longest(sources, targets), 1):
        if source is None or target is None:
            raise DataError(
                f"{names[source is not None]}: has no line {number}, but the other text has; give "
                "texts whose lines correspond"
            )
        yield source, target
