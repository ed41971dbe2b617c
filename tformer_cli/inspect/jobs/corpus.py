"""Any number of sentences in, the mean of every head's metrics out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from tformer_cli.heads.names import head_layout
from tformer_cli.heads.rare_tokens import TokenFrequencies, count_tokens
from tformer_cli.heads.selectors import HeadSelection
from tformer_cli.inspect.capture.batches import CapturedBatch, IdPair, capture_batches
from tformer_cli.inspect.capture.forced import longest_side
from tformer_cli.inspect.heads.statistics import HeadStatistics, HeadSummary
from tformer_cli.inspect.jobs.reader import (
    BUFFER_LINES,
    corpus_pairs,
    inspected_model,
    is_written,
)
from tformer_cli.kinds.opening.translator import Opened
from tformer_cli.model.operations import StandardProducts


@dataclass
class CorpusReport:
    """Counts of a corpus; they grow as it is read."""

    lines: int = 0
    too_long: int = 0
    """Lines skipped, as a side is longer than the model takes."""
    rare: int = 0
    """Sentences with a rare token, by which rare-word heads are judged."""


def count_frequencies(opened: Opened, lines: Iterable[str]) -> TokenFrequencies:
    """Counts the source tokens of a corpus, in memory that does not grow."""
    tokenizer, remaining = opened.directory.tokenizer.source, iter(lines)
    counts = np.zeros(tokenizer.vocab_size, dtype=np.int64)
    while buffer := list(islice(remaining, BUFFER_LINES)):
        counts += count_tokens(tokenizer.encode_batch(buffer), tokenizer.vocab_size)
    return TokenFrequencies(counts, tokenizer.mask_id)


class CorpusInspector:
    """Measures the heads of an opened model over a corpus, in memory that does not grow."""

    def __init__(
        self,
        opened: Opened,
        heads: Sequence[str] = (),
        *,
        frequencies: TokenFrequencies | None = None,
        seed: int = 1,
        buffer_lines: int = BUFFER_LINES,
    ) -> None:
        self._model = inspected_model(opened.directory)
        self._opened = opened
        self._buffer_lines = buffer_lines
        self._frequencies = frequencies
        layout = head_layout(self._model)
        self._selection = HeadSelection(heads, layout)
        self._kinds = self._selection.kinds
        self._statistics = HeadStatistics(layout, self._kinds, seed=seed)
        self.report = CorpusReport()

    def read(self, lines: Iterable[str], targets: Iterable[str] | None = None) -> Iterator[int]:
        """Measures sentences with their translations or with given targets, or texts.

        A pair with a blank side is skipped; one that is longer than the model takes is left
        out and counted.
        """
        for buffer in corpus_pairs(self._opened, lines, targets, self._buffer_lines):
            limit = longest_side(self._model.config)
            config = self._model.config
            written = [(n, pair) for n, pair in enumerate(buffer) if is_written(pair, config)]
            fitting = [(place, pair) for place, pair in written if max(map(len, pair)) <= limit]
            places = [place for place, _ in fitting]
            self._measure(places, [pair for _, pair in fitting])
            self.report.lines += len(buffer)
            self.report.too_long += len(written) - len(fitting)
            yield self.report.lines

    def _measure(self, places: Sequence[int], pairs: Sequence[IdPair]) -> None:
        """Adds the pairs of a buffer, which stand at some places in it.

        oneDNN keeps what it has made for each of the last thousand shapes of a product, and so
        grows with the lengths a corpus holds; the standard products keep nothing.
        """
        with StandardProducts():
            for numbers, batch in capture_batches(self._model, pairs, self._kinds):
                indices = [self.report.lines + places[number] for number in numbers]
                self._statistics.add_batch(indices, batch, self._rare(batch))
                del batch  # not to be held beside the next one

    def _rare(self, batch: CapturedBatch) -> list[tuple[int, ...]] | None:
        """The rarest tokens of each sentence, if it is known how frequent tokens are."""
        if self._frequencies is None:
            return None
        found = [self._frequencies.rare_tokens(ids).positions for ids in batch.sources]
        self.report.rare += sum(map(bool, found))
        return found

    def summaries(self) -> list[HeadSummary]:
        """Sums up each chosen head over what was read so far, chosen by these very means."""
        found = {summary.head: summary for summary in self._statistics.summaries()}
        means = {head: summary.metrics for head, summary in found.items()}
        return [found[head] for head in self._selection.select(means) if head in found]

    @property
    def n_sentences(self) -> int:
        return self._statistics.n_sentences
