"""Opens a model for inspection and reads a corpus as pairs of token ids.

Of a language model a line is a target without a source, of a classifier a source without a target.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack, cast

import numpy as np

from tformer_cli.artifacts.config_file import ONE_MODEL, TRANSLATORS, TaskKind, task_kind
from tformer_cli.artifacts.model_directory import ModelDirectory
from tformer_cli.errors import UsageError
from tformer_cli.heads.names import Inspected, head_layout
from tformer_cli.heads.roles import TokenFrequencies, count_tokens
from tformer_cli.heads.selectors import HeadSelection
from tformer_cli.inspect.capture.maps import CapturedBatch, IdPair, longest_side
from tformer_cli.inspect.heads.metrics import HeadStatistics, HeadSummary
from tformer_cli.kinds import kind_of
from tformer_cli.kinds.opening import open_model
from tformer_cli.kinds.stored_model import Opened
from tformer_cli.model.config import ModelConfig
from tformer_cli.text.lines import buffers, check_lines, given_lines
from tformer_cli.wording import is_blank

if TYPE_CHECKING:
    from tformer_cli.model.encoder_only import Classifier, PositionPredictor


class InspectionOptions(TypedDict, total=False):
    """Keyword arguments of `open_for_inspection`, each as `open_model` takes it."""

    adapter: Path | None  # Directory of a low-rank adapter that is added to the weights
    source_language: str | None  # Code of the language to read; None: the model's own
    target_language: str | None
    beam_size: int | None  # Hypotheses of the search; None: the model's default
    length_penalty: float | None  # Its length penalty; None: the model's default
    device: str
    threads: int  # CPU threads; see `OpeningSettings`
    seed: int
    before_torch: Callable[[], None] | None


def inspected_model(directory: ModelDirectory) -> Inspected:
    """Returns the model of a directory, for any task.

    An encoder without rows of labels goes as a classifier: views of it do not read those.
    """
    if directory.config.is_encoder_only:
        return cast("Classifier | PositionPredictor", directory.encoder)
    return directory.model


def open_for_inspection(
    model: Path | str | ModelDirectory | Opened,
    *,
    hypothesis: int = 1,
    tasks: Container[TaskKind] = TRANSLATORS,
    **options: Unpack[InspectionOptions],
) -> Opened:
    """Opens a model and its search in float32, the precision whose numbers can be checked."""
    if isinstance(model, Opened):
        return model
    try:
        return open_model(model, inspected=tasks, precision="float32", n_best=hypothesis, **options)
    except UsageError as error:
        raise UsageError(str(error).replace("--n-best", "--rank", 1)) from None


BUFFER_LINES = 256
"""Lines that are translated together. With 1,024 the search fragments memory, and the inspection
takes 50 MiB more from the second buffer on."""


def check_targets(config: ModelConfig, targets: object) -> None:
    if targets is not None and (config.is_decoder_only or config.is_encoder_only):
        raise UsageError.of("{targets}: {} reads one text; omit it", ONE_MODEL[task_kind(config)])


def is_written(pair: IdPair, config: ModelConfig) -> bool:
    source, target = pair
    return bool((source or config.is_decoder_only) and (target or config.is_encoder_only))


def corpus_pairs(
    opened: Opened,
    lines: Iterable[str],
    targets: Iterable[str] | None = None,
    buffer_lines: int = BUFFER_LINES,
) -> Iterator[list[IdPair]]:
    """Yields a pair for each line, a buffer at a time; a blank side has no tokens."""
    check_lines(lines)
    config, tokenizer = opened.directory.config, opened.directory.tokenizer
    check_targets(config, targets)
    if config.is_decoder_only or config.is_encoder_only:
        side, predictor = tokenizer.source, kind_of(config).predictor(opened)
        encode = side.encode_batch if predictor is None else predictor.encode
        if config.is_decoder_only:
            encode = tokenizer.target.encode_batch
        for texts in buffers(given_lines(lines), buffer_lines):
            encoded = encode(["" if is_blank(text) else text for text in texts])
            yield [((), ids) if config.is_decoder_only else (ids, ()) for ids in encoded]
        return
    if targets is None:
        for buffer in opened.translator.of_sentences().buffers(lines, buffer_lines):
            yield [
                (translation.source_ids, translation.hypotheses[0].token_ids)
                if translation.hypotheses
                else ((), ())
                for translation in buffer
            ]
        return
    from tformer_cli.inspect.jobs.align import read_pairs

    pairs = read_pairs(given_lines(lines), given_lines(targets, "targets"))
    for chunk in buffers(pairs, buffer_lines):
        written = [("", "") if pair.is_blank else (pair.source, pair.target) for pair in chunk]
        sources = tokenizer.source.encode_batch([source for source, _ in written])
        targets_of = tokenizer.target.encode_batch([target for _, target in written])
        yield list(zip(sources, targets_of, strict=True))


@dataclass
class ReadReport:
    """Counts of a corpus; they grow as it is read."""

    lines: int = 0
    too_long: int = 0  # Lines skipped, as a side is longer than the model takes
    rare: int = 0  # Sentences with a rare token, by which rare-word heads are judged

    def fitting(
        self, buffer: Sequence[IdPair], config: ModelConfig, limit: int
    ) -> tuple[list[int], list[IdPair]]:
        """Picks the pairs that a model takes, with their places; counts those that are too long."""
        written = [(n, pair) for n, pair in enumerate(buffer) if is_written(pair, config)]
        pairs = [(place, pair) for place, pair in written if max(map(len, pair)) <= limit]
        self.too_long += len(written) - len(pairs)
        return [place for place, _ in pairs], [pair for _, pair in pairs]


def count_frequencies(opened: Opened, lines: Iterable[str]) -> TokenFrequencies:
    tokenizer = opened.directory.tokenizer.source
    counts = np.zeros(tokenizer.vocab_size, dtype=np.int64)
    for buffer in buffers(lines, BUFFER_LINES):
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
        self.report = ReadReport()

    def read(self, lines: Iterable[str], targets: Iterable[str] | None = None) -> Iterator[int]:
        """Measures texts, or sentences with their translations or with given targets."""
        from tformer_cli.inspect.capture.forced import capture_batches
        from tformer_cli.model.operations import StandardProducts

        config, report = self._model.config, self.report
        for buffer in corpus_pairs(self._opened, lines, targets, self._buffer_lines):
            places, pairs = report.fitting(buffer, config, longest_side(config))
            # oneDNN keeps what it has made for each of the last thousand shapes of a product, and
            # so grows with the lengths a corpus holds; the standard products keep nothing.
            with StandardProducts():
                for numbers, batch in capture_batches(self._model, pairs, self._kinds):
                    indices = [report.lines + places[number] for number in numbers]
                    self._statistics.add_batch(indices, batch, self._rare(batch))
                    del batch  # frees it before the next one
            report.lines += len(buffer)
            yield report.lines

    def _rare(self, batch: CapturedBatch) -> list[tuple[int, ...]] | None:
        if self._frequencies is None:
            return None
        positions = [self._frequencies.rare_tokens(ids).positions for ids in batch.sources]
        self.report.rare += sum(map(bool, positions))
        return positions

    def summaries(self) -> list[HeadSummary]:
        """Sums up each head over the corpus so far; these means also choose the heads."""
        summary_of = {summary.head: summary for summary in self._statistics.summaries()}
        means = {head: summary.metrics for head, summary in summary_of.items()}
        return [summary_of[head] for head in self._selection.select(means) if head in summary_of]

    @property
    def n_sentences(self) -> int:
        return self._statistics.n_sentences
