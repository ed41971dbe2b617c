"""Corpora tokenized once, kept in a memory-mapped Arrow file named by content."""

import hashlib
import json
import zlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, compress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tformer_cli.errors import DataError
from tformer_cli.files.atomic import aside_in_shared, flush_file
from tformer_cli.files.cache import cache_directory as default_cache_directory
from tformer_cli.files.regular_file import MIB, read_regular
from tformer_cli.settings import ANY, unknown_setting
from tformer_cli.text.blocks import TextStream
from tformer_cli.text.config import FORMAT_KEYS, CorpusConfig, DataConfig
from tformer_cli.text.corpora import SentencePair, corpus_name, format_of, read_corpus
from tformer_cli.text.lines import LineCounts
from tformer_cli.text.tokenizer import Tokenizer
from tformer_cli.wording import is_blank

CHUNK_PAIRS = 8192
# A chunk is tokenized at once and becomes one record batch; both bound its memory.
CHUNK_CHARACTERS = 4_000_000


SCHEMA = pa.schema(
    [
        pa.field("source_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("target_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("source_length", pa.int32(), nullable=False),
        pa.field("target_length", pa.int32(), nullable=False),
    ]
)


Ids = Sequence[Sequence[int]]


def record_batch(
    source_ids: Ids, target_ids: Ids, sources: Sequence[str], targets: Sequence[str]
) -> pa.RecordBatch:
    """Packs the token ids and texts of pairs with their lengths."""
    lists = [_list_array(ids) for ids in (source_ids, target_ids)]
    texts = [pa.array(side, pa.string()) for side in (sources, targets)]
    lengths = [pa.array(np.diff(array.offsets.to_numpy())) for array in lists]
    return pa.record_batch([*lists, *texts, *lengths], schema=SCHEMA)


def _list_array(lists: Ids) -> pa.ListArray:
    # Arrow's own conversion of nested lists is slow and holds a Python object for each number.
    offsets = np.zeros(len(lists) + 1, dtype=np.int32)
    np.cumsum(np.fromiter(map(len, lists), np.int32, len(lists)), out=offsets[1:])
    values = np.fromiter(chain.from_iterable(lists), np.int32, int(offsets[-1]))
    return pa.ListArray.from_arrays(offsets, values)


class ArrowTable:
    """Random access to the pairs of a file; nothing that grows with it is held in memory."""

    def __init__(self, path: Path) -> None:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        # of another version of tformer
        if reader.schema != SCHEMA:
            raise pa.ArrowInvalid(f"not a tokenized corpus: {reader.schema.names}")
        self._batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        sizes = [batch.num_rows for batch in self._batches]
        self._starts = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))).astype(np.int64)
        self._ids = [[_list_views(b.column(i)) for b in self._batches] for i in (0, 1)]
        self._lengths = [[np.asarray(b.column(i)) for b in self._batches] for i in (4, 5)]

    def __len__(self) -> int:
        return int(self._starts[-1])

    def ids(self, column: int, indices: NDArray[np.int64]) -> list[list[int]]:
        """The lists of column 0 (source) or 1 (target) at these rows."""
        views = self._ids[column]
        return [
            views[batch][1][views[batch][0][row] : views[batch][0][row + 1]].tolist()
            for batch, row in self._places(indices)
        ]

    def lengths(self, indices: NDArray[np.int64]) -> NDArray[np.int32]:
        """(2, N) tokens of source and target at these rows."""
        lengths = np.empty((2, len(indices)), dtype=np.int32)
        batches = np.searchsorted(self._starts, indices, side="right") - 1
        # Places in the order of their batches, cut where the batch changes.
        places = np.argsort(batches, kind="stable")
        ends = np.flatnonzero(np.diff(batches[places])) + 1
        for members in np.split(places, ends) if len(places) else ():
            batch = batches[members[0]]
            rows = indices[members] - self._starts[batch]
            for side in (0, 1):
                lengths[side, members] = self._lengths[side][batch][rows]
        return lengths

    def counts(self, column: int, vocab_size: int) -> NDArray[np.int64]:
        """(V) how often each number occurs in the lists of column 0 (source) or 1 (target)."""
        counts = np.zeros(vocab_size, dtype=np.int64)
        for offsets, values in self._ids[column]:
            counts += np.bincount(values[offsets[0] : offsets[-1]], minlength=vocab_size)
        return counts

    def longest(self) -> int:
        return max((int(part.max(initial=0)) for side in self._lengths for part in side), default=0)

    def strings(self, column: int, indices: NDArray[np.int64]) -> list[str]:
        """The strings of column 2 (source) or 3 (target) at these rows."""
        return [
            self._batches[batch].column(column)[row].as_py() for batch, row in self._places(indices)
        ]

    def _places(self, indices: NDArray[np.int64]) -> list[tuple[int, int]]:
        batches = np.searchsorted(self._starts, indices, side="right") - 1
        rows = indices - self._starts[batches]
        return list(zip(batches.tolist(), rows.tolist(), strict=True))


