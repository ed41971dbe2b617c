"""Text to token ids and back.

`Tokenizer` wraps a Hugging Face tokenizer built by one of the five pipelines of this package. A
foreign `tokenizer.json` is refused, so that the promises made here (no text becomes a special
token; which algorithms are lossless) hold for every instance, and a file cannot bring its own
patterns.
"""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as HuggingFaceTokenizer

from tformer_cli.data.config import Algorithm
from tformer_cli.data.labels import BYTE_CHARACTERS, bytes_of, label_of
from tformer_cli.data.lines import without_surrogates
from tformer_cli.data.pipelines import ALGORITHMS, BY_WORDS, SPECIAL_PIECES, blank_tokenizer
from tformer_cli.data.segmentation import BpeDropout, WordCache
from tformer_cli.errors import DataError
from tformer_cli.files.regular_file import read_bounded, read_regular

PAD_ID, UNK_ID, BOS_ID, EOS_ID = range(4)
FILE_NAME = "tokenizer.json"
MAX_FILE_BYTES = 1 << 29
FEW = 8
"""Texts that are encoded one by one faster than the library's threads for batches start."""
Span = tuple[int, int]
"""First character, and the one after the last."""
LEARNED = ("vocab", "merges", "unk_id")
"""Keys of the model section of a `tokenizer.json` that come from training."""


