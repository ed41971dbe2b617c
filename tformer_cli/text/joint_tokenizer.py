"""Tokenizers that tformer trains: one vocabulary for both languages, by one of five pipelines."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property
from itertools import chain, pairwise
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as HuggingFaceTokenizer

from tformer_cli.errors import DataError
from tformer_cli.text.lines import without_surrogates
from tformer_cli.text.tokenizer import (
    FILE_NAME,
    MOST_PIECES,
    SPACES,
    SPECIAL_PIECES,
    UNSEEN,
    OneSidedTokenizer,
    SideName,
    Span,
    Tokenizer,
    is_plain,
    plain,
    plain_with_spans,
)
from tformer_cli.text.vocabulary import BYTE_CHARACTERS, bytes_of, check_new_token, label_of

if TYPE_CHECKING:
    from tformer_cli.text.config import Algorithm
    from tformer_cli.text.tokenizer import Normalization

# Texts that are encoded one by one faster than the library's threads for batches start.
FEW = 8
# Piece for a gap: words of text are split at its brackets, and unlike a word it has no space before
# it.
MASK = "[MASK]"
_LARGE = re.compile(r"[1-9][0-9]{6}")
"""Digits of an id that may be too large."""
_STAND_INS = range(0xA4D0, 0xA4F8)
"""Letters of the Lisu script."""
# Keys of the model section of a `tokenizer.json` that come from training.
LEARNED = ("vocab", "merges", "unk_id")


class JointTokenizer(OneSidedTokenizer):
    """A joint vocabulary of both languages: `<pad> <unk> <s> </s>` are ids 0 to 3."""

    def __init__(
        self,
        tokenizer: HuggingFaceTokenizer,
        algorithm: "Algorithm",
        new_tokens: Mapping[str, int] = MappingProxyType({}),
        normalization: "Normalization" = "none",
    ) -> None:
        self._new_tokens, self.new_tokens = new_tokens, tuple(new_tokens)
        longest_first = map(re.escape, sorted(new_tokens, key=len, reverse=True))
        self._new_pattern = (
            re.compile(rf"(?<![^ ])(?:{'|'.join(longest_first)})(?![^ ])") if new_tokens else None
        )
        self.normalization = normalization
        self._reads_plain = False
        # text such as "</s>" must not become a special token
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        self.algorithm: Algorithm = algorithm
        self._dropouts: dict[tuple[float, int], BpeDropout] = {}
        self.mask = MASK if tokenizer.token_to_id(MASK) is not None else ""
        by_words = algorithm in BY_WORDS
        self._words = WordCache(self._encode_whole, new_tokens) if by_words else None

    @classmethod
    def parse(cls, text: str, where: str = FILE_NAME) -> "JointTokenizer":
        tokenizer = parse_library(text, where)
        # Once, and handed on: each takes a hundredth of the time that a cold line waits
        data, vocabulary = json.loads(tokenizer.to_str()), tokenizer.get_vocab()
        algorithm, normalization = _kind_of(data, where)
        # Exports use the normalization of sources, which here applies only to the source
        tokenizer.normalizer = _normalizer(algorithm, normalization)
        _check_vocabulary(tokenizer, vocabulary, algorithm, where)
        new_tokens = _new_tokens(data, vocabulary) if algorithm == "bpe" else {}
        return cls(tokenizer, algorithm, new_tokens, normalization)

    @cached_property
    def source(self) -> "JointTokenizer":
        """The side that reads: with a normalization, text as its writers mean it."""
        if self.normalization == "none" or self._reads_plain:
            return self
        other = copy(self)
        other._reads_plain = True
        return other

    def side(self, name: SideName) -> "JointTokenizer":  # noqa: ARG002 - either gives all text back
        return self

    def with_mask(self) -> "JointTokenizer":
        """The tokenizer with a last piece for gaps, which no text becomes."""
        if self.mask:
            return self
        data = json.loads(self.to_json())
        vocabulary = data["model"]["vocab"]
        if isinstance(vocabulary, list):  # of "unigram", with log-probabilities
            # any score would do, for words of text are cut at its brackets
            vocabulary.append([MASK, min(score for _, score in vocabulary)])
        else:
            vocabulary[MASK] = len(vocabulary)
        return self.parse(json.dumps(data))

    def with_new_tokens(self, words: Sequence[str]) -> Tokenizer:
        """See `Tokenizer`. No merge makes the new pieces, so all other text is cut as before."""
        if self.algorithm != "bpe":
            raise DataError(
                f'a "{self.algorithm}" tokenizer takes no new tokens, only "bpe" and those of '
                "imported models do; omit them"
            )
        data = json.loads(self.to_json())
        vocabulary = data["model"]["vocab"]
        for word in words:
            # as texts are when the tokens are looked for in them
            piece = _piece_of(plain(word) if self.normalization == "nfc" else word)
            check_new_token(word, is_there=piece in vocabulary)
            vocabulary[piece] = len(vocabulary)
        return self.parse(json.dumps(data))

    def _around_new_tokens(self, text: str) -> list[tuple[int, str, int | None]]:
        """Splits a text at its new tokens: where each part begins, the part, and its id.

        As before a text, the tokenizer adds a space before a part; a part without more is the piece
        of a space.
        """
        if self._new_pattern is None or not self._new_pattern.search(text):
            return [(0, text, None)]
        parts: list[tuple[int, str, int | None]] = []
        place = 0
        for match in self._new_pattern.finditer(text):
            if place < match.start():
                parts.append((place, text[place : match.start() - 1], None))
            parts.append((match.start(), match[0], self._new_tokens[match[0]]))
            place = match.end() + 1
        if place <= len(text):
            parts.append((place, text[place:], None))
        return [part if part[1] else (part[0], "", self._space) for part in parts]

    def to_json(self) -> str:
        """The text of a `tokenizer.json`, readable by Hugging Face `tokenizers`."""
        return self._tokenizer.to_str(pretty=True) + "\n"

    def source_json(self) -> str:
        """See `Tokenizer`."""
        other = HuggingFaceTokenizer.from_str(self.to_json())
        other.normalizer = _normalizer(self.algorithm, self.normalization, is_source=True)
        return other.to_str(pretty=True) + "\n"

    @property
    def vocab_size(self) -> int:
        return self._tokenizer.get_vocab_size()

    def encode_phrases(self, texts: Sequence[str]) -> list[list[int]]:
        if self._reads_plain:
            texts = list(map(plain, texts))
        return self._words.encode_batch(texts) if self._words else self._encode_whole(texts)

    def _encode_whole(self, texts: Sequence[str]) -> list[list[int]]:
        if self._new_tokens:
            return [ids for ids, _ in self._encode_with_spans(texts)]
        try:
            return self._encode_valid(texts)
        except (TypeError, UnicodeEncodeError):
            return self._encode_valid([without_surrogates(text) for text in texts])

    def _encode_valid(self, texts: Sequence[str]) -> list[list[int]]:
        if len(texts) <= FEW:
            encode = self._tokenizer.encode
            return [encode(text, add_special_tokens=False).ids for text in texts]
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode_with_spans(self, texts: Sequence[str]) -> list[tuple[list[int], list[Span]]]:
        if not self._reads_plain or all(map(is_plain, texts)):
            return self._encode_with_spans(texts)
        pairs = [plain_with_spans(without_surrogates(text)) for text in texts]
        encoded = self._encode_with_spans([text for text, _ in pairs])
        return [
            (
                ids,
                [
                    (own[first][0], own[last - 1][1]) if first < last else (0, 0)
                    for first, last in spans
                ],
            )
            for (ids, spans), (_, own) in zip(encoded, pairs, strict=True)
        ]

    def _encode_with_spans(self, texts: Sequence[str]) -> list[tuple[list[int], list[Span]]]:
        repaired = [without_surrogates(text) for text in texts]
        if self._new_tokens:
            return [self._with_spans(text) for text in repaired]
        if len(repaired) <= FEW:
            encodings = [
                self._tokenizer.encode(text, add_special_tokens=False) for text in repaired
            ]
        else:
            encodings = self._tokenizer.encode_batch(repaired, add_special_tokens=False)
        return [(encoding.ids, encoding.offsets) for encoding in encodings]

    def _with_spans(self, text: str) -> tuple[list[int], list[Span]]:
        ids: list[int] = []
        spans: list[Span] = []
        for start, part, number in self._around_new_tokens(text):
            if number is not None:
                ids.append(number)
                spans.append((start, start + len(part)))
                continue
            encoding = self._tokenizer.encode(part, add_special_tokens=False)
            ids += encoding.ids
            spans += [(first + start, last + start) for first, last in encoding.offsets]
        return ids, spans

    def encode_gaps(self, parts: Sequence[str]) -> list[int]:
        """See `TokenizerSide`. A gap is a word, or the rest of one, with the space before it."""
        mask = self.mask_id
        if mask is None or len(parts) == 1:
            return super().encode_gaps(parts)
        clean = [without_surrogates(part) for part in parts]
        # a letter that does not occur in the text replaces gaps while it is tokenized
        known = set("".join(clean))
        letter = next(character for character in map(chr, _STAND_INS) if character not in known)
        text = letter.join(clean)
        ids, spans = self.encode_with_spans([text])[0]
        tokens: list[int] = []
        seen = 0  # gaps before the piece
        for number, (first, last) in zip(ids, spans, strict=True):
            end = text.count(letter, 0, last)
            if end > seen:
                if self.algorithm in BY_WORDS and tokens[-1:] == [self._space]:
                    tokens.pop()
                tokens += [mask] * (end - seen)
                seen = end
            elif letter not in text[first:last]:  # no further byte of the letter
                tokens.append(number)
        return tokens

    @cached_property
    def _space(self) -> int | None:
        """Id of the piece that is only a space."""
        return next((n for n, piece in enumerate(self.piece_bytes) if piece == b" "), None)

    def with_dropout(
        self, texts: Sequence[str], keys: Sequence[int], dropout: float, seed: int
    ) -> list[list[int]]:
        if dropout == 0.0:
            return self.encode_batch(texts)
        if self.algorithm != "bpe":
            raise DataError(
                f'bpe_dropout: needs a "bpe" tokenizer, but this one is "{self.algorithm}"; '
                "set it to 0 or train a bpe tokenizer"
            )
        # the table of words is what makes dropout fast; it lives as long as the tokenizer
        if self._reads_plain:
            texts = list(map(plain, texts))
        sampler = self._dropouts.get((dropout, seed))
        if sampler is None:
            sampler = BpeDropout(self._tokenizer, dropout, seed)
            self._dropouts[dropout, seed] = sampler
        return [
            [
                token
                for _, part, number in self._around_new_tokens(without_surrogates(text))
                for token in (sampler.encode(part, key) if number is None else [number])
            ]
            for text, key in zip(texts, keys, strict=True)
        ]

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=True)

    def decode_batch(self, ids: Sequence[Sequence[int]]) -> list[str]:
        if len(ids) <= FEW:
            return [self.decode(row) for row in ids]
        return self._tokenizer.decode_batch(ids, skip_special_tokens=True)

    @cached_property
    def piece_bytes(self) -> list[bytes]:
        stored = sorted(self._tokenizer.get_vocab().items(), key=lambda item: item[1])
        is_bytes = self.algorithm != "char"
        texts = [bytes_of(piece) if is_bytes else piece.encode() for piece, _ in stored[4:]]
        return [b""] * len(SPECIAL_PIECES) + texts

    @cached_property
    def _labels(self) -> list[str]:
        return [*SPECIAL_PIECES, *map(label_of, self.piece_bytes[len(SPECIAL_PIECES) :])]


def parse_library(text: str, where: str) -> HuggingFaceTokenizer:
    _check_ids(text, where)
    try:
        return HuggingFaceTokenizer.from_str(text)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - as are the library's panics
        reason = " ".join(str(error).split())[:200]
        raise DataError(
            f"{where}: is damaged or not a tokenizer ({reason}); name a tokenizer.json"
        ) from None


def _check_ids(text: str, where: str) -> None:
    """Refuses ids of more pieces than a vocabulary has: the library makes room for all below."""
    if not _LARGE.search(text):  # most files need not be read twice
        return
    try:
        data = json.loads(text)
        vocabulary = data["model"]["vocab"]
        ids = [*vocabulary.values()] if isinstance(vocabulary, dict) else []
        ids += [token["id"] for token in data.get("added_tokens") or ()]
        largest = max((token for token in ids if isinstance(token, int)), default=0)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return  # the library says what is wrong
    if largest >= MOST_PIECES:
        raise DataError(
            f"{where}: has the id {largest:,}, but a vocabulary has at most {MOST_PIECES:,} "
            "entries; restore the file"
        )


def _piece_of(word: str) -> str:
    """The piece of a word after a space, written in byte characters."""
    return "".join(BYTE_CHARACTERS[byte] for byte in f" {without_surrogates(word)}".encode())


def _new_tokens(data: Mapping[str, Any], vocabulary: Mapping[str, int]) -> dict[str, int]:
    """Finds the words that were added to a "bpe" tokenizer: pieces that no merge makes."""
    merged = {"".join(pair) for pair in data["model"]["merges"]}
    unmerged = vocabulary.keys() - merged - {*BYTE_CHARACTERS, *SPECIAL_PIECES}
    words = ((bytes_of(piece).decode(errors="replace"), vocabulary[piece]) for piece in unmerged)
    new_tokens = {text[1:]: number for text, number in words if text[:1] == " "}
    return dict(sorted(new_tokens.items(), key=lambda item: item[1]))


def _sections(data: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a tokenizer that training does not change."""
    kept = {key: value for key, value in data.items() if key not in ("version", "added_tokens")}
    return kept | {"model": {k: v for k, v in data["model"].items() if k not in LEARNED}}


