"""Text to token ids and back, by the two sides of a tokenizer: source and target."""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Self, cast
from unicodedata import category, combining, is_normalized, normalize

from tformer_cli.errors import DataError, Setting, UsageError
from tformer_cli.files.regular_file import read_bounded, read_regular

PAD_ID, UNK_ID, BOS_ID, EOS_ID = range(4)
SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")
MOST_PIECES = 1_000_000
"""Limit of a vocabulary; training reserves memory for the requested size."""
FILE_NAME = "tokenizer.json"
MAX_FILE_BYTES = 1 << 29
SideName = Literal["source", "target"]
Normalization = Literal["nfc", "none"]
Span = tuple[int, int]
"""First character, and the one after the last."""
VERSION = 1
"""Version in files of a tokenizer that Hugging Face `tokenizers` cannot read."""
# Version with new tokens: versions of tformer that would split them refuse the file.
VERSION_WITH_NEW_TOKENS = 2


def ended_source(ids: Sequence[int], *, eos: bool) -> list[int]:
    """The ids of a source sentence as a model reads them."""
    # an encoder needs a position to attend to, also of a blank
    return [*ids, EOS_ID] if eos or not ids else list(ids)


def without_eos(ids: Sequence[int]) -> Sequence[int]:
    """The ids of a sentence without the final `</s>`, which sources may lack."""
    return ids[:-1] if ids[-1:] and ids[-1] == EOS_ID else ids


def stored_new_tokens(data: Mapping[str, Any], where: str) -> list[str]:
    if data["tformer_tokenizer"] == VERSION:
        return []
    if data["tformer_tokenizer"] != VERSION_WITH_NEW_TOKENS:
        raise DataError(f"{where}: was written by another version of tformer; update tformer")
    words = data["new_tokens"]
    if not isinstance(words, list) or not all(isinstance(word, str) and word for word in words):
        raise ValueError
    return words


