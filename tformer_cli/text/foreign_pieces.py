"""Tokenizers of foreign language models and encoders that the library `tokenizers` cuts.

"library" is any tokenizer.json of a language model, as it is, with its ids put in another order.
Sources: "bytes", of GPT-2 and RoBERTa: Radford et al. 2019, "Language Models are Unsupervised
Multitask Learners", section 2.2, and Liu et al. 2019; "wordpiece": Devlin et al. 2019, BERT.
"""

import json
import re
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar, Self

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as HuggingFaceTokenizer

from tformer_cli.errors import DataError
from tformer_cli.text.joint_tokenizer import UNKNOWN_PIECE, parse_library
from tformer_cli.text.lines import without_surrogates
from tformer_cli.text.tokenizer import (
    BOS_ID,
    FILE_NAME,
    MOST_PIECES,
    SPECIAL_PIECES,
    VERSION,
    OneSidedTokenizer,
    Span,
    Tokenizer,
)
from tformer_cli.text.vocabulary import BYTE_CHARACTERS, bytes_of, label_of

N_SPECIAL = len(SPECIAL_PIECES)
_ALPHABET = frozenset(BYTE_CHARACTERS)


@contextmanager
def _no_panic() -> Iterator[None]:
    """Converts a panic of the library, such as endless backtracking, to an error."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"the model's tokenizer cannot tokenize a text ({reason})") from None


class ForeignPieceTokenizer(OneSidedTokenizer):
    """A tokenizer of pieces; each kind has its rules."""

    model_kind: ClassVar[str]
    all_pieces: tuple[str, ...]
    _tokenizer: HuggingFaceTokenizer
    _has_byte_pieces = False  # characters of pieces stand for bytes

    @classmethod
    def parse(cls, text: str, where: str = FILE_NAME) -> Self:
        """Reads the text of a `tokenizer.json`; `where` names it in messages."""
        try:
            data = json.loads(text)
            is_sound = data["tformer_tokenizer"] == VERSION
            is_sound = is_sound and all(type(piece) is str for piece in data["pieces"])
            tokenizer = cls._parse(data, where) if is_sound else None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            tokenizer = None
        if tokenizer is None:
            raise DataError(f"{where}: is damaged; restore the file")
        return tokenizer

    @classmethod
    @abstractmethod
    def _parse(cls, data: dict[str, Any], where: str) -> Self | None:
        """Builds a tokenizer from the content of a file; None if it is damaged."""

    def to_json(self) -> str:
        """The text of a `tokenizer.json`; its beginning says what it is."""
        data = {"tformer_tokenizer": VERSION, "kind": self.algorithm, **self._entries()}
        return json.dumps(data, ensure_ascii=False) + "\n"

    @abstractmethod
    def _entries(self) -> dict[str, Any]:
        """Returns the entries of the file, apart from its version and kind."""

    @property
    def library_json(self) -> str:
        """The tokenizer.json by which the library cuts texts here, without special tokens."""
        return self._tokenizer.to_str()

    @property
    def vocab_size(self) -> int:
        return len(self.all_pieces)

    def with_new_tokens(self, words: Sequence[str]) -> Tokenizer:
        raise DataError(
            f"the vocabulary of an imported {self.model_kind} takes no new tokens, such as "
            f"{words[0]}; omit them"
        )

    @_no_panic()
    def encode_phrases(self, texts: Sequence[str]) -> list[list[int]]:
        clean = [without_surrogates(text) for text in texts]
        encodings = self._tokenizer.encode_batch_fast(clean, add_special_tokens=False)
        return [self._ours(encoding.ids) for encoding in encodings]

    def _ours(self, ids: list[int]) -> list[int]:
        """Returns the ids here of the library's, which may be others."""
        return ids

    @_no_panic()
    def encode_with_spans(self, texts: Sequence[str]) -> list[tuple[list[int], list[Span]]]:
        clean = [without_surrogates(text) for text in texts]
        encodings = self._tokenizer.encode_batch(clean, add_special_tokens=False)
        return [
            (
                [*self.start, *self._ours(encoding.ids)],
                [*[(0, 0)] * len(self.start), *encoding.offsets],
            )
            if encoding.ids
            else ([], [])
            for encoding in encodings
        ]

    @cached_property
    def _labels(self) -> list[str]:
        if not self._has_byte_pieces:
            return list(self.all_pieces)
        rest = zip(self.all_pieces, self.piece_bytes, strict=True)
        return [label_of(text) if text else piece for piece, text in rest]


def is_vocabulary(pieces: Sequence[str], mask: str, needed: Collection[str] = ()) -> bool:
    """Returns whether pieces are different, with the special ones first and all others needed."""
    known = set(pieces)
    return (
        len(known) == len(pieces) <= MOST_PIECES
        and tuple(pieces[:N_SPECIAL]) == SPECIAL_PIECES
        and (not mask or mask in known)
        and known.issuperset(needed)
    )