def _kind_of(data: Mapping[str, Any], where: str) -> tuple["Algorithm", "Normalization"]:
    # whole sections: a foreign file must not bring its own patterns
    sections = _sections(data)
    own = sections.pop("normalizer", None)
    for algorithm in ALGORITHMS:
        blank = blank_tokenizer(algorithm)
        expected = _sections(json.loads(blank.to_str()))
        del expected["normalizer"]
        if sections == expected:
            if algorithm == "byte" and data["model"].get("merges"):
                break
            for normalization, is_source in _NORMALIZATIONS:
                blank.normalizer = _normalizer(algorithm, normalization, is_source=is_source)
                if own == json.loads(blank.to_str())["normalizer"]:
                    return algorithm, normalization
    raise DataError(
        f"{where}: is not a tokenizer of tformer; train one with `tformer tokenize train`"
    )


def _check_vocabulary(
    tokenizer: HuggingFaceTokenizer,
    vocabulary: Mapping[str, int],
    algorithm: "Algorithm",
    where: str,
) -> None:
    """Checks the special tokens, that ids are 0, 1, 2, …, and the alphabet."""
    special = {place: AddedToken(p, special=True) for place, p in enumerate(SPECIAL_PIECES)}
    if tokenizer.get_added_tokens_decoder() != special:
        raise DataError(
            f"{where}: has other special tokens; ids 0 to 3 must be {' '.join(SPECIAL_PIECES)}"
        )
    # an id beyond the end would read past the embedding
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise DataError(
            f"{where}: vocabulary is damaged, its ids are not 0, 1, 2, …; restore the file"
        )
    if algorithm == "char":
        return
    alphabet = set(BYTE_CHARACTERS)
    pieces = vocabulary.keys() - set(SPECIAL_PIECES)
    if not alphabet.issuperset("".join(pieces)):
        raise DataError(
            f"{where}: vocabulary is damaged, a piece is not made of bytes; restore the file"
        )
    if algorithm != "word" and not alphabet <= pieces:
        raise DataError(
            f"{where}: vocabulary is damaged, some of the 256 bytes are missing; restore the file"
        )