class TokenizerSide(ABC):
    """Text of one language to ids and back: `<pad> <unk> <s> </s>` are ids 0 to 3."""

    start: tuple[int, ...] = ()
    """Ids that every sentence begins with: tokens that name a language."""
    end: tuple[int, ...] = ()
    """Ids that every sentence ends with."""
    mask: str = ""
    """Piece for a gap, which ordinary text never contains; empty: there is none."""
    ids_per_token: int = 1
    """Ids that count as one token; for images, those of a patch."""
    ids_per_text: int = 0
    """Ids of every text, where all have as many; 0: they have not."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Entries of the vocabulary, the special tokens included."""

    @abstractmethod
    def encode_phrases(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text inside a sentence; surrogates are read as U+FFFD."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each sentence, with `start` and `end`; a blank has none."""
        phrases = self.encode_phrases(texts)
        if not self.start and not self.end:
            return phrases
        return [[*self.start, *ids, *self.end] if ids else ids for ids in phrases]

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    @property
    def mask_id(self) -> int | None:
        """Id of the gap's piece, if there is one."""
        return self.id_of(self.mask) if self.mask else None

    def encode_gaps(self, parts: Sequence[str]) -> list[int]:
        """The ids of a text with gaps; see `encode_batch` for texts without."""
        mask = self.mask_id
        if mask is None and len(parts) > 1:
            raise DataError("this tokenizer has no token for gaps; name a masked language model")
        ids = [token for part in self.encode_phrases(parts) for token in (mask or 0, *part)][1:]
        return [*self.start, *ids, *self.end] if ids else ids

    @abstractmethod
    def encode_with_spans(self, texts: Sequence[str]) -> list[tuple[list[int], list[Span]]]:
        """The ids of each text, as `encode_batch` gives them, and the characters of each id."""

    def with_dropout(
        self,
        texts: Sequence[str],
        keys: Sequence[int],  # noqa: ARG002 - for those that can
        dropout: float,
        seed: int,  # noqa: ARG002
    ) -> list[list[int]]:
        """Encodes texts with BPE-dropout (Provilkov et al. 2020), alike for the same key."""
        if dropout:
            raise DataError(
                'bpe_dropout: needs a "bpe" tokenizer of tformer; set it to 0 or train a bpe '
                "tokenizer"
            )
        return self.encode_batch(texts)

    def for_parts_of(self, line: str) -> "TokenizerSide":  # noqa: ARG002 - for those that need it
        """The same for parts of a line: a language that its beginning names holds for all."""
        return self

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; special tokens and those that name a language are skipped."""

    def decode_batch(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each list of ids; see `decode`."""
        return [self.decode(row) for row in ids]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The label of each id: readable, free of white space, different for different ids."""
        return [self._labels[i] for i in ids]

    def id_of(self, piece: str) -> int | None:
        return self._ids.get(piece)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {label: place for place, label in enumerate(self._labels)}

    @property
    @abstractmethod
    def piece_bytes(self) -> list[bytes]:
        """The bytes of each id's text, a leading space included; none for special tokens."""

    @cached_property
    def characters(self) -> frozenset[str]:
        """The characters of pieces that training made; single bytes need no training."""
        # with a space between, for the bytes of neighbors are no character
        learned = b" ".join(piece for piece in self.piece_bytes if len(piece) > 1)
        return frozenset(learned.decode("utf-8", "ignore"))

    @property
    @abstractmethod
    def _labels(self) -> list[str]:
        """The label of each id."""


class Tokenizer(ABC):
    """The two sides of a model's tokenizer: one for its input, one for its output."""

    algorithm: str
    """One of `config.Algorithm`, or the kind that a file of tformer names."""
    normalization: Normalization = "none"
    """Treatment of text before it is cut; see `TokenizerConfig`."""
    notes: tuple[str, ...] = ()
    """Remarks on its training; none of one that was read."""
    new_tokens: tuple[str, ...] = ()
    """Words that were added, in the order of their ids, the last of either vocabulary."""
    has_gaps: bool = False
    """True if targets have padding inside, where nothing is predicted: they are longer than what
    is."""
    _source: TokenizerSide
    _target: TokenizerSide

    @abstractmethod
    def to_json(self) -> str:
        """The text of a `tokenizer.json`."""

    def source_json(self) -> str:
        """The same for other programs, which have one tokenizer for source and target."""
        return self.to_json()

    @property
    def source(self) -> TokenizerSide:
        return self._source

    @property
    def target(self) -> TokenizerSide:
        return self._target

    @property
    def vocab_size(self) -> int:
        """Entries of the target side's vocabulary: the tokens that a model predicts."""
        return self.target.vocab_size

    @cached_property
    def is_joint(self) -> bool:
        """True if both sides have one vocabulary: an id is the same piece on either."""
        source, target = (
            side.pieces(range(side.vocab_size)) for side in (self.source, self.target)
        )
        return source == target

    @property
    def language_codes(self) -> tuple[str, ...]:
        """Codes of the languages that there are tokens for, in alphabetical order."""
        return ()

    @property
    def has_language_tokens(self) -> tuple[bool, bool]:
        """Returns which sides get a language token or prompt: source, target."""
        return False, False

    def encode_pairs(
        self, sources: Sequence[str], targets: Sequence[str]
    ) -> tuple[list[list[int]], list[list[int]]]:
        """The ids of both sides of pairs; one by one where targets label source tokens."""
        return self.source.encode_batch(sources), self.target.encode_batch(targets)

    def side(self, name: SideName) -> TokenizerSide:
        return self.source if name == "source" else self.target

    def for_languages(self, source: str | None, target: str | None) -> "Tokenizer":
        """The tokenizer for other languages than those it is set to; None keeps one."""
        if source is None and target is None:
            return self
        raise UsageError.of(
            "{}: this model translates between two languages and has no language tokens; omit it",
            Setting("target_language" if source is None else "source_language"),
        )

    @abstractmethod
    def with_new_tokens(self, words: Sequence[str]) -> "Tokenizer":
        """The tokenizer with additional words of one piece each, after the other ids."""

    def check_languages(self) -> None:
        """Checks that the languages that a multilingual model needs are set."""


class OneSidedTokenizer(Tokenizer, TokenizerSide):
    """A tokenizer of one vocabulary, on both sides the same."""

    # Properties, for an object that holds itself is freed late, and vocabularies are large.
    @property
    def source(self) -> Self:
        return self

    @property
    def target(self) -> Self:
        return self


_JOINT = "joint_tokenizer.JointTokenizer"
"""Class of files that Hugging Face `tokenizers` can read."""
_READERS = {
    "separate": "separate_tokenizer.SeparateTokenizer",
    "pieces": "pieces.PieceTokenizer",
    "images": "images.tokenizer.ImageTokenizer",
    "bytes": "foreign_pieces.BytePieceTokenizer",
    "library": "foreign_pieces.LibraryTokenizer",
    "wordpiece": "foreign_pieces.WordPieceTokenizer",
    "sentencepiece": "sentencepiece.tokenizer.SentencePieceTokenizer",
}
"""Classes by the kind that a file of tformer names."""
_FOREIGN = re.compile(r'\s*\{\s*"tformer_tokenizer"(?:\s*:\s*\d+\s*,\s*"kind"\s*:\s*"(\w+)")?')
"""Beginning of such a file, and the kind."""


def read_tokenizer(path: Path) -> Tokenizer:
    """Reads a `tokenizer.json`, or the one in a model directory."""
    file = path / FILE_NAME if path.is_dir() else path
    try:
        # a file named by the user may be a pipe, a model's file may not
        read = read_regular if path.is_dir() else read_bounded
        text = read(file, MAX_FILE_BYTES).decode("utf-8")
    except UnicodeDecodeError:
        raise DataError(f"{file}: is not UTF-8 text; name a tokenizer.json") from None
    except FileNotFoundError:
        raise DataError(f"{file}: no such tokenizer; check the path") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DataError(f"{file}: cannot be read ({reason}); name a tokenizer.json") from None
    return parse_tokenizer(text, where=str(file))


def parse_tokenizer(text: str, where: str = FILE_NAME) -> Tokenizer:
    foreign = _FOREIGN.match(text)
    if foreign is None:
        reader = _JOINT
    else:  # what is damaged or of a later version is refused by SentencePiece's
        reader = _READERS.get(foreign[1] or "", _READERS["sentencepiece"])
    module, _, name = reader.rpartition(".")
    tokenizer = getattr(import_module(f"tformer_cli.text.{module}"), name).parse(text, where)
    return cast("Tokenizer", tokenizer)


# Source text as its writers mean it: composed letters, plain spaces, nothing that is not seen.
# - What a model reads is changed, not what it writes: French keeps its no-break spaces in targets.
# - Each special space becomes one space. Soft hyphens, marks of direction, byte order marks and
#   controls are omitted. What changes letters stays: joiners in Persian, Hindi and emoji, variation
#   selectors, and the spaces without width that part words in Thai, Lao, Burmese and Khmer.
# - At last letters and their marks are composed (NFC, Unicode Standard Annex 15).
SPACES = "[\t-\r\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
UNSEEN = (
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u061c\u200e\u200f\u202a-\u202e\u2060-\u2064"
    "\u2066-\u206f\ufeff\ufff9-\ufffb]"
    "|\u200b(?![\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff])"
    "|(?<![^\x00-\u024f])[\u200c\u200d](?![^\x00-\u024f])"  # joiners, but not of Latin letters
)
_EITHER = f"{SPACES}|{UNSEEN}"
_NAMES = {
    "\xa0": "no-break spaces",
    "\xad": "soft hyphens",
    "\t": "tabs",
    "\u202f": "no-break spaces",
    "\u3000": "wide spaces",
    "\ufeff": "byte order marks",
}


def is_plain(text: str) -> bool:
    # Most text is ASCII, and must not pay for the rest
    if text.isascii():
        return text.isprintable() or re.search(_EITHER, text) is None
    return is_normalized("NFC", text) and re.search(_EITHER, text) is None


def plain(text: str) -> str:
    return (
        text if is_plain(text) else normalize("NFC", re.sub(UNSEEN, "", re.sub(SPACES, " ", text)))
    )


def plain_with_spans(text: str) -> tuple[str, list[tuple[int, int]]]:
    """The same, with the characters of the text that each of its characters comes from."""
    spaced = re.sub(SPACES, " ", text)
    omitted = set(
        chain.from_iterable(range(*match.span()) for match in re.finditer(UNSEEN, spaced))
    )
    parts: list[str] = []
    spans: list[tuple[int, int]] = []
    cluster = ""
    start = end = 0
    for place, character in enumerate(f"{spaced}\n"):
        if place in omitted:
            continue
        # No letter is composed with one before it but for marks and parts of Hangul syllables
        if cluster and not _may_join(character):
            parts.append(normalize("NFC", cluster))
            spans += [(start, end)] * len(parts[-1])
            cluster = ""
        if not cluster:
            start = place
        cluster, end = cluster + character, place + 1
    return "".join(parts), spans


def _may_join(character: str) -> bool:
    is_mark = combining(character) or category(character)[0] == "M"
    return bool(is_mark) or "\u1160" <= character <= "\u11ff"


def untrained_characters(texts: Sequence[str], side: TokenizerSide) -> Mapping[str, int]:
    """Counts by their names the characters that `plain` changes, and that no piece has.

    They cut other tokens, where the side of a model without a normalization reads them.
    """
    return sum((_count_untrained(text, side) for text in texts if not is_plain(text)), Counter())


def _count_untrained(text: str, side: TokenizerSide) -> Counter[str]:
    as_it_is, as_meant = side.encode_phrases([text, plain(text)])
    if as_it_is == as_meant:
        return Counter()
    known = side.characters
    counts = Counter(
        _kind_of(match[0]) for match in re.finditer(_EITHER, text) if match[0] not in known
    )
    if not is_normalized("NFC", text):
        marks = sum(bool(combining(c)) and c not in known for c in text)
        counts.update({"decomposed letters": marks} if marks else {})
    return counts


def _kind_of(character: str) -> str:
    if character in _NAMES:
        return _NAMES[character]
    if re.fullmatch(SPACES, character):
        return "special spaces"
    return "control characters" if category(character) == "Cc" else "unseen characters"
