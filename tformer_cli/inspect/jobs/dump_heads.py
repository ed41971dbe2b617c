"""The attention maps of a whole corpus in a directory of shards, within a limit of bytes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING

from tformer_cli.artifacts.config_file import WEIGHTS
from tformer_cli.artifacts.corpus_directory import ShardDirectory, shard_directory
from tformer_cli.artifacts.weights_file import size_of, write_arrays
from tformer_cli.errors import DataError, TformerError, UsageError
from tformer_cli.files.atomic import write_text
from tformer_cli.files.regular_file import hash_file
from tformer_cli.heads.names import head_layout
from tformer_cli.heads.selectors import select_heads
from tformer_cli.inspect.capture.batches import capture_pairs
from tformer_cli.inspect.capture.forced import longest_side
from tformer_cli.inspect.heads.dump import (
    ARRAYS,
    NO_COLUMN,
    SCHEMA,
    DumpLayout,
    ShardArrays,
)
from tformer_cli.inspect.jobs.align import in_buffers, read_pairs
from tformer_cli.inspect.jobs.reader import (
    BUFFER_LINES,
    check_targets,
    corpus_pairs,
    encoder_of_texts,
    inspected_model,
    is_written,
)
from tformer_cli.inspect.weighting.weighting import ALPHA
from tformer_cli.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from tformer_cli.inspect.capture.batches import IdPair
    from tformer_cli.kinds.opening.translator import Opened
    from tformer_cli.text.tokenizer import TokenizerSide

MAX_BYTES = 2 << 30
"""Largest dump where no other limit is given."""
SHARD_BYTES = 64 << 20
"""A shard with more bytes holds one pair."""
SHARD_PAIRS = 4096
"""Most pairs of a shard."""
VOCABULARY = "vocabulary.json"
"""Holds the label of every token id, a list; of the target's, if the source has others."""
SOURCE_VOCABULARY = "source-vocabulary.json"
"""Holds the labels of the source's token ids, if they are others."""


@dataclass(frozen=True, kw_only=True)
class DumpedCorpus:
    """Input of a dump; it is read twice, so each call must begin again at the first line."""

    lines: Callable[[], Iterable[str]]
    targets: Callable[[], Iterable[str]] | None = None
    """Gives a target for each; None: their translations are looked for."""
    origin: str = ""
    """Identity of the corpus, such as a hash of its files; a dump continues only with the
    same."""


@dataclass(frozen=True, kw_only=True)
class DumpSettings:
    """Settings of what a dump keeps, and its limits."""

    heads: Sequence[str] = ()
    """Selected heads, by the grammar of `inspection.heads.selectors`; none means all."""
    top_k: int | None = None
    """Largest weights of each row that are kept; None: all."""
    max_bytes: int = MAX_BYTES
    shard_pairs: int = SHARD_PAIRS
    tolerance: float | None = None
    """Largest residual that is let pass."""

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
    pairs: int
    """Lines that are text and fit the model."""
    n_bytes: int
    """Bytes of all shards but for their headers."""
    is_exact: bool
    """True if the targets are known; a translation is taken to be as long as its source."""


@dataclass
class DumpReport:
    """Content of a dump so far."""

    lines: int = 0
    """Lines read, by earlier runs too."""
    resumed_at: int = 0
    """Lines that earlier runs have done."""
    pairs: int = 0
    too_long: int = 0
    """Lines skipped by this run, as a side is longer than the model takes."""
    shards: int = 0
    n_bytes: int = 0
    residual: float = 0.0
    """The largest residual of any head of any pair."""


class HeadDumper:
    """Captures a corpus and writes what is kept of it, shard by shard.

    The memory it takes follows from the size of a shard and not from the corpus. Killed at any
    moment, the same call continues behind the last shard, and ends with the same bytes.
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
        """Reads a corpus once to tell how large its dump will be."""
        check_targets(self._model.config, corpus.targets)
        n_lines = n_pairs = n_bytes = 0
        for buffer in in_buffers(_texts(corpus), BUFFER_LINES):
            sources, targets = self._counted(*zip(*buffer, strict=True))
            n_lines += len(buffer)
            for pair in zip(sources, targets, strict=True):
                if self._fits(*pair):
                    n_pairs += 1
                    n_bytes += self.layout.n_bytes(*self._lengths(*pair))
        if not n_pairs:
            raise DataError("--source: no sentence fits the model; give shorter sentences")
        return DumpEstimate(
            lines=n_lines,
            pairs=n_pairs,
            n_bytes=n_bytes,
            is_exact=corpus.targets is not None or not self._translates,
        )

    def _counted(
        self, sources: Sequence[str], targets: Sequence[str]
    ) -> tuple[list[int], list[int]]:
        """Numbers of tokens of each pair's sides; of a side that the model does not have 0."""
        if self._translates:
            tokenizer = self._opened.directory.tokenizer
            read = tokenizer.source.encode_batch(sources), tokenizer.target.encode_batch(targets)
            return list(map(len, read[0])), list(map(len, read[1]))
        found = list(map(len, encoder_of_texts(self._opened)(sources)))
        none = [0] * len(found)
        return (none, found) if self._model.config.is_decoder_only else (found, none)

    def write(self, corpus: DumpedCorpus, directory: Path) -> Iterator[int]:
        """Writes the dump of a corpus, or the rest of it."""
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
        if shard.pairs:  # none are left where the end alone was not written down
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
            self._check(maps.residual, shard.lines[number])
            filled.add(number, maps)
        residual = float(filled.arrays["residual"].max(initial=0.0))
        facts = {
            "first_line": shard.first_line,
            "pairs": len(shard.pairs),
            "residual": residual,
        }
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

    def _check(self, residual: float, line: int) -> None:
        tolerance = self._settings.tolerance
        if tolerance is not None and not residual <= tolerance:
            raise TformerError(
                f"line {line + 1}: residual {residual:.2g} exceeds --verify {tolerance:.2g}; "
                "the maps do not reproduce the model's output so exactly"
            )

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
        """The head of the manifest: how to read the shards."""
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
        """Returns whether another pair of this many bytes begins a new shard."""
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


def _texts(corpus: DumpedCorpus) -> Iterator[tuple[str, str]]:
    """Yields each line with what stands for its target; both are empty where one is blank."""
    if corpus.targets is None:
        for line in corpus.lines():
            yield (line, line) if line.strip() else ("", "")
        return
    for pair in read_pairs(corpus.lines(), corpus.targets()):
        yield ("", "") if pair.is_blank else (pair.source, pair.target)