def _list_views(lists: pa.ListArray) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Offsets and values of a list column, not copied."""
    return lists.offsets.to_numpy(), lists.values.to_numpy()


@dataclass
class Counts:
    """Counts of kept and skipped pairs of a corpus, stored next to the tokenized file."""

    n_read: int = 0
    not_utf8: int = 0
    dropped: dict[str, int] = field(default_factory=lambda: {"blank": 0, "too_long": 0, "ratio": 0})
    n_bytes: int = 0
    crc32: int = 0


class EncodedCorpus:
    """Token ids and texts of the pairs that passed the filters, by index."""

    def __init__(
        self,
        table: ArrowTable,
        counts: Counts,
        key: str,
        *,
        from_cache: bool,
        ids_per_token: int = 1,
    ) -> None:
        self._table = table
        self._ids_per_token = ids_per_token
        self.n_read = counts.n_read
        self.not_utf8 = counts.not_utf8
        self.dropped = counts.dropped
        self.fingerprint = key
        self.from_cache = from_cache
        self.longest = table.longest()
        """Ids of the longest side of all pairs."""

    def __len__(self) -> int:
        return len(self._table)

    def lengths(self, indices: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int32]:
        """(2, N) source and target tokens of these pairs, without special tokens."""
        lengths = self._table.lengths(np.asarray(indices, dtype=np.int64))
        lengths[0] //= self._ids_per_token
        return lengths

    def token_ids(
        self, indices: Sequence[int] | NDArray[np.int64]
    ) -> tuple[list[list[int]], list[list[int]]]:
        rows = np.asarray(indices, dtype=np.int64)
        return self._table.ids(0, rows), self._table.ids(1, rows)

    def source_counts(self, vocab_size: int, *, is_target: bool = False) -> NDArray[np.int64]:
        """(V) how often each token occurs in the encoder's input, without special tokens."""
        return self._table.counts(int(is_target), vocab_size)

    def texts(self, indices: Sequence[int] | NDArray[np.int64]) -> tuple[list[str], list[str]]:
        rows = np.asarray(indices, dtype=np.int64)
        return self._table.strings(2, rows), self._table.strings(3, rows)


def encode_corpus(
    config: CorpusConfig,
    data: DataConfig,
    tokenizer: Tokenizer,
    progress: Callable[[int], None] | None = None,
) -> EncodedCorpus:
    """Opens a corpus's tokenized form, building it first if the cache has no complete one."""
    # by content, hashed at every start: sizes and times would let a run that resumes continue
    # silently with changed data
    key = cache_key(config, data, tokenizer)
    directory = cache_directory(data)
    counts = _open_counts(directory, key)
    from_cache = counts is not None
    if counts is None:
        counts = _build(directory, key, config, data, tokenizer, progress)
    table = ArrowTable(directory / f"{key}.arrow")
    per_token = tokenizer.source.ids_per_token
    return EncodedCorpus(table, counts, key, from_cache=from_cache, ids_per_token=per_token)


