"""A corpus as pairs of token ids: sentences with their translations, or with given targets."""

from collections.abc import Iterable, Iterator
from itertools import islice

from tformer_cli.data.given_lines import check_lines, given_lines
from tformer_cli.inspection.capture.batches import IdPair
from tformer_cli.workflows.inspection.align import read_pairs
from tformer_cli.workflows.opening.translator import Opened

BUFFER_LINES = 256
"""Lines that are translated together. With 1,024 the search fragments memory, and the inspection
takes 50 MiB more from the second buffer on."""


def corpus_pairs(
    opened: Opened,
    lines: Iterable[str],
    targets: Iterable[str] | None = None,
    buffer_lines: int = BUFFER_LINES,
) -> Iterator[list[IdPair]]:
    """Yields a pair for each line, a buffer at a time; a blank side has no tokens.

    Args:
        opened: the model; without targets it translates.
        lines: the sentences.
        targets: a target for each, instead of its translation.
        buffer_lines: lines of a buffer.

    Raises:
        DataError: if there are more or fewer targets than lines.
    """
    check_lines(lines)
    if targets is None:
        for buffer in opened.translator.buffers(lines, buffer_lines):
            yield [
                (translation.source_ids, translation.hypotheses[0].token_ids)
                if translation.hypotheses
                else ((), ())
                for translation in buffer
            ]
        return
    pairs = read_pairs(given_lines(lines), given_lines(targets, "targets"))
    tokenizer = opened.directory.tokenizer
    while given := list(islice(pairs, buffer_lines)):
        texts = [("", "") if pair.is_blank else (pair.source, pair.target) for pair in given]
        sources = tokenizer.source.encode_batch([source for source, _ in texts])
        targets_of = tokenizer.target.encode_batch([target for _, target in texts])
        yield list(zip(sources, targets_of, strict=True))