# Qwen2's pattern of words, of text in Unicode's form NFC
QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class BytePieceTokenizer(ForeignPieceTokenizer):
    """The tokenizer of a foreign language model or encoder."""

    algorithm = "bytes"
    _has_byte_pieces = True
    model_kind: ClassVar[str] = "language model"
    merges: tuple[tuple[str, str], ...]  # pairs of pieces that are merged, the earlier the better
    words: str  # whose pattern cuts texts into words: "gpt2" or "qwen2"

    def __init__(
        self,
        pieces: Sequence[str],
        merges: Sequence[tuple[str, str]],
        where: str = FILE_NAME,
        mask: str = "",
        words: str = "gpt2",
    ) -> None:
        merged = chain.from_iterable((*pair, "".join(pair)) for pair in merges)
        is_sound = is_vocabulary(pieces, mask, {*BYTE_CHARACTERS, *merged})
        if not is_sound or words not in ("gpt2", "qwen2"):
            raise DataError(
                f"{where}: its vocabulary is damaged or lacks bytes or merged pieces; use this "
                "model's own files"
            )
        self.all_pieces, self.merges = tuple(pieces), tuple(merges)
        places = {piece: place for place, piece in enumerate(pieces)}
        tokenizer = HuggingFaceTokenizer(models.BPE(vocab=places, merges=list(merges)))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        if words == "qwen2":
            split = pre_tokenizers.Split(Regex(QWEN2_WORDS), "isolated")
            in_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
            tokenizer.normalizer = normalizers.NFC()
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, in_bytes])
        tokenizer.decoder = decoders.ByteLevel()
        self._tokenizer, self.words = tokenizer, words
        # RoBERTa's encoders, which have a mask, begin texts with `<s>`; GPT-2 does not
        if mask:
            self.mask, self.start = mask, (BOS_ID,)

    @classmethod
    def _parse(cls, data: dict[str, Any], where: str) -> Self | None:
        pairs = [(left, right) for left, right in data["merges"]]
        mask, words = data.get("mask", ""), data.get("words", "gpt2")
        if not all(type(part) is str for part in (mask, *chain.from_iterable(pairs))):
            return None
        return cls(data["pieces"], pairs, where, mask, words)

    def _entries(self) -> dict[str, Any]:
        own = {"mask": self.mask} if self.mask else {}
        own |= {"words": self.words} if self.words != "gpt2" else {}
        return {**own, "pieces": self.all_pieces, "merges": self.merges}

    def encode_gaps(self, parts: Sequence[str]) -> list[int]:
        """See `TokenizerSide`; a gap takes the spaces before it, as `<mask>` of RoBERTa does."""
        return super().encode_gaps([*(part.rstrip() for part in parts[:-1]), parts[-1]])

    def decode(self, ids: Sequence[int]) -> str:
        texts = self.piece_bytes
        return b"".join([texts[number] for number in ids]).decode(errors="replace")

    @cached_property
    def piece_bytes(self) -> list[bytes]:
        """See `TokenizerSide`; a name that is not of bytes has no text."""
        pieces = [b""] * N_SPECIAL
        for piece in self.all_pieces[N_SPECIAL:]:
            pieces.append(bytes_of(piece) if _ALPHABET.issuperset(piece) else b"")
        return pieces


_UNUSED_SECTIONS = ("post_processor", "truncation", "padding")
_BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")  # of BPE on characters that falls back to bytes
_SPACE = "\u2581"  # which stands for a space in its pieces