ALGORITHMS: tuple["Algorithm", ...] = ("bpe", "unigram", "word", "char", "byte")
BY_WORDS: tuple["Algorithm", ...] = ("bpe", "unigram", "word")
"""Those that split text before it becomes pieces, at every space that is followed by a word."""
_NORMALIZATIONS: tuple[tuple["Normalization", bool], ...] = (
    ("nfc", False), ("none", False), ("nfc", True)
)  # fmt: skip
"""Normalization in files, and whether it is that of sources, as in exports."""
UNKNOWN_PIECE = "<unk>"

# GPT-2's (Radford et al. 2019, section 2.2), but marks stay with their letters. "<" is separated
# from letters, so that text such as "</s>" never becomes a special token.
WORDS = (
    r"['’](?:[sdmt]|ll|ve|re)(?![\p{L}\p{M}])"  # English clitics
    r"| ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+"  # words, numbers, punctuation
    r"|\s+(?!\S)|\s+"  # white space, its last space left to the word that follows
)
CHARACTERS = r"[\s\S]"


def blank_tokenizer(
    algorithm: "Algorithm", normalization: "Normalization" = "none"
) -> HuggingFaceTokenizer:
    """A tokenizer of the kind named, complete but for its vocabulary."""
    tokenizer = HuggingFaceTokenizer(_blank_model(algorithm))
    tokenizer.normalizer = _normalizer(algorithm, normalization)
    if algorithm == "char":
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(CHARACTERS), "isolated")
        tokenizer.decoder = decoders.Fuse()
    elif algorithm == "byte":
        tokenizer.pre_tokenizer = _bytes_of_text()
        tokenizer.decoder = decoders.ByteLevel()
    else:
        split = pre_tokenizers.Split(Regex(WORDS), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, _bytes_of_text()])
        tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return tokenizer