def cache_directory(data: DataConfig) -> Path:
    """Directory of tokenized corpora: as configured, or by the XDG rules."""
    if data.cache_directory:
        return Path(data.cache_directory).expanduser()
    return default_cache_directory()


def _open_counts(directory: Path, key: str) -> Counts | None:
    try:
        counts = Counts(**json.loads(read_regular(directory / f"{key}.json", MIB)))
        path = directory / f"{key}.arrow"
        # a damaged cache is made again, for it is only a copy
        if path.stat().st_size != counts.n_bytes or _crc32(path) != counts.crc32:
            return None
        ArrowTable(path)
    except (OSError, ValueError, TypeError, pa.ArrowException):
        return None
    return counts


def _build(
    directory: Path,
    key: str,
    config: CorpusConfig,
    data: DataConfig,
    tokenizer: Tokenizer,
    progress: Callable[[int], None] | None,
) -> Counts:
    asides: list[Path] = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # several trainings share the cache: each builds aside and renames, and all build the same
        asides = [aside_in_shared(directory, key[:16]) for _ in range(2)]
        counts = _write_pairs(asides[0], config, data, tokenizer, progress)
        # else the cache would hold one text under the name of another
        if cache_key(config, data, tokenizer) != key:
            raise DataError(f"{corpus_name(config)}: changed while being read; start again")
        asides[1].write_text(json.dumps(asdict(counts), indent=1) + "\n", encoding="utf-8")
        # The counts come last: they vouch for the pairs.
        for aside, ending in zip(asides, ("arrow", "json"), strict=True):
            flush_file(aside)
            aside.replace(directory / f"{key}.{ending}")
    except OSError as error:
        raise DataError(
            f"{directory}: the cache of tokenized corpora cannot be written "
            f"({(error.strerror or str(error)).lower()}); set data.cache_directory to a "
            "place with room"
        ) from None
    finally:
        for aside in asides:
            aside.unlink(missing_ok=True)
    return counts


def _write_pairs(
    path: Path,
    config: CorpusConfig,
    data: DataConfig,
    tokenizer: Tokenizer,
    progress: Callable[[int], None] | None,
) -> Counts:
    counts, lines = Counts(), LineCounts()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        stream = TextStream(tokenizer.target, data.max_length)
        is_stream = config.is_text and data.text == "stream"
        pairs = read_corpus(config, data.directory, lines)
        for chunk in _chunks(pairs, tokenizer.source.ids_per_text):
            if is_stream:
                rows = _blocks(stream.add(pair.target for pair in chunk), tokenizer)
            else:
                rows = _encode(chunk, config, data, tokenizer, counts)
            if rows.num_rows:
                writer.write_batch(rows)
            counts.n_read += len(chunk)
            if progress is not None:
                progress(counts.n_read)
        if is_stream and (rest := stream.rest()):
            writer.write_batch(_blocks([rest], tokenizer))
    counts.not_utf8 = lines.not_utf8
    counts.n_bytes = path.stat().st_size
    counts.crc32 = _crc32(path)
    return counts


def _chunks(pairs: Iterator[SentencePair], ids_per_text: int) -> Iterator[list[SentencePair]]:
    chunk: list[SentencePair] = []
    n_characters = 0
    for pair in pairs:
        chunk.append(pair)
        n_characters += max(len(pair.source), ids_per_text) + len(pair.target)
        if len(chunk) == CHUNK_PAIRS or n_characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, n_characters = [], 0
    if chunk:
        yield chunk


