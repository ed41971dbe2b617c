"""Training of tokenizers, in bounded memory and reproducibly: the same lines, the same bytes."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from tokenizers import Regex, pre_tokenizers, trainers
from tokenizers import Tokenizer as HuggingFaceTokenizer

from tformer_cli.errors import DataError
from tformer_cli.files.atomic import default_signals
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.joint_tokenizer import (
    UNKNOWN_PIECE,
    WORDS,
    JointTokenizer,
    blank_tokenizer,
)
from tformer_cli.text.lines import without_surrogates
from tformer_cli.text.separate_tokenizer import SeparateTokenizer
from tformer_cli.text.tokenizer import SPECIAL_PIECES, Tokenizer
from tformer_cli.text.vocabulary import BYTE_CHARACTERS
from tformer_cli.wording import count_of, is_blank

# Lines learned from; a vocabulary of tens of thousands of pieces is settled well before.
MAX_LINES = 2_000_000
# The same when lines come from a stream of unknown length and must be held in memory.
MAX_UNKNOWN_COUNT_LINES = 500_000
# Longest piece of "unigram": 8 to 32 characters, by script.
MAX_PIECE_BYTES = 32
# Bytes of a word that is learned from; SentencePiece skips lines of more.
LONGEST_WORD = 4192


def train_tokenizer(
    lines: Iterable[str], config: TokenizerConfig, n_lines: int | None = None
) -> JointTokenizer:
    """Trains a tokenizer on lines of both languages, or on a sample of very many."""
    tokenizer = blank_tokenizer(config.algorithm, config.normalization)
    skipped: Counter[str] = Counter()
    sample = map(without_surrogates, sample_lines(lines, n_lines))
    trainer = _trainer(config)
    if config.algorithm == "byte":
        # No line is read: the vocabulary is the 256 bytes.
        tokenizer.train_from_iterator([], trainer)
    else:
        lines = sample if config.algorithm == "char" else _without_longest(sample, skipped)
        lines = _check_lines(lines, skipped)
        with default_signals():  # the library merges pairs for minutes on a busy machine
            tokenizer.train_from_iterator(lines, trainer)
    text = tokenizer.to_str()
    if config.algorithm == "unigram":
        text = _settle_scores(text, config.vocab_size)
    trained = JointTokenizer.parse(text)
    trained.notes = (*_notes(trained, config, skipped.total()),)
    return trained


def train_sides(
    examples: Callable[[], Iterable[Sequence[str]]], config: TokenizerConfig
) -> Tokenizer:
    """Trains a tokenizer on the texts of examples, which are read once for each vocabulary."""
    if config.joint:
        return train_tokenizer(chain.from_iterable(examples()), config)
    source, target = (
        train_tokenizer((texts[place] for texts in examples()), config) for place in range(2)
    )
    return SeparateTokenizer(source, target)


def _notes(trained: Tokenizer, config: TokenizerConfig, n_skipped: int) -> Iterator[str]:
    if n_skipped:
        words = count_of(n_skipped, "word")
        yield f"{words} of more than {LONGEST_WORD:,} bytes skipped in the tokenizer's training"
    n_pieces, n_asked = trained.vocab_size, config.vocab_size
    is_default = n_asked == TokenizerConfig.vocab_size
    if config.algorithm == "byte":
        if n_asked != n_pieces and not is_default:
            yield f"the vocabulary has {n_pieces:,} pieces, not {n_asked:,}, for any text"
    # The default is no request for characters, which come from the text
    elif n_pieces < n_asked and not (config.algorithm == "char" and is_default):
        yield (
            f"the vocabulary has {n_pieces:,} pieces, not {n_asked:,}: the text has no more; give "
            "more text, or ask for fewer"
        )


def _without_longest(lines: Iterable[str], skipped: Counter[str]) -> Iterator[str]:
    """Yields lines without words so long that counting their letter pairs would take minutes."""
    words = pre_tokenizers.Split(Regex(WORDS), "isolated")
    for line in lines:
        if 4 * len(line) <= LONGEST_WORD or len(line.encode()) <= LONGEST_WORD:
            yield line
            continue
        parts = [part for part, _ in words.pre_tokenize_str(line)]
        kept = [part for part in parts if len(part.encode()) <= LONGEST_WORD]
        skipped["words"] += len(parts) - len(kept)
        yield "".join(kept)


def _trainer(config: TokenizerConfig) -> trainers.Trainer:
    alphabet = sorted(BYTE_CHARACTERS)
    special = list(SPECIAL_PIECES)
    match config.algorithm:
        case "bpe" | "byte":
            n_bytes = len(SPECIAL_PIECES) + len(alphabet)
            return trainers.BpeTrainer(
                vocab_size=config.vocab_size if config.algorithm == "bpe" else n_bytes,
                min_frequency=2,
                initial_alphabet=alphabet,
                special_tokens=special,
                show_progress=False,
            )
        case "unigram":
            return trainers.UnigramTrainer(
                vocab_size=config.vocab_size,
                initial_alphabet=alphabet,
                unk_token=UNKNOWN_PIECE,
                max_piece_length=MAX_PIECE_BYTES,
                special_tokens=special,
                show_progress=False,
            )
        case _:
            return trainers.WordLevelTrainer(
                vocab_size=config.vocab_size, special_tokens=special, show_progress=False
            )


def sample_lines(
    lines: Iterable[str], n_lines: int | None, max_lines: int | None = None
) -> Iterator[str]:
    """Yields all lines, or about `max_lines` of them picked by a hash of their number."""
    # a hash spreads the sample over the whole, and over both languages however they alternate
    if n_lines is not None:
        limit = MAX_LINES if max_lines is None else max_lines
        share = int(min(1.0, limit / max(n_lines, 1)) * 2**64)
        yield from (line for place, line in enumerate(lines) if _mix(place) < share)
        return
    limit = MAX_UNKNOWN_COUNT_LINES if max_lines is None else max_lines
    share = 2**64
    kept: list[tuple[int, str]] = []
    for place, line in enumerate(lines):
        if (mixed := _mix(place)) < share:
            kept.append((mixed, line))
        if len(kept) > limit:
            share //= 2
            kept = [(mixed, line) for mixed, line in kept if mixed < share]
    yield from (line for _, line in kept)


def _mix(number: int) -> int:
    """Scatters 0, 1, 2, … over 64 bits (SplitMix64, Steele et al. 2014)."""
    number = (number + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    number = (number ^ number >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return number ^ number >> 31


def _check_lines(lines: Iterable[str], skipped: Counter[str]) -> Iterator[str]:
    """Passes lines on, and refuses a corpus without a single character to learn from."""
    has_text = False
    for line in lines:
        has_text = has_text or not is_blank(line)
        yield line
    if not has_text:
        longest = f" or a word of more than {LONGEST_WORD:,} bytes" if skipped.total() else ""
        raise DataError(
            f"tokenizer: every line of the text is blank{longest}; give text to train on"
        )


def _settle_scores(text: str, vocab_size: int) -> str:
    """Makes the unigram trainer's result reproducible, and of the requested size."""
    # It sums floats in the order of a randomly seeded hash table (differences near 1e-11), and adds
    # tiny penalties to unseen bytes in that order: these all get the score of the rarest piece.
    data = json.loads(text)
    n_special = len(SPECIAL_PIECES)
    entries = data["model"]["vocab"][n_special:]
    rarest = min((score for piece, score in entries if len(piece) > 1), default=-20.0)
    settled = [
        [piece, round(rarest if len(piece) == 1 and score < rarest + 0.03 else score, 4)]
        for piece, score in entries
    ]
    settled.sort(key=lambda entry: (-entry[1], entry[0]))
    # The library keeps all pieces where there is room for no more than the bytes
    n_longer = vocab_size - n_special - len(BYTE_CHARACTERS)
    longer = [entry for entry in settled if len(entry[0]) > 1]
    too_many = {piece for piece, _ in longer[n_longer:]}
    settled = [entry for entry in settled if entry[0] not in too_many]
    data["model"]["vocab"][n_special:] = settled
    return HuggingFaceTokenizer.from_str(json.dumps(data)).to_str()
