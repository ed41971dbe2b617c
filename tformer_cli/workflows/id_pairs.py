"""Sentences in, their tokens and those of their translations or given targets out."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from tformer_cli.data.tokenizer import Tokenizer
from tformer_cli.decoding.translator import Translator
from tformer_cli.workflows.inspect_align import read_pairs


@dataclass(frozen=True, slots=True)
class TokenPair:
    """A sentence and its target in tokens; those of a blank side are none."""

    source: str
    """The sentence."""
    target: str
    """Its translation, or the target that was given."""
    source_ids: tuple[int, ...]
    """Its tokens, without specials."""
    target_ids: tuple[int, ...]
    """Those of the target."""
    score: float | None
    """The score of the translation; None for a given target."""

    def fits(self, longest: int) -> bool:
        """Whether neither side is blank or has more tokens than `longest`."""
        return all(0 < len(ids) <= longest for ids in (self.source_ids, self.target_ids))


def translated_pairs(
    translator: Translator, lines: Iterable[str], buffer_lines: int
) -> Iterator[list[TokenPair]]:
    """Yields the pairs of so many lines at a time, each with the best translation."""
    for buffer in translator.buffers(lines, buffer_lines):
        yield [
            TokenPair(
                source=translation.source,
                target=translation.hypotheses[0].text if translation.hypotheses else "",
                source_ids=tuple(translation.source_ids),
                target_ids=tuple(
                    translation.hypotheses[0].token_ids if translation.hypotheses else ()
                ),
                score=translation.hypotheses[0].score if translation.hypotheses else None,
            )
            for translation in buffer
        ]


def given_pairs(
    tokenizer: Tokenizer, lines: Iterable[str], targets: Iterable[str], buffer_lines: int
) -> Iterator[list[TokenPair]]:
    """Yields the pairs of so many lines at a time, each with its given target.

    Raises:
        DataError: if there are more or fewer targets than lines.
    """
    pairs = read_pairs(lines, targets)
    while buffer := list(islice(pairs, buffer_lines)):
        texts = [("", "") if pair.is_blank else (pair.source, pair.target) for pair in buffer]
        sources = tokenizer.encode_batch([source for source, _ in texts])
        encoded = tokenizer.encode_batch([target for _, target in texts])
        yield [
            TokenPair(
                source=pair.source,
                target=pair.target,
                source_ids=tuple(source_ids),
                target_ids=tuple(target_ids),
                score=None,
            )
            for pair, source_ids, target_ids in zip(buffer, sources, encoded, strict=True)
        ]