def _encode(
    chunk: list[SentencePair],
    config: CorpusConfig,
    data: DataConfig,
    tokenizer: Tokenizer,
    counts: Counts,
) -> pa.RecordBatch:
    """Tokenizes a chunk and filters it, counting the pairs dropped."""
    is_text = config.is_text
    pairs = [
        pair
        for pair in chunk
        if (is_text or not is_blank(pair.source)) and not is_blank(pair.target)
    ]
    counts.dropped["blank"] += len(chunk) - len(pairs)
    ids = tokenizer.encode_pairs([pair.source for pair in pairs], [pair.target for pair in pairs])
    lengths = np.array([[len(row) for row in side] for side in ids], dtype=np.int64)
    lengths[0] //= tokenizer.source.ids_per_token
    is_kept = _filter_pairs(lengths.T, data, counts, has_source=not is_text)
    sources, targets = (list(compress(side, is_kept)) for side in ids)
    kept = list(compress(pairs, is_kept))
    return record_batch(sources, targets, [p.source for p in kept], [p.target for p in kept])


def _blocks(blocks: Sequence[Sequence[int]], tokenizer: Tokenizer) -> pa.RecordBatch:
    nothing = [""] * len(blocks)
    texts = tokenizer.target.decode_batch(blocks)
    return record_batch([[] for _ in blocks], blocks, nothing, texts)


def _filter_pairs(
    lengths: NDArray[np.int64], data: DataConfig, counts: Counts, *, has_source: bool
) -> list[bool]:
    """(N,) bool: the pairs that pass the filters, given their (N, 2) tokens."""
    shorter, longer = lengths.min(axis=1), lengths.max(axis=1)
    too_long = longer > data.max_length
    uneven = ~too_long & (longer > data.max_length_ratio * shorter)
    if not data.max_length_ratio or not has_source:
        uneven[:] = False
    counts.dropped["too_long"] += int(too_long.sum())
    counts.dropped["ratio"] += int(uneven.sum())
    is_kept: list[bool] = (~(too_long | uneven)).tolist()
    return is_kept


def _crc32(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            checksum = zlib.crc32(block, checksum)
    return checksum


FORMAT = 1
"""Version of the stored form, raised when the same inputs are stored differently."""
KNOWN_CORPUS_KEYS: Mapping[str, Container[Any]] = MappingProxyType(
    {
        **dict.fromkeys(chain.from_iterable(FORMAT_KEYS.values()), ANY),
        # part of a format's content
        **dict.fromkeys(("split", "dataset_config", "pairs", "seed", "labels"), ANY),
        **dict.fromkeys(("source_field", "target_field", "text_field"), ANY),
        "weight": ANY,  # of the mixture: does not matter
    }
)
KNOWN_DATA_KEYS: Mapping[str, Container[Any]] = MappingProxyType(
    {
        **dict.fromkeys(("max_length", "max_length_ratio"), ANY),
        "text": ("lines", "stream"),
        **dict.fromkeys(("pixel_max", "scale_images"), ANY),  # part of the tokenizer of images
        # do not matter: names, places, and which corpora there are
        **dict.fromkeys(
            ("source_language", "target_language", "directory", "origin", "train", "valid",
             "cache_directory"),
            ANY,
        ),
    }
)  # fmt: skip


def cache_key(config: CorpusConfig, data: DataConfig, tokenizer: Tokenizer) -> str:
    """Hashes a corpus's content, the filters and the tokenizer; paths and times do not matter."""
    for settings, known in ((config, KNOWN_CORPUS_KEYS), (data, KNOWN_DATA_KEYS)):
        unknown = unknown_setting(settings, known)
        if unknown is not None:
            raise DataError(f"data: the cache of tokenized corpora does not know {unknown}")
    facts = {
        "format": FORMAT,
        "content": format_of(config).content(config, data.directory),
        "fields": [config.source_field, config.target_field],
        "filters": [data.max_length, data.max_length_ratio],
        "tokenizer": tokenizer.to_json(),
        **({"text": data.text} if config.is_text and data.text != "lines" else {}),
        **({"text_field": config.text_field} if config.text_field else {}),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


# Tokens of a block: something to read, and something to predict from it.
