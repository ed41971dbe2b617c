"""A corpus as pairs of token ids: sentences with their translations, or with given targets.

Of a language model a line is a target without a source, of a classifier a source without a target.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from tformer_cli.artifacts.config_file import ONE_MODEL, task_kind
from tformer_cli.data.given_lines import check_lines, given_lines
from tformer_cli.errors import UsageError
from tformer_cli.inspection.capture.batches import IdPair
from tformer_cli.model.config import ModelConfig
from tformer_cli.workflows.fill import GapFiller
from tformer_cli.workflows.inspection.align import read_pairs
from tformer_cli.workflows.opening.encoder import OpenedEncoder
from tformer_cli.workflows.opening.translator import Opened

BUFFER_LINES = 256
"""Lines that are translated together. With 1,024 the search fragments memory, and the inspection
takes 50 MiB more from the second buffer on."""


def check_targets(config: ModelConfig, targets: object) -> None:
    """Makes sure that no targets are given to a model that has none.

    Raises:
        UsageError: if there are some.
    """
    if targets is not None and (config.is_decoder_only or config.is_encoder_only):
        raise UsageError(f"--target: {ONE_MODEL[task_kind(config)]} reads one text; omit it")


def is_written(pair: IdPair, config: ModelConfig) -> bool:
    """Returns whether no side of a pair that a model reads is blank."""
    source, target = pair
    return bool((source or config.is_decoder_only) and (target or config.is_encoder_only))


def gap_filler(opened: Opened) -> GapFiller | None:
    """Makes what fills the gaps of texts, of a masked language model."""
    if task_kind(opened.directory.config) != "masked":
        return None
    encoder = OpenedEncoder(directory=opened.directory, place=opened.place, precision="float32")
    return GapFiller(encoder)


def encoder_of_texts(opened: Opened) -> Callable[[Sequence[str]], list[list[int]]]:
    """Gives what makes ids of the texts that a model of one side reads, gaps among them."""
    tokenizer, filler = opened.directory.tokenizer, gap_filler(opened)
    if opened.directory.config.is_decoder_only:
        return tokenizer.target.encode_batch
    return tokenizer.source.encode_batch if filler is None else filler.encode


def corpus_pairs(
    opened: Opened,
    lines: Iterable[str],
    targets: Iterable[str] | None = None,
    buffer_lines: int = BUFFER_LINES,
) -> Iterator[list[IdPair]]:
    """Yields a pair for each line, a buffer at a time; a blank side has no tokens.

    Args:
        opened: the model; without targets a translation model translates.
        lines: the sentences.
        targets: a target for each, instead of its translation.
        buffer_lines: lines of a buffer.

    Raises:
        DataError: if there are more or fewer targets than lines.
        UsageError: if there are targets for a model that has none.
    """
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
