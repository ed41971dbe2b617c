"""Taggers: a text in, a label for each of its words out.

Words are what white space separates. The first token of a word says its label, and the others are
no targets (Devlin et al. 2019, section 5.3).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import partial
from sys import float_info
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from tformer_cli.errors import DataError
from tformer_cli.kinds.classify import Classification
from tformer_cli.kinds.embed import Embed
from tformer_cli.kinds.kind import Examples, FilledGap, LineComputation
from tformer_cli.kinds.lines.job import LineResult, results_of
from tformer_cli.search.hypothesis import Several
from tformer_cli.show.notebook import html_table
from tformer_cli.text.label_tokenizer import LabelTokenizer
from tformer_cli.text.tokenizer import PAD_ID, UNK_ID
from tformer_cli.wording import count_of, is_blank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from tformer_cli.artifacts.config_file import Verb
    from tformer_cli.kinds.kind import HeldOut, Progress
    from tformer_cli.kinds.lines.classify import ScoredLabel
    from tformer_cli.kinds.lines.job import Damaged
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.model.config import Precision
    from tformer_cli.model.encoder_only import Tagger
    from tformer_cli.recipe import Recipe
    from tformer_cli.search.pooled import LabelHead
    from tformer_cli.text.batching import Divide
    from tformer_cli.text.tokenizer import Tokenizer, TokenizerSide


class Window(NamedTuple):
    """Words of a text that are read together."""

    ids: list[int]
    places: list[int]
    """Position of the first token of each word."""


def _words_of(text: str) -> list[str]:
    return [] if is_blank(text) else text.split()


def windows(side: TokenizerSide, text: str, longest: float = math.inf) -> Iterator[Window]:
    """Cuts a text between words, where it is longer than a model takes: each word gets a label."""
    start, room = len(side.start), longest - len(side.start) - len(side.end)
    ids: list[int] = []
    places: list[int] = []
    for pieces in side.encode_phrases(_words_of(text)):
        # A word may be of characters that the tokenizer drops; it has a label all the same
        word = pieces[: int(min(room, len(pieces)))] or [UNK_ID]
        if places and len(ids) + len(word) > room:
            yield Window([*side.start, *ids, *side.end], places)
            ids, places = [], []
        places.append(start + len(ids))
        ids += word
    if places:
        yield Window([*side.start, *ids, *side.end], places)


class WordTokenizer(LabelTokenizer):
    """The tokenizer of texts on the source side, a label for each word on the target side."""

    has_gaps = True

    def to_json(self) -> str:
        """See `LabelTokenizer`; keeps labels of words and of texts apart in the cache."""
        return json.dumps({"words": super().to_json()})

    def encode_pairs(
        self, sources: Sequence[str], targets: Sequence[str]
    ) -> tuple[list[list[int]], list[list[int]]]:
        """See `Tokenizer`: a target is as long as its source, with padding but at first tokens."""
        sides: tuple[list[list[int]], list[list[int]]] = [], []
        for text, labels in zip(sources, targets, strict=True):
            ids, places = next(windows(self.source, text), Window([], []))
            check_words(text, labels, "data")  # else labels would move to other words
            target = [PAD_ID] * len(ids)
            for place, label in zip(
                places, self.target.encode_phrases(labels.split()), strict=True
            ):
                target[place] = label[0]
            for side, row in zip(sides, (ids, target), strict=True):
                side.append(row)
        return sides


def check_words(text: str, labels: str, where: str) -> None:
    """Checks that each word of a text has a label."""
    n_words, n_labels = len(_words_of(text)), len(labels.split())
    if n_words != n_labels:
        start = json.dumps(text[:40], ensure_ascii=False)
        raise DataError(
            f"{where}: {start} has {count_of(n_words, 'word')} but {count_of(n_labels, 'label')}; "
            "give one label for each word"
        )


def tag_probabilities(
    model: Tagger,
    read: Sequence[Window],
    precision: Precision = "float32",
    before_batch: Callable[[], None] | None = None,
) -> list[list[list[float]]]:
    """Computes the probability of every label (L) for every word of every window, by torch."""
    from tformer_cli.search.encoding import for_each_text

    def compute(numbers: Sequence[int], source: Tensor, mask: Tensor) -> list[list[list[float]]]:
        shares = model(source, mask).double().softmax(dim=2).cpu()  # one wait for all
        return [row[read[n].places].tolist() for n, row in zip(numbers, shares, strict=True)]

    ids = [window.ids for window in read]
    return for_each_text(model, ids, compute, precision=precision, before_batch=before_batch)


def _probabilities(opened: Opened, read: Sequence[Window]) -> list[list[list[float]]]:
    """Computes the same by the kernels, where they can."""
    if opened.compiled is None:
        return tag_probabilities(cast("Tagger", opened.directory.encoder), read, opened.products)
    head = cast("LabelHead", opened.head)

    def compute(number: int, hidden: NDArray[np.float32]) -> list[list[float]]:
        # The mean of a word's one state is that state: the head of classifiers serves
        return [head.probabilities(hidden[place : place + 1]) for place in read[number].places]

    return opened.compiled.each([window.ids for window in read], compute)


class TaggedWord(NamedTuple):
    """A word of a text and its most probable label."""

    word: str
    label: str
    probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedText(LineResult, Several[TaggedWord]):
    """A text and the labels of its words."""

    words: tuple[TaggedWord, ...]
    """None for a blank text."""
    n_parts: int
    """Parts that it was read in: 1, or more of a text that is longer than the model takes."""

    @property
    def is_too_long(self) -> bool:
        return self.n_parts > 1

    @property
    def _held(self) -> tuple[TaggedWord, ...]:
        return self.words

    def __str__(self) -> str:
        return self.line("text")

    def _repr_html_(self) -> str:
        return html_table(self.text, TaggedWord._fields, self.words)

    def line(self, output_format: Literal["text", "jsonl"]) -> str:
        """Writes it as a line, without its end."""
        if output_format == "text":
            return " ".join(word.label for word in self.words)
        parts = {"parts": self.n_parts} if self.is_too_long else {}
        return self.object_line({"words": [word._asdict() for word in self.words], **parts})


def tag_rows(
    opened: Opened, texts: Sequence[str]
) -> Iterator[tuple[list[Window], list[list[float]]]]:
    """Yields for each text what was read of it, and the probabilities of labels for each word."""
    side, longest = opened.directory.tokenizer.source, opened.directory.config.longest_source
    cut = [list(windows(side, text, longest)) for text in texts]
    rows = iter(_probabilities(opened, [window for parts in cut for window in parts]))
    for parts in cut:
        yield parts, [row for _ in parts for row in next(rows)]


def tag_texts(opened: Opened, texts: Sequence[str], first_index: int = 0) -> list[TaggedText]:
    """Labels the words of texts; in float32 on a CPU none depends on the other texts."""
    names = opened.directory.info.labels
    tagged = []
    for index, (text, (read, rows)) in enumerate(
        zip(texts, tag_rows(opened, texts), strict=True), first_index
    ):
        best = ((names[row.index(max(row))], max(row)) for row in rows)
        words = tuple(TaggedWord(w, *guess) for w, guess in zip(_words_of(text), best, strict=True))
        n_unknown = sum(window.ids.count(UNK_ID) for window in read)
        tagged.append(
            TaggedText(index=index, text=text, words=words, n_parts=len(read), n_unknown=n_unknown)
        )
    return tagged


class WordPredictor:
    """Labels the words of a text for its inspection; see `PlacePredictor`."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened

    def _window(self, text: str) -> Window:
        return next(windows(self._opened.directory.tokenizer.source, text), Window([], []))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._window(text).ids for text in texts]

    def predict_places(self, text: str, ids: Sequence[int]) -> tuple[str, tuple[FilledGap, ...]]:  # noqa: ARG002
        names, places = self._opened.directory.info.labels, self._window(text).places
        (rows,) = (rows for _, rows in tag_rows(self._opened, [text]))
        best = [row.index(max(row)) for row in rows]
        gaps = (
            FilledGap(position=place, piece=names[label], id=label, probability=row[label])
            for place, label, row in zip(places, best, rows, strict=True)
        )
        return " ".join(names[label] for label in best), tuple(gaps)


