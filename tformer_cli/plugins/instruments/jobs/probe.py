"""Probes a corpus: the knowledge of words in the states of each layer."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import torch
from torch import Tensor

from tformer_cli.artifacts.model_directory import ModelDirectory
from tformer_cli.errors import DataError
from tformer_cli.heads.names import Kind
from tformer_cli.inspect.alignment import spelled_words
from tformer_cli.inspect.capture.maps import IdPair, ids_read, longest_side
from tformer_cli.inspect.jobs.heads import subject_of
from tformer_cli.inspect.jobs.reader import (
    BUFFER_LINES,
    InspectionOptions,
    ReadReport,
    corpus_pairs,
    inspected_model,
    open_for_inspection,
)
from tformer_cli.kinds.stored_model import Opened
from tformer_cli.plugins.instruments.lens import batches, states_of
from tformer_cli.plugins.instruments.observed import stacks_of
from tformer_cli.plugins.instruments.probes import HELD_OUT, MEANINGS, TokenRow, probe, tasks_of
from tformer_cli.plugins.instruments.views.probe import VIEW, ProbeOptions, ProbeReport
from tformer_cli.text.lines import given_lines
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from tformer_cli.text.tokenizer import TokenizerSide

LEAST_SENTENCES = 4 * HELD_OUT


def inspect_probe(
    model: Path | str | ModelDirectory | Opened,
    lines: Iterable[str],
    *,
    labels: Iterable[str] | None = None,
    targets: Iterable[str] | None = None,
    settings: ProbeOptions | None = None,
    progress: Callable[[int], None] = lambda done: None,  # noqa: ARG005 - the default is silent
    **options: Unpack[InspectionOptions],
) -> ProbeReport:
    """Probes each layer for properties of tokens, and for labels of words if there are any.

    Labels, a line of them for each line and one for each word, belong to its first input: the
    source, or the text of a language model.
    """
    settings = settings or ProbeOptions()
    opened = open_for_inspection(model, tasks=VIEW.tasks, **options)
    seed = options.get("seed", 1)
    corpus = _Corpus(opened, settings.max_tokens, progress)
    corpus.read(lines, labels, targets)
    names = settings.property or ([*MEANINGS] if labels is not None else [*MEANINGS][:-1])
    tasks = [task for kind in corpus.tokens for task in tasks_of(kind, corpus.tokens[kind], names)]
    if not tasks:
        raise DataError("--property: no token has any of these; give more text, or --labels")
    return ProbeReport(
        model=subject_of(opened.directory).summary,
        n_sentences=corpus.n_sentences,
        skipped=corpus.skipped,
        results=tuple(probe(corpus.states[task.kind], task, seed) for task in tasks),
    )


class _Corpus:
    """Sentences of a corpus, and the states of their tokens in each layer."""

    def __init__(self, opened: Opened, max_tokens: int, progress: Callable[[int], None]) -> None:
        self._progress = progress
        self._opened, self._model = opened, inspected_model(opened.directory)
        self._max_tokens = max_tokens
        tokenizer = opened.directory.tokenizer
        self._sides: dict[Kind, TokenizerSide] = {
            kind: tokenizer.source if kind == "enc" else tokenizer.target
            for kind in stacks_of(self._model)
        }
        self._labeled: Kind = next(iter(self._sides))  # Its first input
        self.tokens: dict[Kind, list[TokenRow]] = {kind: [] for kind in self._sides}
        self.states: dict[Kind, list[Tensor]] = {}
        self.n_sentences, self.skipped, self._n_read = 0, 0, 0

    def read(
        self, lines: Iterable[str], labels: Iterable[str] | None, targets: Iterable[str] | None
    ) -> None:
        """Reads sentences until there are enough tokens; skips one with a side that came.

        The same text on both sides, fitted and held out, would be memorized.
        """
        kept: list[tuple[IdPair, list[str] | None]] = []
        seen: set[tuple[int, tuple[int, ...]]] = set()
        n_tokens = 0
        rows = None
        if labels is not None:  # they are checked first; without, only what is needed is read
            lines = list(given_lines(lines))
            rows = _label_rows(lines, labels)
        report, config = ReadReport(), self._opened.config
        first = 0
        for buffer in corpus_pairs(self._opened, lines, targets, BUFFER_LINES):
            places, pairs = report.fitting(buffer, config, longest_side(config))
            for place, (source, target) in zip(places, pairs, strict=True):
                # The side that a kind of model does not have is empty in all its pairs
                sides = {(n, tuple(ids)) for n, ids in enumerate((source, target)) if ids}
                if seen.isdisjoint(sides) and n_tokens < self._max_tokens:
                    seen |= sides
                    labels_here = None if rows is None else rows[first + place]
                    kept.append(((source, target), labels_here))
                    n_tokens += max(len(source), len(target))
            first += len(buffer)
            if n_tokens >= self._max_tokens:
                break
        if len(kept) < LEAST_SENTENCES:
            raise DataError(
                f"--source: has {count_of(len(kept), 'different sentence')} that the model takes; "
                f"give at least {LEAST_SENTENCES}, better 500"
            )
        self.n_sentences = len(kept)
        self._compute(kept)

    @torch.inference_mode()
    def _compute(self, sentences: Sequence[tuple[IdPair, list[str] | None]]) -> None:
        kept: dict[Kind, list[list[Tensor]]] = {kind: [] for kind in self._sides}
        for numbers, batch in batches(self._model, [pair for pair, _ in sentences]):
            _, states = states_of(self._model, batch)
            self._progress(len(numbers) + self._n_read)
            self._n_read += len(numbers)
            for row, number in enumerate(numbers):
                pair, labels = sentences[number]
                source, target = ids_read(self._model.config, *pair)
                read = {"enc": source, "dec": target}
                for kind in self._sides:
                    row_labels = labels if kind == self._labeled else None
                    self.tokens[kind] += self._rows(kind, number, read[kind], row_labels)
                    kept[kind].append(
                        [layer[row, : len(read[kind])].cpu() for layer in states[kind]]
                    )
        for kind, layers in kept.items():
            self.states[kind] = [torch.cat(parts) for parts in zip(*layers, strict=True)]

    def _rows(
        self,
        kind: Kind,
        number: int,
        ids: Sequence[int],
        labels: list[str] | None,
    ) -> Iterator[TokenRow]:
        spelled = spelled_words(self._sides[kind], ids)
        words = [None if n is None else spelled.texts[n] for n in spelled.of_token]
        after = [*ids[1:], -1]
        place_of: dict[int, int] = {}
        # A causal stack has read a word at its last token; a tagger labels the first one
        order = range(len(ids)) if kind == "dec" else reversed(range(len(ids)))
        for place in order:
            if (word := spelled.of_token[place]) is not None:
                place_of[word] = place
        labeled: dict[int, str] = {}
        if labels is not None:
            if len(labels) == len(spelled.texts):
                labeled = {place_of[n]: label for n, label in enumerate(labels) if n in place_of}
            else:  # a tokenizer may drop or join words
                self.skipped += 1
        for place, token in enumerate(ids):
            yield TokenRow(
                sentence=number,
                position=place,
                id=token,
                previous=ids[place - 1] if place else -1,
                next=after[place],
                word=words[place] or "",
                label=labeled.get(place, ""),
            )


def _label_rows(texts: Sequence[str], labels: Iterable[str]) -> list[list[str]]:
    rows = [line.split() for line in islice(given_lines(labels, "labels"), len(texts) + 1)]
    if len(rows) != len(texts):
        more = "more" if len(rows) > len(texts) else "fewer"
        raise DataError(f"--labels: has {more} lines than --source; give one for each")
    for number, (text, row) in enumerate(zip(texts, rows, strict=True), 1):
        if len(text.split()) != len(row):
            raise DataError(
                f"--labels: line {number} has {count_of(len(row), 'label')} for "
                f"{count_of(len(text.split()), 'word')}; give one label for each word"
            )
    return rows
