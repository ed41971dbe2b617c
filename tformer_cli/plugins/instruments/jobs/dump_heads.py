"""The attention maps of a whole corpus in a directory of shards, within a limit of bytes.

The schema is `tformer.headdump/1`. A shard holds N sentence pairs. In a pair, S counts the source
tokens and the end of sentence, T the decoder's positions; a map has r rows and c columns, (S, S) in
enc, (T, T) in dec, (T, S) in cross.

`ARRAYS` lists its contents. The columns of the K largest weights of a row stand largest first, of
equal ones the first first. H counts the chosen heads of the layer, which the manifest names. Half
precision keeps 11 bits: a weight is off by at most 2⁻¹² of the power of two above it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from tformer_cli.artifacts.config_file import WEIGHTS
from tformer_cli.artifacts.corpus_directory import ShardDirectory, shard_directory
from tformer_cli.artifacts.weights_file import size_of, write_arrays
from tformer_cli.errors import DataError, TformerError, UsageError
from tformer_cli.files.atomic import write_text
from tformer_cli.files.regular_file import hash_file
from tformer_cli.heads.names import KINDS, HeadId, Kind, by_layer, head_layout
from tformer_cli.heads.selectors import select_heads
from tformer_cli.inspect.capture.forced import capture_pairs
from tformer_cli.inspect.capture.maps import AttentionMaps, longest_side, sizes_of
from tformer_cli.inspect.jobs.reader import (
    BUFFER_LINES,
    ReadReport,
    corpus_pairs,
    inspected_model,
    is_written,
)
from tformer_cli.inspect.views.heads import check_residual
from tformer_cli.inspect.weighting import ALPHA
from tformer_cli.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tformer_cli.inspect.capture.maps import IdPair, Weights
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.text.tokenizer import TokenizerSide

MAX_BYTES = 2 << 30  # Largest dump where no other limit is given
SHARD_BYTES = 64 << 20  # A shard with more bytes holds one pair
SHARD_PAIRS = 4096  # Most pairs of a shard
VOCABULARY = "vocabulary.json"  # The label of every target id, a list
SOURCE_VOCABULARY = "source-vocabulary.json"  # Those of the source, if they differ


@dataclass(frozen=True, kw_only=True)
class DumpedCorpus:
    """Input of a dump; it is read twice, so each call must begin again at the first line."""

    lines: Callable[[], Iterable[str]]
    targets: Callable[[], Iterable[str]] | None = None  # None: translations are searched for
    origin: str = ""  # Identifies the corpus; a dump continues only with the same


@dataclass(frozen=True, kw_only=True)
class DumpSettings:
    """Settings of what a dump keeps, and its limits."""

    heads: Sequence[str] = ()  # By the grammar of `heads.selectors`; none: all
    top_k: int | None = None  # Largest weights of each row that are kept; None: all
    max_bytes: int = MAX_BYTES
    shard_pairs: int = SHARD_PAIRS
    tolerance: float | None = None  # Largest residual that is let pass

    def __post_init__(self) -> None:
        for name in ("max_bytes", "shard_pairs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: must be at least 1, but is {getattr(self, name)}")
        if self.top_k is not None and not 1 <= self.top_k < NO_COLUMN:
            raise ValueError(f"top_k: must be from 1 to {NO_COLUMN - 1}, but is {self.top_k}")


@dataclass(frozen=True, kw_only=True)
class DumpEstimate:
    """Estimated size of a dump."""

    lines: int
    pairs: int  # Lines that are text and fit the model
    n_bytes: int  # Bytes of all shards but for their headers
    is_exact: bool  # A translation is taken to be as long as its source


@dataclass
class DumpReport(ReadReport):
    """Content of a dump so far, with the lines of earlier runs."""

    resumed_at: int = 0  # Lines that earlier runs have done
    pairs: int = 0
    shards: int = 0
    n_bytes: int = 0
    residual: float = 0.0  # The largest residual of any head of any pair


class HeadDumper:
    """Captures a corpus and writes it, shard by shard.

    The memory it takes follows from the size of a shard and not from the corpus. Killed at any
    moment, the same call continues after the last shard, and ends with the same bytes.
    """

    def __init__(self, opened: Opened, settings: DumpSettings | None = None) -> None:
        self._opened = opened
        self._model = inspected_model(opened.directory)
        self._settings = settings or DumpSettings()
        heads = select_heads(self._settings.heads, head_layout(self._model))
        self.layout = DumpLayout(heads=tuple(heads), top_k=self._settings.top_k)
        if self._settings.top_k is not None and self._model.config.max_positions > NO_COLUMN:
            raise UsageError(
                f"--top-k: needs models of fewer than {NO_COLUMN:,} positions; dump all "
                "weights instead"
            )
        self._longest = longest_side(self._model.config)
        config = self._model.config
        self._translates = not (config.is_decoder_only or config.is_encoder_only)
        self.report = DumpReport()

    def estimate(self, corpus: DumpedCorpus) -> DumpEstimate:
        # a translation is not known yet: the line itself stands for it
        read_targets = corpus.targets or (corpus.lines if self._translates else None)
        targets = None if read_targets is None else read_targets()
        n_lines = n_pairs = n_bytes = 0
        for buffer in corpus_pairs(self._opened, corpus.lines(), targets):
            n_lines += len(buffer)
            for n_source, n_target in (map(len, pair) for pair in buffer):
                if self._fits(n_source, n_target):
                    n_pairs += 1
                    n_bytes += self.layout.n_bytes(*self._lengths(n_source, n_target))
        if not n_pairs:
            raise DataError("--source: no sentence fits the model; give shorter sentences")
        return DumpEstimate(
            lines=n_lines,
            pairs=n_pairs,
            n_bytes=n_bytes,
            is_exact=corpus.targets is not None or not self._translates,
        )

    def write(self, corpus: DumpedCorpus, directory: Path) -> Iterator[int]:
        with shard_directory(directory, self._about(), self._origin(corpus)) as shards:
            self._report_of(shards)
            if shards.is_complete:
                return
            tokenizer = self._opened.directory.tokenizer
            _write_labels(directory / VOCABULARY, tokenizer.target)
            if not tokenizer.is_joint:
                _write_labels(directory / SOURCE_VOCABULARY, tokenizer.source)
            yield from self._write_rest(corpus, shards)
            shards.finish()

    def _write_rest(self, corpus: DumpedCorpus, shards: ShardDirectory) -> Iterator[int]:
        done = shards.done
        lines = islice(corpus.lines(), done, None)
        targets = None if corpus.targets is None else islice(corpus.targets(), done, None)
        shard = _PendingShard(first_line=done)
        size = min(BUFFER_LINES, self._settings.shard_pairs)
        for buffer in corpus_pairs(self._opened, lines, targets, size):
            for pair in buffer:
                fits = self._fits(*map(len, pair))
                n_bytes = self.layout.n_bytes(*self._lengths(*map(len, pair))) if fits else 0
                if fits and shard.is_full_for(n_bytes, self._settings.shard_pairs):
                    self._add(shards, shard)
                    shard = _PendingShard(first_line=self.report.lines)
                shard.take(pair if fits else None, n_bytes)
                self.report.lines += 1
                self.report.too_long += is_written(pair, self._model.config) and not fits
            yield self.report.lines
        if shard.pairs:  # none are left where only the end was not written down
            self._add(shards, shard)

    def _add(self, shards: ShardDirectory, shard: _PendingShard) -> None:
        lengths = [self._lengths(len(source), len(target)) for source, target in shard.pairs]
        filled = ShardArrays(self.layout, shard.lines, lengths)
        metadata = {"schema": SCHEMA, "conventions": ALPHA.conventions}
        limit = self._settings.max_bytes
        if shards.n_bytes + size_of(filled.arrays, metadata) > limit:
            raise TformerError(
                f"--max-bytes: {shards.path} would exceed {limit:,} bytes from line "
                f"{shard.first_line + 1} on; resume with the same command and a larger limit"
            )
        for number, maps in capture_pairs(self._model, shard.pairs, self.layout.kinds):
            where = f"line {shard.lines[number] + 1}"
            check_residual(maps.residual, self._settings.tolerance, where)
            filled.add(number, maps)
        residual = float(filled.arrays["residual"].max(initial=0.0))
        facts = {"first_line": shard.first_line, "pairs": len(shard.pairs), "residual": residual}
        shards.add(
            lambda stream: write_arrays(stream, filled.arrays, metadata), shard.n_lines, facts
        )
        self._report_of(shards, lines=self.report.lines)

    def _report_of(self, shards: ShardDirectory, lines: int | None = None) -> None:
        report = self.report
        if lines is None:
            report.lines = report.resumed_at = shards.done
        report.shards, report.n_bytes = len(shards.shards), shards.n_bytes
        report.pairs = sum(int(shard["pairs"]) for shard in shards.shards)
        report.residual = max((float(s["residual"]) for s in shards.shards), default=0.0)

    def _fits(self, n_source: int, n_target: int) -> bool:
        config = self._model.config
        sides = [] if config.is_decoder_only else [n_source]
        sides += [] if config.is_encoder_only else [n_target]
        return min(sides) > 0 and max(sides) <= self._longest

    def _lengths(self, n_source: int, n_target: int) -> tuple[int, int]:
        """S and T of a pair by its numbers of tokens, specials not counted."""
        config = self._model.config
        if config.reads_images:
            return config.n_positions, 0
        return (
            0 if config.is_decoder_only else n_source + config.source_eos,
            0 if config.is_encoder_only else n_target + config.target_bos,
        )

    def _about(self) -> dict[str, object]:
        is_joint = self._opened.directory.tokenizer.is_joint
        return {
            "schema": SCHEMA,
            "tformer": __version__,
            "model": self._opened.directory.path.resolve().name,
            "conventions": ALPHA.conventions,
            "arrays": ARRAYS,
            "vocabulary": VOCABULARY,
            "source_vocabulary": VOCABULARY if is_joint else SOURCE_VOCABULARY,
            "top_k": self.layout.top_k,
            "heads": {f"{k}.{layer}": heads for (k, layer), heads in self.layout.by_layer.items()},
        }

    def _origin(self, corpus: DumpedCorpus) -> dict[str, str]:
        """Inputs and settings that decide the content of the shards."""
        weights = self._opened.directory.path / WEIGHTS
        settings = {
            "heads": [str(head) for head in self.layout.heads],
            "top_k": self.layout.top_k,
            "shard_pairs": self._settings.shard_pairs,
            "search": None if corpus.targets else asdict(self._opened.translator.config),
            "device": self._opened.device.type,
        }
        return {
            "input": corpus.origin,
            "model": hash_file(weights) if weights.is_file() else "",
            "settings": hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest(),
        }


class _PendingShard:
    """The pairs of the next shard."""

    def __init__(self, first_line: int) -> None:
        self.first_line = first_line
        self.n_lines = 0
        self.n_bytes = 0
        self.pairs: list[IdPair] = []
        self.lines: list[int] = []

    def is_full_for(self, n_bytes: int, most_pairs: int) -> bool:
        if not self.pairs:
            return False
        return len(self.pairs) >= most_pairs or self.n_bytes + n_bytes > SHARD_BYTES

    def take(self, pair: IdPair | None, n_bytes: int) -> None:
        """Takes the next line; one without a pair is skipped."""
        if pair is not None:
            self.pairs.append(pair)
            self.lines.append(self.first_line + self.n_lines)
            self.n_bytes += n_bytes
        self.n_lines += 1


def _write_labels(path: Path, side: TokenizerSide) -> None:
    labels = side.pieces(range(side.vocab_size))
    write_text(path, json.dumps(labels, ensure_ascii=False) + "\n")


SCHEMA = "tformer.headdump/1"
NO_COLUMN = 65535  # Stands in `idx` where a row has fewer than K columns; so no map may be as wide
ARRAYS = {
    "index": "i64 [N] line of each pair, from 0",
    "src_len, tgt_len": "i32 [N] S and T: tokens with the end of sentence; decoder positions",
    "src_ids, tgt_ids": "i32 tokens of all pairs; tgt_ids are what the decoder's rows predict",
    "residual": "f32 [N] max |A·V - context| over the pair's heads",
    "KIND.off": "i64 [N+1] where pairs begin: in numbers (dense) or rows (sparse)",
    "KIND.L.w": "f16 [H, sum of rows x columns], row after row; sparse [H, rows, K]",
    "KIND.L.idx": "u16 [H, rows, K] columns of the K largest weights; 65535: none",
    "KIND.L.rest": "f16 [H, rows] sum of the other weights",
}
"""The schema in short, for manifests."""


@dataclass(frozen=True, kw_only=True)
class DumpLayout:
    """Numbers of a pair that a dump keeps."""

    heads: tuple[HeadId, ...]
    top_k: int | None = None  # Largest weights that are kept of each row; None: all

    @property
    def by_layer(self) -> dict[tuple[Kind, int], list[int]]:
        return by_layer(self.heads)

    @property
    def kinds(self) -> list[Kind]:
        chosen = {head.kind for head in self.heads}
        return [kind for kind in KINDS if kind in chosen]

    def n_bytes(self, n_source: int, n_target: int) -> int:
        per_head = {
            kind: 2 * rows * columns if self.top_k is None else rows * (4 * self.top_k + 2)
            for kind, (rows, columns) in sizes_of(n_source, n_target).items()
        }
        weights = sum(per_head[head.kind] for head in self.heads)
        return weights + 8 + 8 + 4 + 4 * (n_source + n_target) + 8 * len(self.kinds)


class ShardArrays:
    """The arrays of a shard, which fill as its pairs are captured in any order."""

    def __init__(
        self, layout: DumpLayout, indices: Sequence[int], lengths: Sequence[tuple[int, int]]
    ) -> None:
        self._layout = layout
        sizes = np.array(lengths, dtype=np.int32).reshape(-1, 2)
        self._token_offsets = np.pad(sizes.cumsum(axis=0, dtype=np.int64), ((1, 0), (0, 0)))
        n_source_tokens, n_target_tokens = self._token_offsets[-1].tolist()
        self.arrays: dict[str, NDArray[Any]] = {"index": np.array(indices, dtype=np.int64)}
        """Arrays for `artifacts.array_file`: wider types first, so that each array is aligned."""
        for kind in layout.kinds:
            shapes = [sizes_of(*pair)[kind] for pair in sizes.tolist()]
            n_items = [r if layout.top_k is not None else r * c for r, c in shapes]
            self.arrays[f"{kind}.off"] = np.cumsum([0, *n_items], dtype=np.int64)
        self.arrays |= {
            "src_len": sizes[:, 0].copy(),
            "tgt_len": sizes[:, 1].copy(),
            "src_ids": np.zeros(n_source_tokens, dtype=np.int32),
            "tgt_ids": np.zeros(n_target_tokens, dtype=np.int32),
            "residual": np.zeros(len(sizes), dtype=np.float32),
        }
        for (kind, layer), heads in layout.by_layer.items():
            name, n_items_of_all = f"{kind}.{layer}", int(self.arrays[f"{kind}.off"][-1])
            shape = (len(heads), n_items_of_all)
            if layout.top_k is None:
                self.arrays[f"{name}.w"] = np.zeros(shape, dtype=np.float16)
                continue
            wide = (*shape, layout.top_k)
            self.arrays[f"{name}.idx"] = np.full(wide, NO_COLUMN, dtype=np.uint16)
            self.arrays[f"{name}.w"] = np.zeros(wide, dtype=np.float16)
            self.arrays[f"{name}.rest"] = np.zeros(shape, dtype=np.float16)

    def add(self, number: int, maps: AttentionMaps) -> None:
        """Puts in the maps of the pair with this number in the shard."""
        arrays = self.arrays
        source, target = (
            slice(start, stop)
            for start, stop in zip(*self._token_offsets[number : number + 2], strict=True)
        )
        if source.stop - source.start == len(maps.source_ids):
            arrays["src_ids"][source] = maps.source_ids
        arrays["tgt_ids"][target] = maps.target_ids
        arrays["residual"][number] = maps.residual
        for (kind, layer), heads in self._layout.by_layer.items():
            name = f"{kind}.{layer}"
            start, stop = arrays[f"{kind}.off"][number : number + 2].tolist()
            weights = maps.layers(kind)[layer][heads]
            if self._layout.top_k is None:
                # (H, r, c) -> (H, r·c)
                arrays[f"{name}.w"][:, start:stop] = weights.reshape(len(heads), -1)
                continue
            columns, top, rest = largest(weights, self._layout.top_k)
            n_kept = top.shape[-1]
            arrays[f"{name}.idx"][:, start:stop, :n_kept] = columns
            arrays[f"{name}.w"][:, start:stop, :n_kept] = top
            arrays[f"{name}.rest"][:, start:stop] = rest


def largest(weights: Weights, k: int) -> tuple[NDArray[np.int64], Weights, Weights]:
    """Splits rows (H, r, c) into their k largest weights and the sum of the others."""
    # of the negatives, so that of equal weights the first comes first
    columns = np.argsort(-weights, axis=-1, stable=True)
    ordered = np.take_along_axis(weights, columns, axis=-1)
    return columns[..., :k], ordered[..., :k], ordered[..., k:].sum(axis=-1)
