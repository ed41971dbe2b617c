"""An endless stream of training batches, prepared in the background, and a place in it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from typing import TypeVar

import numpy as np

from tformer_cli.errors import DataError
from tformer_cli.text.batching import (
    AnyBatch,
    Batch,
    Indices,
    Lengths,
    PlannedBatch,
    collate,
    count_batches,
    plan_batches,
    regroup,
)
from tformer_cli.text.lines import Prefetcher
from tformer_cli.text.loading.encoded import EncodedCorpus
from tformer_cli.text.masking import Masking
from tformer_cli.text.tokenizer import Tokenizer, TokenizerSide

GROWTH_SAMPLE = 512
"""Pairs on which it is measured how much BPE-dropout lengthens text."""

POOL_BATCHES = 32
"""Batches whose pairs are regrouped by their lengths after BPE-dropout."""

_MASKS = 3
"""Sets the draws of masks apart from others by the same numbers."""

# Room left in planned batches for pools whose pairs come out longer than expected.
POOL_SLACK = 1.05

Ids = list[list[int]]
Item = TypeVar("Item")


# Most examples that are sorted into batches together. Planning takes some 60 bytes for each.
WINDOW = 1 << 19


# Examples that stay together when an epoch of several windows is shuffled: neighbors in the file
# too, so that a window reads a corpus larger than memory in pieces and not page by page.
BLOCK = 256


class Mixture:
    """The examples of every epoch of several weighted corpora.

    Corpus i with N pairs and weight w gives an epoch round(w·N) examples: every pair ⌊w⌋ times, the
    rest from a fixed shuffling of the corpus in which each epoch continues where the last one
    stopped. An epoch of more than `WINDOW` examples is cut into blocks; each window takes as many
    of them, from all over the epoch, again in every epoch.
    """

    def __init__(self, sizes: Sequence[int], weights: Sequence[float], seed: int) -> None:
        self._sizes = list(sizes)
        self._seed = seed
        n_examples = [round(weight * size) for size, weight in zip(sizes, weights, strict=True)]
        self._first_pairs = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        self._first_places = np.concatenate(([0], np.cumsum(n_examples, dtype=np.int64)))
        self.n_examples = int(self._first_places[-1])
        self.n_windows = max(1, -(-self.n_examples // WINDOW))
        self._shuffled = lru_cache(maxsize=len(self._sizes))(self._shuffle_corpus)

    def places(self, epoch: int, window: int) -> Indices:
        if self.n_windows == 1:
            return np.arange(self.n_examples)
        start, end = (number * self.n_examples // self.n_windows for number in (window, window + 1))
        rng = np.random.default_rng([self._seed, epoch, 0, 0, 1])
        return _Shuffle(self.n_examples, rng)(np.arange(start, end))

    def pairs(self, epoch: int, places: Indices) -> Indices:
        """The pair number at each of these places of an epoch."""
        numbers = np.empty(len(places), dtype=np.int64)
        owners = np.searchsorted(self._first_places, places, side="right") - 1
        for owner in np.unique(owners).tolist():
            members = np.flatnonzero(owners == owner)
            rows = self._rows(owner, epoch, places[members] - self._first_places[owner])
            numbers[members] = self._first_pairs[owner] + rows
        return numbers

    def _rows(self, corpus: int, epoch: int, places: Indices) -> Indices:
        """The rows of a corpus at these places of its examples."""
        size = self._sizes[corpus]
        n_examples = int(self._first_places[corpus + 1] - self._first_places[corpus])
        n_copied, rest = n_examples // size * size, n_examples % size
        rows = places % size
        if rest:
            is_rest = places >= n_copied
            drawn = (epoch * rest + places[is_rest] - n_copied) % size
            rows[is_rest] = self._shuffled(corpus)(drawn)
        return rows

    def _shuffle_corpus(self, corpus: int) -> "_Shuffle":
        rng = np.random.default_rng([self._seed, corpus, 1])
        return _Shuffle(self._sizes[corpus], rng)


class _Shuffle:
    """0, 1, …, n - 1 in random order: one by one, or by blocks where they are many."""

    def __init__(self, n: int, rng: np.random.Generator) -> None:
        self._block = 1 if n <= WINDOW else BLOCK
        self._order = rng.permutation(n // self._block)

    def __call__(self, places: Indices) -> Indices:
        blocks, within = np.divmod(places, self._block)
        numbers = places.copy()
        is_whole = blocks < len(self._order)
        numbers[is_whole] = self._order[blocks[is_whole]] * self._block + within[is_whole]
        return numbers


@dataclass(frozen=True)
class LoaderPosition:
    """A place between two batches of the stream."""

    epoch: int = 0
    batch: int = 0


START = LoaderPosition()


class BatchStream:
    """Batches of epoch after epoch, from a position on; a resumed run sees the same."""

    def __init__(self, position: LoaderPosition, prefetch: int) -> None:
        self._position = position
        self._prefetch = prefetch
        self._workers: list[Prefetcher[tuple[AnyBatch, LoaderPosition]]] = []

    def n_batches(self, epoch: int) -> int:
        raise NotImplementedError

    def _epoch(self, epoch: int, start: int) -> Iterator[tuple[int, AnyBatch]]:
        raise NotImplementedError

    def __iter__(self) -> Iterator[tuple[AnyBatch, LoaderPosition]]:
        # a thread, for tensors need no copy and numpy releases the lock
        worker = Prefetcher(self._stream(), self._prefetch)
        self._workers.append(worker)
        try:
            yield from worker
        finally:
            worker.close()
            self._workers.remove(worker)

    def close(self) -> None:
        for worker in list(self._workers):
            worker.close()

    def _stream(self) -> Iterator[tuple[AnyBatch, LoaderPosition]]:
        epoch, start = self._position.epoch, self._position.batch
        while True:
            n_batches = self.n_batches(epoch)
            for number, batch in self._epoch(epoch, start):
                is_last = number + 1 == n_batches
                after = LoaderPosition(epoch + 1) if is_last else LoaderPosition(epoch, number + 1)
                yield batch, after
            epoch, start = epoch + 1, 0


@dataclass(frozen=True)
class _Window:
    """Examples of an epoch that were sorted into batches together."""

    places: Indices
    examples: Indices
    """Their numbers over all corpora, one after the other."""
    batches: list[Indices]
    """Members of each batch, as places in `examples`."""


class TrainingLoader(BatchStream):
    """Batches of epoch after epoch, each newly shuffled, the same for the same seed."""

    def __init__(
        self,
        corpora: Sequence[EncodedCorpus],
        weights: Sequence[float],
        tokenizer: Tokenizer,
        tokens_per_batch: int,
        seed: int,
        bpe_dropout: float = 0.0,
        position: LoaderPosition = START,
        prefetch: int = 8,
        *,
        source_eos: bool = True,
        target_bos: bool = True,
        target_eos: bool = True,
        masking: Masking | None = None,
        is_shared: bool = False,
    ) -> None:
        super().__init__(position, prefetch)
        self._corpora = list(corpora)
        self._tokenizer = tokenizer
        self._seed = seed
        self._bpe_dropout = bpe_dropout
        self._collate = partial(
            collate,
            source_eos=source_eos,
            target_bos=target_bos,
            target_eos=target_eos,
            ids_per_token=tokenizer.source.ids_per_token,
        )
        self._masking = masking
        # Each process then makes its share of a batch, planned by lengths; masks are drawn for the
        # whole batch, and what they or gaps leave to predict is not known before
        self._plan_batch = None
        if is_shared and masking is None and not tokenizer.has_gaps:
            self._plan_batch = partial(
                PlannedBatch.of,
                source_eos=source_eos,
                target_bos=target_bos,
                target_eos=target_eos,
            )
        sizes = [len(corpus) for corpus in self._corpora]
        self._starts = np.concatenate(([0], np.cumsum(sizes)))
        self._mixture = Mixture(sizes, weights, seed)
        self._longest = max((corpus.longest for corpus in self._corpora), default=0)
        if not self._mixture.n_examples:
            raise DataError("data.train: no sentence pairs to train on; add data or weight")
        # batches are planned on plain lengths, and must fit when dropout has lengthened them
        self._tokens_per_batch = max(1, int(tokens_per_batch / self._growth()))
        self._plan = lru_cache(maxsize=1)(self._plan_window)
        self._counts = lru_cache(maxsize=2)(self._count_batches)

    def n_batches(self, epoch: int) -> int:
        return sum(self._counts(epoch))

    def _epoch(self, epoch: int, start: int) -> Iterator[tuple[int, AnyBatch]]:
        first = 0
        for window, n_batches in enumerate(self._counts(epoch)):
            # windows before the place of a resumed run are counted, not planned
            if start < first + n_batches:
                batches = self._window(epoch, window, max(0, start - first))
                yield from enumerate(batches, start=max(first, start))
            first += n_batches

    def _window(self, epoch: int, window: int, start: int) -> Iterator[AnyBatch]:
        plan = self._plan(epoch, window)
        if not self._bpe_dropout:
            for number, members in enumerate(plan.batches[start:], start):
                examples = plan.examples[members]
                if self._plan_batch is None:
                    yield self._batch(*self._plain_ids(examples), (epoch, window, number))
                else:
                    source, target = self._lengths(examples)
                    yield self._plan_batch(source, target, partial(self._read, examples))
            return
        # pools depend only on the plan, so that a resumed run draws the same ones
        n_pools = -(-len(plan.batches) // POOL_BATCHES)
        for numbers in np.array_split(np.arange(len(plan.batches)), n_pools):
            if numbers[-1] >= start:
                members = np.concatenate([plan.batches[number] for number in numbers])
                batches = self._pool(
                    plan.examples[members], plan.places[members], len(numbers), epoch
                )
                yield from islice(batches, max(0, start - int(numbers[0])), None)

    def _pool(
        self, examples: Indices, places: Indices, n_batches: int, epoch: int
    ) -> Iterator[AnyBatch]:
        """Draws segmentations of the pairs of some batches, then batches them by actual length."""
        # dropout lengthens pairs unevenly: batches of plain lengths would be a third padding
        sources, targets = self._drawn_ids(examples, places, epoch)
        source_lengths, target_lengths = (
            np.array([len(ids) for ids in side], np.int32) for side in (sources, targets)
        )
        rng = np.random.default_rng([self._seed, epoch, int(places[0])])
        grouped = regroup(source_lengths, target_lengths, n_batches, rng)
        for number, members in enumerate(grouped):
            sides = [sources[i] for i in members], [targets[i] for i in members]
            if self._plan_batch is None:
                yield self._batch(*sides, (epoch, int(places[0]), number))
            else:
                lengths = source_lengths[members], target_lengths[members]
                yield self._plan_batch(*lengths, partial(self._select, *sides))

    def _read(self, examples: Indices, rows: Indices) -> Batch:
        return self._collate(*self._plain_ids(examples[rows]))

    def _select(self, sources: Ids, targets: Ids, rows: Indices) -> Batch:
        return self._collate([sources[row] for row in rows], [targets[row] for row in rows])

    def _batch(self, sources: Ids, targets: Ids, place: tuple[int, int, int]) -> Batch:
        """Builds a batch of examples; `place` is its place in the run."""
        if self._masking is None:
            return self._collate(sources, targets)
        return self._masking.batch(targets, np.random.default_rng([self._seed, *place, _MASKS]))

    def _plan_window(self, epoch: int, window: int) -> _Window:
        places = self._mixture.places(epoch, window)
        examples = self._mixture.pairs(epoch, places)
        source, target = self._lengths(examples)
        batches = plan_batches(source, target, self._tokens_per_batch, self._seed, epoch, window)
        return _Window(places, examples, batches)

    def _count_batches(self, epoch: int) -> list[int]:
        counts = []
        for window in range(self._mixture.n_windows):
            examples = self._mixture.pairs(epoch, self._mixture.places(epoch, window))
            source, target = self._lengths(examples)
            counts.append(count_batches(source, target, self._tokens_per_batch))
        return counts

    def _lengths(self, examples: Indices) -> Lengths:
        """(2, N) source and target tokens of numbered pairs."""
        lengths = np.empty((2, len(examples)), dtype=np.int32)
        owners = np.searchsorted(self._starts, examples, side="right") - 1
        for owner in np.unique(owners):
            members = np.flatnonzero(owners == owner)
            rows = examples[members] - self._starts[owner]
            lengths[:, members] = self._corpora[owner].lengths(rows)
        return lengths

    def _plain_ids(self, examples: Indices) -> tuple[Ids, Ids]:
        return self._gather(examples, lambda corpus, rows: corpus.token_ids(rows))

    def _drawn_ids(self, examples: Indices, places: Indices, epoch: int) -> tuple[Ids, Ids]:
        plain = self._plain_ids(examples)
        texts = self._gather(examples, lambda corpus, rows: corpus.texts(rows))
        # Each place of an epoch has its own key, another one for each side, never met again.
        keys = ((epoch << 40) + places) << 1
        source, target = (
            self._drop_merges(tokenizer, ids, lines, (keys + number).tolist())
            for number, (tokenizer, ids, lines) in enumerate(
                zip(self._sides, plain, texts, strict=True)
            )
        )
        return source, target

    def _gather(
        self,
        examples: Indices,
        read: Callable[[EncodedCorpus, Indices], tuple[list[Item], list[Item]]],
    ) -> tuple[list[Item], list[Item]]:
        """Reads both sides of numbered pairs, each from its corpus, in the order given."""
        owners = np.searchsorted(self._starts, examples, side="right") - 1
        by_place: dict[int, tuple[Item, Item]] = {}
        for owner in np.unique(owners):
            members = np.flatnonzero(owners == owner)
            sides = read(self._corpora[owner], examples[members] - self._starts[owner])
            by_place.update(zip(members.tolist(), zip(*sides, strict=True), strict=True))
        pairs = [by_place[place] for place in range(len(examples))]
        return [source for source, _ in pairs], [target for _, target in pairs]

    @property
    def _sides(self) -> tuple[TokenizerSide, TokenizerSide]:
        return self._tokenizer.source, self._tokenizer.target

    def _drop_merges(
        self, side: TokenizerSide, plain: Ids, texts: list[str], keys: list[int]
    ) -> Ids:
        """Segments texts by BPE-dropout; those that would pass the longest pair stay plain."""
        # model and memory are prepared for the longest pair
        drawn = side.with_dropout(texts, keys, self._bpe_dropout, self._seed)
        return [
            long if len(long) <= max(self._longest, len(short)) else short
            for short, long in zip(plain, drawn, strict=True)
        ]

    def _growth(self) -> float:
        """Factor by which BPE-dropout lengthens text, on a sample spread over the corpora."""
        if not self._bpe_dropout:
            return 1.0
        n_plain = n_drawn = 0
        for corpus in filter(len, self._corpora):  # nothing may be left of one of several
            rows = np.unique(np.linspace(0, len(corpus) - 1, GROWTH_SAMPLE, dtype=np.int64))
            sampled = zip(self._sides, corpus.lengths(rows), corpus.texts(rows), strict=True)
            for side, lengths, texts in sampled:
                drawn = side.with_dropout(texts, range(len(texts)), self._bpe_dropout, self._seed)
                n_plain += int(lengths.sum())
                n_drawn += sum(map(len, drawn))
        return POOL_SLACK * n_drawn / max(n_plain, 1)


def n_rows(n_blocks: int, block_length: int, tokens_per_batch: int) -> int:
    """Counts the rows that a text is cut into: as many blocks as a batch has room for."""
    return min(n_blocks, max(1, tokens_per_batch // block_length))


class SegmentLoader(BatchStream):
    """A text as rows of blocks, read side by side (Dai et al. 2019, section 3.2).

    Row r of a batch continues row r of the batch before. Rows differ by a block at most, the longer
    ones come first, and the last batch of an epoch may have fewer.
    """

    def __init__(
        self,
        corpus: EncodedCorpus,
        tokens_per_batch: int,
        position: LoaderPosition = START,
        prefetch: int = 8,
    ) -> None:
        super().__init__(position, prefetch)
        self._corpus = corpus
        rows = n_rows(len(corpus), corpus.longest, tokens_per_batch)
        # neighbors in the text are neighbors in a row: memory passes from one to the next
        parts = np.array_split(np.arange(len(corpus)), rows)
        self._starts = np.array([part[0] for part in parts])
        self._lengths = np.array([len(part) for part in parts])

    def n_batches(self, epoch: int) -> int:  # noqa: ARG002 - all epochs are alike
        return int(self._lengths[0])

    def _epoch(self, epoch: int, start: int) -> Iterator[tuple[int, Batch]]:
        for number in range(start, self.n_batches(epoch)):
            yield number, self._batch(number)

    def _batch(self, number: int) -> Batch:
        blocks = self._starts[self._lengths > number] + number
        _, ids = self._corpus.token_ids(blocks)
        batch = collate([[]] * len(ids), ids, target_eos=False)
        if number:
            _, before = self._corpus.token_ids(blocks - 1)
            # a row begins with the token that was predicted last; only an epoch begins with `<s>`
            for row, tokens in enumerate(before):
                batch.target_input[row, 0] = tokens[-1]
        return batch