def _normalizer(
    algorithm: "Algorithm", normalization: "Normalization", *, is_source: bool = False
) -> Any:  # noqa: ANN401 - of a library without types
    """Returns the normalizer of text before tokenization; for sources it does what `plain` does."""
    parts: list[Any] = []
    if normalization == "nfc" and is_source:
        parts.append(normalizers.Replace(Regex(SPACES), " "))
        parts.append(normalizers.Replace(Regex(UNSEEN), ""))
    if normalization == "nfc":
        parts.append(normalizers.NFC())
    if algorithm in BY_WORDS:
        # a space before, taken away by the decoder: a word is the same piece wherever it stands
        parts.append(normalizers.Prepend(" "))
    return normalizers.Sequence(parts) if len(parts) > 1 else next(iter(parts), None)


def _bytes_of_text() -> pre_tokenizers.ByteLevel:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def _blank_model(algorithm: "Algorithm") -> models.Model:
    if algorithm in ("bpe", "byte"):
        return models.BPE()
    if algorithm == "unigram":
        return models.Unigram()
    return models.WordLevel(unk_token=UNKNOWN_PIECE)


# Characters of remembered words: about 100,000 words in 40 MB. Beyond, memory starts afresh.
MAX_CHARACTERS = 1 << 20
# Segmentations of a word: enough that a frequent word is seen in all its likely ones (at a dropout
# of 0.1 most words have fewer), a power of two so that a byte of a hash chooses evenly.
N_VARIANTS = 16
# The table is emptied beyond this many words; they are then drawn again, alike.
MAX_WORDS = 1 << 20