class Tokenizer:
    """A joint vocabulary of both languages: `<pad> <unk> <s> </s>` are ids 0 to 3."""

    def __init__(self, tokenizer: HuggingFaceTokenizer, algorithm: Algorithm) -> None:
        """Wraps a tokenizer made by one of the pipelines; use `from_file` or `from_json`."""
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        self.algorithm: Algorithm = algorithm
        self._dropouts: dict[tuple[float, int], BpeDropout] = {}
        self._words = WordCache(self._encode_whole) if algorithm in BY_WORDS else None

    @classmethod
    def from_file(cls, path: Path) -> "Tokenizer":
        """Reads a `tokenizer.json`, or the one in a model directory.

        Raises:
            DataError: if it is missing, damaged or foreign.
        """
        file = path / FILE_NAME if path.is_dir() else path
        try:
            read = read_regular if path.is_dir() else read_bounded
            text = read(file, MAX_FILE_BYTES).decode("utf-8")
        except UnicodeDecodeError:
            raise DataError(f"{file}: is not UTF-8 text; name a tokenizer.json") from None
        except FileNotFoundError:
            raise DataError(f"{file}: no such tokenizer; check the path") from None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise DataError(f"{file}: cannot be read ({reason}); name a tokenizer.json") from None
        return cls.from_json(text, where=str(file))

    @classmethod
    def from_json(cls, text: str, where: str = FILE_NAME) -> "Tokenizer":
        """Reads the text of a `tokenizer.json`; `where` names it in messages.

        Raises:
            DataError: if it is damaged or foreign.
        """
        tokenizer = _parse(text, where)
        algorithm = _algorithm_of(tokenizer, where)
        _check_vocabulary(tokenizer, algorithm, where)
        return cls(tokenizer, algorithm)

    def to_json(self) -> str:
        """The text of a `tokenizer.json`, readable by Hugging Face `tokenizers`."""
        return self._tokenizer.to_str(pretty=True) + "\n"

    @property
    def vocab_size(self) -> int:
        """Entries of the vocabulary, the special tokens included."""
        return self._tokenizer.get_vocab_size()

    @property
    def is_lossless(self) -> bool:
        """True if `decode(encode(text)) == text` for every text, as it has no unknown tokens."""
        return self.algorithm in ("bpe", "unigram", "byte")

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without special tokens; surrogates are read as U+FFFD."""
        return self._words.encode_batch(texts) if self._words else self._encode_whole(texts)

    def _encode_whole(self, texts: Sequence[str]) -> list[list[int]]:
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
        """The ids of each text, as `encode_batch` gives them, and the characters each is made of.

        Pieces of one character (its bytes) all have that character as their span.
        """
        repaired = [without_surrogates(text) for text in texts]
        encodings = self._tokenizer.encode_batch(repaired, add_special_tokens=False)
        return [(encoding.ids, encoding.offsets) for encoding in encodings]

    def with_dropout(
        self, texts: Sequence[str], keys: Sequence[int], dropout: float, seed: int
    ) -> list[list[int]]:
        """The ids of each text by BPE-dropout (Provilkov et al. 2020), the same for the same key.

        Args:
            texts: the texts.
            keys: a number for each text and occasion; another key gives another segmentation.
            dropout: chance of skipping each merge; 0 equals `encode_batch`.
            seed: of all the segmentations.

        Raises:
            DataError: if this is not a "bpe" tokenizer.
        """
        if dropout == 0.0:
            return self.encode_batch(texts)
        if self.algorithm != "bpe":
            raise DataError(
                f'bpe_dropout: needs a "bpe" tokenizer, but this one is "{self.algorithm}"; '
                "set it to 0 or train a bpe tokenizer"
            )
        sampler = self._dropouts.get((dropout, seed))
        if sampler is None:
            sampler = BpeDropout(self._tokenizer, dropout, seed)
            self._dropouts[dropout, seed] = sampler
        return [
            sampler.encode(without_surrogates(text), key)
            for text, key in zip(texts, keys, strict=True)
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; special tokens are skipped."""
        return self._tokenizer.decode(ids, skip_special_tokens=True)

    def decode_batch(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each list of ids; special tokens are skipped."""
        if len(ids) <= FEW:
            return [self.decode(one) for one in ids]
        return self._tokenizer.decode_batch(ids, skip_special_tokens=True)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The label of each id: readable, free of white space, different for different ids."""
        return [self._labels[i] for i in ids]

    def id_of(self, piece: str) -> int | None:
        """The id with this label, if there is one."""
        return self._ids.get(piece)

    @cached_property
    def piece_bytes(self) -> list[bytes]:
        """The bytes of each id's text, a leading space included; none for special tokens."""
        stored = sorted(self._tokenizer.get_vocab().items(), key=lambda item: item[1])
        is_bytes = self.algorithm != "char"
        texts = [bytes_of(piece) if is_bytes else piece.encode() for piece, _ in stored[4:]]
        return [b""] * len(SPECIAL_PIECES) + texts

    @cached_property
    def _labels(self) -> list[str]:
        return [*SPECIAL_PIECES, *map(label_of, self.piece_bytes[len(SPECIAL_PIECES) :])]

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {label: place for place, label in enumerate(self._labels)}


def _parse(text: str, where: str) -> HuggingFaceTokenizer:
    try:
        return HuggingFaceTokenizer.from_str(text)
    except Exception as error:  # noqa: BLE001 - the library raises nothing more special
        reason = " ".join(str(error).split())[:200]
        raise DataError(
            f"{where}: is damaged or not a tokenizer ({reason}); name a tokenizer.json"
        ) from None


def _sections(tokenizer: HuggingFaceTokenizer) -> tuple[dict[str, Any], bool]:
    """The parts of a tokenizer that training does not change, and whether it has merges."""
    data = json.loads(tokenizer.to_str())
    has_merges = bool(data["model"].get("merges"))
    data["model"] = {k: v for k, v in data["model"].items() if k not in LEARNED}
    del data["version"], data["added_tokens"]
    return data, has_merges


def _algorithm_of(tokenizer: HuggingFaceTokenizer, where: str) -> Algorithm:
    sections, has_merges = _sections(tokenizer)
    for algorithm in ALGORITHMS:
        if sections == _sections(blank_tokenizer(algorithm))[0]:
            if algorithm == "byte" and has_merges:
                break
            return algorithm
    raise DataError(
        f"{where}: is not a tokenizer of tformer; train one with `tformer tokenize train`"
    )


def _check_vocabulary(tokenizer: HuggingFaceTokenizer, algorithm: Algorithm, where: str) -> None:
    """Checks the special tokens, that ids are 0, 1, 2, …, and the alphabet."""
    special = {place: AddedToken(p, special=True) for place, p in enumerate(SPECIAL_PIECES)}
    if tokenizer.get_added_tokens_decoder() != special:
        raise DataError(
            f"{where}: has other special tokens; ids 0 to 3 must be {' '.join(SPECIAL_PIECES)}"
        )
    vocabulary = tokenizer.get_vocab()
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