class Tagging(Classification):
    """Texts to a label for each word, by an encoder with a row for each label."""

    examples = Examples("text", "text", "prediction", "labels")
    head = "tags"

    def complete_recipe(self, recipe: Recipe, progress: Progress | None) -> Recipe:
        """See `Classification`; also refuses what would move words from their labels."""
        if recipe.tokenizer.bpe_dropout:
            raise DataError(
                'tokenizer.bpe_dropout: task.kind = "tag" needs tokens that stay where they '
                "are, for their labels; omit it"
            )
        return super().complete_recipe(recipe, progress)

    def labels(self, target: str) -> list[str]:
        return target.split()

    def sides(self, tokenizer: Tokenizer, labels: Sequence[str]) -> WordTokenizer:
        return WordTokenizer(tokenizer, labels)

    def predict_labels(
        self,
        model: Any,  # noqa: ANN401 - a Tagger
        held: HeldOut,
        before_batch: Callable[[], None],
        divide: Divide,
    ) -> Sequence[list[str]]:
        side, longest = held.tokenizer.source, model.config.longest_source
        names = held.recipe.task.labels

        def compute(texts: Sequence[str]) -> list[list[str]]:
            cut = [list(windows(side, text, longest)) for text in texts]
            read = [window for parts in cut for window in parts]
            rows = iter(tag_probabilities(model, read, held.precision, before_batch))
            return [
                [names[row.index(max(row))] for _ in parts for row in next(rows)] for parts in cut
            ]

        return divide([pair.source for pair in held.pairs], compute)


class Tag(Embed):
    """An encoder with a row for each label, which words are compared with."""

    name = "tag"
    verbs = ("tag", "embed")
    measured_by = "labels"
    training = Tagging()

    def scored_labels(
        self,
        opened: Opened,
        pairs: Sequence[tuple[str, str]],
        damaged: Damaged,  # noqa: ARG002
    ) -> Iterator[list[ScoredLabel]]:
        from tformer_cli.kinds.lines.classify import ScoredLabel, check_labels

        for number, (text, labels) in enumerate(pairs):  # all, before the first is scored
            check_words(text, labels, f"line {number + 1}")
            for label in labels.split():
                check_labels(opened, [(text, label)], number)
        names = opened.directory.info.labels

        def compute(buffer: list[tuple[str, str]], first: int) -> Iterator[list[ScoredLabel]]:
            rows_of = tag_rows(opened, [text for text, _ in buffer])
            for index, ((text, labels), (_, rows)) in enumerate(zip(buffer, rows_of, strict=True)):
                yield [
                    ScoredLabel(
                        index=first + index,
                        text=word,
                        label=label,
                        log_probability=math.log(max(row[names.index(label)], float_info.min)),
                        predicted=names[row.index(max(row))],
                    )
                    for word, label, row in zip(_words_of(text), labels.split(), rows, strict=True)
                ]

        return results_of(opened.directory, pairs, compute)

    def predictor(self, opened: Opened) -> WordPredictor:
        return WordPredictor(opened)

    def line_computation(self, opened: Opened, verb: Verb) -> LineComputation:
        if verb != "tag":
            return super().line_computation(opened, verb)
        return LineComputation(partial(tag_texts, opened))


KIND = Tag()
