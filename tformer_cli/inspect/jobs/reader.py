"""Opens a model for inspection and reads a corpus as pairs of token ids.

Of a language model a line is a target without a source, of a classifier a source without a target.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack, cast

from tformer_cli.artifacts.config_file import ONE_MODEL, TaskKind, task_kind
from tformer_cli.artifacts.model_directory import TRANSLATORS, ModelDirectory
from tformer_cli.errors import UsageError
from tformer_cli.heads.names import Inspected
from tformer_cli.inspect.capture.batches import IdPair
from tformer_cli.inspect.jobs.align import read_pairs
from tformer_cli.kinds import kind_of
from tformer_cli.kinds.kind import PlacePredictor
from tformer_cli.kinds.opening.encoder import OpenedEncoder
from tformer_cli.kinds.opening.translator import Opened, open_translator
from tformer_cli.model.config import ModelConfig
from tformer_cli.text.lines import check_lines, given_lines

if TYPE_CHECKING:
    from tformer_cli.model.encoder_only import Classifier, PositionPredictor


class InspectionOptions(TypedDict, total=False):
    """Keyword arguments of `open_for_inspection`, each as `open_translator` takes it."""

    adapter: Path | None
    """Directory of a low-rank adapter that is added to the weights."""
    source_language: str | None
    """Code of the language to read; None: the model's own."""
    target_language: str | None
    beam_size: int | None
    """Hypotheses of the search; None: the model's default."""
    length_penalty: float | None
    """Its length penalty; None: the model's default."""
    device: str
    threads: int
    """CPU threads; see `OpeningSettings`."""
    seed: int
    before_torch: Callable[[], None] | None


def inspected_model(directory: ModelDirectory) -> Inspected:
    """Gives the model of a directory, of whatever task.

    An encoder without rows of labels goes as a classifier: views of it do not read those.
    """
    if directory.config.is_encoder_only:
        return cast("Classifier | PositionPredictor", directory.encoder)
    return directory.model


def open_for_inspection(
    model: Path | str | ModelDirectory,
    *,
    hypothesis: int = 1,
    tasks: Container[TaskKind] = TRANSLATORS,
    **options: Unpack[InspectionOptions],
) -> Opened:
    """Opens a model and its search in float32, the precision whose numbers can be checked."""
    try:
        return open_translator(
            model, tasks=tasks, precision="float32", n_best=hypothesis, **options
        )
    except UsageError as error:
        raise UsageError(str(error).replace("--n-best", "--rank", 1)) from None


BUFFER_LINES = 256
"""Lines that are translated together. With 1,024 the search fragments memory, and the inspection
takes 50 MiB more from the second buffer on."""


def check_targets(config: ModelConfig, targets: object) -> None:
    """Makes sure that no targets are given to a model that has none."""
    if targets is not None and (config.is_decoder_only or config.is_encoder_only):
        raise UsageError(f"--target: {ONE_MODEL[task_kind(config)]} reads one text; omit it")


def is_written(pair: IdPair, config: ModelConfig) -> bool:
    """Returns whether no side of a pair that a model reads is blank."""
    source, target = pair
    return bool((source or config.is_decoder_only) and (target or config.is_encoder_only))


def place_predictor(opened: Opened) -> PlacePredictor | None:
    """Makes what fills gaps or labels words, of a model that does."""
    encoder = OpenedEncoder(directory=opened.directory, place=opened.place, precision="float32")
    return kind_of(opened.directory.config).predictor(encoder)


def encoder_of_texts(opened: Opened) -> Callable[[Sequence[str]], list[list[int]]]:
    """Gives what makes ids of the texts that a model of one side reads, gaps among them."""
    tokenizer, predictor = opened.directory.tokenizer, place_predictor(opened)
    if opened.directory.config.is_decoder_only:
        return tokenizer.target.encode_batch
    return tokenizer.source.encode_batch if predictor is None else predictor.encode


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
        encode = encoder_of_texts(opened)
        remaining = given_lines(lines)
        while texts := list(islice(remaining, buffer_lines)):
            found = encode([text if text.strip() else "" for text in texts])
            yield [((), ids) if config.is_decoder_only else (ids, ()) for ids in found]
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
    pairs = read_pairs(given_lines(lines), given_lines(targets, "targets"))
    while given := list(islice(pairs, buffer_lines)):
        written = [("", "") if pair.is_blank else (pair.source, pair.target) for pair in given]
        sources = tokenizer.source.encode_batch([source for source, _ in written])
        targets_of = tokenizer.target.encode_batch([target for _, target in written])
        yield list(zip(sources, targets_of, strict=True))