class LibraryTokenizer(ForeignPieceTokenizer):
    """The tokenizer of a foreign language model, computed by the library from its own file."""

    algorithm = "library"
    model_kind: ClassVar[str] = "language model"
    content: Mapping[str, Any]  # of its tokenizer.json
    foreign: tuple[int, ...]  # the library's id of each id; -1: none

    def __init__(
        self,
        content: Mapping[str, Any],
        foreign: Sequence[int],
        pieces: Sequence[str],
        where: str = FILE_NAME,
    ) -> None:
        # what stands around a text is decided by the model
        kept = {name: part for name, part in content.items() if name not in _UNUSED_SECTIONS}
        tokenizer = parse_library(json.dumps(kept, ensure_ascii=False), where)
        tokenizer.encode_special_tokens = True
        # where the start is another token, too, that one is meant
        self._places = {n: place for place, n in enumerate(foreign) if n >= 0}
        missing = {*tokenizer.get_vocab(with_added_tokens=True).values()} - self._places.keys()
        if not is_vocabulary(pieces, "") or len(foreign) != len(pieces) or missing:
            raise DataError(f"{where}: its vocabulary is damaged; use this model's own files")
        self.content, self.foreign, self.all_pieces = content, tuple(foreign), tuple(pieces)
        self._has_byte_pieces = '"ByteLevel"' in json.dumps(content.get("decoder"))
        self._tokenizer = tokenizer

    @classmethod
    def _parse(cls, data: dict[str, Any], where: str) -> Self | None:
        foreign = data["ids"]
        is_sound = all(type(number) is int for number in foreign)
        return cls(data["tokenizer"], foreign, data["pieces"], where) if is_sound else None

    def _entries(self) -> dict[str, Any]:
        return {"ids": self.foreign, "pieces": self.all_pieces, "tokenizer": self.content}

    def _ours(self, ids: list[int]) -> list[int]:
        return [self._places[number] for number in ids]

    def name_of(self, number: int) -> str | None:
        """Returns the library's name of the token with an id."""
        return self._tokenizer.id_to_token(self.foreign[number])

    def decode(self, ids: Sequence[int]) -> str:
        theirs = [self.foreign[token] for token in ids if token >= N_SPECIAL]
        return self._tokenizer.decode([n for n in theirs if n >= 0], skip_special_tokens=True)

    @cached_property
    def piece_bytes(self) -> list[bytes]:
        """See `TokenizerSide`; rows without a piece, and special tokens, have no text."""
        added = self._tokenizer.get_added_tokens_decoder()
        pieces = [b""] * N_SPECIAL
        for number in self.foreign[N_SPECIAL:]:
            piece = self._tokenizer.id_to_token(number) if number >= 0 else None
            if piece is None or (number in added and added[number].special):
                pieces.append(b"")
            elif number in added:
                pieces.append(piece.encode())
            elif self._has_byte_pieces:
                pieces.append(bytes_of(piece) if _ALPHABET.issuperset(piece) else b"")
            elif byte := _BYTE_PIECE.fullmatch(piece):
                pieces.append(bytes.fromhex(byte[1]))
            else:
                pieces.append(piece.replace(_SPACE, " ").encode())
        return pieces


# BERT's names for padding, the unknown word, and the tokens before and after a text
NAMES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
PREFIX = "##"
_LONGEST_WORD = 1 << 16


@dataclass(frozen=True, kw_only=True)
class WordRules:
    """Rules by which text becomes words."""

    lowercase: bool = True
    strip_accents: bool = True
    chinese: bool = True  # each Chinese character is a word
    clean: bool = True  # control characters are removed, all white space is a space
    # words are what stands between spaces, as it is; the other rules are not applied
    between_spaces: bool = False
    longest_word: int = 100  # characters of the longest word that is cut; others are unknown


class WordPieceTokenizer(ForeignPieceTokenizer):
    """The tokenizer of a foreign encoder."""

    algorithm = "wordpiece"
    model_kind: ClassVar[str] = "encoder"
    start = (BOS_ID,)
    rules: WordRules

    def __init__(
        self, pieces: Sequence[str], rules: WordRules, mask: str = "", where: str = FILE_NAME
    ) -> None:
        if not (is_vocabulary(pieces, mask) and 0 < rules.longest_word <= _LONGEST_WORD):
            raise DataError(f"{where}: its vocabulary is damaged; use this model's own files")
        self.all_pieces, self.rules, self.mask = tuple(pieces), rules, mask
        places = {piece: place for place, piece in enumerate(pieces)}
        tokenizer = HuggingFaceTokenizer(
            models.WordPiece(
                vocab=places,
                unk_token=UNKNOWN_PIECE,
                max_input_chars_per_word=rules.longest_word,
                continuing_subword_prefix=PREFIX,
            )
        )
        if rules.between_spaces:
            tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        else:
            tokenizer.normalizer = normalizers.BertNormalizer(
                clean_text=rules.clean,
                handle_chinese_chars=rules.chinese,
                strip_accents=rules.strip_accents,
                lowercase=rules.lowercase,
            )
            tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece(prefix=PREFIX, cleanup=not rules.between_spaces)
        self._tokenizer = tokenizer

    @classmethod
    def _parse(cls, data: dict[str, Any], where: str) -> Self | None:
        kinds = {field.name: type(field.default) for field in fields(WordRules)}
        mask, rules = data["mask"], data["rules"]
        is_sound = {name: type(value) for name, value in rules.items()} == kinds
        if not (is_sound and type(mask) is str):
            return None
        return cls(data["pieces"], WordRules(**rules), mask, where)

    def _entries(self) -> dict[str, Any]:
        return {"mask": self.mask, "rules": asdict(self.rules), "pieces": self.all_pieces}

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode([token for token in ids if token >= N_SPECIAL])

    @cached_property
    def piece_bytes(self) -> list[bytes]:
        texts = (
            piece.removeprefix(PREFIX) if piece.startswith(PREFIX) else f" {piece}"
            for piece in self.all_pieces[N_SPECIAL:]
        )
        return [*[b""] * N_SPECIAL, *(text.encode() for text in texts)]

    @cached_property
    def _labels(self) -> list[str]:
        return [*NAMES, *self.all_pieces[N_SPECIAL:]]
