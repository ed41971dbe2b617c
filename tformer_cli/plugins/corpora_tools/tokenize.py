"""Tokenizers on their own: train one, run it over lines, measure it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

from tformer_cli.errors import DataError
from tformer_cli.files.atomic import write_text
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.lines import LineCounts, given_lines, read_lines
from tformer_cli.text.tokenizer import UNK_ID, SideName, Tokenizer, TokenizerSide
from tformer_cli.text.train_tokenizer import train_tokenizer

PROGRESS_LINES = 10_000
BATCH_LINES = 1000


@dataclass(frozen=True)
class TrainedTokenizer:
    """A new tokenizer, and counts of its training text."""

    tokenizer: Tokenizer
    lines: LineCounts


@dataclass
class TokenizerStatistics:
    """Statistics of a tokenizer on a text."""

    lines: int = 0
    words: int = 0
    """Runs of characters between white space."""
    characters: int = 0
    pieces: int = 0
    unknown: int = 0
    not_restored: int = 0
    """Lines that `decode(encode(line))` changes."""
    vocab_size: int = 0
    used: set[int] = field(default_factory=set)

    def summary(self) -> dict[str, int | float]:
        """The numbers people compare, each under the name that tables and JSON show."""
        return {
            "lines": self.lines,
            "words": self.words,
            "characters": self.characters,
            "pieces": self.pieces,
            "pieces_per_word": self.pieces / max(self.words, 1),
            "pieces_per_character": self.pieces / max(self.characters, 1),
            "unknown_rate": self.unknown / max(self.pieces, 1),
            "vocabulary_used": len(self.used) / max(self.vocab_size, 1),
            "lines_not_restored": self.not_restored,
        }


def train(
    files: Sequence[str],
    config: TokenizerConfig,
    output: Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> TrainedTokenizer:
    """Trains one tokenizer on all lines of all files; `output` is replaced at the end."""
    counts = LineCounts()
    n_lines = _count_lines(files)
    lines = chain.from_iterable(read_lines(file, counts) for file in files)
    tokenizer = train_tokenizer(_report_lines(lines, progress), config, n_lines)
    if output is not None:
        write_text(output, tokenizer.to_json())
    return TrainedTokenizer(tokenizer, counts)


def encode_lines(
    tokenizer: Tokenizer, lines: Sequence[str], *, ids: bool = False, side: SideName = "source"
) -> list[str]:
    """Each line as its pieces, or their ids, separated by single spaces."""
    encoder = tokenizer.side(side)
    encoded = encoder.encode_batch(list(given_lines(lines)))
    if ids:
        return [" ".join(map(str, line)) for line in encoded]
    return [" ".join(encoder.pieces(line)) for line in encoded]


def decode_lines(
    tokenizer: Tokenizer,
    lines: Sequence[str],
    *,
    ids: bool = False,
    first_line: int = 1,
    side: SideName = "source",
) -> list[str]:
    """Decodes lines of pieces or ids into text."""
    # A line end among the pieces becomes a space, so that lines still correspond.
    read, decoder = _id_from_number if ids else _id_from_piece, tokenizer.side(side)
    encoded = []
    for number, line in enumerate(given_lines(lines), start=first_line):
        words = [word for word in line.split(" ") if word]
        encoded.append([read(decoder, word, number) for word in words])
    return [text.replace("\n", " ") for text in decoder.decode_batch(encoded)]


def measure(
    tokenizer: Tokenizer, lines: Iterable[str], side: SideName = "source"
) -> TokenizerStatistics:
    measured = tokenizer.side(side)
    counted = TokenizerStatistics(vocab_size=measured.vocab_size)
    rest = iter(lines)
    while batch := list(islice(rest, BATCH_LINES)):
        encoded = measured.encode_batch(batch)
        decoded = measured.decode_batch(encoded)
        for line, ids, restored in zip(batch, encoded, decoded, strict=True):
            counted.lines += 1
            counted.words += len(line.split())
            counted.characters += len(line)
            counted.pieces += len(ids)
            counted.unknown += ids.count(UNK_ID)
            counted.not_restored += restored != line
            counted.used.update(ids)
    return counted


def _id_from_number(side: TokenizerSide, word: str, line: int) -> int:
    is_number = word.isascii() and word.isdigit() and len(word) < 10
    if not is_number or int(word) >= side.vocab_size:
        raise DataError(
            f'line {line}: "{word[:40]}" is not an id; ids are whole numbers below '
            f"{side.vocab_size}"
        )
    return int(word)


def _id_from_piece(side: TokenizerSide, word: str, line: int) -> int:
    number = side.id_of(word)
    if number is None:
        raise DataError(
            f'line {line}: "{word[:40]}" is not a piece of this tokenizer; decode what its '
            "`encode` wrote, or give --ids for ids"
        )
    return number


def _count_lines(files: Sequence[str]) -> int | None:
    """Lines of ordinary files; None if one can be read only once."""
    if not all(Path(file).is_file() for file in files):
        return None
    n_lines = 0
    for file in files:
        n_lines += sum(1 for _ in read_lines(file))
    return n_lines


def _report_lines(lines: Iterable[str], progress: Callable[[int], None] | None) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        yield line
        if progress is not None and number % PROGRESS_LINES == 0:
            progress(number)