Ids = tuple[int, ...]


class WordCache:
    """Encodes texts for tokenizers that put a space before a text and never join across spaces."""

    def __init__(
        self,
        encode: Callable[[list[str]], list[list[int]]],
        new_tokens: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._encode = encode
        self._new = {word: [number] for word, number in new_tokens.items()}
        self._known = dict(self._new)
        self._n_characters = 0

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        if self._n_characters > MAX_CHARACTERS:
            # Another thread may still read the old one.
            self._known, self._n_characters = dict(self._new), 0
        known = self._known
        # the ids of "a b" are those of "a" and of "b"; text repeats its words, so that this is some
        # ten times as fast as by sentences
        words = [words_of(text) for text in texts]
        new = [word for word in dict.fromkeys(chain.from_iterable(words)) if word not in known]
        if new:
            known.update(zip(new, self._encode(new), strict=True))
            self._n_characters += sum(map(len, new))
        return [list(chain.from_iterable(map(known.__getitem__, row))) for row in words]


def words_of(text: str) -> list[str]:
    """The words of a text, or all of it where white space is more than a space between words."""
    words = text.split(" ")
    return words if words == text.split() else [text]


class BpeDropout:
    """Draws segmentations by the merges of "bpe" (Provilkov et al. 2020, algorithm 1)."""

    # The library's own dropout draws from a generator that cannot be seeded. With a fixed table of
    # variants, chosen by the sentence's key, a sentence costs a hash and a look-up a word.

    def __init__(self, tokenizer: HuggingFaceTokenizer, dropout: float, seed: int) -> None:
        """Reads the merges; `dropout` is the chance of skipping each, `seed` fixes all draws."""
        model = json.loads(tokenizer.to_str())["model"]
        self._vocabulary: dict[str, int] = model["vocab"]
        self._ranks = {tuple(pair): rank for rank, pair in enumerate(model["merges"])}
        self._tokenizer = tokenizer
        self._dropout = dropout
        self._seed = str(seed).encode()
        self._variants: dict[str, list[Ids | None]] = {}

    def encode(self, text: str, key: int) -> list[int]:
        """The ids of a text; the same text, key and seed give the same ids."""
        if not text:
            return []
        normalized = self._tokenizer.normalizer.normalize_str(text)
        words = self._tokenizer.pre_tokenizer.pre_tokenize_str(normalized)
        choices = self._choices(key, len(words))
        ids: list[int] = []
        for (word, _), choice in zip(words, choices, strict=False):
            ids.extend(self._variant(word, choice % N_VARIANTS))
        return ids

    def _choices(self, key: int, n_words: int) -> bytes:
        """At least `n_words` bytes that are random but fixed by the key."""
        from hashlib import blake2b  # loads a library that a cold line does without

        start = b"%s %d" % (self._seed, key)
        blocks = range(n_words // 64 + 1)
        return b"".join(blake2b(b"%s %d" % (start, block)).digest() for block in blocks)

    def _variant(self, word: str, number: int) -> Ids:
        variants = self._variants.get(word)
        if variants is None:
            if len(self._variants) >= MAX_WORDS:
                self._variants.clear()
            variants = self._variants[word] = [None] * N_VARIANTS
        ids = variants[number]
        if ids is None:
            ids = variants[number] = self._segment(word, number)
        return ids

    def _segment(self, word: str, number: int) -> Ids:
        from hashlib import blake2b

        seed = blake2b(b"%s %d %s" % (self._seed, number, word.encode()), digest_size=16).digest()
        random = Random(int.from_bytes(seed, "big")).random
        pieces = list(word)
        # A word of thousands of characters would cost the square of them: its parts are drawn.
        if len(pieces) > 100:
            parts = (word[start : start + 100] for start in range(0, len(word), 100))
            return tuple(i for part in parts for i in self._variant(part, number))
        while len(pieces) > 1:
            candidates = [
                (rank, place)
                for place, pair in enumerate(pairwise(pieces))
                if (rank := self._ranks.get(pair)) is not None and random() >= self._dropout
            ]
            if not candidates:
                break
            _, place = min(candidates)
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
        return tuple(self._vocabulary[piece] for piece in pieces)
